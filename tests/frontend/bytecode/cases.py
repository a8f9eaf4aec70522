"""Functions of every shape, each with inputs made anew: what the bytecode package must keep the meaning of."""

# What a linter would write more simply is here for the bytecode that it makes.
# ruff: noqa: B023, C416, E731, F841, PIE800, PIE804, SIM117, UP008

import contextlib
import dataclasses

CASES = {}


def case(*inputs, **keywords):
    """Register a function with one or more makers of its arguments."""

    def register(function):
        makers = inputs or (lambda: (),)
        for number, maker in enumerate(makers):
            CASES[f"{function.__name__}-{number}"] = (function, maker, keywords)
        return function

    return register


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Manager:
    def __init__(self, log, name="m", swallow=False):
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self):
        self.log.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("exit", self.name, kind and kind.__name__))
        return self.swallow


class Base:
    def __init__(self, value):
        self.value = value

    def describe(self, suffix=""):
        return f"Base({self.value}){suffix}"

    @property
    def double(self):
        return self.value * 2


class Derived(Base):
    def __init__(self, value, extra):
        before = value + 1
        super().__init__(before)
        self.extra = extra

    def describe(self, suffix="!"):
        text = super().describe(suffix)
        return text + f" Derived({self.extra})"

    def captured(self):
        later = lambda: self.extra
        return super().describe(), later(), super().double

    def indirect(self):
        parent = super()
        return parent.describe(), super(Derived, self).describe("?")


@case(lambda: (3, 4), lambda: (0, -1))
def arithmetic(a, b):
    c = a + b * 2 - -a
    c += 5
    c ^= ~b
    d = not c
    e = +c
    return c, d, e, a < b, a is b, a in (1, 2, 3), (a << 2) | (b & 7), a**2 // 3 % 5


@case(lambda: (3,), lambda: (0,))
def loops(n):
    total = 0
    for i in range(n):
        if i == 1:
            continue
        for j in range(i):
            if j > 5:
                break
            total += i * j
        else:
            total += 100
    while total < 350:
        total += 117
        if total % 7 == 3:
            break
    else:
        total = -total
    return total


@case(lambda: (1, 2, 3), lambda: (3, 2, 1), lambda: (2, 2, 0))
def chained(a, b, c):
    return a < b < c, a <= b != c, (a and b) or c, a if b > c else (c or b)


@case(lambda: ([],), lambda: ([1, 2],))
def handlers(log):
    result = None
    try:
        log.append("start")
        result = log[1] // (log[1] - 1)
        result = log[0] / 0
    except ZeroDivisionError as error:
        log.append(str(error))
        result = "zero"
    except (IndexError, TypeError) as error:
        log.append(type(error).__name__)
        result = "index"
    else:
        log.append("else")
    finally:
        log.append("finally")
    return result, log


@case(lambda: (0,), lambda: (1,), lambda: (2,), lambda: (3,))
def raising(kind):
    seen = []
    for attempt in range(3):
        try:
            seen.append(attempt)
            if attempt == 1:
                if kind == 0:
                    raise ValueError("zero", attempt)
                if kind == 1:
                    raise KeyError(kind) from ValueError("cause")
                if kind == 2:
                    return seen
            seen.append("after")
        except ValueError:
            seen.append("handled")
            if kind == 0:
                continue
        finally:
            seen.append("finally")
    if kind == 3:
        raise RuntimeError(tuple(map(str, seen)))
    return seen


@case(lambda: ({"a": 1},))
def nested_try(values):
    out = []
    try:
        try:
            out.append(values["a"])
            out.append(values["b"])
        finally:
            out.append("inner")
    except KeyError as error:
        out.append(error.args)
        try:
            raise TypeError("second")
        except TypeError:
            out.append("second")
    return out


@case(lambda: ([],))
def uncaught(log):
    try:
        log.append(1)
        value = log[0] + len(log)
        missing = {}[value]
    except ValueError:
        log.append("never")
    return missing


@case(lambda: ([], False), lambda: ([], True))
def with_blocks(log, swallow):
    with Manager(log, "outer") as outer, Manager(log, "inner", swallow) as inner:
        log.append((outer.name, inner.name))
        for i in range(3):
            with Manager(log, i):
                log.append(i * 2)
                if i == 1:
                    break
    with Manager(log, "swallowing", True):
        log.append(1 // 0)
    with contextlib.suppress(KeyError):
        log.append({}["missing"])
    return log


@case(lambda: ([],))
def with_return(log):
    for i in range(2):
        with Manager(log, i):
            if i:
                return log, i
            log.append("in")
    return None


@case(lambda: ([],))
def with_error(log):
    with Manager(log, "a"):
        with Manager(log, "b"):
            log.append("x")
            raise ValueError("out of both")


@case(lambda: (4,))
def comprehensions(n):
    squares = [i * i for i in range(n)]
    table = {i: [j for j in range(i) if j % 2] for i in squares}
    kinds = {type(k).__name__ for k in table}
    total = sum(i for i in squares)
    pairs = [(x, y) for x in range(2) for y in range(x, 2)]
    return squares, table, sorted(kinds), total, pairs


@case(lambda: (4,))
def shadowed(x):
    inner = [x for x in range(x)]
    return x, inner, [[x + y for x in range(2)] for y in inner]


@case(lambda: (2, 3))
def closures(a, b):
    count = 0

    def bump(by=a, *, times=b):
        nonlocal count, b
        count += by * times
        b += 1
        return count

    first = bump()
    a = a + first
    second = bump(1, times=2)
    del first
    return a, b, count, second, (lambda: a + b)()


@case(lambda: (1, 2), z=5)
def signature(a, b=7, /, c=8, *rest, d=9, **others):
    cell = lambda: (a, rest)
    return a, b, c, rest, d, others, cell()


@case(lambda: ((1, 2), {"sep": "-", "end": ""}))
def star_calls(args, options):
    def show(*values, sep=" ", end="\n", **more):
        return sep.join(map(str, values)) + end, sorted(more.items())

    return (
        show(*args, 3, **options),
        show(0, *args, *args),
        show(1, 2, sep="+"),
        show(*[1], x=1, **{"y": 2}),
        show(*args, sep="/", **{"end": "."}),
    )


@case(lambda: ((1, 2, 3, 4), (5, 6)))
def unpacking(many, two):
    a, b = two
    first, *middle, last = many
    (c, d), e = two, first
    b, a = a, b
    x = y = [*many, *two]
    merged = {**{"a": 1}, "b": 2, **dict(zip("cd", two, strict=True))}
    return a, b, c, d, e, first, middle, last, x, y, merged, {*many, 9}


@case(lambda: ((1, 2, 3),))
def bad_unpacking(values):
    a, b = values
    return a + b


@case(lambda: (3.14159, "x"))
def strings(number, text):
    width = 8
    return f"{number:.2f} {text!r:>{width}} {text} {number!s}" + f"{text!a}" + "".join([text, "y"])


@case(
    lambda: ([1, 2, 3],),
    lambda: ({"kind": "a", "rest": 1},),
    lambda: (Point(1, 2),),
    lambda: (Point(5, 5),),
    lambda: (7,),
    lambda: (None,),
    lambda: ("text",),
)
def matching(value):
    match value:
        case [first, *others] if len(others) > 1:
            return "list", first, others
        case {"kind": kind, **rest}:
            return "dict", kind, rest
        case Point(x=1, y=y):
            return "one", y
        case Point(x, y):
            return "point", x, y
        case int(number) | float(number):
            return "number", number
        case None:
            return "none"
        case _:
            return "other"


@case(lambda: ([3, 1, 2],))
def items(values):
    values[0] = 10
    values[1:2] = [7, 8]
    del values[0]
    point = Point(1)
    point.x += values[-1]
    point.z = values[:2]
    del point.y
    values.sort(key=lambda v: -v)
    return values, point.x, point.z, values[::2], getattr(point, "y", None)


@case(lambda: ())
def supers():
    derived = Derived(1, extra=2)
    return derived.describe(), derived.captured(), derived.indirect(), derived.value


CASES["Derived.describe-0"] = (Derived.describe, lambda: (Derived(4, 5), "#"), {})
CASES["Derived.captured-0"] = (Derived.captured, lambda: (Derived(4, 5),), {})
CASES["Derived.indirect-0"] = (Derived.indirect, lambda: (Derived(4, 5),), {})
CASES["Derived.init-0"] = (Derived.__init__, lambda: (Derived(4, 5), 8, 9), {})


@case(lambda: (True,), lambda: (False,))
def sometimes_bound(flag):
    if flag:
        value = 1
    other = [flag]
    del flag
    other.append(2)
    return value, other


@case(lambda: (None, 3), lambda: (2, None))
def none_checks(a, b):
    if a is None:
        a = 10
    while b is not None:
        b = None if b > 4 else b + 1
        if a is not None and b is None:
            break
    return a, b


@case(lambda: (3,))
def consumes_generators(n):
    def numbers(limit):
        received = yield 0
        for i in range(limit):
            received = yield (i, received)
        yield from (i for i in range(2))
        return "end"

    source = numbers(n)
    out = [next(source), source.send("a")]
    out.extend(source)
    return out, any(x > 1 for x in range(n)), list(zip(range(n), numbers(1), strict=False))


@case(lambda: (2,))
def makes_a_class(value):
    class Local(Base):
        limit = value

        def get(self):
            return self.limit + value

    return Local(1).get(), Local.__name__, Local(3).describe()


@case(lambda: (1,), lambda: (0,))
def asserts(value):
    import os.path as path
    from math import floor

    assert value, f"no {value}"
    return path.basename("a/b"), floor(2.5)


COUNTER = 0


@case(lambda: (2,))
def uses_globals(n):
    global COUNTER
    COUNTER = n
    COUNTER += 1
    result = COUNTER
    del COUNTER
    COUNTER = 0
    return result


@case(lambda: (3,))
def reads_its_frame(a):
    b = a + 1
    c = b * 2
    names = locals()
    return sorted((k, v) for k, v in names.items() if not k.startswith("_")), c


@case(lambda: ([1],), lambda: ([],))
def exception_groups(values):
    out = []
    try:
        out.append(1)
        if values:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        out.append(len(group.exceptions))
    except* TypeError as group:
        out.append("type")
    return out


@case(lambda: (5,))
def deep_expression(a):
    return max(a, min(a * 2, abs(-a), *[a + i for i in range(2)]), key=lambda v: (v, [a][0]))


@case(lambda: (3,))
def rebound_cell(y):
    x = 1
    g = lambda: x
    inner = [x for x in range(y)]
    return inner, g(), x


@case(lambda: (3,))
def comprehension_closures(n):
    made = [lambda: i for i in range(n)]
    after = n + 1
    return [f() for f in made], after


def _free_and_local(x):
    def inner(n):
        before = x
        values = [x for x in range(n)]
        return before, x, values

    return inner


CASES["free_and_local-0"] = (_free_and_local(5), lambda: (2,), {})


def _two_cells(x):
    def inner(n):
        before = x + n
        made = [lambda: x for x in range(n)]
        return before, x, [f() for f in made]

    return inner


CASES["two_cells-0"] = (_two_cells(5), lambda: (2,), {})


def many_locals():
    """More locals and jumps than fit in one byte of operand."""
    lines = ["def many(n):"]
    lines += [f"    v{i} = n + {i}" for i in range(300)]
    lines += ["    total = 0", "    for i in range(n):"]
    lines += [f"        if i % 3 == {i % 3}: total += v{i} * v{(i * 7) % 300}" for i in range(300)]
    lines += ["    return total, " + ", ".join(f"v{i}" for i in range(0, 300, 50))]
    scope = {}
    exec("\n".join(lines), scope)
    return scope["many"]
