"""Windows over images, for pooling and unfolding: which elements they hold, and where all of them lie inside.

Near the border of an image some elements of a window lie outside.  Checking that for each element of a vector is slow,
so a result whose rows lie along the width is written in pieces: the interior, whose windows need no check, and borders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node
from ..ir.index import Index
from ..ir.layout import channels_last, image_layout
from ..ir.operations import binary, compare, const
from ..ir.values import Value
from .joining import within
from .registry import Context

MOST_TAPS = 32
"""Windows of more elements are loops."""
_LEAST_INTERIOR = 8


@dataclass(frozen=True)
class Window:
    """The windows along one dimension of an image of ``extent``: ``count`` of them, with ``size`` elements each.

    If extent and count are symbolic, there are as many windows as begin early enough to end in the padded image.
    """

    extent: Index
    count: Index
    size: int
    step: int
    pad: int
    dilation: int

    def position(self, at: Index, tap: Index) -> Index:
        """Where element ``tap`` of window ``at`` lies; negative before the image."""
        return at * self.step - self.pad + tap * self.dilation

    @property
    def all_inside(self) -> bool:
        """Whether all windows lie in the image."""
        start, end = self.interior
        return start <= 0 and index.not_negative(end - self.count)

    @property
    def all_in_padding(self) -> bool:
        """Whether all windows lie in the padded image."""
        if not isinstance(self.extent, int) or not isinstance(self.count, int):
            return True
        return (self.count - 1) * self.step + self.size <= self.extent + 2 * self.pad

    @property
    def interior(self) -> tuple[int, Index]:
        """Windows that lie in the image: with known sizes all that do."""
        start = -(-self.pad // self.step)
        if not isinstance(self.extent, int) or not isinstance(self.count, int):
            return start, self.count - start
        end = (self.extent - 1 - (self.size - 1) * self.dilation + self.pad) // self.step + 1
        return start, min(end, self.count)

    @property
    def surrounded(self) -> tuple[int, Index]:
        """The elements of the image for which every window that holds them by some tap exists."""
        return (self.size - 1) * self.dilation - self.pad - self.step + 1, self.count * self.step - self.pad


def windows(
    a: Value, counts: Sequence[Index], size: Any, step: Any, pad: Any, dilation: Any, symbolic: bool = False
) -> list[Window] | None:
    """The windows over the last dimensions of ``a``; None if numbers are symbolic.

    ``symbolic`` admits symbolic extents and counts of windows that all end in the padded image.
    """
    rank = len(counts)

    def each(value: Any) -> list[Any]:
        return [value] * rank if isinstance(value, int) else list(value) * (rank if len(value) == 1 else 1)

    sizes = each(size)
    extents, numbers = (a.sizes[-rank:], counts), (sizes, each(step) or sizes, each(pad), each(dilation))
    if any(type(v) is not int for values in (numbers if symbolic else extents + numbers) for v in values):
        return None
    return [Window(*given) for given in zip(*extents, *numbers, strict=True)]


def taps(shape: Sequence[Window]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(w.size) for w in shape)))


def held(
    shape: Sequence[Window], at: Sequence[Index], tap: Sequence[Index], inside: Sequence[bool]
) -> tuple[Any, Node]:
    """The position of an element of a window, and the condition that it lies in the image."""
    where = tuple(w.position(i, t) for w, i, t in zip(shape, at, tap, strict=True))
    condition = const(True, torch.bool)
    for w, position, known in zip(shape, where, inside, strict=True):
        if not known:
            condition = binary("and", condition, within(position, 0, w.extent))
    return where, condition


def leading_to(
    shape: Sequence[Window], at: Sequence[Index], tap: Sequence[int], inside: Sequence[bool]
) -> tuple[Any, Node]:
    """The window whose element ``tap`` is the image's at ``at``, and the condition that there is one."""
    which: list[Index] = []
    condition = const(True, torch.bool)
    for w, i, t, known in zip(shape, at, tap, inside, strict=True):
        apart = i + (w.pad - t * w.dilation)
        which.append(index.floordiv(apart, w.step))
        if w.step > 1:
            exact = compare("eq", ops.from_index(index.remainder(apart, w.step)), ops.from_index(0))
            condition = binary("and", condition, exact)
        if not known:
            condition = binary("and", condition, within(which[-1], 0, w.count))
    return tuple(which), condition


def layout(ctx: Context, a: Value, fake: Any) -> tuple[Index, ...]:
    """The strides for a result: images keep the layout of those that they are made of."""
    sizes = ctx.sizes(fake)
    if len(sizes) == 4 and a.rank == 4 and image_layout(a) is not None:
        return channels_last(sizes)
    return ctx.strides(fake)


Element = Callable[[Any, Sequence[bool]], Node]


def in_pieces(
    ctx: Context,
    sizes: Sequence[Index],
    dtype: torch.dtype,
    strides: Sequence[Index],
    interiors: Sequence[tuple[int, Index]],
    element: Element,
    *,
    whole_rows: bool = False,
) -> Value:
    """A tensor in memory; ``element`` takes indices, and for each of the last dimensions whether they are interior.

    With ``whole_rows`` there is one piece.
    """
    rank = len(interiors)
    extents = sizes[-rank:]
    whole = [lo <= 0 and index.not_negative(hi - n) for (lo, hi), n in zip(interiors, extents, strict=True)]
    lo, hi, extent = max(interiors[-1][0], 0), interiors[-1][1], extents[-1]
    if isinstance(hi, int) and isinstance(extent, int):
        hi = min(hi, extent)
    along = type(strides[-1]) is int and strides[-1] == 1
    is_short = not index.not_negative(hi - lo - (_LEAST_INTERIOR if isinstance(hi, int) else 0))
    if whole_rows or whole[-1] or not along or is_short:
        return ctx.program.realize(Value(sizes, dtype, lambda at: element(at, whole)), strides)
    buffer = ctx.program.buffer(dtype, sizes, strides)
    for start, end in _pieces(lo, hi, extent):
        known = [*whole[:-1], start is lo and end is hi]

        def shifted(at: Any, start: Index = start, known: Sequence[bool] = known) -> Node:
            return element((*at[:-1], at[-1] + start), known)

        ctx.program.store(Value((*sizes[:-1], end - start), dtype, shifted), buffer, buffer.strides, start)
    return ctx.program.stored(buffer)


def _pieces(lo: int, hi: Index, extent: Index) -> Iterator[tuple[Index, Index]]:
    for start, end in ((lo, hi), (0, lo), (hi, extent)):
        if not index.not_negative(start - end):
            yield start, end
