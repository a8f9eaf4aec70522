"""Convolutions, as abstract operations on images in the layout that suits the target; small depthwise ones as loops."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Buffer, Node, compute_type
from ..ir.layout import channels_last, image_layout
from ..ir.products import Convolution
from ..ir.program import TensorRef
from ..ir.values import Value
from ..rewrites.convolution_operator import CONVOLUTION
from .calls import buffers_for, prepared
from .joining import framed
from .pointwise import converted
from .registry import Context, aten, lowers

_OP = aten.convolution.default


@lowers(_OP)
def _plain(ctx: Context, x: Value, weight: Value, bias: Any, *settings: Any) -> Value:
    rank = weight.rank - 2
    settings = tuple([*s] * rank if isinstance(s, list) and len(s) == 1 else s for s in settings)  # one for all
    if _is_filter(ctx, x, weight, settings):
        return _filtered(ctx, x, weight, bias, *settings)
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


def _is_filter(ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...]) -> bool:
    """Whether each channel has a small window of its own, which loops read sooner than a library is called."""
    _, padding, _, transposed, _, groups = settings
    sizes = (*x.sizes, *weight.sizes, *ctx.sizes())
    if any(type(s) is not int or s == 0 for s in sizes) or any(p < 0 for p in padding):
        return False
    if transposed or x.rank != weight.rank:
        return False
    if weight.sizes[:2] != (groups, 1) or x.sizes[1] != groups or not ctx.dtype.is_floating_point:
        return False
    taps = weight.numel // groups
    return ctx.program.own_products and ctx.program.forms.filters(taps)


def _filtered(
    ctx: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    *_: Any,
) -> Value:
    """The sum over the window, written out; of images in a frame of zeros, which needs no conditions."""
    program, spatial = ctx.program, x.rank - 2
    sizes = tuple(s + 2 * p for s, p in zip(x.sizes, [0, 0, *padding], strict=True))
    last = image_layout(x) is not None
    strides = channels_last(sizes) if last else index.contiguous_strides(sizes)
    wide = compute_type(ctx.dtype)
    if any(padding):
        program.realize(x)
        x = converted(x, wide)  # once, and not for each window
        x = framed(program, x, [0, 0, *padding], [0, 0, *padding], 0.0, strides)
    else:
        ctx.keep(x)
    if last:  # neighbours in a vector are channels, and want neighbouring weights
        channels, _one, rows, columns = weight.sizes
        weight = program.copy(weight, (1, channels * rows * columns, columns * channels, channels))
    ctx.keep(weight)

    def element(at: Any) -> Node:
        n, channel, *place = at
        found = None if bias is None else ops.cast(bias.at((channel,)), wide)
        for tap in itertools.product(*(range(s) for s in weight.sizes[2:])):  # type: ignore[arg-type]
            where = [place[d] * stride[d] + tap[d] * dilation[d] for d in range(spatial)]
            part = ops.binary(
                "mul", ops.cast(x.at((n, channel, *where)), wide), ops.cast(weight.at((channel, 0, *tap)), wide)
            )
            found = part if found is None else ops.binary("add", found, part)
        assert found is not None
        return ops.round_to(found, ctx.dtype)

    return program.realize(Value(ctx.sizes(), ctx.dtype, element), ctx.strides())


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
