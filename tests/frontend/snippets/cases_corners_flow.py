"""Corners of control flow and containers: what is live, what is closed, what changes while it is walked."""

import collections
import contextlib
import itertools

from .corpus import case, tensor

LOG = []


@case(changes=("LOG",))
def case_generator_is_closed_early(x):
    def numbers():
        try:
            yield 1
            yield 2
        finally:
            LOG.append("closed")

    for n in numbers():
        x = x + n
        break
    LOG.append("after")
    return x, list(LOG)


@case(changes=("LOG",))
def case_generator_is_dropped_by_next(x):
    def numbers():
        with contextlib.suppress(ValueError):
            try:
                yield 1
            finally:
                LOG.append("closed")

    first = next(numbers())
    LOG.append("after")
    return x + first, list(LOG)


@case(changes=("LOG",))
def case_generator_is_closed_by_hand(x):
    def numbers():
        try:
            received = yield 1
            LOG.append(received)
            yield 2
        except GeneratorExit:
            LOG.append("exit")
            raise
        finally:
            LOG.append("finally")

    g = numbers()
    total = x + next(g) + g.send("sent")
    g.close()
    return total, list(LOG), next(g, "end")


@case(changes=("LOG",))
def case_generator_that_is_thrown_into(x):
    def numbers():
        while True:
            try:
                yield len(LOG)
            except ValueError as error:
                LOG.append(str(error))

    g = numbers()
    return x + next(g), g.throw(ValueError("a")), g.throw(ValueError("b")), next(g), LOG


@case()
def case_generator_returns(x):
    def inner():
        yield 1
        return "inner"

    def outer():
        result = yield from inner()
        yield result
        return (yield from [5])

    g = outer()
    items = [next(g), next(g), next(g)]
    try:
        next(g)
    except StopIteration as stop:
        items.append(stop.value)
    return x + items[0], items


@case()
def case_generator_shares_a_cell(x):
    total = 0

    def add():
        nonlocal total
        for i in range(3):
            total += i
            yield total * x

    results = []
    for value in add():
        total += 10
        results.append(value)
    return results, total


@case()
def case_stop_iteration_inside_a_generator(x):
    def bad():
        yield next(iter(()))

    try:
        list(bad())
    except RuntimeError as error:
        return x + 1, str(error), type(error.__cause__).__name__


@case(changes=("LOG",))
def case_finally_overrides(x):
    def returns():
        try:
            return "try"
        finally:
            LOG.append("finally")

    def overrides():
        try:
            raise ValueError
        finally:
            return "overridden"  # noqa: B012

    def loops():
        for i in range(3):
            try:
                continue
            finally:
                LOG.append(i)
                if i == 1:
                    break  # noqa: B012
        return i

    return x + 1, returns(), overrides(), loops(), list(LOG)


@case()
def case_nested_handlers(x):
    seen = []
    try:
        try:
            raise KeyError("a")
        except KeyError as first:
            try:
                raise ValueError("b") from first
            finally:
                seen.append("finally")
    except ValueError as error:
        seen.append(type(error.__cause__).__name__)
        seen.append(type(error.__context__).__name__)
        seen.append(error.__suppress_context__)
    else:
        seen.append("else")
    try:
        {}["missing"]
    except KeyError:
        try:
            [][0]
        except IndexError as second:
            seen.append(type(second.__context__).__name__)
    return x + len(seen), seen


@case()
def case_name_of_exception_is_gone(x):
    error = "before"
    try:
        raise ValueError
    except ValueError as error:  # noqa: F841
        pass
    try:
        return error
    except UnboundLocalError as gone:
        return x + 1, str(gone)


class Suppressing:
    def __init__(self, log, answer):
        self.log = log
        self.answer = answer

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, value, traceback):
        self.log.append((None if kind is None else kind.__name__, str(value), traceback is None))
        return self.answer


@case()
def case_exit_sees_the_exception(x):
    log = []
    with Suppressing(log, True):
        raise ValueError("a")
    with Suppressing(log, False), contextlib.suppress(KeyError):
        raise KeyError("b")
    try:
        with Suppressing(log, 0):
            x = x + 1
            raise IndexError("c")
    except IndexError:
        log.append("through")
    for _ in range(2):
        with Suppressing(log, None):
            continue
    return x, log


@contextlib.contextmanager
def managed(log, *, swallow):
    log.append("in")
    try:
        yield len(log)
    except ValueError:
        log.append("caught")
        if not swallow:
            raise
    finally:
        log.append("out")


@case()
def case_managers_made_from_generators(x):
    log = []
    with managed(log, swallow=True) as n:
        x = x * n
        raise ValueError
    try:
        with managed(log, swallow=False), managed(log, swallow=False):
            raise ValueError("out")
    except ValueError as error:
        log.append(str(error))
    return x, log


@case()
def case_dictionary_changes_size(x):
    table = {"a": 1, "b": 2}
    try:
        for key in table:
            table[key + "x"] = 0
    except RuntimeError as error:
        return x + 1, str(error), list(table)


@case()
def case_set_changes_size(x):
    numbers = {1}
    try:
        for n in numbers:
            numbers.add(n + 10)
    except RuntimeError as error:
        return x + 1, str(error)


@case()
def case_deque_changes_size(x):
    numbers = collections.deque([1, 2])
    try:
        for n in numbers:
            numbers.append(n)
    except RuntimeError as error:
        return x + 1, str(error), list(numbers)


@case()
def case_values_are_live(x):
    table = {"a": 1, "b": 2, "c": 3}
    seen = []
    for key, value in table.items():
        seen.append((key, value))
        table["c"] = 30
        table["b"] += 1
    view = table.values()
    table["a"] = x
    return seen, list(view)[1:], next(iter(view)) is x, table.keys() == {"a", "b", "c"}, len(table.items())


@case()
def case_list_grows_while_walked(x):
    items = [1]
    for item in items:
        if len(items) < 5:
            items.append(item * 2)
    it = iter(items)
    rest = list(it)
    items.append("late")
    return x + sum(rest), rest, list(it), items


@case()
def case_list_shrinks_while_walked(x):
    items = list(range(6))
    for item in items:
        items.remove(item)
    return x + len(items), items


@case()
def case_views_and_algebra(x):
    a, b = {"x": 1, "y": 2}, {"y": 2, "z": 3}
    keys = a.keys()
    return (
        x + 1, sorted(keys & b.keys()), sorted(a.keys() | b), sorted(a.items() - b.items()), keys.isdisjoint(["q"]),
        ("y", 2) in a.items(), 2 in a.values(), list(reversed(a)), a | b, keys <= {"x", "y", "z"}, keys == {"x", "y"},
    )  # fmt: skip


@case()
def case_order_of_sets(x):
    a = {9, 16, 3, 40, 1}
    b = set(range(50))
    b -= set(range(40))
    c = {33, 1} | {65, 9, 17}
    d = frozenset([70, 6, 38])
    a.discard(3)
    a.add(1000)
    return (
        x + 1,
        list(a),
        list(b),
        list(c),
        list(d),
        [*{"one": 1, "two": 2}],
        list(dict.fromkeys([3, 1, 3])),
        a.pop() in b,
    )


@case(inputs=lambda: (tensor(), {9, 16, 24, 8, 32}))
def case_order_of_a_set_argument(x, s):
    return [x * n for n in s], list(s), sorted(s), max(s)


@case()
def case_unpacking(x):
    a, *b, c = "abcd"
    (d, [e, *f]), g = (1, [2, 3, 4]), 5
    *h, i = {"k": 1, "l": 2}
    first, second = second, first = 1, 2
    j = [*range(2), *"xy", *{"m": 1}]
    k = {**{"a": 1}, "b": 2, **{"a": 3}}
    return x + 1, a, b, c, d, e, f, g, h, i, first, second, j, list(k.items())


@case()
def case_unpacking_fails(x):
    messages = []
    for value in ([1], [1, 2, 3], 5, "ab", {1: 2, 3: 4}, iter([1, 2])):
        try:
            a, b = value
            messages.append((a, b))
        except (TypeError, ValueError) as error:
            messages.append(str(error))
    try:
        a, *b, _c = [1]
    except ValueError as error:
        messages.append(str(error))
    return x + 1, messages


def default_grows(x, seen=[]):  # noqa: B006
    seen.append(len(seen))
    return x + len(seen), list(seen)


@case()
def case_default_grows(x):
    default_grows.__defaults__[0].clear()
    return default_grows(x), default_grows(x), default_grows(x, [])


@case(inputs=lambda: (tensor(), [1, 2], {"a": [3]}))
def case_one_object_in_many_places(x, items, table):
    table["b"] = items
    table["c"] = table["a"]
    items.append(table["a"])
    table["a"].append(x)
    nested = [items, items]
    nested[0].append("seen")
    return nested, table, [nested] * 2


@case(inputs=lambda: (tensor(), [[0] * 2] * 2))
def case_rows_are_one_list(x, rows):
    rows[0][1] = x
    rows.append(rows[0])
    return rows, rows[1] is rows[0], [[]] * 2


@case(inputs=lambda: (tensor(), [3, 1, 2]))
def case_slices_of_argument(x, items):
    alias = items
    items[1:1] = [7, 8]
    items[::2] = ["a", "b", "c"]
    del items[-1]
    alias += (9,)
    items *= 2
    items.sort(key=str)
    return x + len(items), items is alias, items, items[::-1], items[5:1:-2]


@case(inputs=lambda: (tensor(), [1]))
def case_tuple_item_is_extended(x, items):
    t = (items, 2)
    try:
        t[0] += [x]
    except TypeError as error:
        return str(error), t, items


@case()
def case_late_and_shared_cells(x):
    def make():
        n = 0

        def up():
            nonlocal n
            n += 1
            return n

        def get():
            return n

        return up, get

    (up, get), (other, _) = make(), make()
    up(), up(), other()
    return x + get(), up.__closure__[0] is get.__closure__[0], up.__closure__[0].cell_contents


@case()
def case_walrus_and_scopes(x):
    values = [y := 1, y + 1]
    if (n := len(values)) > 1:
        n += 1
    any((hit := v) > 1 for v in values)
    return x + n, y, hit, [(lambda v=v: v)() for v in values], [i for i in range(3) if (j := i)], j


@case()
def case_chained_comparisons(x):
    calls = []

    def f(n):
        calls.append(n)
        return n

    return x + 1, f(1) < f(2) < f(3), f(3) < f(2) < f(1), f(1) == f(1) != f(2), calls, 1 < 2 > 1 in [1]


@case()
def case_short_circuits(x):
    return (
        x + 1,
        None or [] or 0,
        1 and "a" and {},
        not [],
        (x.shape[0] > 5 and x.missing) or "right",
        [] if not {} else 1 / 0,
    )


@case()
def case_itertools_state(x):
    it = iter(range(5))
    first = next(it)
    pairs = list(zip(it, it))
    counter = itertools.count(2, 3)
    cycle = itertools.cycle("ab")
    groups = [(k, list(g)) for k, g in itertools.groupby([1, 1, 2], key=lambda n: n)]
    a, b = itertools.tee([1, 2])
    return (
        x + first, pairs, next(it, None), [next(counter), next(counter)], [next(cycle) for _ in range(3)], groups,
        next(a), list(b), list(a), list(itertools.islice(counter, 2)), list(itertools.accumulate([1, 2, 3])),
        list(itertools.chain.from_iterable([[1], "b"])), list(itertools.product([1, 2], "ab")),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)), list(itertools.takewhile(bool, [1, 0, 1])),
    )  # fmt: skip


@case()
def case_iterators_are_returned(x):
    z = zip([1, 2], "ab")
    next(z)
    e = enumerate("xy", 5)
    m = map(str, [1, 2])
    r = iter([1, 2, 3])
    next(r)
    return x + 1, [type(i).__name__ for i in (z, e, m, r)], list(z), list(e), list(m), list(r)


@case(inputs=lambda: (tensor(), iter([1, 2, 3])))
def case_iterator_argument(x, it):
    return x + next(it), list(zip(it, "ab"))


@case()
def case_chain_is_returned(x):
    c = itertools.chain([1], [2])
    return x + 1, type(c).__name__, isinstance(c, itertools.chain), type(c) is itertools.chain, list(c)


@case()
def case_loop_else(x):
    found = []
    for i in range(3):
        if i == 5:
            break
    else:
        found.append("for")
    while i:
        i -= 1
        if i == 0:
            break
    else:
        found.append("while")
    return x + 1, found, i


@case()
def case_deep_recursion_in_python(x):
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def nest(n):
        return [] if not n else [nest(n - 1)]

    return x + fib(10), nest(5)


@case()
def case_break_in_the_middle_of_everything(x):
    items, log = [1, 2, 3], []
    for i, item in enumerate(items):
        try:
            x = x + item
            print(end="")
            log.append((i, item))
            if i == 0:
                items.append(4)
        finally:
            log.append("f")
    total = sum(v for v in (print(end="") or n for n in items))
    return x, log, total


@case()
def case_break_inside_comprehension_and_dict_loop(x):
    table = {"a": 1, "b": 2}
    out = []
    for key, value in table.items():
        print(end="")
        table[key] = value * 10
        table["b"] = table["b"] + 1
        out.append((key, value))
    return x + table["b"], out, [print(end="") or k for k in table]


@case(inputs=lambda: (tensor(), {"a": 1, "b": 2}))
def case_break_in_loop_over_changed_argument(x, table):
    out = []
    for key, value in table.items():
        table["b"] = 5
        print(end="")
        out.append((key, value))
        table["b"] = 7
    return x + 1, out


@case(inputs=lambda: (tensor(), [1]))
def case_break_in_loop_over_growing_argument(x, items):
    for item in items:
        if len(items) < 4:
            items.append(item + 1)
            items.append(item + 2)
        print(end="")
        x = x + item
    return x
