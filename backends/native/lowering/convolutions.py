"""Convolutions, as abstract operations on images in the layout that suits the target."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import index
from ..ir.expressions import Buffer
from ..ir.layout import channels_last, image_layout
from ..ir.products import Convolution
from ..ir.program import TensorRef
from ..ir.values import Value
from ..rewrites.convolution_operator import CONVOLUTION
from .calls import buffers_for, prepared
from .registry import Context, aten, lowers

_OP = aten.convolution.default


@lowers(_OP)
def _plain(ctx: Context, x: Value, weight: Value, bias: Any, *settings: Any) -> Value:
    order = _order(ctx, x, weight, settings)
    if order == "usual" and image_layout(x) is not None:
        usual = index.contiguous_strides(x.sizes)
        x = ctx.program.realize(x, usual) if x.place is None else ctx.program.copy(x, usual)
    if order == "channels last":
        buffer = ctx.program.buffer(ctx.dtype, ctx.sizes(), channels_last(ctx.sizes()))
        image = _in_channels_last(ctx, x)
        one = all(type(s) is int and s == 1 for s in weight.sizes[2:])
        if _is_traced_so(ctx, 1) or (ctx.program.forms.orders_weights() and not one):
            weight = ctx.program.stored(_in_channels_last(ctx, weight).buffer)
        rest = prepared((weight, bias, *settings), ctx)
    else:
        image, *rest = prepared((x, weight, bias, *settings), ctx)
        (buffer,) = buffers_for(ctx, _OP, (image, *rest), {})
    kernel, shift, stride, padding, dilation, transposed, output_padding, groups = rest
    ctx.program.add(
        Convolution(
            buffer,
            image,
            kernel,
            shift,
            tuple(stride),
            tuple(padding),
            tuple(dilation),
            transposed,
            tuple(output_padding),
            groups,
        )
    )
    return ctx.program.stored(buffer)


def _order(ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...]) -> str | None:
    """In which order the dimensions of the images lie in memory; None: as they come."""
    transposed, groups = settings[3], settings[5]
    if _is_traced_so(ctx, 0) and not transposed and ctx.program.forms.trains_in_channels_last(ctx.val):
        return "channels last"
    if not ctx.program.lays_out_images or transposed or groups != 1 or x.rank != 4:
        return None
    if any(type(s) is not int for s in (*x.sizes, *ctx.sizes())):
        return None
    return ctx.program.forms.order_of_images(x, weight)


def _is_traced_so(ctx: Context, position: int) -> bool:
    """Whether an operand was in channels last when the graph was traced."""
    fake = ctx.fake(ctx.node.args[position])
    usual = fake.is_contiguous()
    return fake.dim() == 4 and not usual and fake.is_contiguous(memory_format=torch.channels_last)


def _in_channels_last(ctx: Context, value: Value) -> TensorRef:
    strides = channels_last(value.sizes)
    if value.place is None:
        return TensorRef.of(ctx.program.realize(value, strides))
    if value.place.strides == strides:
        return TensorRef.of(value)
    return TensorRef.of(ctx.program.copy(value, strides))


@lowers(CONVOLUTION)
def _finished(
    ctx: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    addend: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    relu: bool,
) -> Value:
    """With a constant weight, and with what it adds to its result; channels last throughout."""
    program = ctx.program
    image = _in_channels_last(ctx, x)
    added = None if addend is None else _in_channels_last(ctx, addend)
    buffer = _over_addend(ctx, added)
    if buffer is None:
        buffer = program.buffer(ctx.dtype, ctx.sizes(), channels_last(ctx.sizes()))
    kernel = TensorRef.of(weight)
    settings = tuple(stride), tuple(padding), tuple(dilation)
    program.add(
        Convolution(
            buffer,
            image,
            kernel,
            _without_gaps(ctx, bias),
            *settings,
            groups=groups,
            constant=program.frozen[kernel.buffer],
            addend=added,
            relu=relu,
        )
    )
    return program.stored(buffer)


def _over_addend(ctx: Context, addend: TensorRef | None) -> Buffer | None:
    """The buffer of what is added, if the result may be written over it, which is a third less memory to go through.

    All who read it must be convolutions, which read it where they stand; a loop would when it likes.  This is the last.
    """
    image, other = ctx.node.args[0], ctx.node.args[3]
    if addend is None or image is other or not _is_finished(other):
        return None
    last = all(user is ctx.node or (_is_finished(user) and user < ctx.node) for user in other.users)
    return addend.buffer if last else None


def _is_finished(node: Any) -> bool:
    return node.target is CONVOLUTION


def _without_gaps(ctx: Context, bias: Value | None) -> TensorRef | None:
    if bias is None:
        return None
    ctx.program.realize(bias, (1,))
    assert bias.place is not None
    return TensorRef.of(bias if bias.place.strides == (1,) else ctx.program.copy(bias))
