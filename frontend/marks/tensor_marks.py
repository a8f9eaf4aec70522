"""Marks on the dimensions of a tensor before compilation: dynamic, static, or of unknown size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.registry.names import class_with_article
from torchmux.wording import require

_ATTRIBUTE = "_torchmux_marks"

DYNAMIC, WEAK, STATIC, UNBACKED = "dynamic", "weak", "static", "unbacked"


@dataclass(frozen=True)
class Mark:
    """``kind`` is ``"dynamic"`` (an error if the code needs a fixed size), ``"weak"`` (dynamic where that works),
    ``"static"`` or ``"unbacked"`` (nothing may depend on the size); the bounds are inclusive, and None is unbounded."""

    kind: str
    low: int | None = None
    high: int | None = None


def _mark(tensor: torch.Tensor, index: Any, mark: Mark, function: str) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{function}() takes a tensor, not {class_with_article(tensor)}")
    marks = dict(tensor.__dict__.get(_ATTRIBUTE, ()))
    for bound in (mark.low, mark.high):
        require(bound, (int, type(None)), f"{function}(): min or max")
    if mark.low is not None and mark.high is not None and mark.low > mark.high:
        raise ValueError(f"{function}: min={mark.low} is above max={mark.high}")
    for each in index if isinstance(index, Iterable) else [index]:
        require(each, (int,), f"{function}(): a dimension")
        if not -tensor.dim() <= each < tensor.dim():
            raise IndexError(f"{function}: dimension {each} of a tensor with {tensor.dim()} dimensions")
        marks[each % tensor.dim()] = mark
    setattr(tensor, _ATTRIBUTE, marks)


def mark_dynamic(tensor: torch.Tensor, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Make dimension ``index`` (or each of several) of an input symbolic from the first compilation on.

    ``min`` and ``max`` are inclusive bounds; a call outside them is compiled separately.  If the code works only for
    one size, compilation raises :class:`~torchmux.ConstraintViolation`, which names the line that requires it.

    Raises:
        IndexError: the tensor does not have this dimension.
        ValueError: ``min`` is above ``max``.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x * 2, backend="eager")
        >>> x = torch.ones(8, 4)
        >>> torchmux.mark_dynamic(x, 0, max=64)
        >>> for rows in (x, torch.ones(9, 4), torch.ones(10, 4)):
        ...     result = compiled(rows)
        >>> torchmux.report(compiled).graph_count
        1
    """
    _mark(tensor, index, Mark(DYNAMIC, min, max), "mark_dynamic")


def maybe_mark_dynamic(tensor: torch.Tensor, index: Any) -> None:
    """Make dimension ``index`` (or each of several) symbolic, or a constant if the code needs one.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x * 2, backend="eager")
        >>> x = torch.ones(8, 4)
        >>> torchmux.maybe_mark_dynamic(x, 0)
        >>> for rows in (x, torch.ones(9, 4)):
        ...     result = compiled(rows)
        >>> torchmux.report(compiled).graph_count
        1
    """
    _mark(tensor, index, Mark(WEAK), "maybe_mark_dynamic")


def mark_unbacked(tensor: torch.Tensor, index: Any, *, min: int | None = None, max: int | None = None) -> None:
    """Make dimension ``index`` (or each of several) a size that nothing may depend on, not even whether it is 0 or 1.

    A branch on such a size breaks the graph.  ``min`` and ``max`` are its known bounds; a call outside them is compiled
    separately.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x * 2, backend="eager")
        >>> x = torch.ones(1, 4)
        >>> torchmux.mark_unbacked(x, 0)
        >>> for rows in (x, torch.ones(0, 4), torch.ones(7, 4)):
        ...     result = compiled(rows)
        >>> torchmux.report(compiled).graph_count
        1
    """
    _mark(tensor, index, Mark(UNBACKED, min, max), "mark_unbacked")


def mark_static(tensor: torch.Tensor, index: Any = None) -> None:
    """Keep dimension ``index`` (or each of several, or all of them) a constant, whatever ``dynamic`` says.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x * 2, backend="eager", dynamic=True)
        >>> for rows in (3, 4):
        ...     x = torch.ones(rows, 2)
        ...     torchmux.mark_static(x, 0)
        ...     result = compiled(x)
        >>> torchmux.report(compiled).graph_count
        2
    """
    everywhere = range(tensor.dim()) if isinstance(tensor, torch.Tensor) else ()
    _mark(tensor, everywhere if index is None else index, Mark(STATIC), "mark_static")


def marks_of(tensor: torch.Tensor) -> dict[int, Mark]:
    """The marks of a tensor by dimension: ours, and those set by ``torch._dynamo.mark_*``."""
    attributes = tensor.__dict__
    if not attributes:
        return {}
    marks: dict[int, Mark] = {}
    # torch's own precedence: unbacked, dynamic, weak, static
    for name in ("_dynamo_static_indices",):
        marks.update((i, Mark(STATIC)) for i in attributes.get(name, ()))
    for name in ("_dynamo_weak_dynamic_indices", "_dynamo_propagated_dynamic_indices"):
        marks.update((i, Mark(WEAK)) for i in attributes.get(name, ()))
    bounds = {r.dim: (r.min, r.max) for r in attributes.get("_dynamo_dynamic_range", ())}
    marks.update((i, Mark(DYNAMIC, *bounds.get(i, ()))) for i in attributes.get("_dynamo_dynamic_indices", ()))
    limits = attributes.get("_dynamo_unbacked_bounds", {})
    for name in ("_dynamo_unbacked_indices", "_dynamo_strict_unbacked_indices"):
        marks.update((i, Mark(UNBACKED, *limits.get(i, ()))) for i in attributes.get(name, ()))
    rank = tensor.dim()
    marks = {i % rank: mark for i, mark in marks.items() if -rank <= i < rank}
    marks.update(attributes.get(_ATTRIBUTE, ()))
    return marks
