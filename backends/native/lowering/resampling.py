"""Images in other sizes: nearest neighbours, linear and cubic interpolation, reflected borders; shuffled pixels and
channels."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.operations import binary, compare, const, masked
from ..ir.values import Value
from . import calls
from .joining import within
from .registry import Context, aten, lowers
from .windows import in_pieces, layout


def _ignores_scale(ctx: Context, rank: int, middle: bool) -> bool:
    """Whether torch's kernel repeats all elements once or twice where sizes say so, whatever the factor is."""
    return rank == 2 and not middle and _is_on_cpu(ctx)


def _is_on_cpu(ctx: Context) -> bool:
    return ctx.program.device.type == "cpu"


def _whole_steps(extent: Any, count: Any, scale: float | None, middle: bool, ignores: bool) -> int | None:
    """How often each element is repeated; None if not all are alike, or sizes are symbolic."""
    if type(extent) is not int or type(count) is not int or extent == 0 or count % extent:
        return None
    times = count // extent
    if times in (1, 2) and ignores:
        return times
    ratio = torch.tensor(1 / scale if scale is not None and scale > 0 else extent / count, dtype=torch.float32)
    at = torch.arange(count, dtype=torch.float32)
    found = ((at + 0.5 if middle else at) * ratio).floor().clamp(max=extent - 1).long()
    return times if torch.equal(found, torch.arange(count) // times) else None


def _steps(
    extents: Sequence[Any], counts: Sequence[Any], scales: Sequence[Any], middle: bool, ignores: bool
) -> list[int] | None:
    found = [_whole_steps(n, c, s, middle, ignores) for n, c, s in zip(extents, counts, scales, strict=True)]
    return None if any(t is None for t in found) else [t for t in found if t is not None]


def _position(at: Any, extent: Any, count: Any, scale: float | None, middle: bool, ignores: bool) -> Any:
    """Which element is nearest, as torch's kernel computes it in float32."""
    ignores = scale is not None and ignores
    if ignores and type(extent) is int and count in (extent, 2 * extent):
        return index.floordiv(at, count // extent)
    ratio = _ratio(extent, count, scale, False, torch.float32)
    number = ops.cast(ops.from_index(at), torch.float32)
    number = binary("add", number, const(0.5, torch.float32)) if middle else number
    found = ops.cast(binary("mul", number, ratio), torch.int64)
    found = binary("minimum", found, ops.from_index(extent - 1))
    if ignores and not (type(extent) is int and type(count) is int):
        for times in (2, 1):
            same = compare("eq", ops.from_index(count), ops.from_index(times * extent))
            found = ops.where(same, ops.from_index(index.floordiv(at, times)), found)
    return index.data(found)


def _are_exact(extents: Sequence[Any]) -> bool:
    """Whether positions can be computed as torch does: those of known sizes are exact in float32."""
    return all(0 < n < 2**24 if type(n) is int else isinstance(n, index.Ix) for n in extents)


def _may_be_copied(ctx: Context, extents: Sequence[Any], counts: Sequence[Any], scales: Sequence[Any]) -> bool:
    """Whether torch's kernel for a GPU may leave a size as it is, whatever the factor: it copies an image whose sizes
    all stay."""
    along = zip(extents, counts, scales, strict=True)
    stays = any(s is not None and (type(n) is not int or type(c) is not int or n == c) for n, c, s in along)
    return stays and not _is_on_cpu(ctx)


def _given(scales: Sequence[Any], rank: int) -> tuple[Any, ...]:
    """The factors of all dimensions; a graph leaves out those at the end that are None."""
    return (*scales, *(None,) * (rank - len(scales)))


def _nearest(op: Any, rank: int, middle: bool) -> Any:
    def lower(ctx: Context, a: Value, size: Any, *scales: Any) -> Any:
        given, ignores = _given(scales, rank), _ignores_scale(ctx, rank, middle)
        extents, counts = a.sizes[-rank:], ctx.sizes()[-rank:]
        steps = _steps(extents, counts, given, middle, ignores)
        # In three dimensions, torch's kernel ignores factors for images of many channels in channels last.
        if rank == 3 and scales and any(s is not None for s in given) and steps is None:
            return calls.call(ctx, op, (a, size, *scales), {})
        if steps is None and (not _are_exact((*extents, *counts)) or _may_be_copied(ctx, extents, counts, given)):
            return calls.call(ctx, op, (a, size, *scales), {})
        ctx.keep(a)

        def element(at: Any) -> Node:
            if steps is not None:
                return a.at((*at[:-rank], *(index.floordiv(i, s) for i, s in zip(at[-rank:], steps, strict=True))))
            where = zip(at[-rank:], extents, counts, given, strict=True)
            return a.at((*at[:-rank], *(_position(i, n, c, s, middle, ignores) for i, n, c, s in where)))

        return ctx.program.realize(Value(ctx.sizes(), a.dtype, element), layout(ctx, a, ctx.val))

    return lower


def _nearest_backward(op: Any, rank: int, middle: bool) -> Any:
    def lower(ctx: Context, grad: Value, size: Any, whole: Any, *scales: Any) -> Any:
        given = _given(scales, rank)
        ignores = _ignores_scale(ctx, rank, middle)
        steps = _steps(ctx.sizes()[-rank:], grad.sizes[-rank:], given, middle, ignores)
        if steps is None or not grad.dtype.is_floating_point:
            return calls.call(ctx, op, (grad, size, whole, *scales), {})
        dtype = compute_type(grad.dtype)

        def element(at: Any) -> Node:
            total: Node | None = None
            for tap in itertools.product(*map(range, steps)):
                where = (i * s + t for i, s, t in zip(at[-rank:], steps, tap, strict=True))
                part = ops.cast(grad.at((*at[:-rank], *where)), dtype)
                total = part if total is None else binary("add", total, part)
            return ops.cast(const(0, dtype) if total is None else total, grad.dtype)

        return ctx.program.realize(Value(ctx.sizes(), grad.dtype, element), layout(ctx, grad, ctx.val))

    return lower


def _by_factors(plain: Any, rank: int) -> Any:
    """The overload that may be given factors in place of sizes."""

    def lower(ctx: Context, a: Value, size: Any, *more: Any) -> Any:
        *align, scales = more
        return plain(ctx, a, list(ctx.sizes()[-rank:]), *align, *(scales or ()))

    return lower


for _rank in (1, 2, 3):
    for _prefix, _middle in (("upsample_nearest", False), ("_upsample_nearest_exact", True)):
        _forward = getattr(aten, f"{_prefix}{_rank}d").default
        _backward = getattr(aten, f"{_prefix}{_rank}d_backward").default
        _plain = lowers(_forward)(_nearest(_forward, _rank, _middle))
        lowers(getattr(aten, f"{_prefix}{_rank}d").vec)(_by_factors(_plain, _rank))
        lowers(_backward)(_nearest_backward(_backward, _rank, _middle))


def _ratio(extent: Any, count: Any, scale: float | None, align: bool, dtype: torch.dtype) -> Node:
    """How far apart neighbors of the result are in the image, in the precision in which torch computes."""
    if not align and scale is not None and scale > 0:
        return const(float(torch.tensor(1 / scale, dtype=dtype)), dtype)
    above, below = (extent - 1, count - 1) if align else (extent, count)
    if type(extent) is int and type(count) is int:
        return const(float(torch.tensor(above / below if below > 0 else 0.0, dtype=dtype)), dtype)
    apart = binary("div", *(ops.cast(ops.from_index(n), dtype) for n in (above, below)))
    return ops.where(compare("gt", ops.from_index(below), ops.from_index(0)), apart, const(0, dtype))


class _Between:
    """Along a dimension: between which two elements each of the result is, and how near it is to the second."""

    def __init__(self, extent: Any, count: Any, scale: float | None, align: bool, dtype: torch.dtype) -> None:
        self.extent, self.align, self.dtype = extent, align, dtype
        self.ratio = _ratio(extent, count, scale, align, dtype)
        # Where sizes turn out to be equal, torch's kernel for a CPU puts each element between itself and itself.
        same = compare("eq", ops.from_index(extent), ops.from_index(count))
        self.step = ops.where(same, const(0, torch.int32), const(1, torch.int32))

    def place(self, at: Any) -> Node:
        """Where an element of the result lies in the image, between the centers of elements."""
        number, half = ops.cast(ops.from_index(at), self.dtype), const(0.5, self.dtype)
        if self.align:
            return binary("mul", number, self.ratio)
        return binary("sub", binary("mul", binary("add", number, half), self.ratio), half)

    def _source(self, at: Any) -> Node:
        return self.place(at) if self.align else binary("maximum", self.place(at), const(0, self.dtype))

    def limited(self, position: Node) -> Node:
        return binary("minimum", position, ops.cast(ops.from_index(self.extent - 1), torch.int32))

    def first(self, at: Any) -> Node:
        return self.limited(ops.cast(self._source(at), torch.int32))

    def second(self, first: Node) -> Node:
        return self.limited(binary("add", first, self.step))

    def share(self, at: Any) -> Node:
        apart = binary("sub", self._source(at), ops.cast(self.first(at), self.dtype))
        return binary("minimum", apart, const(1, self.dtype))


def _interpolated(ctx: Context, a: Value, dim: int, count: Any, between: _Between, in_tables: bool) -> Value:
    """``a`` with ``count`` elements along one dimension, each between two of it, in the precision of the sum.

    ``in_tables`` computes once for the dimension what an element is made of, which pays where rows lie along another.
    """
    dtype, first_of, share_of = between.dtype, between.first, between.share
    if in_tables:
        firsts = Value((count,), torch.int32, lambda at: between.first(at[0]))
        shares = Value((count,), dtype, lambda at: between.share(at[0]))
        ctx.program.realize(firsts)
        ctx.program.realize(shares)
        first_of, share_of = (lambda at: firsts.at((at,))), (lambda at: shares.at((at,)))

    def element(at: Any) -> Node:
        first, share = first_of(at[dim]), share_of(at[dim])

        def read(where: Node) -> Node:
            return ops.cast(a.at((*at[:dim], index.data(ops.cast(where, torch.int64)), *at[dim + 1 :])), dtype)

        near = binary("mul", read(first), binary("sub", const(1, dtype), share))
        return binary("add", near, binary("mul", read(between.second(first)), share))

    return Value((*a.sizes[:dim], count, *a.sizes[dim + 1 :]), dtype, element)


def _itself(a: Value, dtype: torch.dtype) -> Value:
    """``a`` between each element and itself, which makes nan of infinity."""

    def element(at: Any) -> Node:
        node = ops.cast(a.at(at), dtype)
        return binary("add", node, binary("mul", node, const(0, dtype)))

    return Value(a.sizes, dtype, element)


def _linear(op: Any, rank: int) -> Any:
    def lower(ctx: Context, a: Value, size: Any, align: bool, *scales: Any) -> Any:
        given = _given(scales, rank)
        extents, counts = a.sizes[-rank:], ctx.sizes()[-rank:]
        exact = _are_exact((*extents, *counts))
        if not exact or not a.dtype.is_floating_point:
            return calls.call(ctx, op, (a, size, align, *scales), {})
        ctx.keep(a)
        if ctx.program.forms.interpolates_at_once():
            return _at_once(ctx, a, align, given, _two_taps)
        strides = layout(ctx, a, ctx.val)
        in_rows = _is_one(strides[-1])
        if not in_rows and _is_read_often(a, extents, counts):
            ctx.program.realize(a)
        found, dtype = a, compute_type(a.dtype)
        for nth, (extent, count, scale) in enumerate(zip(extents, counts, given, strict=True)):
            if nth == rank - 1 and rank > 1 and in_rows and not index.less(2 * counts[-1], extents[-1]):
                # Along rows, elements are read one by one: fewer of them, where the other dimensions come first.
                ctx.program.realize(found)
            if extent == count:
                found = _itself(found, dtype)
                continue
            between = _Between(extent, count, scale, align, dtype)
            found = _interpolated(ctx, found, a.rank - rank + nth, count, between, not in_rows)
        return ctx.program.realize(Value(found.sizes, a.dtype, lambda at: ops.cast(found.at(at), a.dtype)), strides)

    return lower


Tap = tuple[Node, Node]
"""Which element along a dimension, and its share in what is between elements."""


def _two_taps(at: Any, between: _Between) -> list[Tap]:
    first, share = between.first(at), between.share(at)
    second = between.limited(binary("add", first, const(1, torch.int32)))
    return [(first, binary("sub", const(1, between.dtype), share)), (second, share)]


_CURVE = -0.75
"""What torch chose for the free number of cubic convolution."""


def _both(a: Node, b: Node) -> Node:
    return binary("and", a, b)


def _four_taps(at: Any, between: _Between) -> list[Tap]:
    """Cubic convolution (Keys, "Cubic convolution interpolation for digital image processing", 1981)."""
    dtype = between.dtype

    def polynomial(x: Node, *factors: float) -> Node:
        return functools.reduce(
            lambda sum, f: binary("add", binary("mul", sum, x), const(f, dtype)), factors[1:], const(factors[0], dtype)
        )

    def near(x: Node) -> Node:
        return polynomial(x, _CURVE + 2, -(_CURVE + 3), 0.0, 1.0)

    def far(x: Node) -> Node:
        return polynomial(x, _CURVE, -5 * _CURVE, 8 * _CURVE, -4 * _CURVE)

    source, one = between.place(at), const(1, dtype)
    base = ops.unary("floor", source)
    apart = binary("sub", source, base)
    rest = binary("sub", one, apart)
    shares = far(binary("add", apart, one)), near(apart), near(rest), far(binary("add", rest, one))
    start, zero = ops.cast(base, torch.int32), const(0, torch.int32)
    where = (binary("add", start, const(k, torch.int32)) for k in (-1, 0, 1, 2))
    return [(between.limited(binary("maximum", w, zero)), share) for w, share in zip(where, shares, strict=True)]


def _at_once(
    ctx: Context, a: Value, align: bool, scales: Sequence[float | None], taps: Callable[[Any, _Between], list[Tap]]
) -> Value:
    """Each element from all elements around its place, as torch's kernels for GPUs do; an image of the same size is
    copied."""
    dtype, rank = compute_type(a.dtype), len(scales)
    extents, counts = a.sizes[-rank:], ctx.sizes()[-rank:]
    around = [_Between(n, c, s, align, dtype) for n, c, s in zip(extents, counts, scales, strict=True)]
    is_same = functools.reduce(
        _both, (compare("eq", ops.from_index(n), ops.from_index(c)) for n, c in zip(extents, counts, strict=True))
    )

    def total(at: Any, places: tuple[Any, ...]) -> Node:
        if len(places) == rank:
            return ops.cast(a.at((*at[:-rank], *places)), dtype)
        found = taps(at[len(places) - rank], around[len(places)])
        parts = (
            binary("mul", total(at, (*places, index.data(ops.cast(where, torch.int64)))), share)
            for where, share in found
        )
        return functools.reduce(lambda x, y: binary("add", x, y), parts)

    def element(at: Any) -> Node:
        own = masked(is_same, a.at(at), const(0, compute_type(a.dtype)))
        return ops.where(is_same, own, ops.cast(total(at, ()), a.dtype))

    return ctx.program.realize(Value(ctx.sizes(), a.dtype, element), layout(ctx, a, ctx.val))


def _cubic(ctx: Context, a: Value, size: Any, align: bool, *scales: Any) -> Any:
    known = _are_exact((*a.sizes[-2:], *ctx.sizes()[-2:]))
    if not known or not a.dtype.is_floating_point or not ctx.program.forms.interpolates_at_once():
        return calls.call(ctx, aten.upsample_bicubic2d.default, (a, size, align, *scales), {})
    ctx.keep(a)
    return _at_once(ctx, a, align, _given(scales, 2), _four_taps)


lowers(aten.upsample_bicubic2d.vec)(_by_factors(lowers(aten.upsample_bicubic2d.default)(_cubic), 2))


def _is_read_often(a: Value, extents: Sequence[Any], counts: Sequence[Any]) -> bool:
    """Whether a result of few channels reads most elements.

    It computes an element for few channels at once, so what it reads of bytes or computes is sooner in memory.
    """
    channels = a.sizes[1]
    if not all(type(n) is int for n in (*extents, *counts)) or type(channels) is not int or channels >= _FEW:
        return False
    return 2 * math.prod(counts) * 2 ** len(counts) >= math.prod(extents)


_FEW = 16
"""Channels from which on a vector is full."""


def _is_one(stride: Any) -> bool:
    return type(stride) is int and stride == 1


for _rank, _name in enumerate(("linear1d", "bilinear2d", "trilinear3d"), 1):
    _packet = getattr(aten, f"upsample_{_name}")
    lowers(_packet.vec)(_by_factors(lowers(_packet.default)(_linear(_packet.default, _rank)), _rank))


def _split(a: Value, by: int) -> tuple[Any, ...]:
    return tuple(part for extent in a.sizes[-2:] for part in (index.exact(extent, by), by))


def _reflected_back(op: Any, rank: int) -> Any:
    """The gradient of reflected borders: what an element and its reflections were handed."""

    def lower(ctx: Context, grad: Value, a: Value, pad: Sequence[Any]) -> Any:
        extents = ctx.sizes()[-rank:]
        low, high = list(pad[::2])[::-1], list(pad[1::2])[::-1]
        known = all(type(n) is int for n in (*extents, *pad))
        if not known or any(not 0 <= n < s for n, s in zip(low + high, extents * 2, strict=True)):
            return calls.call(ctx, op, (grad, a, pad), {})
        ctx.keep(grad)
        dtype = compute_type(grad.dtype)

        def places(i: Any, before: int, behind: int, extent: Any, interior: bool) -> list[tuple[Any, Node]]:
            always = const(True, torch.bool)
            found = [(i + before, always)]
            if before and not interior:
                found.append((before - i, within(i, 1, before + 1)))
            if behind and not interior:
                found.append((before + 2 * (extent - 1) - i, within(i, extent - 1 - behind, extent - 1)))
            return found

        def element(at: Any, inside: Sequence[bool]) -> Node:
            total: Node | None = None
            for chosen in itertools.product(*map(places, at[-rank:], low, high, extents, inside)):
                condition = const(True, torch.bool)
                for _, each in chosen:
                    condition = binary("and", condition, each)
                value = ops.cast(grad.at((*at[:-rank], *(where for where, _ in chosen))), dtype)
                part = masked(condition, value, const(0, dtype))
                total = part if total is None else binary("add", total, part)
            assert total is not None
            return ops.cast(total, grad.dtype)

        interiors = [(b + 1, int(n) - 1 - e) for b, e, n in zip(low, high, extents, strict=True)]  # type: ignore[arg-type]
        return in_pieces(ctx, ctx.sizes(), grad.dtype, layout(ctx, grad, ctx.val), interiors, element)

    return lower


for _rank in (1, 2, 3):
    _backward = getattr(aten, f"reflection_pad{_rank}d_backward").default
    lowers(_backward)(_reflected_back(_backward, _rank))


@lowers(aten.pixel_shuffle.default)
def _pixel_shuffle(ctx: Context, a: Value, factor: int) -> Value:
    *lead, channels, height, width = a.sizes
    n = len(lead)
    apart = a.view((*lead, index.exact(channels, factor * factor), factor, factor, height, width))
    return apart.permute((*range(n), n, n + 3, n + 1, n + 4, n + 2)).view(ctx.sizes())


@lowers(aten.channel_shuffle.default)
def _channel_shuffle(ctx: Context, a: Value, groups: int) -> Value:
    batch, channels, *rest = a.sizes
    apart = a.view((batch, groups, index.exact(channels, groups), *rest))
    return apart.permute((0, 2, 1, *range(3, apart.rank))).view(ctx.sizes())


@lowers(aten.pixel_unshuffle.default)
def _pixel_unshuffle(ctx: Context, a: Value, factor: int) -> Value:
    *lead, channels, _, _ = a.sizes
    n = len(lead)
    apart = a.view((*lead, channels, *_split(a, factor)))
    return apart.permute((*range(n), n, n + 2, n + 4, n + 1, n + 3)).view(ctx.sizes())
