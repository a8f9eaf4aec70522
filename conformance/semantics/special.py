"""Functions of extreme numbers: nan, infinities, zeros of both signs, the largest, the smallest, exact halves.

Each case has functions of one kind; if one of them is wrong, its position among the results identifies it.
The signs of zeros have their own case, and so have subnormal numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/special")

NUMBERS = (
    math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 20.0, -20.0,
    90.0, -90.0, 200.0, -200.0, 1e-4, -1e-4, 1e-20, -1e-20, 1e20, -1e20, 3e38, -3e38, 1e-38, -1e-38, 0.1, -0.1,
)  # fmt: skip
"""Rounded to float32; the count is odd, so that vectorized code has a tail to process."""

SMALLER = tuple(n for n in NUMBERS if not 100 < abs(n) < math.inf)
"""Without numbers so large that a function of them has no correct digits in any precision."""


def _of_each(trial: Trial, numbers: tuple[float, ...], *functions: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    x = trial.given(torch.tensor(numbers))
    return trial.run(lambda x: tuple(function(x) for function in functions), x)


def _of_pairs(trial: Trial, *functions: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Any:
    x = torch.tensor(NUMBERS)
    a, b = (trial.given(t.reshape(-1)) for t in torch.meshgrid(x, x, indexing="ij"))
    return trial.run(lambda a, b: tuple(function(a, b) for function in functions), a, b)


@case(elementwise=True, signs=False, subnormals=False)
def exponentials(trial: Trial) -> Any:
    """Exponential functions overflow to infinity, underflow to zero, and keep their digits around zero."""
    return _of_each(trial, NUMBERS, torch.exp, torch.exp2, torch.expm1, torch.sigmoid, torch.tanh, F.logsigmoid)


@case(elementwise=True, signs=False, subnormals=False)
def logarithms(trial: Trial) -> Any:
    """Logarithms of zero are minus infinity, and of negative numbers nan."""
    return _of_each(trial, NUMBERS, torch.log, torch.log2, torch.log10, torch.log1p, torch.logit)


@case(elementwise=True, signs=False, subnormals=False)
def roots_and_powers(trial: Trial) -> Any:
    """Roots of negative numbers are nan; powers of zero and infinity are as in eager."""
    return _of_each(
        trial, NUMBERS,
        torch.sqrt, torch.rsqrt, torch.reciprocal, torch.square,
        lambda x: x**3, lambda x: x**-1, lambda x: x**0, lambda x: x**0.5, lambda x: x**-0.5, lambda x: 2**x,
    )  # fmt: skip


@case(elementwise=True, signs=False, subnormals=False)
def circular_functions(trial: Trial) -> Any:
    """Trigonometric functions of infinities are nan, and odd functions of zero are zero."""
    return _of_each(trial, SMALLER, torch.sin, torch.cos, torch.tan, torch.asin, torch.acos, torch.atan, torch.sinc)


@case(elementwise=True, signs=False, subnormals=False)
def hyperbolic_functions(trial: Trial) -> Any:
    """Hyperbolic functions and their inverses, inside and outside their domains."""
    return _of_each(
        trial, SMALLER, torch.sinh, torch.cosh, torch.asinh, torch.acosh, torch.atanh, torch.erf, torch.erfc
    )


@case(elementwise=True, signs=False, subnormals=False)
def whole_ranges(trial: Trial) -> Any:
    """Where functions come close to their limits, and where an angle has gone around many times."""
    close = trial.given(torch.linspace(-6.1, 6.1, 123))
    angles = trial.given(torch.tensor([3.0, 31.5, 333.3, 7e3, 1e5, 1.5e6, 2e7, -4e4, -123456.7]))

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.erf(), x.erfc(), x.tanh(), x.sigmoid(), F.softplus(x), x.atan(), y.sin(), y.cos(), (x * 9).exp()

    return trial.run(f, close, angles)


@case(elementwise=True, signs=False, subnormals=False)
def rounding(trial: Trial) -> Any:
    """Halves are rounded to even, and non-finite numbers stay the same."""
    return _of_each(trial, NUMBERS, torch.round, torch.floor, torch.ceil, torch.trunc, torch.frac, torch.sign)


@case(reference=False)
def tests_of_numbers(trial: Trial) -> Any:
    """Predicates on numbers match eager, including nan and signed zeros."""
    return _of_each(
        trial, NUMBERS,
        torch.isnan, torch.isinf, torch.isfinite, torch.isposinf, torch.isneginf, torch.signbit, torch.logical_not,
        lambda x: x != x, lambda x: x.bool(), lambda x: x == 0, lambda x: x >= math.inf,
    )  # fmt: skip


@case(elementwise=True, signs=False, subnormals=False)
def activations(trial: Trial) -> Any:
    """Activation functions far from zero, and of non-finite numbers."""
    return _of_each(
        trial, NUMBERS,
        F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.softplus, F.silu, F.mish, F.hardtanh, F.hardswish,
        F.hardsigmoid, F.softsign, F.softshrink, F.hardshrink, lambda x: F.threshold(x, 0.2, -1.0),
    )  # fmt: skip


@case(reference=False)
def rectifier(trial: Trial) -> Any:
    """A rectifier propagates nan."""
    return _of_each(trial, NUMBERS, F.relu)


@case(cancels=True, signs=False)
def gelus(trial: Trial) -> Any:
    """Both forms of GELU, which cancel for large negative numbers."""
    return _of_each(trial, SMALLER, F.gelu, lambda x: F.gelu(x, approximate="tanh"))


@case(cancels=True, signs=False)
def differences(trial: Trial) -> Any:
    """``x - tanh(x)`` cancels around zero, where its digits are the rounding error of the tangent."""
    small = tuple(n for n in NUMBERS if not 1 < abs(n) < math.inf)
    return _of_each(trial, small, F.tanhshrink)


@case(elementwise=True, signs=False, subnormals=False)
def clamps(trial: Trial) -> Any:
    """A clamp keeps nan, and maps infinities to the bounds."""
    return _of_each(
        trial, NUMBERS,
        lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0), lambda x: x.clamp_max(0.5), torch.nan_to_num,
        lambda x: x.nan_to_num(2.0, 3.0, -3.0), torch.abs, torch.neg, lambda x: x.clamp(2, -2),
    )  # fmt: skip


@case(elementwise=True, signs=False, subnormals=False)
def quotients(trial: Trial) -> Any:
    """Divisions by zero and infinity, with and without rounding."""
    return _of_pairs(
        trial, torch.div, torch.mul, torch.add, torch.sub,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"), lambda a, b: torch.addcdiv(a, a, b),
    )  # fmt: skip


@case(elementwise=True, signs=False, subnormals=False)
def powers_of_pairs(trial: Trial) -> Any:
    """Every number to the power of every other."""
    return _of_pairs(trial, torch.pow)


@case(elementwise=True, signs=False, subnormals=False)
def functions_of_pairs(trial: Trial) -> Any:
    """Functions of two numbers that treat signs, zeros and infinities individually."""
    return _of_pairs(trial, torch.atan2, torch.copysign, torch.hypot, torch.logaddexp, torch.xlogy)


@case(elementwise=True, signs=False, subnormals=False)
def extremes_of_pairs(trial: Trial) -> Any:
    """Nan is both the larger and the smaller number, unless the function ignores it."""
    return _of_pairs(trial, torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.clamp_min)


@case(reference=False)
def comparisons_of_pairs(trial: Trial) -> Any:
    """Nan is unequal to everything, and zeros of both signs are equal."""
    return _of_pairs(
        trial, torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge,
        torch.logical_and, torch.logical_or, torch.logical_xor,
    )  # fmt: skip


@case(elementwise=True, signs=False, subnormals=False)
def remainders_of_pairs(trial: Trial) -> Any:
    """Remainders with the sign of the divisor and of the dividend, and the corresponding quotient."""
    numbers = torch.tensor([n for n in NUMBERS if abs(n) > 0.05 and not 100 < abs(n) < math.inf] + [0.0, math.nan])
    a, b = (trial.given(t.reshape(-1)) for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    return trial.run(lambda a, b: (torch.remainder(a, b), torch.fmod(a, b), torch.floor_divide(a, b)), a, b)


@case(elementwise=True)
def signs_of_zeros(trial: Trial) -> Any:
    """Zeros keep the sign that eager gives them, in functions that do not round."""
    numbers = (0.0, -0.0, 0.25, -0.25, 0.75, -0.75, 1.0, -1.0, -0.0, 0.0, -0.5, 0.5)
    return _of_each(
        trial, numbers,
        torch.neg, torch.abs, torch.trunc, torch.ceil, torch.floor, torch.round, F.relu, torch.sqrt, torch.tanh,
        lambda x: x.clamp(min=0), lambda x: x.clamp(-1, 0), lambda x: x * 0.0, lambda x: x * -1.0,
        lambda x: torch.copysign(torch.ones_like(x), x), lambda x: 1 / x, lambda x: x + -0.0, lambda x: x - 0.0,
    )  # fmt: skip


def _rows(trial: Trial) -> torch.Tensor:
    """Rows of 37 numbers: ordinary rows, and rows with one or several numbers of each special kind."""
    x = torch.randn(8, 37, generator=torch.Generator().manual_seed(3))
    x[1, 5], x[2, 5], x[3, 36], x[4, 0] = math.nan, math.inf, -math.inf, math.nan
    x[5, 3], x[5, 30] = math.inf, -math.inf
    x[6], x[7] = -math.inf, 0.0
    return trial.given(x)


@case()
def reductions(trial: Trial) -> Any:
    """One non-finite number determines a whole sum, product, mean, norm or extreme."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.sum(-1), x.mean(-1), x.prod(-1), x.amax(-1), x.amin(-1), x.var(-1), x.norm(dim=-1), x.logsumexp(-1),
            x.any(-1), x.all(-1), x.argmax(-1), x.argmin(-1), x.sum(0), x.amax(0), x.cumsum(-1), x.cumprod(-1),
        )  # fmt: skip

    return trial.run(f, _rows(trial))


@case()
def masked_rows(trial: Trial) -> Any:
    """Softmax and related functions of rows with infinities, and of a row of only infinities, which has no answer."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.softmax(-1), x.log_softmax(-1), x.softmax(0), F.layer_norm(x, (37,)), F.normalize(x, dim=-1)

    return trial.run(f, _rows(trial))


@case(reference=False)
def order_of_numbers(trial: Trial) -> Any:
    """Nan is sorted after everything else."""

    def f(x: torch.Tensor) -> tuple[Any, ...]:
        return (
            x.sort(dim=-1, stable=True),
            x.sort(dim=-1, descending=True).values,
            x.topk(5).values,
            x.max(-1),
            x.min(-1),
        )

    return trial.run(f, _rows(trial))


@case("training", elementwise=True, signs=False, subnormals=False)
def gradients(trial: Trial) -> Any:
    """Gradients at kinks and poles match eager's."""
    functions = (
        torch.abs, torch.sqrt, torch.rsqrt, torch.log, torch.exp, torch.tanh, torch.sigmoid, F.relu6, F.elu,
        F.softplus, F.hardtanh, F.hardswish, F.leaky_relu, lambda x: x.clamp(-1, 1), lambda x: x**2, lambda x: 1 / x,
    )  # fmt: skip
    x = trial.given(torch.tensor(NUMBERS).requires_grad_())
    compiled = trial.compile(lambda x: tuple(function(x) for function in functions))
    return [torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in compiled(x)]
