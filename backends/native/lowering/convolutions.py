"""Convolutions: calls of the library, in the layout that suits it."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import index
from ..ir.expressions import Buffer
from ..ir.program import Convolution, TensorRef, channels_last, image_layout
from ..ir.values import Value
from ..targets.cpu.choosing_convolutions import Shape, is_own_faster
from ..targets.cpu.packing import PackedKernel, PackedWeight
from .calls import call, prepared
from .registry import Context, aten, lowers

_FEW_CHANNELS = 16
"""The library is slow with images of so few channels, as they are read from files, unless these are last."""


@lowers(aten.convolution.default)
def _plain(ctx: Context, x: Value, weight: Value, bias: Any, *settings: Any) -> Any:
    args = (x, weight, bias, *settings)
    if not _chooses_layout(ctx, x, settings):
        return call(ctx, aten.convolution.default, args, {})
    if not _is_channels_last_better(x, weight):
        if image_layout(x) is not None:
            usual = index.contiguous_strides(x.sizes)
            x = ctx.program.realize(x, usual) if x.place is None else ctx.program.copy(x, usual)
        return call(ctx, aten.convolution.default, (x, *args[1:]), {})
    sizes = ctx.sizes()
    buffer = ctx.program.buffer(ctx.dtype, sizes, channels_last(sizes))
    ctx.program.call(aten.convolution.default, (_in_channels_last(ctx, x), *prepared(args[1:], ctx)), {}, [buffer])
    return ctx.program.stored(buffer)


def _chooses_layout(ctx: Context, x: Value, settings: tuple[Any, ...]) -> bool:
    transposed, groups = settings[3], settings[5]
    known = x.rank == 4 and all(type(s) is int for s in (*x.sizes, *ctx.sizes()))
    return ctx.program.lays_out_images and known and x.dtype is torch.float32 and not transposed and groups == 1


def _is_channels_last_better(x: Value, weight: Value) -> bool:
    """Whether the images are worth more than the weight, which the library then reorders in each call."""
    _, channels, height, width = weight.sizes
    if channels < _FEW_CHANNELS:  # type: ignore[operator]
        return bool(height * width > 1)  # type: ignore[operator]
    if image_layout(x) is None:
        return False
    return height * width == 1 or weight.numel <= 2 * x.numel  # type: ignore[operator]


def _in_channels_last(ctx: Context, value: Value) -> TensorRef:
    strides = channels_last(value.sizes)
    if value.place is None:
        return TensorRef.of(ctx.program.realize(value, strides))
    if value.place.strides == strides:
        return TensorRef.of(value)
    return TensorRef.of(ctx.program.copy(value, strides))


def _is_last_use(ctx: Context, node: Any) -> bool:
    """Whether the convolution at hand is the last to read the result of another one.

    All who read it must be convolutions, which read it where they stand; a loop would when it likes.
    """
    return _is_fused(node) and all(user is ctx.node or (_is_fused(user) and user < ctx.node) for user in node.users)


if torch.backends.mkldnn.is_available():
    # Convolutions with a frozen weight, with what they add to their result; channels last throughout.
    _POINTWISE = torch.ops.mkldnn._convolution_pointwise
    _POINTWISE_IN_PLACE = torch.ops.mkldnn._convolution_pointwise_

    def _is_fused(node: Any) -> bool:
        return node.target in (_POINTWISE.default, _POINTWISE.binary)

    @lowers(_POINTWISE.default)
    def _convolution(
        ctx: Context,
        x: Value,
        weight: Value,
        bias: Value | None,
        padding: list[int],
        stride: list[int],
        dilation: list[int],
        groups: int,
        unary: str,
        *rest: Any,
    ) -> Value:
        settings = (tuple(padding), tuple(stride), tuple(dilation), groups)
        image = _in_channels_last(ctx, x)
        buffer = ctx.program.buffer(ctx.dtype, ctx.sizes(), channels_last(ctx.sizes()))
        if _is_own_faster(ctx, x, weight, settings, unary, adds=False):
            return _own(ctx, buffer, image, None, weight, bias, settings, unary)
        packed = _packed(ctx, x, weight, settings)
        args = (image, packed, _bias(ctx, bias), *settings, unary, *rest)
        ctx.program.call(_POINTWISE.default, args, {}, [buffer])
        return ctx.program.stored(buffer)

    @lowers(_POINTWISE.binary)
    def _convolution_and_sum(
        ctx: Context,
        x: Value,
        other: Value,
        weight: Value,
        bias: Value | None,
        padding: list[int],
        stride: list[int],
        dilation: list[int],
        groups: int,
        binary: str,
        alpha: Any,
        unary: str | None,
        *rest: Any,
    ) -> Value:
        settings = (tuple(padding), tuple(stride), tuple(dilation), groups)
        image, addend = _in_channels_last(ctx, x), _in_channels_last(ctx, other)
        in_place = ctx.node.args[0] is not ctx.node.args[1] and _is_last_use(ctx, ctx.node.args[1])
        if in_place:  # a third less memory to go through
            buffer = addend.buffer
        else:
            buffer = ctx.program.buffer(ctx.dtype, ctx.sizes(), channels_last(ctx.sizes()))
        if _is_own_faster(ctx, x, weight, settings, unary, adds=True):
            return _own(ctx, buffer, image, addend, weight, bias, settings, unary)
        op, images = (_POINTWISE_IN_PLACE, (addend, image)) if in_place else (_POINTWISE, (image, addend))
        packed = _packed(ctx, x, weight, settings)
        args = (*images, packed, _bias(ctx, bias), *settings, binary, alpha, unary, *rest)
        ctx.program.call(op.binary, args, {}, [buffer])
        return ctx.program.stored(buffer)


def _packed(ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...]) -> TensorRef:
    """The weight as the library wants it."""
    padding, stride, dilation, groups = settings
    sizes: Any = x.sizes
    buffer = ctx.program.pack(PackedKernel(_constant(ctx, weight), padding, stride, dilation, groups, sizes))
    return TensorRef(buffer, buffer.sizes, buffer.strides, 0)


def _bias(ctx: Context, bias: Value | None) -> TensorRef | None:
    """In memory without gaps, which the library expects without a check."""
    if bias is None:
        return None
    ctx.program.realize(bias, (1,))
    assert bias.place is not None
    return TensorRef.of(bias if bias.place.strides == (1,) else ctx.program.copy(bias))


def _constant(ctx: Context, weight: Value) -> str:
    name = ctx.program.frozen(weight)
    assert name is not None
    return name


def _is_own_faster(
    ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...], unary: str | None, *, adds: bool
) -> bool:
    padding, stride, dilation, groups = settings
    if not ctx.program.own_convolutions or dilation != (1, 1) or groups != 1 or not len(padding) == len(stride) == 2:
        return False
    sizes: Any = x.sizes
    kernel: Any = weight.sizes
    results: Any = ctx.sizes()
    return is_own_faster(Shape(tuple(sizes), tuple(kernel), tuple(results), stride, padding, unary == "relu", adds))


def _own(
    ctx: Context,
    buffer: Buffer,
    image: TensorRef,
    addend: TensorRef | None,
    weight: Value,
    bias: Value | None,
    settings: tuple[Any, ...],
    unary: str | None,
) -> Value:
    padding, stride, _, _ = settings
    sizes: Any = weight.sizes
    packed = ctx.program.pack(PackedWeight(_constant(ctx, weight), sizes))
    relu = unary == "relu"
    ctx.program.add(Convolution(buffer, image, packed, _bias(ctx, bias), addend, sizes[2:], stride, padding, relu))
    return ctx.program.stored(buffer)
