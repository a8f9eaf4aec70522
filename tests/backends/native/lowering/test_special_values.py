"""Every pointwise operator on the values and layouts where arithmetic goes wrong, against eager.

All operators that eager has for a type are one graph.  What differs is told by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

inf, nan = math.inf, math.nan
aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
# The default run has one of each kind; ``-m slow`` has the rest.
DTYPES = [
    pytest.param(d, marks=[] if d in (torch.float32, torch.bfloat16, torch.uint8, torch.int64) else pytest.mark.slow)
    for d in (*FLOATS, *INTEGERS, torch.bool)
]
Functions = dict[str, Callable[..., Any]]


def special(dtype: torch.dtype) -> torch.Tensor:
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        found = {least, most, least // 2, most // 2, 0, 1, 2, 3, 7, *((-1, -2, -7) if least else ())}
        return torch.tensor(sorted(found), dtype=dtype)
    info = torch.finfo(dtype)
    root = info.max**0.5
    near = [info.max / 2, root, root * 1.5, 1 / info.max, info.tiny**0.5]
    found = [info.max, info.tiny, info.smallest_normal / 4, info.eps, *near]
    found += [0.0, 0.3, 0.5, 1.0, 1.5, 2.5, 3.0, 6.0, 20.0, 88.0, 104.0, 710.0, 1e4, math.pi, inf]
    values = [v if v == inf else min(v, info.max) for v in found]
    return torch.tensor([*values, *(-v for v in values), nan], dtype=torch.float64).to(dtype)


def _named(module: Any, names: str) -> Functions:
    return {name: getattr(module, name) for name in names.split()}


UNARY: Functions = {
    **_named(
        torch, "abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac isinf isnan"
    ),
    **_named(torch, "isneginf isposinf lgamma log log10 log1p log2 logical_not neg reciprocal round rsqrt sgn sigmoid"),
    **_named(torch, "sign signbit sin sinh sqrt square tan tanh trunc isfinite nan_to_num bitwise_not"),
    **_named(F, "relu relu6 silu hardsigmoid hardswish hardtanh leaky_relu elu selu softplus softsign softshrink"),
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "isnan": torch.isnan,
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "softplus of 2": lambda x: F.softplus(x, 2.0, 5.0),
    **{f"to the power {e}": lambda x, e=e: x**e for e in (0, 1, 2, 3, 4, 5, -1, -2, -3, 0.5, -0.5, 1.5, 100)},
    **{f"power of {b}": lambda x, b=b: b**x for b in (1, 2, -2, 0.5, 10)},
    **{f"to {d}": lambda x, d=d: x.to(d) for d in (*FLOATS, torch.bool)},
    "between": lambda x: x.clamp(-1, 1),
    "between the other way round": lambda x: x.clamp(1, -1),
}
NUMBERS = (0, 1, -1, 3, -3, 0.5, 2.5, inf, -inf, nan)
WITH_NUMBER = "add sub mul div floor_divide remainder fmod eq ne lt le gt ge clamp_min clamp_max copysign"
for _s in NUMBERS:
    for _name in WITH_NUMBER.split():
        UNARY[f"{_name} {_s}"] = lambda x, s=_s, n=_name: getattr(torch, n)(x, s)
    UNARY |= {
        f"trunc div {_s}": lambda x, s=_s: torch.div(x, s, rounding_mode="trunc"),
        f"{_s} //": lambda x, s=_s: s // x,
        f"{_s} %": lambda x, s=_s: s % x,
        f"{_s} -": lambda x, s=_s: s - x,
        f"{_s} where positive": lambda x, s=_s: x.masked_fill(x > 0, s),
    }
BINARY: Functions = {
    **_named(torch, "add sub mul div floor_divide remainder fmod maximum minimum fmax fmin atan2 hypot copysign pow"),
    **_named(
        torch, "nextafter eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor"
    ),
    "trunc div": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "lerp": lambda a, b: torch.lerp(a, b, 0.3),
    "lerp near": lambda a, b: torch.lerp(a, b, 0.7),
    "addcdiv": lambda a, b: torch.addcdiv(a, a, b, value=0.5),
    "clamp": lambda a, b: torch.clamp(a, b),
    "clamp between": lambda a, b: torch.clamp(a, b, a),
    "where": lambda a, b: torch.where(a > b, a, b),
    "relu backward": lambda g, x: aten.threshold_backward(g, x, 0.0),
    "gelu backward": lambda g, x: aten.gelu_backward(g, x),
    "gelu by tanh backward": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "sigmoid backward": lambda g, x: aten.sigmoid_backward(g, x),
    "tanh backward": lambda g, x: aten.tanh_backward(g, x),
    "silu backward": lambda g, x: aten.silu_backward(g, x),
    "hardtanh backward": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "elu backward": lambda g, x: aten.elu_backward(g, 1.5, 1.0, 1.0, False, x),
    "hardswish backward": lambda g, x: aten.hardswish_backward(g, x),
    "hardsigmoid backward": lambda g, x: aten.hardsigmoid_backward(g, x),
    "leaky relu backward": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "softplus backward": lambda g, x: aten.softplus_backward(g, x, 1.0, 20.0),
}
# Steps that eager rounds to half precision, and native does not: what overflows in between differs.
OF_SEVERAL_STEPS = {"sigmoid backward", "selu", "softsign", "tanh backward"}
# In float64 eager's own constants have the digits of float32, or lose digits where terms cancel.
LESS_EXACT = {"hardsigmoid backward", "gelu backward", "gelu by tanh backward"}


def outcome(function: Callable[..., Any], *args: torch.Tensor) -> torch.Tensor | None:
    try:
        found: torch.Tensor = function(*args)
        return found
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


def _steps(x: torch.Tensor) -> list[int]:
    """The strides that say something: of a size of 1 torch's own traced kernels differ from the others."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size != 1]


def difference(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor | None) -> str | None:
    """What differs: dtype, layout, what is nan or infinite, the sign of a zero, or more than a few units."""
    if (got.dtype, got.shape, _steps(got)) != (eager.dtype, eager.shape, _steps(eager)):
        return f"{got.dtype} {got.stride()} and not {eager.dtype} {eager.stride()}"
    if not eager.is_floating_point():
        wrong = got != eager
    else:
        unit, least = torch.finfo(eager.dtype).eps, torch.finfo(eager.dtype).smallest_normal
        wrong = got.isnan() != eager.isnan()
        infinite = ~eager.isnan() & (got.isinf() | eager.isinf())
        wrong |= infinite & (got != eager)
        wrong |= (got == 0) & (eager == 0) & (got.signbit() != eager.signbit())
        a, b = got.double(), eager.double()
        c = b if exact is None else exact.double()
        allowed = 2 * (b - c).abs() + 64 * unit * torch.maximum(b.abs(), c.abs()) + 4 * least + unit**2
        wrong |= got.isfinite() & eager.isfinite() & c.isfinite() & ((a - b).abs() > allowed)
    if not wrong.any():
        return None
    where = tuple(int(i) for i in wrong.nonzero()[0])
    return f"at {where} {got[where].item()} and not {eager[where].item()}, {int(wrong.sum())} in all"


def wrong_ones(functions: Functions, *args: torch.Tensor, dynamic: bool = False) -> dict[str, str]:
    torchmux.reset()
    if args[0].dtype in (torch.int32, torch.int64):  # the least number by -1 ends the process, in eager
        functions = {n: f for n, f in functions.items() if "trunc div" not in n}
    chosen = {n: f for n, f in functions.items() if outcome(f, *args) is not None}
    if args[0].dtype in (torch.bfloat16, torch.float16):
        chosen = {n: f for n, f in chosen.items() if n not in OF_SEVERAL_STEPS}
    if args[0].dtype is torch.float64:
        chosen = {n: f for n, f in chosen.items() if n not in LESS_EXACT}
    compiled = torchmux.compile(lambda *a: [f(*a) for f in chosen.values()], backend="native", dynamic=dynamic)
    results = compiled(*args)
    placed = [p.placed_on for g in torchmux.report(compiled).graphs for p in g.report.placements]
    assert "native" in placed  # nothing is compared if torch runs all of it
    found = {}
    for (name, function), got in zip(chosen.items(), results, strict=True):
        exact = None
        if args[0].is_floating_point():
            exact = outcome(function, *(a.double() for a in args))
        if (why := difference(got, function(*args), exact)) is not None:
            found[name] = why
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_operand(dtype: torch.dtype) -> None:
    # Without a remainder: there eager's kernels treat nan and zeros in another way.
    assert wrong_ones(UNARY, special(dtype).repeat(64)) == {}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_operands(dtype: torch.dtype) -> None:
    values = special(dtype)
    values = values.repeat(64 // len(values) + 1)[:64]
    count = len(values)
    assert wrong_ones(BINARY, values[:, None].expand(count, count).reshape(-1), values.repeat(count)) == {}


def layouts(x: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    yield "contiguous", x
    yield "transposed", x.transpose(-1, -2)
    yield "of other batches", x.transpose(0, 1)
    yield "expanded", x[:1].expand(x.shape)
    yield "every other column", x[..., ::2]
    yield "every other row", x[::2]
    yield "without a column", x[..., 1:]
    if x.dim() == 4:
        yield "channels last", x.contiguous(memory_format=torch.channels_last)
        yield "sliced channels last", x.contiguous(memory_format=torch.channels_last)[..., ::2]


def _channels(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(x.shape[1]), torch.ones(x.shape[1])


STEPS: Functions = {
    "batch norm": lambda x: F.batch_norm(x, *_channels(x)),
    "batch norm of a batch": lambda x: F.batch_norm(x, *_channels(x), training=True),
    "roll": lambda x: x.roll(1, 1),
    "roll of rows": lambda x: x.roll((1, 1), (0, 1)),
    "flip": lambda x: x.flip(1),
    "softmax": lambda x: x.softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x], 1),
    "with its first row": lambda x: x * x[:1],
    "with a copy": lambda x: x + x.contiguous(),
    "like it": lambda x: torch.zeros_like(x) + 1,
    "instance norm": lambda x: F.instance_norm(x),
}


@pytest.mark.parametrize(
    ("shape", "dynamic"),
    [
        ((2, 4, 6, 8), False),
        *(pytest.param(s, d, marks=pytest.mark.slow) for s in [(4, 6), (4, 6, 8), (2, 4, 6, 8)] for d in (False, True)),
    ],
)
def test_layouts(shape: tuple[int, ...], dynamic: bool) -> None:
    chosen = {n: f for n, f in UNARY.items() if n in ("abs", "relu", "to torch.float64", "isnan", "add 1", "between")}
    found = {}
    for name, x in layouts(torch.arange(math.prod(shape)).reshape(shape) % 7 - 3.0):
        for function, why in wrong_ones({**chosen, **STEPS}, x, dynamic=dynamic).items():
            found[f"{function} of {name}"] = why
    assert found == {}


def test_gelu_of_the_largest() -> None:
    """Eager's own kernel for what has no gaps answers nan for infinity and infinity for the largest number; its other
    kernel and its float64 do not, and native is as these."""
    x = torch.tensor([inf, torch.finfo(torch.float32).max, -inf, nan, 0.0, -0.0, 30.0]).repeat(6)
    strided = torch.stack([x, x], 1)[:, 0]
    for given in (x, strided):
        compiled = torchmux.compile(lambda x: F.gelu(x), backend="native", strict=True)
        torch.testing.assert_close(compiled(given).contiguous(), F.gelu(strided).contiguous(), equal_nan=True)


@pytest.mark.parametrize("function", [torch.sinh, torch.cosh])
def test_hyperbolic_functions_are_finite_where_their_values_are(function: Any) -> None:
    # Those of Sleef, which eager takes for vectors, are infinite from 88.8 on.
    x = torch.cat([torch.linspace(-89.4, 89.4, 1001), torch.linspace(-1.5, 1.5, 1000), torch.tensor([-90.0, 90.0])])
    exact, found = function(x.double()), torchmux.compile(function, backend="native", fullgraph=True)(x)
    torch.testing.assert_close(found, exact.float(), rtol=3e-7, atol=0)
