"""Tensors assembled from several: concatenation, padding, writing into a part."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node
from ..ir.index import Index
from ..ir.operations import Unsupported, binary, compare, const, masked
from ..ir.program import Program
from ..ir.values import Value, scalar
from . import calls, views, writes
from .pointwise import converted
from .registry import KEEP_COST, Context, aten, lowers


def within(at: Index, low: Index, high: Index) -> Node:
    """The condition ``low <= at < high``."""
    above = compare("ge", ops.from_index(at), ops.from_index(low))
    return binary("and", above, compare("lt", ops.from_index(at), ops.from_index(high)))


@lowers(aten.cat.default)
def _cat(ctx: Context, tensors: Sequence[Value], dim: int = 0) -> Value:
    sizes = ctx.sizes()
    parts = [converted(t, ctx.dtype) for t in tensors if not (t.rank == 1 and t.sizes[0] == 0)]
    if not parts:
        return Value(sizes, ctx.dtype, lambda at: const(0, ctx.dtype))
    dim %= len(sizes)
    return joined(ctx, parts, dim, sizes)


def joined(ctx: Context, parts: Sequence[Value], dim: int, sizes: Sequence[Index]) -> Value:
    """The parts side by side: each writes its share of one buffer, or is chosen where it is read."""
    if ctx.program.forms.chooses_parts(parts):
        return _chosen(parts, dim, sizes)
    strides = ctx.strides() if isinstance(ctx.val, torch.Tensor) else None
    buffer = ctx.program.buffer(parts[0].dtype, sizes, strides)
    start: Index = 0
    for part in parts:
        ctx.program.store(part, buffer, buffer.strides, start * buffer.strides[dim])
        start = start + part.sizes[dim]
    return ctx.program.stored(buffer)


def _chosen(parts: Sequence[Value], dim: int, sizes: Sequence[Index]) -> Value:
    """The parts side by side, each read where its elements are wanted."""
    ends: list[Index] = []
    for part in parts:
        ends.append((ends[-1] if ends else 0) + part.sizes[dim])

    def element(at: Any) -> Node:
        node = const(0, parts[0].at(parts[0].variables()).dtype)
        for part, end in reversed(list(zip(parts, ends, strict=True))):
            start = end - part.sizes[dim]
            inside = part.at((*at[:dim], at[dim] - start, *at[dim + 1 :]))
            node = masked(within(at[dim], start, end), inside, node)
        return node

    return Value(sizes, parts[0].dtype, element)


@lowers(aten.stack.default)
def _stack(ctx: Context, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim %= tensors[0].rank + 1
    if dim == tensors[0].rank and (_are_unpacked(tensors) or _interleave(ctx, tensors)):
        return _in_turn(tensors, ctx)
    return joined(ctx, [converted(t, ctx.dtype).unsqueeze(dim) for t in tensors], dim, ctx.sizes())


_MOST_IN_TURN = 4


def _are_unpacked(tensors: Sequence[Value]) -> bool:
    """Whether these are parts of bytes: numbers that share one, which a product unpacks while it reads."""
    if not 2 <= len(tensors) <= _MOST_IN_TURN or any(t.place is not None or t.dtype.itemsize != 1 for t in tensors):
        return False
    elements = [t.at(t.variables()) for t in tensors]
    return all(len(e.loads) == 1 and e.loads[0][0].dtype.itemsize == 1 and e.cost <= KEEP_COST for e in elements)


def _interleave(ctx: Context, tensors: Sequence[Value]) -> bool:
    """Whether vectors of them are shuffled into one another, rather than written a number at a time."""
    if (
        ctx.program.device.type != "cpu"
        or not 2 <= len(tensors) <= _MOST_IN_TURN
        or ctx.dtype.itemsize not in (1, 2, 4)
    ):
        return False
    return all(t.at(t.variables()).cost <= KEEP_COST for t in tensors)


def _in_turn(tensors: Sequence[Value], ctx: Context) -> Value:
    """The tensors side by side in a new last dimension, computed where they are needed."""
    parts = [converted(t, ctx.dtype) for t in tensors]

    def element(at: Any) -> Node:
        *rest, which = at
        node = parts[-1].at(tuple(rest))
        for i, part in reversed(list(enumerate(parts[:-1]))):
            is_this = compare("eq", ops.from_index(which), const(i, torch.int64))
            node = ops.where(is_this, part.at(tuple(rest)), node)
        return node

    return Value(ctx.sizes(), ctx.dtype, element)


@lowers(aten.constant_pad_nd.default)
def _pad(ctx: Context, a: Value, pad: Sequence[Any], value: Any = 0) -> Value:
    low: list[Index] = [0] * a.rank
    high: list[Index] = [0] * a.rank
    for at in range(len(pad) // 2):
        low[a.rank - 1 - at], high[a.rank - 1 - at] = pad[2 * at], pad[2 * at + 1]
    if a.place is not None and all(type(n) is int and n >= 0 for n in (*low, *high)):
        return framed(ctx.program, a, low, high, value, ctx.strides())

    border = scalar(value, a.dtype)

    def element(at: Any) -> Node:
        condition = const(True, torch.bool)
        for i, start, extent in zip(at, low, a.sizes, strict=True):
            condition = binary("and", condition, within(i, start, extent + start))
        node = a.at(tuple(i - start for i, start in zip(at, low, strict=True)))
        return masked(condition, node, border.at(()))

    return Value(ctx.sizes(), a.dtype, element)


@lowers(aten._pad_circular.default)
def _pad_circular(ctx: Context, a: Value, pad: Sequence[Any]) -> Value:
    low: list[Index] = [0] * a.rank
    for at in range(len(pad) // 2):
        dim, ends = a.rank - 1 - at, pad[2 * at : 2 * at + 2]
        if not all(map(index.not_negative, ends)):  # what is cut off does not come back on the other side
            size = a.sizes[dim]
            if any(type(n) is not int for n in (*ends, size)):
                raise Unsupported("a circular pad that may cut off, of unknown size")
            cut = [max(-n, 0) for n in ends]
            a = a.slice(dim, cut[0], size - sum(cut))
            ends = [max(n, 0) for n in ends]
            if max(ends) > a.sizes[dim]:
                raise Unsupported("a circular pad of more than it leaves")
        low[dim] = ends[0]
    ctx.keep(a)

    def element(at: Any) -> Node:
        return a.at(tuple(index.remainder(i - n, s) for i, n, s in zip(at, low, a.sizes, strict=True)))

    return Value(ctx.sizes(), a.dtype, element)


def _bordered(op: Any, rank: int, reflects: bool) -> Any:
    """Pads whose elements are the image's own.

    On a CPU, the middle and the borders are written one after the other; on a GPU, whoever reads an element computes
    where it is.
    """

    def lower(ctx: Context, a: Value, pad: Sequence[Any]) -> Value:
        sizes = a.sizes[-rank:]
        low, high = list(pad[::2])[::-1], list(pad[1::2])[::-1]
        known = all(type(n) is int and n >= 0 for n in pad)
        if not known or (reflects and not all(map(index.less, low + high, sizes * 2))):
            return calls.call(ctx, op, (a, pad), {})
        ctx.keep(a)
        if ctx.program.device.type != "cpu":

            def inside(at: Any) -> Node:
                where = map(functools.partial(_brought_in, reflects), at[-rank:], low, sizes, high)
                return a.at((*at[:-rank], *where))

            return Value(ctx.sizes(), ctx.dtype, inside)
        buffer = ctx.program.buffer(ctx.dtype, ctx.sizes(), ctx.strides())
        for pieces in itertools.product(*map(functools.partial(_pieces, reflects), low, sizes, high)):
            lengths = [*a.sizes[:-rank], *(length for _, length, _, _ in pieces)]
            offset = sum((start * s for (start, *_), s in zip(pieces, buffer.strides[-rank:], strict=True)), start=0)

            def element(at: Any, pieces: Any = pieces) -> Node:
                where = (first + step * i for i, (_, _, first, step) in zip(at[-rank:], pieces, strict=True))
                return a.at((*at[:-rank], *where))

            ctx.program.store(Value(lengths, a.dtype, element), buffer, buffer.strides, offset)
        return ctx.program.stored(buffer)

    return lower


def _brought_in(reflects: bool, at: Index, low: int, extent: Index, high: int) -> Index:
    """The element that stands at a place of what is padded."""
    if not low and not high:
        return at
    place, last, first = ops.from_index(at - low), ops.from_index(extent - 1), const(0, torch.int64)
    if reflects:
        place = ops.unary("abs", place)
        return index.data(binary("sub", last, ops.unary("abs", binary("sub", last, place))))
    return index.data(binary("minimum", binary("maximum", place, first), last))


def _pieces(reflects: bool, low: int, extent: Index, high: int) -> list[tuple[Index, Index, Index, int]]:
    """Along one dimension: where a piece starts, its length, the element that comes first, and the step to the next."""
    before = (0, low, low, -1) if reflects else (0, low, 0, 0)
    after = (low + extent, high, extent - 2, -1) if reflects else (low + extent, high, extent - 1, 0)
    return [piece for piece in ((low, extent, 0, 1), before, after) if piece[1] != 0]


for _rank in (1, 2, 3):
    for _name, _reflects in (("reflection", True), ("replication", False)):
        _op = getattr(aten, f"{_name}_pad{_rank}d").default
        lowers(_op)(_bordered(_op, _rank, _reflects))


def framed(
    program: Program, a: Value, low: Sequence[Index], high: Sequence[Index], value: Any, strides: Sequence[Index]
) -> Value:
    """What is in memory already is copied into a frame: that needs no condition for each element."""
    sizes = tuple(before + extent + behind for before, extent, behind in zip(low, a.sizes, high, strict=True))
    buffer = program.buffer(a.dtype, sizes, strides)
    steps = buffer.strides

    def store(part: Value, starts: Sequence[Index]) -> None:
        offset = sum((i * s for i, s in zip(starts, steps, strict=True)), start=0)
        program.store(part, buffer, steps, offset)

    store(a, low)
    for d in range(a.rank):
        # The frame before and behind in this dimension: inside of it in those before, all there is in those after.
        for start, length in ((0, low[d]), (low[d] + a.sizes[d], high[d])):
            if not (type(length) is int and length == 0):
                store(
                    scalar(value, a.dtype, [*a.sizes[:d], length, *sizes[d + 1 :]]),
                    [*low[:d], start, *[0] * (a.rank - d - 1)],
                )
    return program.stored(buffer)


def _written(ctx: Context, a: Value, source: Value, part_of: Callable[[Value], Value]) -> Value | None:
    """``a`` with ``source`` in a part of it, if it is the memory of an input that is changed."""
    place = ctx.writes.place(ctx.node, a)
    if place is None:
        return None
    whole = writes.region(a, place)
    part = part_of(whole)
    assert part.place is not None
    if source.place != part.place:  # or it was made there
        source = ctx.writes.independent(source.expand(part.sizes), part)
        ctx.writes.prepare(ctx.node, part)
        ctx.program.store(source, place.buffer, part.place.strides, part.place.offset)
    return whole


@lowers(aten.slice_scatter.default)
def _slice_scatter(
    ctx: Context, a: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    from .views import slice_start

    dim %= a.rank
    length = source.sizes[dim]
    first = slice_start(ctx, a, dim, start, length, 3)
    source = converted(source, a.dtype) if source.dtype is not a.dtype else source
    if (written := _written(ctx, a, source, lambda base: base.slice(dim, first, length, step))) is not None:
        return written

    def element(at: Any) -> Node:
        apart = at[dim] - first
        condition = within(at[dim], first, first + (length - 1) * step + 1)
        if step != 1:
            on = compare("eq", ops.from_index(index.remainder(apart, step)), ops.from_index(0))
            condition = binary("and", condition, on)
        inside = source.at((*at[:dim], index.floordiv(apart, step), *at[dim + 1 :]))
        return masked(condition, inside, a.at(at))

    return Value(a.sizes, a.dtype, element)


@lowers(aten.select_scatter.default)
def _select_scatter(ctx: Context, a: Value, source: Value, dim: int, position: Any) -> Value:
    dim %= a.rank
    position = views.position(position, a.sizes[dim])
    source = converted(source, a.dtype) if source.dtype is not a.dtype else source
    if (written := _written(ctx, a, source, lambda base: base.select(dim, position))) is not None:
        return written

    def element(at: Any) -> Node:
        on = compare("eq", ops.from_index(at[dim]), ops.from_index(position))
        return masked(on, source.at((*at[:dim], *at[dim + 1 :])), a.at(at))

    return Value(a.sizes, a.dtype, element)


@lowers(aten.diagonal_scatter.default)
def _diagonal_scatter(ctx: Context, a: Value, source: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    first, second = first % a.rank, second % a.rank
    down, right = max(-offset, 0), max(offset, 0)
    source = converted(source, a.dtype)
    length = source.sizes[-1]
    if (
        written := _written(ctx, a, source, lambda base: base.diagonal(first, second, down, right, length))
    ) is not None:
        return written

    def element(at: Any) -> Node:
        along = at[first] - down
        on = compare("eq", ops.from_index(along), ops.from_index(at[second] - right))
        condition = binary("and", on, within(along, 0, length))
        rest = tuple(i for d, i in enumerate(at) if d not in (first, second))
        return masked(condition, source.at((*rest, along)), a.at(at))

    return Value(a.sizes, a.dtype, element)
