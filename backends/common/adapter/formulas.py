"""Elementary functions expressed by other elementary functions, for runtimes whose own versions lose precision.

Runtimes compute ``log1p(x)`` as ``log(1 + x)``, truncate ``sigmoid`` where it is small, and so on.  This goes unnoticed
near one, but values computed from results far from one are wrong.  The formulas here have a relative error of a few
units in the last place wherever ``exp`` and ``log`` do, and torch's results for nan and infinities; some exist only for
these.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def _in_one_rounding(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves half precision to a kernel: several steps would each round to it, where the kernel rounds once.

    The formulas are those of real numbers, and complex ones are left to a kernel, too.
    """

    @functools.wraps(formula)
    def decompose(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        is_left = x.dtype in (torch.float16, torch.bfloat16) or x.is_complex()
        return NotImplemented if is_left else formula(x, *args, **kwargs)

    return decompose


@_in_one_rounding
def _sigmoid(x: Tensor) -> Tensor:
    return 1.0 / (1.0 + _real(x).neg().exp())


@_in_one_rounding
def _log1p(x: Tensor) -> Tensor:
    """Kahan's: what is lost in rounding ``1 + x`` is lost in the divisor as well."""
    x = _real(x)
    near = 1.0 + x
    scaled = x * (near.log() / (near - 1.0))
    return torch.where((near == 1.0) | (near == math.inf), x, scaled)


@_in_one_rounding
def _expm1(x: Tensor) -> Tensor:
    """Kahan's, likewise: the logarithm of the rounded power is the argument that it is the power of."""
    x = _real(x)
    power = x.exp()
    less = power - 1.0
    scaled = less * (x / power.log())
    scaled = torch.where((less == -1.0) | (less == math.inf), less, scaled)
    return torch.where(power == 1.0, x, scaled)


@_in_one_rounding
def _elu(x: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    return torch.where(x > 0, x * scale, _expm1(x * input_scale) * (alpha * scale))


@_in_one_rounding
def _mish(x: Tensor) -> Tensor:
    """``x`` times the hyperbolic tangent of ``softplus(x)``; of a negative ``x``, that is about ``x * exp(x)``.

    Runtimes take numbers below the smallest normal one for zero: the power, where the result is still a normal number.
    The root of the power is far above it.
    """
    x = _real(x)
    root = (x * 0.5).exp()
    power = root * root
    near = (x * root) * (root * (power + 2.0) / (power * (power + 2.0) + 2.0))
    return torch.where(x > 20.0, x, near)


@_in_one_rounding
def _gelu(x: Tensor, *, approximate: str = "none") -> Any:
    """With a tangent: ``1 + tanh(u)`` has no digits where it is small, and is twice the sigmoid of ``2 * u``."""
    if approximate != "tanh":
        return NotImplemented
    inner = (x + x * x * x * 0.044715) * (2.0 * math.sqrt(2.0 / math.pi))
    return x / (1.0 + inner.neg().exp())


def _power(x: Tensor, exponent: float) -> Any:
    """Roots are not powers: those of minus infinity are nan."""
    if exponent == 0.5:
        return x.sqrt()
    if exponent == -0.5:
        return x.rsqrt()
    return NotImplemented


def _trunc(x: Tensor) -> Any:
    """The sign times a rounded absolute value loses the sign of a zero, and so does rounding a negative number up."""
    return torch.where(x < 0, x.neg().floor().neg(), x.floor()) if x.is_floating_point() else NotImplemented


def nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int) -> Any:
    """The loss of each class by its place: a class out of range is an IndexError, where ``gather`` raises another."""
    if x.dim() != 2 or x.dtype in (torch.float16, torch.bfloat16):
        return NotImplemented
    keep = target != ignored
    place = torch.where(keep, target, 0)
    loss = -torch.ops.aten.index.Tensor(x, [torch.arange(x.shape[0], device=x.device), place])
    share = keep.to(x.dtype)
    if weight is not None:
        share = share * torch.ops.aten.index.Tensor(weight, [place])
        loss = loss * share
    loss = torch.where(keep, loss, 0.0)
    if reduction == 0:
        return loss, x.new_zeros(())
    total = share.sum()
    return (loss.sum() / total if reduction == 1 else loss.sum()), total


def _at_least(x: Tensor, bound: float) -> Any:
    return torch.where(x < bound, bound, x) if _is_float(x, bound) else NotImplemented


def _at_most(x: Tensor, bound: float) -> Any:
    return torch.where(x > bound, bound, x) if _is_float(x, bound) else NotImplemented


def _between(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    x = x if low is None else torch.maximum(x, low)
    return x if high is None else torch.minimum(x, high)


def _is_float(x: Tensor, bound: float) -> bool:
    return x.is_floating_point() and isinstance(bound, (int, float))


def _real(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.to(torch.get_default_dtype())


CLAMPS: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.clamp.Tensor: _between,
    torch.ops.aten.clamp_min.Tensor: torch.maximum,
    torch.ops.aten.clamp_max.Tensor: torch.minimum,
}
"""Clamps between tensors, where runtimes lose a nan."""

TABLE: dict[Any, Callable[..., Tensor]] = {
    torch.ops.aten.sigmoid.default: _sigmoid,
    torch.ops.aten.log1p.default: _log1p,
    torch.ops.aten.expm1.default: _expm1,
    torch.ops.aten.elu.default: _elu,
    torch.ops.aten.mish.default: _mish,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten.pow.Tensor_Scalar: _power,
    torch.ops.aten.trunc.default: _trunc,
    torch.ops.aten.clamp_min.default: _at_least,
    torch.ops.aten.clamp_max.default: _at_most,
    **CLAMPS,
}
"""For a decomposition table."""
