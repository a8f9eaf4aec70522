"""Who computes a product that a kernel of ours could finish: this kernel, or the library and a pass over its result."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ....ir import index
from ....ir.expressions import Node, Statement, operators_in
from ....ir.index import Index
from ....ir.products import FinishedProduct, Product
from ....ir.program import Program
from .. import selection, shapes
from ..shapes import Shape
from . import divided, sharing
from .candidates import Candidate, find, is_ragged
from .divided import Division

Choice = Callable[[Sequence[Candidate]], Sequence[tuple[Shape, ...]]]
"""The ways to run the kernel of each candidate, the best first; none where the library is faster."""


def select(program: Program, choice: Choice, *, share: bool = True) -> None:
    """Replace products and what finishes them by steps that do both, where ``choice`` finds that this is faster.

    If kernels may ``share`` the multiprocessors, small products of one operand become steps that run side by side, and
    such of many terms are divided.
    """
    candidates = find(program)
    chosen = _side_by_side(program, candidates) if share else {}
    taken = {candidate.product.target for candidate in chosen}
    alone = [candidate for candidate in candidates if candidate.product.target not in taken]
    chosen.update(zip(alone, choice(alone), strict=True))
    gone: set[int] = set()
    steps: dict[int, FinishedProduct] = {}
    for candidate, found in chosen.items():
        if found:
            candidate.step.shapes = found
            *inner, last = (candidate.product, *candidate.statements)
            gone.update(map(id, inner))
            steps[id(last)] = candidate.step
    program.items = [steps.get(id(item), item) for item in program.items if id(item) not in gone]
    if share:
        for division in [best for ways in divided.find(program) if (best := _best(program, ways)) is not None]:
            divided.divide(program, division)


def by_library(candidates: Sequence[Candidate]) -> list[tuple[Shape, ...]]:
    """The library computes all."""
    return [()] * len(candidates)


def ways(step: FinishedProduct) -> tuple[Shape, ...]:
    """The tiles that may suit a step, the best guess first."""
    return shapes.in_tiles_of_products(step.rows, step.columns, step.terms, step.product.dtype.itemsize)


def library_way(program: Program, candidate: Candidate) -> list[Any]:
    """What computes a candidate otherwise: calls of torch's operators, and a statement if these do not do all."""
    small = copy.copy(program)
    small.items = [candidate.product, *([candidate.whole] if candidate.whole is not None else [])]
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
_RAGGED = 3
"""How much longer cuBLAS takes where rows of the result begin at any place."""
_GAIN = 0.95
_TURN = 0.3e-6
"""What a program takes for a block of terms, however small; two programs share a multiprocessor."""
_LEAST_ELEMENTS = 2**15
"""Smaller results are left to the library, which divides the terms among programs."""

# Small products, which all programs compute at a time: latency and the second cache decide.
_SMALL_START = 2.3e-6
_SMALL_TURN, _LIBRARY_TERM = 0.15e-6, 0.11e-6 / 64
"""What a block of terms takes, and what a term takes the library."""
_TO_PROGRAMS = 9e12
"""So many bytes all programs together get from the second cache in a second."""


def by_model(program: Program) -> Choice:
    """By what both ways compute and read: it is memory that is saved, and starts of kernels."""

    def choice(candidate: Candidate) -> tuple[Shape, ...]:
        step = candidate.step
        has_pass = _has_pass(program, candidate)
        if step.rows * step.columns < _LEAST_ELEMENTS or not (has_pass or _is_slow_there(candidate)):
            return ()
        first = ways(step)[0]
        if _are_small([first]):
            is_faster = _small({step: first}) < _GAIN * _small_by_library(program, candidate)
        else:
            library = _large_product_by_library(candidate) + (_of_pass(step) if has_pass else 0)
            is_faster = _large(step, first) < _GAIN * library
        return (first,) if is_faster else ()

    return lambda found: [choice(candidate) for candidate in found]


def _side_by_side(program: Program, finished: Sequence[Candidate]) -> dict[Candidate, tuple[Shape, ...]]:
    """The candidates that are faster in one launch than one by one, with their shapes."""
    found: dict[Candidate, tuple[Shape, ...]] = {}
    for group in sharing.groups(program, finished):
        steps = {s: shapes.small_tiles_of_products(s.rows, s.columns, s.terms) for s in (c.step for c in group)}
        library = sum(_small_by_library(program, candidate) for candidate in group)
        if _are_small(steps.values()) and _small(steps) < _GAIN * library:
            found.update((candidate, (steps[candidate.step],)) for candidate in group)
    return found


def _best(program: Program, ways: Sequence[Division]) -> Division | None:
    """The fastest way to divide a product, if it is faster than the library."""

    def time(way: Division) -> float:
        sums = way.step.parts * way.step.rows * way.step.columns
        return _small({way.step: way.step.shapes[0]}) + sums * torch.float32.itemsize / _bandwidth(way.step)

    found = min((way for way in ways if _are_small(way.step.shapes)), key=time, default=None)
    return found if found is not None and time(found) < _GAIN * _small_product_by_library(found.step) else None


def _has_pass(program: Program, candidate: Candidate) -> bool:
    return any(isinstance(item, Statement) for item in library_way(program, candidate))


def _large(step: FinishedProduct, shape: Shape) -> float:
    turns = _turns(step, shape) * -(-_number(shape.programs) // (2 * shapes.MULTIPROCESSORS))
    reading = _of_operands(step) + _of_finish(step)
    return max(_MORE_ARITHMETIC * _of_arithmetic(step), _MORE_READING * reading, _TURN * turns)


def _large_product_by_library(candidate: Candidate) -> float:
    step = candidate.step
    time = max(_of_arithmetic(step), _of_operands(step) + _of_result(step))
    return time * _RAGGED if _is_slow_there(candidate) else time


def _is_slow_there(candidate: Candidate) -> bool:
    """Whether a library computes this product by a kernel of an older GPU."""
    return isinstance(candidate.product, Product) and is_ragged(candidate.product.target)


def _are_small(found: Iterable[Shape]) -> bool:
    """Whether all programs are computed at a time."""
    return sum(_number(shape.programs) for shape in found) <= shapes.FILLING


def _small(steps: Mapping[FinishedProduct, Shape]) -> float:
    """What products take that run side by side."""
    latency = max(_SMALL_TURN * _turns(step, shape) for step, shape in steps.items())
    reading = sum(_of_operands(step) + _of_finish(step) for step in steps)
    given = sum(_given_to_programs(step, shape) for step, shape in steps.items()) / _TO_PROGRAMS
    return _SMALL_START + max(latency, _MORE_READING * reading, given)


def _small_by_library(program: Program, candidate: Candidate) -> float:
    product = _small_product_by_library(candidate.step)
    return product + _of_pass(candidate.step) if _has_pass(program, candidate) else product


def _small_product_by_library(step: FinishedProduct) -> float:
    terms = step.terms * step.parts
    arithmetic = _of_arithmetic(step) * step.parts
    return _SMALL_START + max(_LIBRARY_TERM * terms, _of_operands(step) + _of_result(step), arithmetic)


def _of_arithmetic(step: FinishedProduct) -> float:
    return 2 * step.rows * step.columns * step.terms / _FLOPS


def _of_operands(step: FinishedProduct) -> float:
    return sum(_bytes_of_operand(node) for node in (step.left, step.right)) / _BANDWIDTH


def _of_result(step: FinishedProduct) -> float:
    return step.rows * step.columns * step.product.dtype.itemsize / _bandwidth(step)


def _of_finish(step: FinishedProduct) -> float:
    return _bytes_of_finish(step) / _bandwidth(step)


def _of_pass(step: FinishedProduct) -> float:
    """What a kernel takes that finishes what lies in memory."""
    return _START + _of_result(step) + _of_finish(step)


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
