"""Windows over images: which elements they hold, where all of them lie inside, and unfolding.

Near the border of an image some elements of a window lie outside.  Where checking that for each element of a vector is
slow, a result whose rows lie along the width is written in pieces: the interior, whose windows need no check, and
borders.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import channels_last, image_layout
from ..ir.operations import binary, compare, const, masked
from ..ir.values import Value
from . import calls
from .joining import within
from .registry import Context, aten, lowers

MOST_TAPS = 32
"""Windows of more elements are loops."""
_LEAST_INTERIOR = 8
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


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
    if whole_rows or whole[-1] or not along or is_short or not ctx.program.forms.writes_windows_in_pieces():
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


def is_plain(a: Value, shape: Sequence[Window] | None) -> bool:
    """Whether loops here do what the operator does: something in each dimension, a type of its own."""
    return (
        shape is not None
        and a.dtype in FLOATS
        and all(type(s) is not int or s > 0 for s in a.sizes)
        and all((type(w.count) is not int or w.count > 0) and w.step > 0 for w in shape)
    )


def overlap(ctx: Context, a: Value, shape: Sequence[Window]) -> None:
    """What several windows read is computed once."""
    if any(w.size > w.step for w in shape):
        ctx.keep(a)


# --- windows as columns -----------------------------------------------------------------------------------------------


@lowers(aten.im2col.default)
def _im2col(ctx: Context, a: Value, size: Any, dilation: Any, pad: Any, step: Any) -> Any:
    counts = [
        (int(n) + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(a.sizes[-2:], pad, dilation, size, step, strict=True)
        if type(n) is int
    ]
    shape = windows(a, counts, size, step, pad, dilation) if len(counts) == 2 else None
    if not is_plain(a, shape):
        return calls.call(ctx, aten.im2col.default, (a, size, dilation, pad, step), {})
    assert shape is not None
    overlap(ctx, a, shape)
    zero = const(0, compute_type(a.dtype))

    def element(at: Any, inside: Sequence[bool]) -> Node:
        place, condition = held(shape, at[-2:], at[-4:-2], inside)
        return masked(condition, a.at((*at[:-4], *place)), zero)

    sizes = (*a.sizes[:-2], *(w.size for w in shape), *(w.count for w in shape))
    strides = index.contiguous_strides(sizes)
    return in_pieces(ctx, sizes, a.dtype, strides, [w.interior for w in shape], element).view(ctx.sizes())


@lowers(aten.col2im.default)
def _col2im(ctx: Context, a: Value, extents: Any, size: Any, dilation: Any, pad: Any, step: Any) -> Any:
    out = ctx.sizes()
    image = Value(out, a.dtype, lambda at: const(0, a.dtype))
    counts = [
        (int(n) + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(out[-2:], pad, dilation, size, step, strict=True)
        if type(n) is int
    ]
    shape = windows(image, counts, size, step, pad, dilation) if len(counts) == 2 else None
    if is_plain(a, shape) and all(w.dilation == 1 for w in shape or ()):
        meeting = [range(-(-w.size // w.step)) for w in shape or ()]
        if len(meeting[0]) * len(meeting[1]) <= MOST_TAPS:
            return _added_up(ctx, a, out, ctx.strides(), shape or (), meeting)
    if not is_plain(a, shape) or len(taps(shape or ())) > MOST_TAPS:
        return calls.call(ctx, aten.col2im.default, (a, extents, size, dilation, pad, step), {})
    assert shape is not None
    overlap(ctx, a, shape)

    def element(at: Any, inside: Sequence[bool]) -> Node:
        zero = const(0, compute_type(a.dtype))
        total = zero
        for tap in taps(shape):
            which, condition = leading_to(shape, at[-2:], tap, inside)
            channel = index.flatten((at[-3], *tap), (out[-3], *(w.size for w in shape)))
            part = masked(condition, a.at((*at[:-3], channel, index.flatten(which, counts))), zero)
            total = binary("add", total, part)  # as eager, which begins with zeros: the sum of -0.0 is 0.0
        return total

    return in_pieces(ctx, out, a.dtype, ctx.strides(), [w.surrounded for w in shape], element, whole_rows=True)


@lowers(aten.unfold_backward.default)
def _unfold_backward(ctx: Context, grad: Value, extents: Any, dim: int, size: int, step: int) -> Any:
    """The windows of one dimension, which are those of images of one row."""
    out = ctx.sizes()
    dim %= max(len(out), 1)
    numbers = (out[dim], grad.sizes[dim], size, step) if out and grad.rank == len(out) + 1 else ()
    if not numbers or any(type(n) is not int for n in numbers) or -(-size // step) > MOST_TAPS:
        return calls.call(ctx, aten.unfold_backward.default, (grad, extents, dim, size, step), {})
    shape = [Window(1, 1, 1, 1, 0, 1), Window(out[dim], grad.sizes[dim], size, step, 0, 1)]
    if not is_plain(grad, shape):
        return calls.call(ctx, aten.unfold_backward.default, (grad, extents, dim, size, step), {})
    rest = [d for d in range(len(out)) if d != dim]
    outer = index.product(out[d] for d in rest)
    columns = grad.permute((*rest, len(out), dim)).view((outer, size, grad.sizes[dim]))
    sizes = (outer, 1, 1, out[dim])
    strides = index.contiguous_strides(sizes)
    found = _added_up(ctx, columns, sizes, strides, shape, [range(1), range(-(-size // step))])
    moved = found.view((*(out[d] for d in rest), out[dim]))
    return moved.permute([*range(dim), len(out) - 1, *range(dim, len(out) - 1)])


def _added_up(
    ctx: Context,
    a: Value,
    out: tuple[Index, ...],
    strides: tuple[Index, ...],
    shape: Sequence[Window],
    meeting: Sequence[range],
) -> Value:
    """The sum of the windows that meet in each element, which are fewer than a window has elements.

    Where windows begin at whole steps of the image, loops go over steps and what is between two of them.
    """
    overlap(ctx, a, shape)
    counts, inner = [w.count for w in shape], [w.size for w in shape]
    zero = const(0, compute_type(a.dtype))

    def total(lead: Sequence[Index], steps: Sequence[Index], rests: Sequence[Index], pieces: Sequence[_Steps]) -> Node:
        found = zero
        for back in itertools.product(*meeting):
            condition = const(True, torch.bool)
            which, tap = [], []
            for w, step, rest, n, piece in zip(shape, steps, rests, back, pieces, strict=True):
                which.append(step - n)
                tap.append(rest + n * w.step)
                condition = binary("and", condition, within(which[-1], 0, w.count))
                if piece.start + n * w.step >= w.size:
                    condition = const(False, torch.bool)
                elif piece.start + piece.length - 1 + n * w.step >= w.size:
                    condition = binary("and", condition, within(tap[-1], 0, w.size))
            if condition.op == "const" and not condition.attr:
                continue
            channel = index.flatten((lead[-1], *tap), (out[-3], *inner))
            part = masked(condition, a.at((*lead[:-1], channel, index.flatten(which, counts))), zero)
            found = binary("add", found, part)  # eager adds to zeros, so a sum is no zero with a sign
        return found

    buffer = ctx.program.buffer(a.dtype, out, strides)
    for pieces in itertools.product(*(_steps_of(w) for w in shape)):

        def element(at: Any, pieces: Sequence[_Steps] = pieces) -> Node:
            steps = [i + piece.first for i, piece in zip(at[-4::2], pieces, strict=True)]
            rests = [i + piece.start for i, piece in zip(at[-3::2], pieces, strict=True)]
            return total(at[:-4], steps, rests, pieces)

        sizes = [n for piece in pieces for n in (piece.steps, piece.length)]
        apart = [d for w, stride in zip(shape, strides[-2:], strict=True) for d in (w.step * stride, stride)]
        begin = sum(
            (piece.first * w.step + piece.start - w.pad) * stride
            for w, piece, stride in zip(shape, pieces, strides[-2:], strict=True)
        )
        ctx.program.store(Value((*out[:-2], *sizes), a.dtype, element), buffer, (*strides[:-2], *apart), begin)
    return ctx.program.stored(buffer)


class _Steps(NamedTuple):
    """Elements along one dimension: of ``steps`` steps from ``first`` on, the ``length`` from ``start`` on."""

    first: int
    steps: int
    start: int
    length: int


_LONG_STEP = 32
"""Steps of so many elements are rows that are worth a loop of their own."""


def _steps_of(w: Window) -> Iterator[_Steps]:
    """The elements of an image along one dimension: whole steps, and what is before and behind.

    Of long steps, the elements that one more window holds are apart from the others, so that none needs a question.
    """
    assert isinstance(w.extent, int)
    begin, end = w.pad, w.pad + w.extent
    first, last = -(-begin // w.step), end // w.step
    if first > last:
        yield _Steps(last, 1, begin - last * w.step, w.extent)
        return
    if begin % w.step:
        yield _Steps(first - 1, 1, begin % w.step, w.step - begin % w.step)
    if first < last:
        shared = w.size % w.step if w.step >= _LONG_STEP else 0
        for start, stop in ((0, shared), (shared, w.step)):
            if start < stop:
                yield _Steps(first, last - first, start, stop - start)
    if end % w.step:
        yield _Steps(last, 1, 0, end % w.step)
