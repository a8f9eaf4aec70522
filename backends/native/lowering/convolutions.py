"""Convolutions, as abstract operations on images in the layout that suits the target; those of small windows as loops,
and those whose windows do not overlap as products of matrices."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Buffer, Node, compute_type
from ..ir.index import Index
from ..ir.layout import channels_last, image_layout
from ..ir.products import Convolution
from ..ir.program import Program, TensorRef
from ..ir.values import Place, Value
from ..rewrites.convolution_operator import CONVOLUTION
from .calls import buffers_for, call, prepared
from .joining import framed, within
from .pointwise import converted
from .products import product
from .reductions import reduce
from .registry import Context, aten, lowers

_OP = aten.convolution.default


@lowers(_OP)
def _plain(ctx: Context, x: Value, weight: Value, bias: Any, *settings: Any) -> Value:
    settings = _of_each_dimension(weight, settings)
    if _is_filter(ctx, x, weight, settings):
        return _filtered(ctx, x, weight, bias, *settings)
    if (patches := _patches(ctx, x, weight, settings, ctx.sizes())) is not None:
        plain = patches.spread(x, weight, ctx.sizes()) if settings[3] else patches.collected(x, weight)
        return _shifted(ctx, plain, bias)
    if bias is not None and ctx.dtype.is_floating_point and ctx.program.forms.shifts_convolutions():
        return _shifted(ctx, _called(ctx, x, weight, None, settings), bias)
    return _called(ctx, x, weight, bias, settings)


def _called(ctx: Context, x: Value, weight: Value, bias: Value | None, settings: tuple[Any, ...]) -> Value:
    """As an abstract operation."""
    order = _order(ctx, x, weight, settings)
    if order == "channels last":
        return _by_channels(ctx, x, weight, bias, settings)
    if order == "usual" and not _lies_as_usual(x):
        usual = index.contiguous_strides(x.sizes)
        x = ctx.program.realize(x, usual) if x.place is None else ctx.program.copy(x, usual)
    image, *rest = prepared((x, weight, bias, *settings), ctx)
    (buffer,) = buffers_for(ctx, _OP, (image, *rest), {})
    return _convolved(ctx, buffer, image, rest)


def _by_channels(ctx: Context, x: Value, weight: Value, bias: Value | None, settings: tuple[Any, ...]) -> Value:
    """With images whose channels lie side by side; a sequence is an image of one row."""
    sizes = ctx.sizes()
    is_row = x.rank == 3
    if is_row:
        if x.place is None:
            ctx.program.realize(x, _channels_last_row(x.sizes))
        x, weight = x.unsqueeze(2), weight.unsqueeze(2)
        sizes = (*sizes[:2], 1, sizes[2])
        stride, padding, dilation, transposed, output_padding, groups = settings
        settings = ([1, *stride], [0, *padding], [1, *dilation], transposed, [0, *output_padding], groups)
    buffer = ctx.program.buffer(ctx.dtype, sizes, channels_last(sizes))
    image = _in_channels_last(ctx, x)
    one = all(type(s) is int and s == 1 for s in weight.sizes[2:])
    if _is_traced_so(ctx, 1) or (ctx.program.forms.orders_weights() and not one):
        weight = ctx.program.stored(_in_channels_last(ctx, weight).buffer)
    result = _convolved(ctx, buffer, image, prepared((weight, bias, *settings), ctx))
    return result.squeeze(2) if is_row else result


def _convolved(ctx: Context, buffer: Buffer, image: TensorRef, rest: Sequence[Any]) -> Value:
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


def _channels_last_row(sizes: Sequence[Index]) -> tuple[Index, ...]:
    _, channels, length = sizes
    return (channels * length, 1, channels)


def _of_each_dimension(weight: Value, settings: Sequence[Any]) -> tuple[Any, ...]:
    """``settings``, of which a list may have one number for all dimensions."""
    return tuple([*s] * (weight.rank - 2) if isinstance(s, list) and len(s) == 1 else s for s in settings)


_SHARED = 8
"""Channels from which on a product reads each element of an image much less often than loops do, which read it for
each channel of the result: 16 by 16 channels of 667 pixels take 2.8 µs as a product, and 6.7 as loops."""


def _is_filter(ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...]) -> bool:
    """Whether an element is the sum of a small window, which loops read sooner than a library is called.

    Each channel has a window of its own, or, of images whose pixels are neighbours, a few channels have one.
    """
    stride, padding, _, transposed, _, groups = settings
    sizes = (*x.sizes, *weight.sizes, *ctx.sizes())
    if any(type(s) is not int or s == 0 for s in sizes) or any(p < 0 for p in padding):
        return False
    if transposed or x.rank != weight.rank:
        return False
    if not ctx.dtype.is_floating_point or not ctx.program.own_products:
        return False
    if weight.sizes[:2] == (groups, 1) and x.sizes[1] == groups:
        return ctx.program.forms.filters(weight.numel // groups)
    if groups == 1 and ctx.dtype is torch.float32 and weight.numel == index.product(weight.sizes[:2]):
        if all(type(s) is int and s >= _SHARED for s in weight.sizes[:2]):
            return False
    together = image_layout(x) is not None or ctx.strides() != index.contiguous_strides(ctx.sizes())
    terms: Any = index.product(weight.sizes[1:])
    return not together and stride[-1] <= 2 and ctx.program.forms.filters(terms)


def _filtered(
    ctx: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    *rest: Any,
) -> Value:
    """The sum over the window, written out; of images in a frame of zeros, which needs no conditions."""
    program, spatial = ctx.program, x.rank - 2
    sizes = tuple(s + 2 * p for s, p in zip(x.sizes, [0, 0, *padding], strict=True))
    last = image_layout(x) is not None
    depth: Any = weight.sizes[1]
    each = index.floordiv(weight.sizes[0], rest[-1])  # results of a group of channels
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
        first = index.floordiv(channel, each) * depth
        for inner, *tap in itertools.product(*(range(s) for s in weight.sizes[1:])):  # type: ignore[arg-type]
            where = [place[d] * stride[d] + tap[d] * dilation[d] for d in range(spatial)]
            part = ops.binary(
                "mul",
                ops.cast(x.at((n, first + inner, *where)), wide),
                ops.cast(weight.at((channel, inner, *tap)), wide),
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
    if not ctx.program.lays_out_images or any(type(s) is not int for s in (*x.sizes, *ctx.sizes())):
        return None
    return ctx.program.forms.order_of_images(x, weight, settings[0], transposed, groups)


def _lies_as_usual(images: Value) -> bool:
    """Whether the last dimension of ``images`` lies side by side, or may, as nothing says how they lie."""
    if images.rank == 4:
        return image_layout(images) is None
    return images.place is not None and images.place.strides == index.contiguous_strides(images.sizes)


def _is_traced_so(ctx: Context, position: int) -> bool:
    """Whether an operand was in channels last when the graph was traced."""
    fake = ctx.fake(ctx.node.args[position])
    usual = fake.is_contiguous()
    return fake.dim() == 4 and not usual and fake.is_contiguous(memory_format=torch.channels_last)


def _in_channels_last(ctx: Context, value: Value) -> TensorRef:
    return TensorRef.of(_by_channel(ctx, value))


def _by_channel(ctx: Context, value: Value) -> Value:
    """An image in memory whose channels lie side by side."""
    strides = channels_last(value.sizes)
    if value.place is None:
        return ctx.program.realize(value, strides)
    if all(a == b or _is(size, 1) for a, b, size in zip(value.place.strides, strides, value.sizes, strict=True)):
        return value
    return ctx.program.copy(value, strides)


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


# --- windows that do not overlap ------------------------------------------------------------------------------------


_LONG = 256
"""Elements of a window from which on its product with a weight takes much longer than a copy of it: the weight is then
packed once for all images."""


@dataclass(frozen=True)
class _Patches:
    """Windows of ``sizes`` elements that begin every ``steps`` elements of an image, and share none.

    Such a convolution is a product of matrices: of the windows of an image, which are its elements in another order,
    and of the weight, whose dimensions are the channels of ``parts``, which have an element for each window, the
    channels of the image, and those of a window.  A transposed convolution makes the image of the parts.
    """

    node: Any
    program: Program
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    made: Value | None = None
    """Where both gradients read them: the rows of an image that lies by channels, or else the columns."""

    @property
    def count(self) -> int:
        return math.prod(self.counts)

    @property
    def taps(self) -> int:
        return math.prod(self.sizes)

    def of(self, image: Value) -> Value:
        """The windows of ``image``: images, windows in each dimension, channels, elements in each dimension."""
        spatial = len(self.sizes)

        def element(at: Any) -> Node:
            n, channel, which, inside = at[0], at[spatial + 1], at[1 : spatial + 1], at[spatial + 2 :]
            return image.at((n, channel, *(i * s + t for i, s, t in zip(which, self.steps, inside, strict=True))))

        sizes = (image.sizes[0], *self.counts, image.sizes[1], *self.sizes)
        if image.place is None:
            return Value(sizes, image.dtype, element)
        n, channel, *along = image.place.strides
        strides = (n, *(s * step for s, step in zip(along, self.steps, strict=True)), channel, *along)
        return Value(sizes, image.dtype, None, Place(image.place.buffer, strides, image.place.offset))

    def rows(self, image: Value) -> Value:
        """The windows of all images as rows of one matrix, in the order of :meth:`matrix`."""
        if self.made is not None and _lies_by_channels(image):
            return self.made
        windows = self._by_channels(self.of(image)) if _lies_by_channels(image) else self.of(image)
        return windows.view((image.sizes[0] * self.count, image.sizes[1] * self.taps))

    def columns(self, image: Value) -> Value:
        """The windows as columns of a matrix for each image."""
        if self.made is not None:
            return self.made
        spatial = len(self.sizes)
        order = (0, *range(spatial + 1, 2 * spatial + 2), *range(1, spatial + 1))
        return self.of(image).permute(order).view((image.sizes[0], image.sizes[1] * self.taps, self.count))

    def matrix(self, weight: Value, image: Value | None = None) -> Value:
        """The weight as a matrix, whose columns are in the order of the rows of ``image``."""
        by_channels = image is not None and _lies_by_channels(image)
        ordered = self._by_channels(weight) if by_channels else weight
        return ordered.view((weight.sizes[0], weight.sizes[1] * self.taps))

    def _by_channels(self, windows: Value) -> Value:
        """With the channels behind the elements of a window, which come last."""
        first = windows.rank - len(self.sizes) - 1
        return windows.permute((*range(first), *range(first + 1, windows.rank), first))

    def collected(self, image: Value, weight: Value) -> Value:
        """The parts: the convolution of ``image``."""
        n, channels = image.sizes[0], weight.sizes[0]
        if self._collects_rows(image, weight):
            made = self._product(self.rows(image), self.matrix(weight, image).permute((1, 0)))
            return _channels_second(made.view((n, *self.counts, channels)))
        return self._of_each(self.matrix(weight), self.columns(image)).view((n, channels, *self.counts))

    def _collects_rows(self, image: Value, weight: Value) -> bool:
        many = not _is(image.sizes[0], 1) and self.taps > 1 and int(weight.sizes[1]) * self.taps >= _LONG  # type: ignore[arg-type]
        return many or _lies_by_channels(image) or _is_half(image) or _is_turned(self.node)

    def both(self, image: Value, weight: Value) -> _Patches:
        """These windows for :meth:`collected` and :meth:`correlated`, which then read one copy of the image."""
        by_channels = _lies_by_channels(image)
        if self.taps == 1 or _is_half(image) or (self._collects_rows(image, weight) and not by_channels):
            return self
        read = self.rows(image) if by_channels else self.columns(image)
        return dataclasses.replace(self, made=self.program.realize(read))

    def spread(self, parts: Value, weight: Value, sizes: Sequence[Index]) -> Value:
        """The image of ``sizes``: the transposed convolution of ``parts``, and the gradient for an image."""
        n, channels, spatial = sizes[0], sizes[1], len(self.sizes)
        if _lies_by_channels(parts) or _is_half(parts):
            rows = parts.permute((0, *range(2, parts.rank), 1)).view((n * self.count, parts.sizes[1]))
            made = self._product(rows, self.matrix(weight)).view((n, *self.counts, channels, *self.sizes))
            made = made.permute((0, spatial + 1, *range(1, spatial + 1), *range(spatial + 2, 2 * spatial + 2)))
        else:
            columns = parts.view((n, parts.sizes[1], self.count))
            made = self._of_each(self.matrix(weight).permute((1, 0)), columns)
            made = made.view((n, channels, *self.sizes, *self.counts))
            made = made.permute((0, 1, *range(spatial + 2, 2 * spatial + 2), *range(2, spatial + 2)))

        def element(at: Any) -> Node:
            n, channel, *where = at
            which = [index.floordiv(i, step) for i, step in zip(where, self.steps, strict=True)]
            inside = [index.remainder(i, step) for i, step in zip(where, self.steps, strict=True)]
            node = made.at((n, channel, *which, *inside))
            for d, extent in enumerate(sizes[2:]):
                if self.sizes[d] == self.steps[d] and self.counts[d] * self.steps[d] == extent:
                    continue
                held = ops.binary("and", within(which[d], 0, self.counts[d]), within(inside[d], 0, self.sizes[d]))
                node = ops.masked(held, node, ops.const(0, node.dtype))
            return node

        return Value(tuple(sizes), parts.dtype, element)

    def correlated(self, parts: Value, image: Value, sizes: Sequence[Index]) -> Value:
        """The gradient for a weight of ``sizes``."""
        n = parts.sizes[0]
        channels, elements = int(sizes[0]), int(sizes[1]) * self.taps  # type: ignore[arg-type]
        few = _is(n, 1) or (channels + elements) * self.count < channels * elements
        if _is_half(parts) or (few and (self.made is None or _lies_by_channels(image))):
            left = parts.permute((1, 0, *range(2, parts.rank))).view((channels, n * self.count))
            return self._of_weight(self._product(left, self.rows(image)), image, sizes)
        # A matrix for each image is less to write than a copy of the images side by side.
        if _lies_by_channels(image):
            right = self.rows(image).view((n, self.count, elements))
        else:
            right = self.columns(image).permute((0, 2, 1))
        found = self._product(parts.view((n, channels, self.count)), right)
        total = self.program.reduce("sum", found, [0], found.dtype, lambda node: node)
        return self._of_weight(total, image, sizes)

    def _of_weight(self, found: Value, image: Value, sizes: Sequence[Index]) -> Value:
        """A matrix in the order of :meth:`matrix` as a weight of ``sizes``."""
        if not _lies_by_channels(image):
            return found.view(sizes)
        return _channels_second(found.view((sizes[0], *self.sizes, image.sizes[1])))

    def _product(self, left: Value, right: Value) -> Value:
        return product(self.program, left, right, exact=True)

    def _of_each(self, matrix: Value, columns: Value) -> Value:
        """``matrix`` times each of ``columns``."""
        if _is(columns.sizes[0], 1):
            return self._product(matrix, columns.squeeze(0)).unsqueeze(0)
        return self._product(matrix.expand((columns.sizes[0], *matrix.sizes)), columns)


def _patches(
    ctx: Context, x: Value, weight: Value, settings: tuple[Any, ...], results: Sequence[Index]
) -> _Patches | None:
    """The windows of a convolution that the target multiplies; None if they overlap, or reach over the border."""
    stride, padding, dilation, transposed, _, groups = settings
    sizes: Any = weight.sizes[2:]
    image, parts = (results, x.sizes) if transposed else (x.sizes, results)
    known = (*image[2:], *parts[1:], *weight.sizes)
    if not ctx.program.own_products or any(type(s) is not int or s == 0 for s in known):
        return None
    if groups != 1 or any(padding) or x.rank != weight.rank or not x.dtype.is_floating_point or _is(x.sizes[0], 0):
        return None
    if any(k > 1 and (k > s or d > 1) for k, s, d in zip(sizes, stride, dilation, strict=True)):
        return None
    if not ctx.program.forms.multiplies_windows(x, weight, transposed):
        return None
    return _Patches(ctx.node, ctx.program, tuple(sizes), tuple(stride), tuple(parts[2:]))  # type: ignore[arg-type]


def _is(size: Index, number: int) -> bool:
    return type(size) is int and size == number


def _is_half(value: Value) -> bool:
    """Whether sums must not be rounded before more is added, which the library does for one matrix, and its columns."""
    return compute_type(value.dtype) is not value.dtype


def _lies_by_channels(value: Value) -> bool:
    """Whether the channels of ``value`` are neighbours in memory."""
    if value.rank == 4 and image_layout(value) is not None:
        return True
    return value.place is not None and not _is(value.sizes[1], 1) and _is(value.place.strides[1], 1)


def _is_turned(node: Any) -> bool:
    """Whether whoever reads the image sees its channels as the last dimension, and is not the caller."""
    while len(node.users) == 1:
        (node,) = node.users
        if node.target not in _TURNS:
            return False
        if node.target is not aten.view.default:
            return all(user.op != "output" for user in node.users)
    return False


_TURNS = frozenset((aten.view.default, aten.transpose.int, aten.permute.default))


def _channels_second(value: Value) -> Value:
    return value.permute((0, value.rank - 1, *range(1, value.rank - 1)))


def _shifted(ctx: Context, plain: Value, bias: Value | None) -> Value:
    """``plain``, and a number for each channel."""
    if bias is None:
        if plain.place is not None and plain.dtype is ctx.dtype:
            return plain  # it lies in memory: another value of the same elements would be a copy
        return Value(plain.sizes, ctx.dtype, lambda at: ops.round_to(plain.at(at), ctx.dtype))

    def element(at: Any) -> Node:
        node = plain.at(at)
        return ops.binary("add", node, ops.cast(bias.at((at[1],)), node.dtype))

    return Value(plain.sizes, ctx.dtype, element)


def _lies_as(ctx: Context, which: int, weight: Any) -> None:
    """Give a result the strides of ``weight``, as the kernels do.

    The trace has others where windows have one element.
    """
    for user in ctx.node.users:
        if user.target is operator.getitem and user.args[1] == which:
            user.meta["val"] = user.meta["val"].as_strided(weight.shape, weight.stride())


@lowers(aten.convolution_backward.default)
def _gradients(
    ctx: Context, grad: Value, x: Value, weight: Value, shifts: Any, *settings: Any
) -> tuple[Value | None, ...]:
    *given, mask = settings
    rest = _of_each_dimension(weight, given)
    patches = _patches(ctx, x, weight, rest, grad.sizes)
    if patches is None:
        if ctx.program.forms.differentiates_by_channels(weight, rest[5]):
            return _gradients_by_channel(ctx, grad, x, weight, (shifts, *rest, mask))
        found: tuple[Value | None, ...] = call(ctx, ctx.node.target, (grad, x, weight, shifts, *rest, mask), {})
        return found
    ctx.program.realize(grad)
    parts, image = (x, grad) if rest[3] else (grad, x)
    if rest[3] and mask[0] and mask[1]:
        patches = patches.both(image, weight)
    of_x, of_weight, of_bias = None, None, None
    if mask[0]:
        of_x = patches.collected(image, weight) if rest[3] else patches.spread(parts, weight, x.sizes)
    if mask[1]:
        _lies_as(ctx, 1, ctx.fake(ctx.node.args[2]))
        of_weight = patches.correlated(parts, image, weight.sizes)
    if mask[2]:
        of_bias = reduce(ctx, "sum", grad, [d for d in range(grad.rank) if d != 1], False, grad.dtype)
    return of_x, of_weight, of_bias


def _gradients_by_channel(
    ctx: Context, grad: Value, x: Value, weight: Value, settings: tuple[Any, ...]
) -> tuple[Value | None, ...]:
    """By the library, which returns gradients that lie as images do whose channels lie side by side."""
    given = prepared((_by_channel(ctx, grad), _by_channel(ctx, x), weight, *settings), ctx)
    results: list[Buffer | None] = []
    for known in ctx.val:
        if known is None:
            results.append(None)
            continue
        sizes = ctx.sizes(known)
        strides = channels_last(sizes) if len(sizes) == 4 else (1,)
        results.append(ctx.program.buffer(known.dtype, sizes, strides, device=known.device))
    ctx.program.call(ctx.node.target, given, {}, results)
    return tuple(ctx.program.stored(buffer) if buffer is not None else None for buffer in results)
