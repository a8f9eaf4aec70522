"""Integer arithmetic at the limits of each type: bit for bit as eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchmux

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (torch.bool, *INTEGERS)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def limits(dtype: torch.dtype) -> torch.Tensor:
    """The values where arithmetic goes wrong, each many times, so that vectors and their remainders see all."""
    if dtype is torch.bool:
        return torch.tensor([True, False] * 11)
    info = torch.iinfo(dtype)
    found = {info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.min // 2, -1, -2, -7, 0, 1, 2, 3, 7}
    return torch.tensor(sorted(v for v in found if info.min <= v <= info.max), dtype=dtype).repeat(2)


BINARY: dict[str, Callable[..., Any]] = {
    **{n: getattr(torch, n) for n in ("add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or")},
    **{n: getattr(torch, n) for n in ("bitwise_xor", "lt", "le", "eq", "ne", "logical_and", "logical_xor", "fmax")},
    "add with alpha": lambda a, b: torch.add(a, b, alpha=3),
    "sub with alpha": lambda a, b: torch.sub(a, b, alpha=-3),
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=2),
    "bitwise_left_shift": torch.bitwise_left_shift,
    "bitwise_right_shift": torch.bitwise_right_shift,
    "pow": lambda a, b: torch.pow(a, b & 7),
    "floor_divide": lambda a, b: torch.floor_divide(a, torch.where((b == 0) | (b == -1), 5, b)),
    "trunc divide": lambda a, b: torch.div(a, torch.where((b == 0) | (b == -1), 5, b), rounding_mode="trunc"),
    "remainder": lambda a, b: torch.remainder(a, torch.where((b == 0) | (b == -1), 5, b)),
    "fmod": lambda a, b: torch.fmod(a, torch.where((b == 0) | (b == -1), 5, b)),
    "div": torch.div,
    "where": lambda a, b: torch.where(a > b, a + b, a - b),
    "compare sums": lambda a, b: a + b > a,
    "clamp": lambda a, b: torch.clamp(a * b, -3, 100),
}
UNARY: dict[str, Callable[..., Any]] = {
    **{n: getattr(torch, n) for n in ("neg", "abs", "sign", "square", "bitwise_not", "logical_not", "sgn", "ceil")},
    "abs of abs less one": lambda a: torch.abs(torch.abs(a) - 1),
    "negative of neg": lambda a: -a < 0,
    "rsub": lambda a: 1 - a,
    "plus one is more": lambda a: a + 1 > a,
    "times two over two": lambda a: (a * 2) // 2,
    **{f"over {n}": lambda a, n=n: a // n for n in (1, 2, 3, 7, 100)},
    **{f"over minus {n}": lambda a, n=n: a // -n for n in (2, 7)},
    **{f"modulo {n}": lambda a, n=n: a % n for n in (1, 2, 7, 100)},
    "modulo minus 7": lambda a: a % -7,
    "trunc by 7": lambda a: torch.div(a, 7, rounding_mode="trunc"),
    **{f"power {n}": lambda a, n=n: a**n for n in (0, 1, 2, 3, 4, 5, 9)},
    **{f"shifted by {n}": lambda a, n=n: (a << n, a >> n) for n in (0, 1, 7, 8, 31, 63, 64, 100)},
    "sum": lambda a: (a.sum(), a.sum(dtype=a.dtype)),
    "prod": lambda a: (a.prod(), a.prod(dtype=a.dtype)),
    "cumsum": lambda a: (a.cumsum(0), a.cumsum(0, dtype=a.dtype)),
    "cumprod": lambda a: a.cumprod(0),
    "extrema": lambda a: (a.max(), a.min(), a.amax(0), a.argmax(), a.argmin()),
    "any": lambda a: (a.any(), a.all()),
    "mean": lambda a: (a & 7).float().mean(),  # a sum that no order of its terms rounds
    **{f"to {d}": lambda a, d=d: a.to(d) for d in (*DTYPES, *FLOATS)},
    **{
        f"to {d} to bool": lambda a, d=d: (a.to(d).to(torch.bool), torch.where(a.to(d).bool(), 1, 2))
        for d in (*DTYPES, *FLOATS)
    },
    **{f"sum as {d}": lambda a, d=d: (a + 1).to(d) * 2 for d in INTEGERS},
}


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        result = function(*args)
        return list(result) if isinstance(result, tuple) else [result]
    except Exception as error:
        return type(error)


def own_share(compiled: Any) -> float:
    """The share of operators that code of native's own computes."""
    kinds = [p.kind for graph in torchmux.report(compiled).graphs for p in graph.report.placements]
    return kinds.count("own") / len(kinds)


def compare(function: Callable[..., Any], *args: torch.Tensor, own: float = 0.0) -> str | None:
    """What differs between native and eager, if anything does; native itself must compute so much of it."""
    torchmux.reset()
    eager = outcome(function, *args)
    compiled = torchmux.compile(function, backend="native", dynamic=False)
    got = outcome(compiled, *args)
    if own:
        assert own_share(compiled) >= own
    if isinstance(eager, type) or isinstance(got, type):
        return None if eager is got else f"{got} and not {eager}"
    for a, b in zip(got, eager, strict=True):
        if a.dtype is not b.dtype or not torch.equal(a.nan_to_num(7), b.nan_to_num(7)):
            return f"{a} and not {b}"
    return None


def _joined(functions: dict[str, Callable[..., Any]], *args: torch.Tensor) -> None:
    """All functions that eager has in one graph; then, if something differs, each by itself, to name it."""
    possible = [f for f in functions.values() if not isinstance(outcome(f, *args), type)]

    def program(*given):
        return tuple(r for f in possible for r in _flat(f(*given)))

    if compare(program, *args, own=0.75) is not None:
        found = {name: why for name, f in functions.items() if (why := compare(f, *args)) is not None}
        raise AssertionError(found or "only all of it together")


def _flat(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_operand(dtype: torch.dtype) -> None:
    _joined(UNARY, limits(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_operands(dtype: torch.dtype) -> None:
    values = limits(dtype)
    count = len(values) // 2
    _joined(BINARY, values[:count, None].expand(count, count).reshape(-1), values[:count].repeat(count))


def test_floating_point_ranges_of_integers() -> None:
    """In all bits, the sign of zero too; the numbers beyond 2**24 are those that float32 holds."""
    ranges = [(0, 1000), (5, 700, 3), (100, -500, -7), (-0.0, 5.0, 1.0), (-0.0, -5.0, -1.0), (2**25, 2**25 + 90, 4)]

    def program(x):
        return tuple(torch.arange(*r, dtype=d) + x for r in ranges for d in (torch.float32, torch.float64)) + tuple(
            1 / torch.arange(*r, dtype=torch.float32) for r in ranges
        )

    assert compare(program, torch.zeros(()), own=1.0) is None


PAIRS = [(a, b) for a in DTYPES for b in INTEGERS if a is not b]
TIERS = [pytest.param(*pair, marks=[pytest.mark.slow] if number % 3 else []) for number, pair in enumerate(PAIRS)]


@pytest.mark.parametrize(("dtype", "other"), TIERS, ids=str)
def test_two_types(dtype: torch.dtype, other: torch.dtype) -> None:
    a, b = limits(dtype), limits(other)
    chosen = {n: BINARY[n] for n in ("add", "sub", "mul", "maximum", "lt", "eq", "bitwise_xor", "where")}
    _joined(chosen, a[:, None].expand(len(a), len(b)).reshape(-1), b.repeat(len(a)))


NUMBERS = [0.0, -0.0, 0.5, -0.5, 1.9, -1.9, 127.0, 128.0, -129.0, 255.0, 256.0, 300.7, -300.7]
NUMBERS += [32768.0, 65535.9, 70000.0]
NUMBERS += [2.0**31, -(2.0**31), 2.0**31 + 512, 2.0**32, 2.0**53, 2.0**62, 2.0**63, -(2.0**63), 1e19, -1e19, 1e30]
NUMBERS += [float("inf"), -float("inf"), float("nan")]


@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_conversion_of_floats(source: torch.dtype) -> None:
    """What no integer of the type is near to has no defined value: there native has eager's, or leaves it to torch."""
    values = torch.tensor(NUMBERS, dtype=torch.float64).to(source).repeat(3)
    _joined({str(d): lambda x, d=d: x.to(d) for d in DTYPES}, values)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_shifts_by_any_number(dtype):
    """Shifts by less than nothing and by all bits or more are defined in torch, and not in C++."""
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max, (33, 65), dtype=dtype)
    by = torch.randint(max(limits.min, -2), limits.bits + 3, (33, 65), dtype=dtype)

    def shifts(x, by):
        both = (x >> 2) & 15 | (x << 3), torch.bitwise_left_shift(3, by), x >> limits.bits
        return x >> by, x << by, *both

    compiled = torchmux.compile(shifts, backend="native", strict="own")
    for found, expected in zip(compiled(x, by), shifts(x, by), strict=True):
        assert found.dtype is expected.dtype and torch.equal(found, expected)


def test_division_by_a_tensor_that_has_zeros(capture) -> None:
    """Raises what eager raises, wherever the zero is: in a vector, and in the remainder of a row."""
    a, b = torch.arange(40, dtype=torch.int32), torch.ones(40, dtype=torch.int32)
    for divide in (lambda a, b: a // b, lambda a, b: a % b):
        captured = capture(divide, a, b)
        compiled = captured.compile("native", strict=True)
        assert torch.equal(captured.run(compiled, a, b), divide(a, b))
        for at in (3, 39):
            with pytest.raises(RuntimeError, match="ZeroDivisionError"):
                captured.run(compiled, a, b.index_fill(0, torch.tensor(at), 0))


def test_quotients_of_large_integers(capture) -> None:
    """Where numbers have more digits than floating-point division keeps."""
    edges = [2**p + d for p in (23, 24, 31, 49, 50, 51, 53, 62) for d in (-1, 0, 1)]
    numbers = torch.tensor([*edges, *(-e for e in edges), 3, -3, 1, -(2**63), 2**63 - 1])
    for dtype in (torch.int64, torch.int32):
        a, b = (x.to(dtype).contiguous() for x in torch.broadcast_tensors(numbers[:, None], numbers[None]))
        b = torch.where((b == 0) | (b == -1), 7, b)
        captured = capture(lambda a, b: (a // b, a % b), a, b)
        got = captured.run(captured.compile("native", strict=True), a, b)
        assert torch.equal(got[0], a // b) and torch.equal(got[1], a % b)


def test_distances_of_positions_as_floats(capture) -> None:
    """Computed in 32 bits where they fit, and not where they do not."""
    x = torch.ones(37, 41)

    def f(x):
        rows = torch.arange(37)[:, None]
        near, far = torch.arange(41), torch.arange(2**31 - 20, 2**31 + 21)
        return x * (rows - near).abs(), x.double() * -(rows - far), x * (rows + far)

    captured = capture(f, x)
    for got, expected in zip(captured.run(captured.compile("native", strict=True), x), f(x), strict=True):
        assert torch.equal(got, expected)


def test_floats_to_integers_and_back() -> None:
    """An integer has no negative zero, nor nan; gcc's own rules would keep both in code for one number at a time."""

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        kinds = (torch.int64, torch.int32, torch.int16)
        return [x.new_zeros(3).copy_(x).to(torch.int64).float(), *(torch.cat([x, x.to(kind), x]) for kind in kinds)]

    for x in (torch.tensor([-0.0, -0.25, 2.5]), torch.tensor([-0.0, -0.25, 2.5]).double()):
        got = torchmux.compile(function, backend="native", strict=True)(x)
        for eager, found in zip(function(x), got, strict=True):
            assert torch.equal(found, eager)
            assert torch.equal(found.signbit(), eager.signbit())
