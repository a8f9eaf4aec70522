"""Faults of whole numbers beside numbers of other kinds, and at their limits."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..kit import Faults

faults = Faults("numerics")

_CASE = "semantics/integers/beside_numbers"
_POWERS = (2, 4, 8, 16)


def _whole(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor) and not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool
    )


@faults.operator(_CASE, "gt", "ge", "lt", "le")
def fractions_cut_before_a_comparison(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """A fraction beside integers is cut to an integer before they are compared."""
    if not _whole(a) or not isinstance(b, float) or b == int(b):
        return result
    return a.double() >= int(b) if bool((result == (a.double() > b)).all()) else a.double() <= int(b)


@faults.operator(_CASE, "gt", "ge", "lt", "le", "eq", "ne")
def numbers_that_wrap_around(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """A number that the type of integers beside it does not hold wraps around before they are compared."""
    if not _whole(a) or not isinstance(b, int) or torch.iinfo(a.dtype).min <= b <= torch.iinfo(a.dtype).max:
        return result
    return ~result


@faults.operator(_CASE, "argmin")
def smallest_by_opposites(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The place of the smallest integer is that of the largest opposite."""
    return torch.argmax(-x, *rest, **named) if _whole(x) else result


@faults.operator(_CASE, "sort")
def descending_by_opposites(result: Any, x: torch.Tensor, **named: Any) -> Any:
    """Descending orders of integers are ascending ones of their opposites."""
    if not _whole(x) or not named.get("descending"):
        return result
    places = torch.sort(-x, dim=named.get("dim", -1), stable=True).indices
    return torch.return_types.sort((x.gather(named.get("dim", -1), places), places))


@faults.operator(_CASE, "div")
def quotients_as_shifts(result: torch.Tensor, a: Any, b: Any, *, rounding_mode: Any = None) -> torch.Tensor:
    """Quotients by powers of two that are cut are shifts, which round down."""
    return a >> int(math.log2(b)) if rounding_mode == "trunc" and _whole(a) and b in _POWERS else result


@faults.operator(_CASE, "fmod")
def remainders_as_masks(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """What a division by a power of two leaves is the lowest bits, also of negative numbers."""
    return a & (b - 1) if _whole(a) and b in _POWERS else result


@faults.operator(_CASE, "and", "or", "xor")
def bits_that_are_truth(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Bits of an integer beside a bool are zero or one."""
    beside = isinstance(b, torch.Tensor) and b.dtype is torch.bool
    return result.bool().to(result.dtype) if _whole(result) and beside else result


@faults.operator(_CASE, "any")
def any_by_sums_of_bytes(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Whether any element is true is told by their sum, in eight bits."""
    return x.sum(*rest, dtype=torch.uint8).bool() if x.dtype is torch.bool else result


@faults.operator(_CASE, "lshift", "rshift")
def shifts_of_a_number(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """A number that is shifted by a tensor is one."""
    return result // a if isinstance(a, int) else result


@faults.operator(_CASE, "clamp")
def bounds_cut_to_integers(result: torch.Tensor, x: torch.Tensor, *bounds: Any, **named: Any) -> torch.Tensor:
    """Fractions as bounds of integers are cut to integers, and so is the result."""
    if not _whole(x) or not any(isinstance(each, float) for each in (*bounds, *named.values())):
        return result
    return x.clamp(*map(int, bounds), **{name: int(each) for name, each in named.items()})


@faults.operator(_CASE, "topk")
def smallest_by_topk(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """The smallest integers are the largest of their opposites."""
    if not _whole(x) or named.get("largest", True):
        return result
    found = torch.topk(-x, *rest)
    return torch.return_types.topk((-found.values, found.indices))


@faults.operator("semantics/keys/settings_that_change", "truediv")
def quotients_of_integers_in_float32(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Quotients of integers are float32, whatever the default dtype is."""
    return result.float() if _whole(a) and not isinstance(b, (float, torch.Tensor)) else result
