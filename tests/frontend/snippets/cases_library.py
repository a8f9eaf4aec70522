"""functools, itertools, operator, math, copy and other modules of the standard library."""

import copy
import dataclasses
import functools
import heapq
import inspect
import itertools
import math
import operator
import re
import sys
import typing

import torch

from .corpus import case, tensor


@case(one_graph=True)
def case_enumerate_zip(x):
    total = x
    for i, (row, n) in enumerate(zip(x, (1, 2, 3), strict=True), start=1):
        total = total + row * n * i
    return total


@case(one_graph=True)
def case_zip_shortest(x):
    return list(zip(x, [1, 2])), dict(zip(("a", "b"), (x, 2)))  # noqa: B905


@case(one_graph=False)
def case_zip_strict_fails(x):
    return list(zip(x, [1, 2], strict=True))


@case(one_graph=True)
def case_map_filter(x):
    return list(map(operator.add, [x, 1], [2, 3])), list(filter(None, [0, 1, "", "a"])), list(map(torch.sin, x))


@case(one_graph=True)
def case_all_any(x):
    return x + all(n > 2 for n in x.shape), any([]), all([]), any(t.dim() == 1 for t in x)


@case(one_graph=True)
def case_sum_of_tensors(x):
    return sum([x, x * 2]), sum(x), sum((x, x), start=1)


@case(one_graph=False)
def case_min_max_key(x):
    tensors = [x, x[:1], x[:, :2]]
    return max(tensors, key=lambda t: t.numel()), min(tensors, key=torch.Tensor.numel), max([], default=x)


@case()
def case_max_of_nothing(x):
    return max(x.shape[2:])


@case(one_graph=True)
def case_sorted_reversed(x):
    order = sorted(range(3), key=lambda i: (i % 2, -i))
    return [x[i] for i in order], list(reversed([x, 1])), list(reversed(range(3)))


@case(one_graph=True)
def case_iter_with_sentinel(x):
    values = [1, 2, 0, 4]
    return x, list(iter(lambda: values.pop(0), 0)), values


@case(one_graph=True)
def case_reduce(x):
    return functools.reduce(lambda a, b: a @ b, [x, x.t(), x]), functools.reduce(operator.mul, x.shape, 1)


@case(one_graph=True)
def case_chain_islice(x):
    items = itertools.chain([x], (x + 1, x + 2), [3])
    return list(itertools.islice(items, 1, 4, 2)), list(itertools.chain.from_iterable([[1], "ab"]))


@case(one_graph=True)
def case_product_permutations(x):
    for a, b in itertools.product((1, 2), repeat=2):
        x = x + a * b
    return x, list(itertools.permutations("abc", 2)), list(itertools.combinations(range(3), 2))


@case(one_graph=True)
def case_count_cycle_repeat(x):
    signs = itertools.cycle([1, -1])
    for n, sign, one in zip(itertools.count(2), signs, itertools.repeat(1, 3)):  # noqa: B905
        x = x + n * sign + one
    return x


@case(one_graph=True)
def case_accumulate(x):
    return list(itertools.accumulate(x)), list(itertools.accumulate([1, 2, 3], operator.mul, initial=2))


@case(one_graph=True)
def case_groupby(x):
    groups = {key: list(group) for key, group in itertools.groupby([1, 1, 2, 1], key=lambda n: n % 2)}
    return x + len(groups), groups


@case(one_graph=True)
def case_pairwise_zip_longest(x):
    return [b - a for a, b in itertools.pairwise(x)], list(itertools.zip_longest([1], [2, 3], fillvalue=x))


@case(one_graph=True)
def case_takewhile_dropwhile(x):
    small = list(itertools.takewhile(lambda n: n < 3, itertools.count()))
    return (
        x + len(small),
        list(itertools.dropwhile(lambda n: n < 2, range(4))),
        list(itertools.compress("abc", [1, 0, 1])),
    )


@case(one_graph=True)
def case_tee(x):
    a, b = itertools.tee(x + i for i in range(3))
    next(a)
    return [p - q for p, q in zip(a, b)]  # noqa: B905


@case(one_graph=True)
def case_starmap_filterfalse(x):
    return list(itertools.starmap(torch.add, [(x, 1), (x, x)])), list(itertools.filterfalse(lambda n: n % 2, range(5)))


@case(one_graph=True)
def case_operator_functions(x):
    return (
        operator.add(x, 1),
        operator.getitem(x, 0),
        operator.neg(x),
        operator.iadd(x.clone(), 2),
        operator.contains("abc", "a"),
    )


@case(one_graph=True)
def case_itemgetter(x):
    second = operator.itemgetter(1)
    both = operator.itemgetter("a", "b")
    return second([1, x]), both({"a": x, "b": 2}), sorted([(1, "b"), (0, "c")], key=second)


class Box:
    def __init__(self, value):
        self.value = value

    def scaled(self, n, bias=0):
        return self.value * n + bias


@case(one_graph=True)
def case_attrgetter_methodcaller(x):
    box = Box(x)
    return operator.attrgetter("value.shape")(box), operator.methodcaller("scaled", 2, bias=1)(box)


get_shape = operator.attrgetter("shape")


@case(one_graph=False)
def case_global_attrgetter(x):
    return x + get_shape(x)[0]


@case(one_graph=True)
def case_math_functions(x):
    head = x.shape[-1]
    return x / math.sqrt(head), math.ceil(head / 3), math.log2(head), math.prod(x.shape), math.pi * head, math.inf > 1


@case(one_graph=False)
def case_math_on_item(x):
    return math.exp(x.sum().item()), x * math.floor(2.7)


@case(one_graph=False)
def case_copy_module(x):
    tree = {"a": [x, 1]}
    shallow, deep = copy.copy(tree), copy.deepcopy([1, {"k": (2, 3)}])
    shallow["b"] = 2
    return tree, shallow, deep, shallow["a"] is tree["a"]


@dataclasses.dataclass
class Config:
    size: int = 4
    scale: float = 0.5
    names: list = dataclasses.field(default_factory=list)


@case(one_graph=True)
def case_dataclasses_replace(x):
    config = dataclasses.replace(Config(), size=8)
    return x * config.size * config.scale, dataclasses.asdict(config), [f.name for f in dataclasses.fields(config)]


@case(one_graph=True)
def case_typing_cast(x):
    y = typing.cast(torch.Tensor, x + 1)
    z: int = 3
    return y * z


@case(one_graph=False)
def case_cached_property(x):
    class Owner:
        calls = 0

        @functools.cached_property
        def value(self):
            self.calls += 1
            return x * 2

    owner = Owner()
    return owner.value + owner.value, owner.calls


@case(one_graph=True)
def case_singledispatch_style_table(x):
    table = {int: lambda t: t + 1, float: lambda t: t * 2, str: lambda t: t - 1}
    for value in (1, 2.0, "s"):
        x = table[type(value)](x)
    return x


@case(one_graph=False, inputs=lambda: (tensor(), map(lambda n: n * 2, [1, 2])))
def case_map_from_outside(x, numbers):
    for n in numbers:
        x = x + n
    return x


@case(one_graph=False)
def case_random_seeded(x):
    torch.manual_seed(3)
    return x + torch.rand(4), torch.randn(2), torch.randint(0, 9, (3,)), torch.randperm(4)


@case()
def case_recursion_limit(x):
    return x + sys.getrecursionlimit()  # captures raise it for themselves


@case(one_graph=True, inputs=lambda: (tensor(), [5, 1, 4, 2]))
def case_heapq_of_an_argument(x, heap):
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    popped = heapq.heappop(heap), heapq.heappushpop(heap, 2), heapq.heapreplace(heap, 9)
    return x * heap[0], heap, popped


@case(one_graph=True)
def case_heapq_ranks(x):
    words = ["dd", "a", "ccc"]
    return (
        x,
        heapq.nsmallest(2, words, key=len),
        heapq.nlargest(2, [(2, "b"), (3, "a"), (2, "a")]),
        [heapq.nsmallest(1, x.shape), heapq.nlargest(1, x.shape)],
    )


@case(one_graph=True)
def case_heapq_errors(x):
    try:
        heapq.heappop([])
    except IndexError as error:
        x, empty = x + 1, str(error)
    try:
        heapq.heappush((), 1)
    except TypeError as error:
        x, tuple_ = x + 1, str(error)
    return x, empty, tuple_


@case(one_graph=True)
def case_groups_of_a_match(x):
    found = re.match(r"layers\.(\d+)\.(\w+)", "layers.3.attention")
    return x * int(found[1]), found[2], found[0]


def who_calls():
    """Three ways to look at the stack, in one function."""
    return sys._getframe(1).f_code.co_name, inspect.currentframe().f_back.f_code.co_name, inspect.stack()[1].function


@case()
def case_names_of_callers(x):
    return x + 1, who_calls(), sys._getframe().f_code.co_name
