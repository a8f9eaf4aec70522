"""Convolutions: calls of the library, in the layout that suits it."""

from __future__ import annotations

from typing import Any

import torch

from ..index import Index
from ..packing import PackedKernel
from ..program import TensorRef
from ..values import Value
from .calls import prepared
from .registry import Context, lowers


def channels_last(sizes: tuple[Index, ...]) -> tuple[Index, ...]:
    """Strides with which the channels of an image lie side by side."""
    _, channels, height, width = sizes
    return (height * width * channels, 1, width * channels, channels)


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
