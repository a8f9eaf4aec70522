"""Normalizations."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import image_layout
from ..ir.operations import binary, const
from ..ir.values import Value
from .pointwise import rsqrt
from .reductions import moments
from .registry import Context, as_stored, aten, lowers


def _inverse_root(ctx: Context, variance: Value, eps: float) -> Value:
    def element(at: Any) -> Node:
        node = variance.at(at)
        return rsqrt(binary("add", node, const(eps, node.dtype)))

    return ctx.program.realize(Value(variance.sizes, variance.dtype, element))


def _affine(a: Value, mean: Value, scale: Value, weight: Value | None, bias: Value | None, out: torch.dtype) -> Value:
    """``(a - mean) * scale * weight + bias``, all of the same sizes."""

    def element(at: Any) -> Node:
        node = binary("mul", binary("sub", a.at(at), mean.at(at)), scale.at(at))
        if weight is not None:
            node = binary("mul", node, ops.cast(weight.at(at), node.dtype))
        if bias is not None:
            node = binary("add", node, ops.cast(bias.at(at), node.dtype))
        return ops.cast(node, out)

    return Value(a.sizes, out, element)


def _as(value: Value, dtype: torch.dtype) -> Value:
    return value if value.dtype is dtype else Value(value.sizes, dtype, lambda at: ops.cast(value.at(at), dtype))


@lowers(aten.native_layer_norm.default)
def _layer_norm(ctx: Context, a: Value, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Value, Value, Value]:
    dims, a = list(range(a.rank - len(shape), a.rank)), _input(a)
    mean, variance = moments(ctx, a, dims, 0)
    scale = _inverse_root(ctx, variance, eps)
    grow = [v.expand(a.sizes) if v is not None else None for v in (mean, scale, weight, bias)]
    result = _affine(a, grow[0], grow[1], grow[2], grow[3], ctx.val[0].dtype)  # type: ignore[arg-type]
    return result, _as(mean, ctx.val[1].dtype), _as(scale, ctx.val[2].dtype)


def _input(a: Value) -> Value:
    """What a normalization reads: its backward pass, whose result nearly cancels, converts the same rounded numbers."""
    return as_stored(a)


def _per_channel(value: Value | None, a: Value) -> Value | None:
    """A vector with an element for each index of the second dimension, spread over ``a``."""
    if value is None:
        return None
    return value.view((1, a.sizes[1], *([1] * (a.rank - 2)))).expand(a.sizes)


@lowers(aten._native_batch_norm_legit_no_training.default)
def _batch_norm_inference(
    ctx: Context, a: Value, weight: Any, bias: Any, mean: Value, variance: Value, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    dtype = compute_type(a.dtype)

    def scale_of(at: Any) -> Node:
        node = ops.cast(variance.at(at), dtype)
        return rsqrt(binary("add", node, const(eps, dtype)))

    scale = ctx.program.realize(Value(variance.sizes, dtype, scale_of))
    grow = [_per_channel(v, a) for v in (_as(mean, dtype), scale, weight, bias)]
    result = _affine(a, grow[0], grow[1], grow[2], grow[3], ctx.val[0].dtype)  # type: ignore[arg-type]
    kept = ctx.val[1].dtype
    if ctx.val[1].numel():  # on GPUs, what was computed with is returned
        return result, _as(mean, kept), _as(scale, kept)
    empty = Value((0,), kept, lambda at: const(0, kept))
    return result, empty, empty


def _batch_statistics(ctx: Context, a: Value, eps: float) -> tuple[Value, Value, Value]:
    """Mean, variance and inverse root of a batch per channel, as vectors."""
    dims = [d for d in range(a.rank) if d != 1]
    mean, variance = moments(ctx, a, dims, 0)
    ctx.program.realize(variance)
    scale = _inverse_root(ctx, variance, eps)
    return tuple(v.view((a.sizes[1],)) for v in (mean, variance, scale))  # type: ignore[return-value]


def _unbiased(variance: Value, count: Index) -> Value:
    """The variance of a sample of ``count`` elements, which may be symbolic; nan for one element."""

    def element(at: Any) -> Node:
        node = variance.at(at)
        sum_of_squares = binary("mul", node, const(count, node.dtype))
        return binary("div", sum_of_squares, const(count - 1, node.dtype))

    return Value(variance.sizes, variance.dtype, element)


def _moved(old: Value, new: Value, momentum: float) -> Value:
    """``(1 - momentum) * old + momentum * new``."""

    def element(at: Any) -> Node:
        kept = ops.cast(old.at(at), compute_type(old.dtype))
        fresh = ops.cast(new.at(at), kept.dtype)
        part = binary("mul", fresh, const(momentum, kept.dtype))
        return binary("add", binary("mul", kept, const(1 - momentum, kept.dtype)), part)

    return Value(old.sizes, old.dtype, element)


def _by_own_statistics(ctx: Context, a: Value, weight: Any, bias: Any, eps: float) -> tuple[Value, Value, Value, Value]:
    a = _input(a)
    mean, variance, scale = _batch_statistics(ctx, a, eps)
    grow = [_per_channel(v, a) for v in (mean, scale, weight, bias)]
    return _affine(a, grow[0], grow[1], grow[2], grow[3], ctx.val[0].dtype), mean, variance, scale  # type: ignore[arg-type]


@lowers(aten._native_batch_norm_legit.no_stats)
def _batch_norm_without_history(
    ctx: Context, a: Value, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    """Instance norm, for example: there are no running statistics, so those of the batch count whatever the mode."""
    result, mean, _, scale = _by_own_statistics(ctx, a, weight, bias, eps)
    return result, _as(mean, ctx.val[1].dtype), _as(scale, ctx.val[2].dtype)


@lowers(aten._native_batch_norm_legit_functional.default)
def _batch_norm_training(
    ctx: Context,
    a: Value,
    weight: Any,
    bias: Any,
    running_mean: Value,
    running_variance: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not training:
        results = _batch_norm_inference(ctx, a, weight, bias, running_mean, running_variance, momentum, eps)
        copies = [Value(v.sizes, v.dtype, v.at) for v in (running_mean, running_variance)]
        return *results, *copies
    count = index.product(s for d, s in enumerate(a.sizes) if d != 1)
    result, mean, variance, scale = _by_own_statistics(ctx, a, weight, bias, eps)
    return (
        result,
        _as(mean, ctx.val[1].dtype),
        _as(scale, ctx.val[2].dtype),
        _moved(running_mean, mean, momentum),
        _moved(running_variance, _unbiased(variance, count), momentum),
    )


@lowers(aten.native_batch_norm_backward.default)
def _batch_norm_backward(
    ctx: Context,
    grad: Value,
    a: Value,
    weight: Any,
    running_mean: Any,
    running_variance: Any,
    saved_mean: Any,
    saved_scale: Any,
    training: bool,
    eps: float,
    wanted: Any,
) -> Any:
    """As eager: what nearly cancels, the gradient less its mean and its part along ``a``, is computed in float64."""
    dtype, wide = compute_type(a.dtype), torch.float64
    channels = (a.sizes[1],)
    dims = [d for d in range(a.rank) if d != 1]
    if training:
        mean, scale = _as(saved_mean, wide), _as(saved_scale, wide)
    else:
        mean = _as(running_mean, wide)

        def inverse_root(at: Any) -> Node:
            return rsqrt(binary("add", ops.cast(running_variance.at(at), wide), const(eps, wide)))

        scale = Value(channels, wide, inverse_root)
    ctx.keep(grad)
    ctx.keep(a)
    spread = {name: _per_channel(v, a) for name, v in (("mean", mean), ("scale", scale), ("weight", weight))}

    def apart(at: Any) -> Node:
        return binary("sub", ops.cast(a.at(at), wide), spread["mean"].at(at))  # type: ignore[union-attr]

    def total(element: Any, kind: torch.dtype) -> Value:
        return ctx.program.reduce("sum", Value(a.sizes, kind, element), dims, kind, lambda n: n).view(channels)

    sums = total(lambda at: ops.cast(grad.at(at), wide), wide)
    dots = total(lambda at: binary("mul", ops.cast(grad.at(at), wide), apart(at)), wide)
    results: list[Any] = [None, None, None]
    if wanted[0]:
        count = index.product(a.sizes[d] for d in dims)

        def mean_of_gradient(at: Any) -> Node:
            return binary("div", sums.at(at), const(count, wide))

        def slope(at: Any) -> Node:
            part = binary(
                "div", binary("mul", binary("mul", dots.at(at), scale.at(at)), scale.at(at)), const(count, wide)
            )
            return part

        drift = _per_channel(ctx.program.realize(Value(channels, wide, mean_of_gradient)), a)
        along = _per_channel(ctx.program.realize(Value(channels, wide, slope)), a)

        def element(at: Any) -> Node:
            node = ops.cast(grad.at(at), wide)
            if training:
                assert drift is not None and along is not None
                node = binary("sub", binary("sub", node, binary("mul", apart(at), along.at(at))), drift.at(at))
            node = binary("mul", ops.cast(node, dtype), ops.cast(spread["scale"].at(at), dtype))  # type: ignore[union-attr]
            if spread["weight"] is not None:
                node = binary("mul", node, ops.cast(spread["weight"].at(at), dtype))
            return ops.cast(node, a.dtype)

        results[0] = Value(a.sizes, a.dtype, element)
    if wanted[1]:
        results[1] = Value(
            channels, ctx.val[1].dtype, lambda at: ops.cast(binary("mul", dots.at(at), scale.at(at)), ctx.val[1].dtype)
        )
    if wanted[2]:
        results[2] = _as(sums, ctx.val[2].dtype)
    return tuple(results)


_FEW_CHANNELS = 64
"""Groups of fewer channels than this, side by side in memory, are too short to be walked each for itself."""


def _moments_by_channel(ctx: Context, split: Value) -> tuple[Value, Value]:
    """Mean and variance over the last two dimensions of groups, channels and space, where channels lie side by side.

    Each channel is added up first, in vectors of channels, and then those of a group.
    """
    dtype = compute_type(split.dtype)
    count = const(split.sizes[2] * split.sizes[3], dtype)

    def average(of: Value) -> Value:
        each = ctx.program.realize(ctx.program.reduce("sum", of, [3], dtype, lambda node: node))
        total = ctx.program.reduce("sum", each, [2], dtype, lambda node: node)
        return Value(total.sizes, dtype, lambda at: binary("div", total.at(at), count))

    mean = ctx.program.realize(average(split))
    center = _for_channels(ctx, mean, split).expand(split.sizes)

    def squared(at: Any) -> Node:
        apart = binary("sub", ops.cast(split.at(at), dtype), center.at(at))
        return binary("mul", apart, apart)

    return mean, average(Value(split.sizes, dtype, squared))


def _for_channels(ctx: Context, of_groups: Value, split: Value) -> Value:
    """What groups have, once for each of their channels."""
    each = of_groups.expand((*split.sizes[:3], 1))
    return ctx.program.copy(each)


@lowers(aten.native_group_norm.default)
def _group_norm(
    ctx: Context, a: Value, weight: Any, bias: Any, n: Any, channels: Any, space: Any, groups: int, eps: float
) -> tuple[Value, Value, Value]:
    per = index.exact(channels, groups)
    ctx.keep(a)
    split = _input(a).view((n, groups, per, space))
    strides = (image_layout(a) if a.place is None else a.place.strides) or (0,)
    side_by_side = type(per) is int and 1 < per < _FEW_CHANNELS and strides[1:2] == (1,) and strides[-1] != 1
    mean, variance = _moments_by_channel(ctx, split) if side_by_side else moments(ctx, split, [2, 3], 0)
    scale = _inverse_root(ctx, variance, eps)

    def spread(v: Value | None) -> Value | None:
        return None if v is None else v.view((1, groups, per, 1)).expand(split.sizes)

    if side_by_side:
        center, slope = (_for_channels(ctx, v, split) for v in (mean, scale))
    else:
        center, slope = mean, scale
    center, slope = center.expand(split.sizes), slope.expand(split.sizes)
    result = _affine(split, center, slope, spread(weight), spread(bias), ctx.val[0].dtype)
    flat = [_as(v.view((n, groups)), f.dtype) for v, f in zip((mean, scale), ctx.val[1:], strict=True)]
    return result.view(a.sizes), flat[0], flat[1]
