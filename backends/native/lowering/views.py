"""Operators that present the same elements in another shape, which cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from ..ir import index
from ..ir.index import Index
from ..ir.operations import Unsupported
from ..ir.values import Place, Value
from .registry import Context, aten, lowers


def _fresh(a: Value) -> Value:
    """The same elements without their position in memory: code that needs a separate tensor must copy it."""
    return Value(a.sizes, a.dtype, a.at)


@lowers(aten.view.default, aten._unsafe_view.default, aten.reshape.default)
def _view(ctx: Context, a: Value, sizes: Any) -> Value:
    return a.view(ctx.sizes())


@lowers(aten.permute.default)
def _permute(ctx: Context, a: Value, dims: Sequence[int]) -> Value:
    return a.permute(dims)


@lowers(aten.transpose.int)
def _transpose(ctx: Context, a: Value, first: int, second: int) -> Value:
    if a.rank == 0:
        return a
    order = list(range(a.rank))
    first, second = first % a.rank, second % a.rank
    order[first], order[second] = order[second], order[first]
    return a.permute(order)


@lowers(aten.t.default)
def _t(ctx: Context, a: Value) -> Value:
    return a.permute((1, 0)) if a.rank == 2 else a


@lowers(aten.expand.default)
def _expand(ctx: Context, a: Value, sizes: Any, *, implicit: bool = False) -> Value:
    wanted = ctx.sizes()
    if a.place is None and index.product(wanted) is not a.numel:
        # What is repeated is computed once, unless it is next to nothing.
        ctx.keep(a)
    return a.expand(wanted)


@lowers(aten.unsqueeze.default)
def _unsqueeze(ctx: Context, a: Value, dim: int) -> Value:
    return a.unsqueeze(dim % (a.rank + 1))


@lowers(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(ctx: Context, a: Value, dims: Any = None) -> Value:
    chosen = range(a.rank) if dims is None else [dims] if isinstance(dims, int) else dims
    for d in sorted({d % a.rank for d in chosen} if a.rank else (), reverse=True):
        if type(a.sizes[d]) is int and a.sizes[d] == 1:
            a = a.squeeze(d)
    return a


def slice_start(ctx: Context, a: Value, dim: int, value: Any, length: Index, argument: int) -> Index:
    """Where a slice of ``a`` with this length begins, as Python has it; ``value`` is that ``argument`` of the operator.

    Raises:
        Unsupported: a symbolic start may be counted from the end, or lie beyond it.
    """
    extent = a.sizes[dim]
    if value is None:
        return 0
    if type(value) is int and value >= 2**62:
        return extent
    if type(value) is int and type(extent) is int:
        return max(0, min(value + extent if value < 0 else value, extent))
    if type(value) is int and value < 0:
        value = value + extent
    # What has a length, which is not negative, begins before the end.
    fits = index.not_negative(extent - value) or index.not_negative(extent - value - length)
    if index.not_negative(value) and (fits or _is_within(ctx.node.args, dim, argument)):
        found: Index = value
        return found
    raise Unsupported("a slice whose bounds are not known")


def _is_within(args: Sequence[Any], dim: int, argument: int) -> bool:
    """Whether a symbolic start lies within a dimension, by what guards say of its largest value."""
    if len(args) <= argument or not isinstance(args[argument], torch.fx.Node):
        return False
    behind = args[0].meta["val"].shape[dim] - args[argument].meta["val"]
    return isinstance(behind, torch.SymInt) and internals.least_of(behind.node.shape_env, behind.node.expr) is not None


@lowers(aten.slice.Tensor)
def _slice(ctx: Context, a: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim %= a.rank
    length = ctx.sizes()[dim]
    return a.slice(dim, slice_start(ctx, a, dim, start, length, 2), length, step)


@lowers(aten.narrow.default)
def _narrow(ctx: Context, a: Value, dim: int, start: Any, length: Any) -> Value:
    dim %= a.rank
    return a.slice(dim, position(start, a.sizes[dim]), length)


def position(at: Any, extent: Index) -> Index:
    """A position in a dimension of ``extent``, which counts from the end if it is negative, as counted from the start.

    Raises:
        Unsupported: it may be either, and the extent may be zero.
    """
    if type(at) is int and at < 0:
        return at + extent
    found: Index = at
    if index.not_negative(found):
        return found
    if index.less(0, extent):
        return index.remainder(found, extent)  # from -extent to extent, as torch makes sure
    raise Unsupported("a position that may be negative")


@lowers(aten.select.int)
def _select(ctx: Context, a: Value, dim: int, at: Any) -> Value:
    dim %= a.rank
    return a.select(dim, position(at, a.sizes[dim]))


@lowers(aten.split_with_sizes.default)
def _split_with_sizes(ctx: Context, a: Value, sizes: Sequence[Any], dim: int = 0) -> tuple[Value, ...]:
    dim %= a.rank
    parts: list[Value] = []
    start: Index = 0
    for length in sizes:
        parts.append(a.slice(dim, start, length))
        start = start + length
    return tuple(parts)


@lowers(aten.split.Tensor)
def _split(ctx: Context, a: Value, size: Any, dim: int = 0) -> tuple[Value, ...]:
    dim %= a.rank
    parts: list[Value] = []
    start: Index = 0
    for fake in ctx.val:
        length = ctx.sizes(fake)[dim]
        parts.append(a.slice(dim, start, length))
        start = start + length
    return tuple(parts)


@lowers(aten.unbind.int)
def _unbind(ctx: Context, a: Value, dim: int = 0) -> tuple[Value, ...]:
    dim %= a.rank
    return tuple(a.select(dim, i) for i in range(len(ctx.val)))


@lowers(aten.alias.default, aten.detach.default)
def _alias(ctx: Context, a: Value) -> Value:
    return a


@lowers(aten.clone.default, aten.lift_fresh_copy.default)
def _clone(ctx: Context, a: Value, *, memory_format: Any = None) -> Value:
    return _fresh(a)


@lowers(aten.copy.default)
def _copy(ctx: Context, a: Value, source: Value, non_blocking: bool = False) -> Value:
    from .pointwise import converted

    return converted(source, a.dtype).expand(a.sizes)


@lowers(aten.flip.default)
def _flip(ctx: Context, a: Value, dims: Sequence[int]) -> Value:
    return a.flip(dims) if a.rank else _fresh(a)


@lowers(aten.roll.default)
def _roll(ctx: Context, a: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return Value(a.sizes, a.dtype, _rolled(a.view((a.numel,)), 0, shifts[0]).view(a.sizes).at)
    for shift, dim in zip(shifts, dims, strict=True):
        a = _rolled(a, dim % a.rank, shift)
    return _fresh(a)


def _rolled(a: Value, dim: int, shift: Any) -> Value:
    def element(at: Any) -> Any:
        moved = index.remainder(at[dim] - shift, a.sizes[dim])
        return a.at((*at[:dim], moved, *at[dim + 1 :]))

    return Value(a.sizes, a.dtype, element)


@lowers(aten.repeat.default)
def _repeat(ctx: Context, a: Value, repeats: Sequence[Any]) -> Value:
    base = a
    for _ in range(len(repeats) - a.rank):
        base = base.unsqueeze(0)
    if any(type(s) is int and s == 0 for s in base.sizes):
        return Value(ctx.sizes(), a.dtype, lambda at: base.at(at))
    ctx.keep(a)

    def element(at: Any) -> Any:
        return base.at(tuple(index.remainder(i, s) for i, s in zip(at, base.sizes, strict=True)))

    return Value(ctx.sizes(), a.dtype, element)


@lowers(aten.diagonal.default)
def _diagonal(ctx: Context, a: Value, offset: int = 0, first: int = 0, second: int = 1) -> Value:
    first, second = first % a.rank, second % a.rank
    return a.diagonal(first, second, max(-offset, 0), max(offset, 0), ctx.sizes()[-1])


@lowers(aten.as_strided.default)
def _as_strided(ctx: Context, a: Value, sizes: Any, strides: Sequence[Any], offset: Any = None) -> Value:
    expected = ctx.strides(ctx.fake(ctx.node.args[0]))
    if a.place is None:
        ctx.program.realize(a, expected)
    assert a.place is not None
    if a.place.strides != expected:
        raise Unsupported("as_strided of a tensor that has a different memory order here")
    given = [*ctx.node.args[1:], *ctx.node.kwargs.values()]
    if any(internals.depends_on_data(n) for n in map(ctx.fake, given) if isinstance(n, torch.SymInt)):
        raise Unsupported("as_strided at a position that depends on data, which may lie outside of the storage")
    start = a.place.offset if offset is None else offset
    if a.place.buffer.kind == "input" and a.place.offset == 0 and offset is not None:
        raise Unsupported("as_strided with an offset into the storage of an input")
    return Value(ctx.sizes(), a.dtype, None, Place(a.place.buffer, tuple(strides), start))


@lowers(aten.unfold.default)
def _unfold(ctx: Context, a: Value, dim: int, size: int, step: int) -> Value:
    if a.rank == 0:
        raise Unsupported("unfold of a scalar")
    dim %= a.rank
    if step < size:  # windows share elements
        ctx.keep(a)

    def element(at: Any) -> Any:
        return a.at((*at[:dim], at[dim] * step + at[-1], *at[dim + 1 : -1]))

    return Value(ctx.sizes(), a.dtype, element)
