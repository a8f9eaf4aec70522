"""Who computes a product that a kernel of ours could finish: this kernel, or the library and a pass over its result."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ....ir import index
from ....ir.expressions import Node, Statement, operators_in
from ....ir.index import Index
from ....ir.products import FinishedProduct
from ....ir.program import Program
from .. import selection, shapes
from ..shapes import Shape
from .candidates import Candidate, find

Choice = Callable[[Sequence[Candidate]], Sequence[tuple[Shape, ...]]]
"""The ways to run the kernel of each candidate, the best first; none where the library is faster."""


def select(program: Program, choice: Choice) -> None:
    """Replace products and what finishes them by steps that do both, where ``choice`` finds that this is faster."""
    gone: set[int] = set()
    steps: dict[int, FinishedProduct] = {}
    candidates = find(program)
    for candidate, found in zip(candidates, choice(candidates), strict=True):
        if found:
            candidate.step.shapes = found
            *inner, last = candidate.statements
            gone.update(map(id, (candidate.product, *inner)))
            steps[id(last)] = candidate.step
    program.items = [steps.get(id(item), item) for item in program.items if id(item) not in gone]


def by_library(candidates: Sequence[Candidate]) -> list[tuple[Shape, ...]]:
    """The library computes all."""
    return [()] * len(candidates)


def ways(step: FinishedProduct) -> tuple[Shape, ...]:
    """The tiles that may suit a step, the best guess first."""
    return shapes.in_tiles_of_products(step.rows, step.columns, step.terms, step.product.dtype.itemsize)


def library_way(program: Program, candidate: Candidate) -> list[Any]:
    """What computes a candidate otherwise: calls of torch's operators, and a statement if these do not do all."""
    small = copy.copy(program)
    small.items = [candidate.product, candidate.whole]
    selection.select(small)
    return small.items


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
_GAIN = 0.95
_TURN = 0.3e-6
"""What a program takes for a block of terms, however small; two programs share a multiprocessor."""
_LEAST_ELEMENTS = 2**18
"""Smaller results are left to the library, which divides the terms among programs."""


def by_model(program: Program) -> Choice:
    """By what both ways compute and read, for large products: it is memory that is saved."""

    def choice(candidate: Candidate) -> tuple[Shape, ...]:
        if candidate.step.rows * candidate.step.columns < _LEAST_ELEMENTS:
            return ()
        if not any(isinstance(item, Statement) for item in library_way(program, candidate)):
            return ()
        first = ways(candidate.step)[0]
        return (first,) if _is_faster(candidate.step, first) else ()

    return lambda found: [choice(candidate) for candidate in found]


def _is_faster(step: FinishedProduct, shape: Shape) -> bool:
    size = step.product.dtype.itemsize
    elements = step.rows * step.columns
    bandwidth = _CACHE_BANDWIDTH if elements * size <= _CACHED else _BANDWIDTH
    arithmetic = 2 * elements * step.terms / _FLOPS
    operands = sum(_bytes_of_operand(node) for node in (step.left, step.right)) / _BANDWIDTH
    finish = _bytes_of_finish(step) / bandwidth
    result = elements * size / bandwidth
    turns = -(-step.terms // dict(shape.blocks)["KBLOCK"]) * -(-_number(shape.programs) // (2 * shapes.MULTIPROCESSORS))
    library = max(arithmetic, operands + result) + result + finish + _START
    ours = max(_MORE_ARITHMETIC * arithmetic, _MORE_READING * (operands + finish), turns * _TURN)
    return ours < _GAIN * library


def _bytes_of_operand(node: Node) -> int:
    """What is read of memory; windows that overlap find it in a cache."""
    buffer, position = node.attr
    return min(_points(position), _number(buffer.numel)) * int(buffer.dtype.itemsize)


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
