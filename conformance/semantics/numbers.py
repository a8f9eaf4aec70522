"""Dtypes, scalars, and extreme numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/numbers")


@case()
def promotion(trial: Trial) -> Any:
    """Mixed dtypes are promoted as in torch."""
    i, b, x = trial.tensor(4, dtype=torch.int64), trial.tensor(4, dtype=torch.bool), trial.tensor(4)

    def f(i: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return i + x, b + i, i / 3, b * 2.5, i + 1.5, torch.where(b, i, x), i // 2, i % 4, x > i

    return trial.run(f, i, b, x)


@case(reference=False)
def integers_wrap_around(trial: Trial) -> Any:
    """Integers wrap around in their own width."""
    big = torch.tensor([2**31 - 1, -(2**31)], dtype=torch.int32, device=trial.device)
    wide = torch.tensor([2**62, -(2**62)], dtype=torch.int64, device=trial.device)
    small = torch.tensor([200, 100], dtype=torch.uint8, device=trial.device)
    return trial.run(lambda a, b, c: (a + 1, b * 3, c + 100, b >> 3), big, wide, small)


@case(reference=False)
def integer_division(trial: Trial) -> Any:
    """Division and remainder of negative integers round as in torch."""
    a = torch.tensor([-7, 7, -8, 8], device=trial.device)

    def f(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return a // 3, a % 3, torch.div(a, 3, rounding_mode="trunc"), torch.fmod(a, 3), a // -3, a % -3

    return trial.run(f, a)


@case(reference=False)
def not_finite(trial: Trial) -> Any:
    """NaN and infinities pass through comparisons, extremes and sums as in eager."""
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0], device=trial.device)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.clamp(-1, 1), x.max(), x.sum(), x == x, x.sign(), x.isnan(), torch.maximum(x, x.flip(0)),
            x.exp(), x * 0, x.sqrt(), 1 / x,
        )  # fmt: skip

    return trial.run(f, x)


@case()
def nan_in_extremes(trial: Trial) -> Any:
    """One NaN among numbers is both the maximum and the minimum."""
    x = trial.tensor(3, 8)
    x[0, 5] = x[2, 1] = math.nan

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax(-1), x.amin(0), x.max(), x.max(-1).values, x.sort(-1).values

    return trial.run(f, x)


@case()
def nan_in_pooling(trial: Trial) -> Any:
    """Max pooling and average pooling of NaN give NaN, and of nothing but minus infinity minus infinity, in each number
    of dimensions."""
    x, volume, low = (
        trial.tensor(3, 2, 8, 8),
        trial.tensor(2, 2, 4, 5, 4),
        trial.given(torch.full((1, 2, 5, 5), -math.inf)),
    )
    x[0, 1, 5, 3] = x[2, 0, 0, 1] = volume[0, 1, 2, 3, 1] = math.nan

    def f(x: torch.Tensor, volume: torch.Tensor, low: torch.Tensor) -> tuple[torch.Tensor, ...]:
        F = torch.nn.functional
        return (
            F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.max_pool2d(x, 3, 2, 1),
            F.max_pool1d(x[0], 3, 2, 1), F.max_pool3d(volume, 2), F.max_pool3d(volume, 3, 2, 1, ceil_mode=True),
            F.avg_pool3d(volume, 2), F.adaptive_max_pool2d(x, 3), F.max_pool2d(low, 2), F.max_pool2d(low, 3, 2, 1),
            F.max_pool1d(low[0], 2), F.max_pool3d(low[None], (1, 2, 2)), F.avg_pool2d(low, 2),
        )  # fmt: skip

    return trial.run(f, x, volume, low)


@case(elementwise=True)
def far_from_one(trial: Trial) -> Any:
    """Very large and very small numbers keep their relative precision."""
    x = trial.tensor(64, low=-1, high=1)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        small, large = x * 1e-30, x * 1e30
        return small * 3, large / 7, small.abs().sqrt(), x.abs().log1p(), (x * 1e-4).expm1(), (x * 20).sigmoid()

    return trial.run(f, x)


@case()
def softmax_of_large_numbers(trial: Trial) -> Any:
    """Softmax, log-softmax and logsumexp do not overflow."""
    x = trial.tensor(3, 5) * 1000
    return trial.run(lambda x: (x.softmax(-1), x.log_softmax(-1), x.logsumexp(-1)), x)


@case()
def variance_of_shifted_numbers(trial: Trial) -> Any:
    """The variance of numbers far from zero does not cancel out."""
    x = trial.tensor(4, 256) + 1000.0
    return trial.run(lambda x: (x.var(-1), torch.nn.functional.layer_norm(x, (256,))), x)


@case("bfloat16")
def bfloat16(trial: Trial) -> Any:
    """bfloat16 stays bfloat16, and is rounded where eager rounds."""
    x, y = trial.tensor(4, 8, dtype=torch.bfloat16), trial.tensor(8, 4, dtype=torch.bfloat16)
    return trial.run(lambda x, y: (x + 1, x @ y, x.softmax(-1), x.sum(), x.float() * 2, x.exp().log()), x, y)


@case("float16")
def float16(trial: Trial) -> Any:
    """float16 stays float16."""
    x, y = trial.tensor(4, 8, dtype=torch.float16), trial.tensor(8, 4, dtype=torch.float16)
    return trial.run(lambda x, y: (x * 2, x @ y, x.softmax(-1), x.mean(), x.to(torch.float32)), x, y)


@case("float64", reference=False)
def float64(trial: Trial) -> Any:
    """float64 is computed in float64, not in lower precision."""
    x = trial.tensor(8, 8, dtype=torch.float64)
    return trial.run(lambda x: (x @ x, x.exp(), x.softmax(-1), x.sum(), 1 / x), x)


@case()
def numbers_of_python(trial: Trial) -> Any:
    """Python numbers keep their values in the graph: floats in full precision, integers beyond 32 bits, bools."""
    x, n = trial.tensor(3), trial.tensor(3, dtype=torch.int64)
    return trial.run(lambda x, n: (x + 0.1, x * math.pi, n + 2**40, x * True, n - 2**33, x**2, 2**x, 1 - x), x, n)


@case()
def no_dimensions(trial: Trial) -> Any:
    """Tensors without dimensions are tensors."""
    x, y = trial.tensor(), trial.tensor(3)
    return trial.run(lambda x, y: (x + 1, x * y, y.sum() * x, x.unsqueeze(0), x > 0, y[0]), x, y)


@case()
def no_elements(trial: Trial) -> Any:
    """Tensors without elements keep their shapes, and empty sums have their values."""
    x = trial.tensor(0, 4)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ones = torch.ones(4, 2, dtype=x.dtype, device=x.device)
        return x + 1, x.sum(), x.sum(0), x @ ones, torch.cat([x, ones.t()]), x.prod(), x.mean()

    return trial.run(f, x)


@case()
def constants(trial: Trial) -> Any:
    """Tensors created in the graph, from lists and from ranges, are created in every call."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        table = torch.tensor([1.0, 2.0, 4.0], dtype=x.dtype, device=x.device)
        made = torch.arange(3, device=x.device)
        return x * table, made + 1, torch.zeros_like(x), torch.full((2, 3), 7, device=x.device), table

    compiled = trial.compile(f)
    first = compiled(trial.tensor(3))
    first[4].zero_()  # the next call must not see this
    return compiled(trial.tensor(3))


@case(terms=100_000)
def a_large_constant(trial: Trial) -> Any:
    """A constant of a hundred thousand elements that the function closes over."""
    table = trial.tensor(100_000)
    return trial.run(lambda x: ((x * table).abs().mean(), x[:5] + table[-5:]), trial.tensor(100_000))


@case()
def complex_numbers(trial: Trial) -> Any:
    """Complex numbers, or a refusal."""
    x = trial.tensor(4, dtype=torch.complex64)
    return trial.run(lambda x: (x * (1 + 2j), x.abs(), x.real + 1, torch.fft.fft(x)), x)
