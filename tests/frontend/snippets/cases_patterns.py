"""Structural pattern matching."""

import dataclasses

from .corpus import case, tensor


@dataclasses.dataclass
class Scale:
    by: int


@dataclasses.dataclass
class Shift:
    by: int
    twice: bool = False


def apply(x, step):
    match step:
        case 0 | None:
            return x
        case int(n) if n < 0:
            return -x * n
        case int() | float():
            return x + step
        case "relu":
            return x.relu()
        case ["chain", *steps]:
            for one in steps:
                x = apply(x, one)
            return x
        case {"add": n, **rest} if not rest:
            return x + n
        case {"op": "mul", "by": (a, b)}:
            return x * a * b
        case Scale(n):
            return x * n
        case Shift(by=n, twice=True):
            return x + n + n
        case _:
            raise TypeError(f"no step: {step!r}")


def pattern_case(*steps):
    return lambda: (tensor(), list(steps))


@case(one_graph=True, inputs=pattern_case(0, None, -2, 3, 1.5, "relu"))
def case_match_literals(x, steps):
    return [apply(x, step) for step in steps]


@case(one_graph=True, inputs=pattern_case(["chain", 1, "relu", ["chain", 2]], ("chain",)))
def case_match_sequences(x, steps):
    return [apply(x, step) for step in steps]


@case(one_graph=True, inputs=pattern_case({"add": 2}, {"op": "mul", "by": (2, 3), "more": 0}))
def case_match_mappings(x, steps):
    return [apply(x, step) for step in steps]


@case(one_graph=True, inputs=pattern_case(Scale(3), Shift(1, True)))
def case_match_classes(x, steps):
    return [apply(x, step) for step in steps]


@case(one_graph=False, inputs=pattern_case({"add": 1, "and": 2}))
def case_match_nothing(x, steps):
    return [apply(x, step) for step in steps]


@case(one_graph=True)
def case_match_shape(x):
    match x.shape:
        case (rows, 4):
            return x * rows
        case (_, _, *_):
            return x


@case(one_graph=True)
def case_match_captures(x):
    match [1, [2, 3, 4], {"k": "v"}]:
        case [a, [b, *c] as inner, {"k": str(d)}]:
            return x + a + b, c, inner, d


@case(one_graph=True)
def case_match_falls_through(x):
    match x.dim():
        case 5:
            x = x + 5
    return x
