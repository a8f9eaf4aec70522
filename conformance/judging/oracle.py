"""When a result is right.

These must be equal: dtypes, shapes, strides, integers, bools, strings, which tensors share memory, and where a result
is not finite.  Floating-point values may differ by as much as eager's own error allows.  A computation runs three
times: in eager, in eager with float64 (the reference) and in the backend.  The backend's error may be ``MULTIPLE``
times eager's, or a few units in the last place of the dtype (``ULPS``, ``HALF_ULPS``) where eager is nearly exact.
Eager's error is one draw of rounding errors; where a network amplifies it, the largest of several draws counts.

Where eager is not finite and the reference, rounded to the dtype, is another number, eager's kernel is what errs: one
that divides infinity by itself, say, where the kernel for another layout does not.  There, either is right.

Distances are measured over a whole tensor, relative to its largest element: the sum of a row may cancel to nearly
nothing, and then no computation in that precision has correct digits.  Where nothing can cancel (``elementwise``), each
element is compared relative to its own size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

MULTIPLE = 4.0
"""A backend's distance from the reference may be this many times eager's own."""

ULPS = 16.0
"""Units in the last place that are always allowed: different summation orders, fused multiply-add, vector math."""

HALF_ULPS = 2.0
"""The same for float16 and bfloat16: what computes in float32, and rounds once, has no such errors in their units.

One unit of bfloat16 is 0.8% of a number; 16 of them are as good as no bound.
"""


@dataclass(frozen=True)
class Difference:
    """Where and how two results differ: ``what`` is one of value, dtype, shape, stride, alias, type, exception."""

    where: str
    what: str
    words: str

    def __str__(self) -> str:
        return f"{self.where}: {self.words}" if self.where else self.words


def compare_tensors(
    where: str,
    found: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor | None,
    *,
    elementwise: bool = False,
    strides: bool = True,
    error: float = 0.0,
    scale: float = 0.0,
) -> Difference | None:
    """The first difference between a backend's tensor and eager's; ``reference`` is the float64 tensor, if any.

    ``error`` is eager's error in draws with different rounding errors.  ``scale`` is the largest number among all
    results, for tensors in which everything cancels.
    """
    if found.dtype is not expected.dtype:
        return Difference(where, "dtype", f"dtype {found.dtype}, eager has {expected.dtype}")
    if found.shape != expected.shape:
        return Difference(where, "shape", f"shape {tuple(found.shape)}, eager has {tuple(expected.shape)}")
    if found.device != expected.device:
        return Difference(where, "device", f"on {found.device}, eager has it on {expected.device}")
    if strides and found.layout is torch.strided and _telling_strides(found) != _telling_strides(expected):
        return Difference(where, "stride", f"strides {found.stride()}, eager has {expected.stride()}")
    if found.requires_grad is not expected.requires_grad:
        return Difference(where, "requires_grad", f"requires_grad is {found.requires_grad}, unlike in eager")
    a, b = found.detach().resolve_conj(), expected.detach().resolve_conj()
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
        reference = reference.to_dense() if reference is not None else None
    if not (b.is_floating_point() or b.is_complex()):
        return None if torch.equal(a, b) else _first_wrong(where, a, b, a != b)
    if b.is_complex():
        a, b = torch.view_as_real(a), torch.view_as_real(b)
        reference = torch.view_as_real(reference.detach().resolve_conj()) if reference is not None else None
    return _compare_floats(
        where, a, b, reference.detach() if reference is not None else None, elementwise, error, scale
    )


def _telling_strides(tensor: torch.Tensor) -> list[int]:
    """The strides that matter: not those of dimensions with one element, nor of empty tensors."""
    if not tensor.numel():
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _compare_floats(
    where: str,
    found: torch.Tensor,
    expected: torch.Tensor,
    reference: torch.Tensor | None,
    elementwise: bool,
    error: float,
    scale: float,
) -> Difference | None:
    if not expected.numel():
        return None
    special = ~torch.isfinite(expected)
    same = torch.where(special, _alike(found, expected), torch.isfinite(found))
    if reference is not None and reference.shape == expected.shape:
        rounded = reference.to(expected.dtype)
        units = _units(expected.dtype, True) * torch.finfo(expected.dtype).eps * rounded.abs()
        near = torch.isfinite(rounded) & ((found - rounded).abs() <= units)
        same |= special & (_alike(found, rounded) | near)
    if not bool(same.all()):
        return _first_wrong(where, found, expected, ~same)
    a, b = found.double(), expected.double()
    is_exact = reference is not None and reference.shape == b.shape
    exact = reference.double() if reference is not None and is_exact else b
    usable = ~special & torch.isfinite(exact)
    a, b, exact = a[usable], b[usable], exact[usable]
    if not a.numel():
        return None
    unit = torch.finfo(expected.dtype).eps
    few = _units(expected.dtype, is_exact) * unit
    off, eagers = (a - exact).abs(), (b - exact).abs().clamp(min=error)
    size = exact.abs()
    smallest = torch.finfo(expected.dtype).tiny
    if elementwise:
        allowed = MULTIPLE * eagers + few * size + smallest
    else:
        # Eager has no correct digit: the remaining value is noise of any size, next to results that are not noise.
        cancelled = unit * scale if float(eagers.max()) >= float(size.max()) else 0.0
        allowed = torch.full_like(off, float(MULTIPLE * eagers.max() + few * size.max() + smallest + cancelled))
    if bool((off <= allowed).all()):
        return None
    worst = int((off / allowed).argmax())
    times = float(off[worst] / allowed[worst])
    return Difference(
        where,
        "value",
        f"off by {float(off[worst]):.3g} where eager is off by {float(eagers.max()):.3g} and the largest element is "
        f"{float(size.max()):.3g}: {times:.3g} times what is allowed",
    )


def _units(dtype: torch.dtype, is_exact: bool) -> float:
    """Units in the last place that are always allowed; twice as many of half precision if eager is rounded too."""
    if dtype not in (torch.float16, torch.bfloat16):
        return ULPS
    return HALF_ULPS if is_exact else 2 * HALF_ULPS


def _alike(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Where two tensors have the same number, or both nan."""
    return (found == wanted) | (found.isnan() & wanted.isnan())


def distance(found: Any, reference: Any) -> float:
    """The largest distance of finite elements of a tensor from its float64 reference; 0 for anything else."""
    if not isinstance(found, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return 0.0
    if found.shape != reference.shape or not found.is_floating_point() or found.layout is not torch.strided:
        return 0.0
    off = (found.detach().double() - reference.detach().double()).abs()
    off = off[torch.isfinite(off)]
    return float(off.max()) if off.numel() else 0.0


def largest(values: Iterable[Any]) -> float:
    """The largest finite absolute value in floating-point tensors."""
    found = 0.0
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided:
            finite = value.detach().double().abs()
            finite = finite[torch.isfinite(finite)]
            found = max(found, float(finite.max()) if finite.numel() else 0.0)
    return found


def _first_wrong(where: str, found: torch.Tensor, expected: torch.Tensor, wrong: torch.Tensor) -> Difference:
    place = tuple(wrong.nonzero()[0].tolist())
    count = int(wrong.sum())
    more = f", and {count - 1} more" if count > 1 else ""
    at = "" if not place else f" at {list(place)}"
    return Difference(where, "value", f"{found[place].item()}{at}, eager has {expected[place].item()}{more}")


def sharing(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor, the position of the first tensor that it shares memory with (its own if there is none)."""
    first: dict[Any, int] = {}
    found = []
    for position, tensor in enumerate(tensors):
        try:
            key: Any = tensor.untyped_storage()._cdata
        except (NotImplementedError, RuntimeError):  # sparse tensors have no single storage
            key = position
        found.append(first.setdefault(key, position))
    return found
