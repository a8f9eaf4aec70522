"""Convolutions: calls of the library, in the layout that suits it."""

from __future__ import annotations

from typing import Any

import torch

from .. import index
from ..packing import PackedKernel
from ..program import TensorRef, channels_last, image_layout
from ..values import Value
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


def _fused(
    ctx: Context,
    x: Value,
    others: list[Value],
    weight: Value,
    bias: Value | None,
    padding: list[int],
    stride: list[int],
    dilation: list[int],
    groups: int,
    *rest: Any,
) -> Value:
    """oneDNN's convolution of a packed weight, with what it adds to its result; channels last throughout."""
    program = ctx.program
    constant = program.frozen(weight)
    assert constant is not None
    sizes = ctx.sizes()
    refs = [_in_channels_last(ctx, value) for value in (x, *others)]
    settings = (tuple(padding), tuple(stride), tuple(dilation), groups)
    packed = program.pack(PackedKernel(constant, *settings, x.sizes))  # type: ignore[arg-type]
    buffer = program.buffer(ctx.dtype, sizes, channels_last(sizes))
    whole = TensorRef(packed, packed.sizes, packed.strides, 0)
    program.call(ctx.node.target, (*refs, whole, prepared(bias, ctx), *settings, *rest), {}, [buffer])
    return program.stored(buffer)


if torch.backends.mkldnn.is_available():

    @lowers(torch.ops.mkldnn._convolution_pointwise.default)
    def _convolution(ctx: Context, x: Value, weight: Value, *rest: Any) -> Value:
        return _fused(ctx, x, [], weight, *rest)

    @lowers(torch.ops.mkldnn._convolution_pointwise.binary)
    def _convolution_and_sum(ctx: Context, x: Value, other: Value, weight: Value, *rest: Any) -> Value:
        return _fused(ctx, x, [other], weight, *rest)
