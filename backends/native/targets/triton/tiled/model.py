"""How long a product takes on a Hopper GPU: in kernels of ours, and by the library.

Large products are bound by arithmetic and memory.  Small ones, all programs of which run at a time, are bound by the
walk along their terms and by what programs get from the second cache.  All times are seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ....ir import index
from ....ir.expressions import Node, operators_in
from ....ir.index import Index
from ....ir.products import FinishedProduct
from .. import shapes
from ..shapes import Shape

_FLOPS = 600e12
_BANDWIDTH = 3e12
"""Multiplications and additions of half precision in a second, and bytes, as an H100 does them in practice."""
_CACHED = 2**24
_CACHE_BANDWIDTH = 6e12
"""Results of so many bytes are still in the second cache when a pass reads them."""
_START = 1.5e-6
"""What a kernel costs beside what it computes."""
_MORE_ARITHMETIC, _MORE_READING = 1.35, 1.1
"""How much longer our kernel takes than the library's, where arithmetic or memory decides."""
_RAGGED = 3
"""How much longer cuBLAS takes where rows of the result begin at any place, for which it has kernels of older GPUs."""
_ODD = 2.8
"""How much longer our kernel takes where an operand is read element by element: on an H200, the gradient of an
embedding of 50,257 words from 2,048 rows takes 0.98 ms, and 0.2 ms in the library."""
_TURN = 0.3e-6
"""What a program takes for a block of terms, however small; two programs share a multiprocessor."""

_DIVISION = 9e-6 / (128 * 128)
"""What a program takes to divide an element of its block, as ``silu`` does, while it waits for the other program of its
multiprocessor: 9 µs for all of a block, on an H200.  Most convolutions with ``silu`` were slower in our
kernel."""

# Small products, which all programs compute at a time: latency and the second cache decide.
_SMALL_START = 2.3e-6
_SMALL_TURN, _LIBRARY_TERM = 0.15e-6, 0.11e-6 / 64
"""What a block of terms takes, and what a term takes the library."""
_TO_PROGRAMS = 9e12
"""So many bytes all programs together get from the second cache in a second."""


def are_small(found: Iterable[Shape]) -> bool:
    """Whether all programs are computed at a time."""
    return sum(_number(shape.programs) for shape in found) <= shapes.FILLING


def of_kernel(step: FinishedProduct, shape: Shape) -> float:
    if are_small([shape]):
        return side_by_side({step: shape})
    turns = _turns(step, shape) * -(-_number(shape.programs) // (2 * shapes.MULTIPROCESSORS))
    reading = _of_operands(step) + _of_finish(step)
    arithmetic = _MORE_ARITHMETIC * _of_arithmetic(step)
    if any(_is_odd(node) for node in (step.left, step.right)):
        arithmetic *= _ODD
    return max(arithmetic, _MORE_READING * reading, _TURN * turns)


def of_convolution(step: FinishedProduct, shape: Shape) -> float:
    """The same of a convolution.  Divisions show, unless the library would have to pad the channels."""
    divides = any(node.op == "div" for node in operators_in(step.finish.value))
    if not divides or step.terms * step.product.dtype.itemsize % shapes.PIECE:
        return of_kernel(step, shape)
    blocks = dict(shape.blocks)
    turns = -(-_number(shape.programs) // shapes.MULTIPROCESSORS)
    return of_kernel(step, shape) + turns * blocks["YBLOCK"] * blocks["XBLOCK"] * _DIVISION


def side_by_side(steps: Mapping[FinishedProduct, Shape]) -> float:
    """Small products in one launch."""
    latency = max(_SMALL_TURN * _turns(step, shape) for step, shape in steps.items())
    reading = sum(_of_operands(step) + _of_finish(step) for step in steps)
    given = sum(_given_to_programs(step, shape) for step, shape in steps.items()) / _TO_PROGRAMS
    return _SMALL_START + max(latency, _MORE_READING * reading, given)


def in_parts(step: FinishedProduct, shape: Shape) -> float:
    """A small product in parts, and reading these besides."""
    sums = step.parts * step.rows * step.columns
    return side_by_side({step: shape}) + sums * torch.float32.itemsize / _bandwidth(step)


def by_library(step: FinishedProduct, shape: Shape, *, ragged: bool = False) -> float:
    """The product alone, which our kernel would compute in this shape; the rows of the result may be ``ragged``."""
    bound = max(_of_arithmetic(step) * step.parts, _of_operands(step) + _of_result(step))
    if are_small([shape]):
        return _SMALL_START + max(bound, _LIBRARY_TERM * step.terms * step.parts)
    return bound * _RAGGED if ragged else bound


def of_pass(step: FinishedProduct) -> float:
    """What a kernel takes that finishes what lies in memory."""
    return _START + _of_result(step) + _of_finish(step)


def _of_arithmetic(step: FinishedProduct) -> float:
    return 2 * step.rows * step.columns * step.terms / _FLOPS


def _of_operands(step: FinishedProduct) -> float:
    return sum(_bytes_of_operand(node) for node in (step.left, step.right)) / _BANDWIDTH


def _of_result(step: FinishedProduct) -> float:
    return step.rows * step.columns * step.product.dtype.itemsize / _bandwidth(step)


def _of_finish(step: FinishedProduct) -> float:
    return _bytes_of_finish(step) / _bandwidth(step)


def _bandwidth(step: FinishedProduct) -> float:
    return _CACHE_BANDWIDTH if step.rows * step.columns * step.product.dtype.itemsize <= _CACHED else _BANDWIDTH


def _turns(step: FinishedProduct, shape: Shape) -> int:
    return -(-step.terms // dict(shape.blocks)["KBLOCK"])


def _given_to_programs(step: FinishedProduct, shape: Shape) -> int:
    """The bytes of operands that all programs get, each its own."""
    blocks = dict(shape.blocks)
    return _number(shape.programs) * step.terms * (blocks["YBLOCK"] + blocks["XBLOCK"]) * step.product.dtype.itemsize


def _bytes_of_operand(node: Node) -> int:
    """What is read of memory; windows that overlap find it in a cache."""
    buffer, position = node.attr
    return min(_points(position), _number(buffer.numel)) * int(buffer.dtype.itemsize)


def _is_odd(operand: Node) -> bool:
    """Whether the elements of a matrix that follow each other are read one by one: rows begin at any place, or a block
    may end at any.  Windows of an image are read as the image lies."""
    buffer, position = operand.attr
    pieces: list[int] = []
    for variable in index.free(position):
        step = index.coefficient(position, variable)
        if type(step) is not int:
            return False
        pieces.append(_number(variable.size) if step == 1 else step)
    return any(piece * buffer.dtype.itemsize % shapes.PIECE for piece in pieces)


def _bytes_of_finish(step: FinishedProduct) -> int:
    """What is read besides the product, and written."""
    read = {
        node.attr: node.attr[0].dtype.itemsize * _points(node.attr[1])
        for node in operators_in(step.finish.value)
        if node.op == "load" and node.attr[0] is not step.product
    }
    return sum(read.values()) + step.target.dtype.itemsize * _points(step.position)


def _points(position: Index) -> int:
    """How many elements a position walks."""
    return _number(index.product(v.size for v in index.free(position)))


def _number(value: Index) -> int:
    assert type(value) is int  # candidates have no other sizes
    return value
