"""Lists, tuples, dictionaries, sets, deques and their kin, made inside and given from outside."""

import collections
import enum
import functools

import torch

from .corpus import case, tensor


@case(one_graph=True)
def case_list_building(x):
    items = [x]
    items.append(x + 1)
    items.extend([x + 2, 5])
    items.insert(0, "first")
    last = items.pop()
    del items[1]
    return items, last, len(items)


@case(one_graph=True)
def case_list_slices(x):
    items = [x * i for i in range(5)]
    items[1:3] = [x]
    items[::2] = [0, 1]
    return items, items[::-1], items[-1:]


@case(one_graph=True)
def case_list_arithmetic(x):
    items = [x] + [1, 2]
    items += (3,)
    items *= 2
    return items, [0] * 3, 2 in items[1:3], items[1:4].count(3), [1, 2, 3].index(2)


@case(one_graph=True)
def case_list_of_tensors_to_stack(x):
    return torch.stack([x, x + 1]), torch.cat((x, x), dim=1), torch.stack(tuple(x))


@case(one_graph=True)
def case_list_sort(x):
    items = [3, 1, 2]
    items.sort(key=lambda n: -n)
    names = sorted({"b": 1, "a": 2})
    return items, names, [x * n for n in sorted(items, reverse=True)]


@case(one_graph=True)
def case_list_comparison(x):
    return [1, 2] < [1, 3], (1, 2) == (1, 2), [1] != [1, 2], [x, 1] == [x, 1], x + 1


@case(one_graph=True)
def case_tuples(x):
    t = (x, 1) + (2,)
    return t, t[1:], t * 2, t[1:].index(2), hash((1, 2)) == hash((1, 2)), ()


@case(one_graph=True)
def case_dict_building(x):
    d = {"a": x, 1: "one"}
    d["b"] = d["a"] + 1
    d.update(c=3, **{"d": 4})
    popped = d.pop(1)
    d.setdefault("e", []).append(x)
    return d, popped, d.get("nothing"), d.get("c", 0), "a" in d, len(d)


@case(one_graph=True)
def case_dict_iteration(x):
    d = {"w": x, "b": x.sum(), "n": 2}
    keys = list(d)
    pairs = [(k, v) for k, v in d.items()]  # noqa: C416
    return keys, pairs, list(d.values())[-1], list(reversed(d))


@case(one_graph=True)
def case_dict_merge(x):
    a = {"x": x, "n": 1}
    b = {"n": 2, "m": 3}
    c = a | b
    a |= {"z": 0}
    return c, a, {**b, **a}


@case(one_graph=True)
def case_dict_with_tuple_keys(x):
    d = {(i, j): i * j for i in range(2) for j in range(2)}
    return x + d[1, 1], d


@case(one_graph=False)
def case_dict_changed_while_iterated(x):
    d = {"a": x}
    for key in d:
        d[key + "b"] = x
    return d


@case(one_graph=True)
def case_dict_fromkeys(x):
    return dict.fromkeys("ab", x), dict(zip("ab", [x, 1])), dict([("k", x)])  # noqa: B905, C406


@case(one_graph=True)
def case_sets(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(9)
    s |= {7}
    return x + len(s), s & {1, 7}, s - {1}, s ^ {1, 99}, s >= {1, 2}, frozenset(s), s.isdisjoint({5})


@case(one_graph=True)
def case_set_of_shapes(x):
    shapes = {tuple(t.shape) for t in (x, x + 1, x.t())}
    return x, sorted(shapes)


@case(one_graph=True)
def case_defaultdict(x):
    d = collections.defaultdict(list)
    for i, row in enumerate(x):
        d[i % 2].append(row)
    return dict(d), len(d[5])


@case(one_graph=True)
def case_classes_of_dicts_in_texts(x):
    counts = collections.defaultdict(int, a=1)
    ordered = collections.OrderedDict(b=2)
    return x + 1, str(counts), repr(ordered), f"{counts | {}} {ordered!r:>40}"


@case(one_graph=True)
def case_a_merged_dict_is_of_the_derived_class(x):
    counts, ordered = collections.defaultdict(int, a=1), collections.OrderedDict(b=2)
    merged = [{"z": 0, "a": 5} | counts, counts | {"z": 0}, {"z": 0} | ordered, ordered | {"z": 0}]
    return x + 1, merged, [type(m).__name__ for m in merged], merged[0].default_factory


@case(one_graph=False)
def case_counter(x):
    counts = collections.Counter("abracadabra")
    counts.update("aa")
    return x * counts["a"], counts.most_common(2), counts["z"]


@case(one_graph=False)
def case_deque(x):
    d = collections.deque([x, 1], maxlen=3)
    d.append(2)
    d.appendleft(x + 1)
    d.rotate(1)
    return list(d), d.popleft(), len(d)


@case(one_graph=True)
def case_ordered_dict(x):
    d = collections.OrderedDict(a=x, b=2)
    d.move_to_end("a")
    return d, list(d), d.popitem(last=False)


@case(one_graph=True)
def case_chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    return x + m["a"] + m["b"], sorted(m)


Point = collections.namedtuple("Point", ["x", "y"], defaults=[0])


@case(one_graph=True)
def case_namedtuple(x):
    p = Point(x, y=2)
    q = p._replace(y=p.y + 1)
    a, b = q
    return p, q, a * b, p._fields, q[1], Point(x).y, isinstance(p, tuple)


@case(one_graph=True, inputs=lambda: (tensor(), Point(torch.ones(4), 3)))
def case_namedtuple_argument(x, point):
    return Point(x + point.x, point.y * 2)


@case(one_graph=True, inputs=lambda: (tensor(), [1, torch.ones(4), "a"]))
def case_list_argument_is_read(x, items):
    return x + items[1] * items[0], items[-1] * 2, len(items)


@case(one_graph=True, inputs=lambda: (tensor(), [torch.ones(4), 2]))
def case_list_argument_is_changed(x, items):
    items.append(x + items[0])
    items[1] += 5
    return items


@case(one_graph=True, inputs=lambda: (tensor(), {"w": torch.ones(4), "n": 1}))
def case_dict_argument_is_changed(x, d):
    d["y"] = x * d["w"]
    d["n"] += 1
    d["temporary"] = d.pop("n")
    d["n"] = d["temporary"] + 1
    del d["temporary"]
    return d["y"]


@case(one_graph=True, inputs=lambda: (tensor(), {1, 2}))
def case_set_argument_is_changed(x, s):
    s.add(len(s) * 10)
    s.discard(1)
    return x + len(s)


@case(one_graph=True)
def case_containers_are_initialized_again(x):
    items, entries, unique, queue = [1, 2], {"a": 1}, {1, 2}, collections.deque([1, 2])
    items.__init__([x])
    entries.__init__(b=x)
    unique.__init__()
    queue.__init__([x, 3])
    return items, entries, unique, queue


class Format(str, enum.Enum):
    TORCH = "pt"
    NUMPY = "np"

    @classmethod
    def _missing_(cls, value):
        if isinstance(value, int):
            return cls.NUMPY
        raise ValueError(f"{value} is none of {list(cls._value2member_map_)}")


class Owner:
    a = 1


@case(one_graph=True)
def case_look_ups(x):
    queue, owner, places = collections.deque([1, 2, 3, 2]), Owner(), range(1, 10, 4)
    owner.__dict__.setdefault("made", []).append(queue.index(2, 2))
    try:
        queue.index(9)
    except ValueError as error:
        text = str(error)
    try:
        Format("tf")
    except ValueError as error:
        text += str(error)
    found = [Format(value) is Format.NUMPY for value in ("pt", "np", 3)]
    return x * places.index(5), queue.index(2, -1), owner.made, text, found, vars(owner).setdefault("a", 2)


@case()
def case_containers_are_initialized_again_in_another_way(x):
    queue, entries = collections.deque([1, 2, 3], maxlen=2), collections.defaultdict(list, a=1)
    queue.__init__([x, 4, 5])
    entries.__init__(dict, b=2)
    return queue, queue.maxlen, entries, entries["c"]


class Pair(collections.namedtuple("Pair", "first second")):
    @functools.cached_property
    def total(self):
        return self.first + self.second


@case()
def case_named_tuple_with_a_cached_property(x):
    pair = Pair(x, 1)
    return pair.total, pair.total is pair.total


@case(one_graph=True, inputs=lambda: (tensor(), {"a": 1}))
def case_a_dict_argument_is_initialized_again(x, entries):
    entries.__init__({"b": x}, c=3)
    return x + 1


@case(one_graph=True, inputs=lambda: (tensor(), collections.deque([1, 2])))
def case_deque_argument_is_changed(x, d):
    d.append(x + d.popleft())
    return len(d)


@case(one_graph=True, inputs=lambda: (tensor(), {"a": [1, {"b": torch.ones(4)}]}))
def case_nested_argument_is_changed(x, tree):
    tree["a"][1]["b"] = x + tree["a"][1]["b"]
    tree["a"].append(tree["a"][0])
    return tree["a"][1]


def shared_lists():
    inner = [torch.ones(4)]
    return tensor(), [inner, inner]


@case(one_graph=True, inputs=shared_lists)
def case_one_list_in_two_places(x, outer):
    outer[0].append(x)
    return len(outer[1]), outer[1][-1] + 1, outer[0] is outer[1]


def same_tensor_twice():
    x = tensor()
    return x, x


@case(one_graph=True, inputs=same_tensor_twice)
def case_one_tensor_as_two_arguments(x, y):
    x.add_(1)
    return x is y, x + y


@case(one_graph=True)
def case_list_in_itself(x):
    items = [x]
    items.append(items)
    return items[1][1][0] + 1


@case(one_graph=True)
def case_list_identity_in_results(x):
    items = [x + 1]
    return items, items, {"again": items}


@case(one_graph=True)
def case_argument_is_returned(x):
    return x, [x], x.view(-1)


@case()
def case_tensor_among_items_is_ambiguous(x):
    return 3 in [1, x, 3]


@case()
def case_tensor_is_found_by_identity(x):
    y = x + 1
    return y in [y, 1], (y, 2).index(y), [y].count(y), x + 1


@case(one_graph=True)
def case_membership(x):
    names = ["a", "b"]
    return x + ("a" in names), "c" not in names, 2 in (1, 2), "k" in {"k": x}, "el" in "hello"


@case(one_graph=True)
def case_bool_of_containers(x):
    return [bool(c) for c in ([], [0], {}, {"a": 1}, (), (0,), set(), "", "a")], x if [] else x + 1


@case(one_graph=False)
def case_unhashable_key(x):
    return {[1]: x}


@case(one_graph=True)
def case_tensor_keys(x):
    y = x + 1
    d = {x: "x", y: "y"}
    return d[x], d[y], len({x, y, x})


@case(one_graph=True)
def case_copy_of_containers(x):
    a = [x, [1]]
    b = a.copy()
    c = list(a)
    b[1].append(2)
    c[0] = 0
    return a, b, c


class Bag(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def total(self):
        return sum(self.values())


@case(one_graph=True)
def case_dict_subclass(x):
    bag = Bag(a=x, b=2)
    bag["c"] = 3
    return bag.a + bag.b, bag.total(), bag


class Stack(list):
    def push(self, item):
        self.append(item)
        return self


@case(one_graph=True)
def case_list_subclass(x):
    stack = Stack([x]).push(1).push(x + 1)
    return stack, len(stack), stack[-1]


@case(one_graph=True, inputs=lambda: (tensor(), collections.deque([1, 2, 1]), collections.OrderedDict(a=1, b=2, c=3)))
def case_counts_removes_and_moves(x, d, names):
    copied = collections.deque(d)
    copied.remove(1)
    try:
        copied.remove(7)
    except ValueError as error:
        missing = str(error)
    names.move_to_end("a")
    names.move_to_end("c", last=False)
    return x * d.count(1), copied, missing, list(names)
