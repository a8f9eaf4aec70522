"""Products and convolutions as sums of products over terms: what the blocks of a kernel read."""

from __future__ import annotations

import functools
from typing import NamedTuple, cast

import torch

from ....ir import index, operations as ops
from ....ir.expressions import Buffer, Node, compute_type, make
from ....ir.index import Index
from ....ir.layout import channels_last
from ....ir.products import Convolution, Product
from ....ir.program import TensorRef

_LEAST = 16
"""A tensor core multiplies so many rows, columns and terms at once."""
_MOST = 2**31 - 2**17
"""Operands with fewer elements are indexed in 32 bits."""
_HALF = (torch.bfloat16, torch.float16)


class Factors(NamedTuple):
    """The operands and loops of a product; see :class:`~...ir.products.FinishedProduct`."""

    left: Node
    right: Node
    row: Index
    column: Index
    term: Index
    shift: Node | None = None
    """What the library adds to the sum, by column."""

    @property
    def rows(self) -> int:
        return extent(self.row)

    @property
    def columns(self) -> int:
        return extent(self.column)

    @property
    def terms(self) -> int:
        return extent(self.term)


def factors(product: Product | Convolution) -> Factors | None:
    """What ``product`` multiplies and sums; None where tensor cores do not, or too little."""
    found = _of_matrices(product) if isinstance(product, Product) else _of_windows(product)
    if found is None:
        return None
    return found if min(found.rows, found.columns, found.terms) >= _LEAST else None


def _of_matrices(product: Product) -> Factors | None:
    left, right = product.left, product.right
    if len(left.sizes) != 2 or not _fits(product.target, left, right):
        return None
    row, term, column = index.var("y0", left.sizes[0]), index.var("t0", left.sizes[1]), index.var("x0", right.sizes[1])
    first = left.offset + row * left.strides[0] + term * left.strides[1]
    second = right.offset + term * right.strides[0] + column * right.strides[1]
    return Factors(_read(left.buffer, first), _read(right.buffer, second), row, column, term)


def _of_windows(product: Convolution) -> Factors | None:
    """A convolution whose result is channels last: a row is a place of the window, a term a pixel and channel in it."""
    image, weight, target = product.image, product.weight, product.target
    if product.transposed or product.groups != 1 or len(weight.sizes) != 4:
        return None
    if not _fits(target, image, weight) or target.strides != channels_last(target.sizes):
        return None
    count, channels, height, width = target.sizes
    _, depth, *window = weight.sizes
    row, column = index.var("y0", count * height * width), index.var("x0", channels)
    term = index.var("t0", window[0] * window[1] * depth)
    *taps, channel = index.unflatten(term, (window[0], window[1], depth))
    walks = (image.strides[0], *(s * by for s, by in zip(image.strides[2:], product.stride, strict=True)))
    places: tuple[Index, ...] = index.unflatten(row, (count, height, width))
    conditions = [
        condition
        for place, tap, extent, by, before, apart in zip(
            places[1:], taps, image.sizes[2:], product.stride, product.padding, product.dilation, strict=True
        )
        for condition in _within(place * by + tap * apart - before, extent)
    ]
    if walks == (height * width * walks[2], width * walks[2], walks[2]):  # no gaps between the windows
        places, walks = (row,), walks[2:]
    first = image.offset + channel * image.strides[1]
    for place, walk in zip(places, walks, strict=True):
        first = first + place * walk
    for tap, step, before, apart in zip(taps, image.strides[2:], product.padding, product.dilation, strict=True):
        first = first + (tap * apart - before) * step
    second = weight.offset + column * weight.strides[0] + channel * weight.strides[1]
    for tap, step in zip(taps, weight.strides[2:], strict=True):
        second = second + tap * step
    left, right = _read(image.buffer, index.joined(first), conditions), _read(weight.buffer, index.joined(second))
    bias = product.bias
    shift = None if bias is None else _read(bias.buffer, bias.offset + column * bias.strides[0])
    return Factors(left, right, row, column, term, shift)


def _within(place: Index, extent: Index) -> list[Node]:
    """What must hold for ``place`` to be in an image, if it may not hold."""
    at = ops.from_index(place)
    found = [
        ops.compare("ge", at, ops.const(0, torch.int64)),
        ops.compare("lt", at, ops.from_index(extent)),
    ]
    return [condition for condition in found if condition.op != "const"]


def _read(buffer: Buffer, position: Index, conditions: list[Node] | None = None) -> Node:
    """The element at ``position``, or 0."""
    held = (functools.reduce(functools.partial(ops.binary, "and"), conditions),) if conditions else ()
    return make("load", held, compute_type(buffer.dtype), (buffer, position))


def _fits(target: Buffer, *operands: TensorRef) -> bool:
    """Whether all sizes are known, and the types are what tensor cores multiply."""
    refs = (*operands, TensorRef(target, target.sizes, target.strides, 0))
    if any(type(n) is not int for ref in refs for n in (*ref.sizes, *ref.strides, ref.offset, ref.buffer.numel)):
        return False
    if any(ref.conjugated or ref.buffer.pairs or _number(ref.buffer.numel) >= _MOST for ref in refs):
        return False
    # Triton's products in TF32 cut off what cuBLAS rounds.
    return target.dtype in _HALF and all(ref.buffer.dtype is target.dtype for ref in operands)


def extent(loop: Index) -> int:
    """How many steps a loop has; one of a single step is no variable."""
    variable = index.the_var(loop)
    return 1 if variable is None else _number(variable.size)


def _number(value: Index) -> int:
    return cast("int", value)
