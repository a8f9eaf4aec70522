"""Control flow, generators, context managers and exceptions as libraries combine them."""

# ruff: noqa: B023, E731, F821, PLW0642

import asyncio
import bisect
import collections
import contextlib
import heapq
import io
import itertools
import math
import operator
import re

from .corpus import case, tensor

EVENTS = []


@case()
def case_local_is_deleted_twice(x):
    kept = 3
    for _ in range(3):
        del kept
        x = x + 1
    return x


@case(inputs=lambda: (tensor(), 2))
def case_argument_is_deleted_twice(x, n):
    try:
        for _ in range(2):
            del n
    except UnboundLocalError as error:
        return x, str(error)


@case(one_graph=True)
def case_comprehension_takes_a_cell(x):
    i = 10
    read = lambda: i
    made = [lambda t: t + i for i in range(3)]
    table = {i: (lambda: i) for i in range(2)}
    return [f(x) for f in made], i, read(), [f() for f in table.values()], {(lambda: k)() for k in range(3)}


@case()
def case_comprehension_raises_with_a_cell(x):
    i = 5
    read = lambda: i
    try:
        [(lambda: i)() // i for i in (2, 1, 0)]
    except ZeroDivisionError as error:
        return x + 1, i, str(error), read()


@case()
def case_nested_comprehensions_with_cells(x):
    return (
        [[(lambda: i + j)() for j in range(2)] for i in range(2)],
        [[(lambda: i)() for i in range(j)] for j in (1, 2)],
        x,
    )


@case(changes=("EVENTS",))
def case_generator_receives_and_returns(x):
    def worker():
        total = 0
        try:
            while True:
                got = yield total
                if got is None:
                    return total
                total += got
        except ValueError as error:
            EVENTS.append(str(error))
            yield -1
        finally:
            EVENTS.append("done")

    a, b = worker(), worker()
    next(a)
    sent = [a.send(2), a.send(3)]
    try:
        a.send(None)
    except StopIteration as stop:
        sent.append(stop.value)
    next(b)
    sent.append(b.throw(ValueError("bad")))
    b.close()
    return x * sum(sent), sent, EVENTS


@case(one_graph=True)
def case_delegating_generators(x):
    def leaf(n):
        got = yield n
        return (got or 0) + n

    def branch():
        first = yield from leaf(1)
        second = yield from leaf(10)
        return first + second

    g = branch()
    out = [next(g), g.send(5)]
    try:
        g.send(7)
    except StopIteration as stop:
        out.append(stop.value)
    return x * out[-1], out


@case(changes=("EVENTS",))
def case_exit_stack_unwinds(x):
    @contextlib.contextmanager
    def managed(name):
        EVENTS.append(f"+{name}")
        try:
            yield name
        finally:
            EVENTS.append(f"-{name}")

    with contextlib.ExitStack() as stack:
        names = [stack.enter_context(managed(n)) for n in "abc"]
        stack.callback(EVENTS.append, "callback")
        x = x + len(names)
    return x, EVENTS


@case()
def case_exit_stack_keeps_for_later(x):
    with contextlib.ExitStack() as stack:
        stack.callback(EVENTS.append, "never")
        kept = stack.pop_all()
    return x + 1, isinstance(kept, contextlib.ExitStack)


@case(changes=("EVENTS",))
def case_closing_and_suppress(x):
    class Resource:
        def close(self):
            EVENTS.append("closed")

    with contextlib.closing(Resource()) as r, contextlib.suppress(KeyError, IndexError):
        EVENTS.append(type(r).__name__)
        [][1]
    return x, EVENTS


@case()
def case_output_is_redirected(x):
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print("inside", end="")
    return x + 1, text.getvalue()


@case()
def case_exception_chains(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error
    except ValueError as error:
        return x, repr(error.__cause__), error.__context__ is error.__cause__, error.__suppress_context__


@case()
def case_finally_returns_over_exceptions(x):
    def f(n):
        for i in range(n):
            try:
                if i == 1:
                    continue
                if i == 2:
                    raise ValueError(i)
                EVENTS_LOCAL.append(i)
            except ValueError:
                return "handled"
            finally:
                EVENTS_LOCAL.append("f")
                if i == 3:
                    return "final"
        return "end"

    EVENTS_LOCAL = []
    return x, f(2), f(4), EVENTS_LOCAL


@case()
def case_exception_groups_are_split(x):
    try:
        raise ExceptionGroup("many", [ValueError(1), TypeError(2), ValueError(3)])
    except* ValueError as group:
        n = len(group.exceptions)
    except* TypeError:
        n = 100
    return x * n


@case()
def case_custom_exceptions_carry_data(x):
    class Custom(Exception):
        def __init__(self, code, *, detail=None):
            super().__init__(f"code {code}")
            self.code = code
            self.detail = detail

    try:
        raise Custom(3, detail=x)
    except Custom as error:
        return error.detail * error.code, str(error), error.args


class Point:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@case(one_graph=True)
def case_matches_of_all_kinds(x):
    def kind(value):
        match value:
            case Point(0, b) if b > 1:
                return "zero", b
            case Point(a=int() | float() as a):
                return "point", a
            case {"op": "add" | "sub" as op, "args": [first, *_], **rest}:
                return op, first, sorted(rest)
            case [[1, _] as inner, *others]:
                return inner, len(others)
            case (str() as s) | bytes(s):
                return "text", s
            case None | True | False:
                return "constant"
            case -1 | 1.5 | "x":
                return "literal"
            case _:
                return "other"

    values = [
        Point(0, 2),
        Point(1.5, 0),
        {"op": "add", "args": [1, 2], "k": 0},
        [[1, 2], 3],
        "s",
        b"b",
        None,
        -1,
        {},
        [],
    ]
    return x, [kind(v) for v in values]


@case(one_graph=True)
def case_every_itertool(x):
    i = itertools
    return (
        x,
        list(i.accumulate([1, 2, 3], operator.mul, initial=2)),
        list(i.batched("abc", 2)) if hasattr(i, "batched") else 0,
        list(i.chain("a", [1])),
        list(i.chain.from_iterable(["ab", "c"])),
        list(i.combinations("abc", 2)),
        list(i.combinations_with_replacement("ab", 2)),
        list(i.compress("abc", [1, 0, 1])),
        list(i.islice(i.count(2, 3), 3)),
        list(i.islice(i.cycle("ab"), 5)),
        list(i.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(i.filterfalse(None, [0, 1, 2])),
        [(k, list(g)) for k, g in i.groupby("aabc")],
        list(i.islice("abcdef", 1, 5, 2)),
        list(i.pairwise("abc")),
        list(i.permutations("abc", 2)),
        list(i.product("ab", repeat=2)),
        list(i.repeat(1, 3)),
        list(i.starmap(pow, [(2, 3), (3, 2)])),
        list(i.takewhile(lambda v: v < 3, [1, 2, 3])),
        [list(t) for t in i.tee("ab")],
        list(i.zip_longest("ab", "c", fillvalue="-")),
    )


@case()
def case_bisect_and_heapq(x):
    numbers = [1, 3, 5]
    bisect.insort(numbers, 4)
    heap = [5, 1, 4]
    heapq.heapify(heap)
    heapq.heappush(heap, 0)
    popped = heapq.heappop(heap), heapq.heappushpop(heap, 2), heapq.heapreplace(heap, 9)
    return (
        x,
        numbers,
        bisect.bisect_left(numbers, 4),
        bisect.bisect(numbers, 4),
        popped,
        heapq.nsmallest(2, [3, 1, 2]),
        heapq.nlargest(1, [3, 1]),
        list(heapq.merge([1, 4], [2])),
    )


@case()
def case_collections_at_work(x):
    c = collections.Counter("abca")
    c.update("a")
    c.subtract({"b": 2})
    d = collections.OrderedDict(a=1, b=2, c=3)
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    q = collections.deque([1, 2, 3, 4], maxlen=4)
    q.rotate(1)
    q.append(9)
    chain = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    chain["z"] = 5
    g = collections.defaultdict(list)
    g["k"].append(1)
    return (
        x,
        c.most_common(2),
        +c,
        c & collections.Counter("ab"),
        c.total(),
        list(d),
        d.popitem(last=False),
        list(q),
        q.maxlen,
        dict(chain),
        chain["a"],
        chain.maps[0],
        dict(g),
        sorted(c.elements()),
    )


@case(one_graph=True)
def case_math_at_work(x):
    return (
        x,
        math.ceil(1.2),
        math.floor(-1.2),
        math.comb(5, 2),
        math.perm(4),
        math.factorial(5),
        math.gcd(12, 18),
        math.lcm(4, 6),
        math.isqrt(17),
        math.prod([1, 2, 3]),
        math.hypot(3, 4),
        math.log2(8),
        math.log(8, 2),
        math.copysign(1, -0.0),
        math.isclose(0.1 + 0.2, 0.3),
        math.fsum([0.1] * 3),
        math.trunc(2.7),
        math.modf(2.5),
        math.frexp(8.0),
        math.isfinite(math.inf),
        math.degrees(math.pi),
        math.dist([0], [3]),
    )


@case()
def case_regular_expressions(x):
    found = re.match(r"(\w+)\.(\d+)", "layer.12")
    names = (
        re.sub(r"\d", "#", "a1b2"),
        re.findall("[a-c]", "abcd"),
        re.split(r"[,;]", "a,b;c"),
        re.compile("x+").search("aaxx").span(),
    )
    return x * int(found.group(2)), found.groups(), names, bool(re.fullmatch("a*", "aab"))


@case(one_graph=True)
def case_strings_at_work(x):
    n, f, s = 42, 3.14159, "Text"
    return (
        x,
        f"{n:05d}|{n:x}|{n:#b}|{n:,}|{f:.2e}|{f:8.3f}|{s:<6}|{s:^8}|{s!r:>8}|{n=}|{{}}",
        "{0}-{1[0]}-{k!s:>4}".format(s, [n], k=f),
        "%-5s|%03d|%.1f|%r|%%" % (s, n, f, s),
        s.lower().center(8, "*"),
        "a-b".partition("-"),
        "a b  c".split(),
        "x".join("abc"),
        s.translate(str.maketrans("T", "t")),
        "abc".find("z"),
        s.swapcase(),
        "%(a)s" % {"a": 1},
        "Ab".casefold(),
        "ab\n".rstrip(),
        "é".encode(),
        s.removeprefix("Te"),
        "a,b".rsplit(",", 1),
        "1".zfill(3),
        s.isalpha(),
        "\t".expandtabs(2),
        s[::-1],
        "abc"[-2:],
        s * 2,
        "b" in "abc",
        ord("a"),
        chr(98),
    )


@case(one_graph=True)
def case_slices_are_assigned_and_deleted(x):
    a = list(range(8))
    a[1:3] = [10, 11, 12]
    a[::4] = ["a", "b", "c"]
    del a[2:4], a[-1]
    b = slice(1, None, 2)
    first, *middle, last = a
    (p, q), *r = [(1, 2), 3, 4]
    return x, a, a[b], b.indices(5), first, middle, last, p, q, r, [*a[:2], *"xy"], {**{"k": 1}, **{"k": 2}}


@case(one_graph=True)
def case_sets_and_views_at_work(x):
    a, b = {1, 2, 3}, frozenset({2, 3, 4})
    d, e = {"a": 1, "b": 2}, {"b": 3, "c": 4}
    c = set(a)
    c |= b
    c -= {1}
    c ^= {9}
    return (
        x,
        a & b,
        type(b | a) is frozenset,
        a < {1, 2, 3, 4},
        a.isdisjoint({7}),
        sorted(c),
        d | e,
        d.keys() & e.keys(),
        d.items() - e.items(),
        sorted(d.keys() ^ e),
        list(reversed(d)),
        dict(d.items()),
    )


@case()
def case_number_methods(x):
    return (
        x,
        (10).bit_count(),
        (5).to_bytes(2, "big"),
        int.from_bytes(b"\x01\x00", "big"),
        (1.5).as_integer_ratio(),
        (2.0).is_integer(),
        float.fromhex("0x1p3"),
        (3 + 4j).conjugate(),
        abs(3 + 4j),
        divmod(-7, 2),
        round(2.5),
        round(1234, -2),
        int("ff", 16),
        bytes([1, 2]).hex(),
        b"ab".decode(),
        float("1e3"),
        complex("1+2j"),
        7 // -2,
        -7 % 3,
        True + True,
    )


@case()
def case_namespaces_are_read(x):
    local = 1
    return x + local, "EVENTS" in globals(), sorted(locals())[:2], callable(vars), dir(contextlib.suppress)[0]


@case()
def case_coroutine_runs(x):
    async def double(t):
        await asyncio.sleep(0)
        return t * 2

    return asyncio.run(double(x))


@case(inputs=lambda: (tensor(), [1, 2, 3], {"a": [1], "b": [2]}))
def case_arguments_swap_and_grow(x, items, table):
    items[0], items[-1] = items[-1], items[0]
    items[1:1] = [x.shape[0]]
    table["a"], table["b"] = table["b"], table["a"]
    table["a"] += items
    (items[0], *table["c"]) = (7, 8, 9)
    return x * items[0], table["a"] is table["b"]
