"""Who computes a product that a kernel of ours could finish: this kernel, or the library and a pass over its result."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.expressions import Statement
from ....ir.products import FinishedProduct, Product
from ....ir.program import Program
from ...rows_operator import MM_IN_ROWS
from .. import selection, shapes
from ..shapes import Shape
from . import divided, model, sharing
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
        for division in [best for ways in divided.find(program) if (best := _best(ways)) is not None]:
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


_GAIN = 0.95
_LEAST_ELEMENTS = 2**15
"""Smaller results are left to the library, which divides the terms among programs."""


def by_model(program: Program) -> Choice:
    """By what both ways compute and read: it is memory that is saved, and starts of kernels."""

    def choice(candidate: Candidate) -> tuple[Shape, ...]:
        step = candidate.step
        ragged = isinstance(candidate.product, Product) and is_ragged(candidate.product.target)
        has_pass = _has_pass(program, candidate)
        if step.rows * step.columns < _LEAST_ELEMENTS or not (has_pass or ragged):
            return ()
        first = ways(step)[0]
        library = model.by_library(step, first, ragged=ragged) + (model.of_pass(step) if has_pass else 0)
        own = (model.of_kernel if isinstance(candidate.product, Product) else model.of_convolution)(step, first)
        return (first,) if own < _GAIN * library else ()

    return lambda found: [choice(candidate) for candidate in found]


def _side_by_side(program: Program, finished: Sequence[Candidate]) -> dict[Candidate, tuple[Shape, ...]]:
    """The candidates that are faster in one launch than one by one, with their shapes."""
    found: dict[Candidate, tuple[Shape, ...]] = {}
    for group in sharing.groups(program, finished):
        steps = {s: shapes.small_tiles_of_products(s.rows, s.columns, s.terms) for s in (c.step for c in group)}
        library = sum(model.by_library(step, shape) for step, shape in steps.items())
        library += sum(model.of_pass(c.step) for c in group if _has_pass(program, c))
        if model.are_small(steps.values()) and model.side_by_side(steps) < _GAIN * library:
            found.update((candidate, (steps[candidate.step],)) for candidate in group)
    return found


def _best(ways: Sequence[Division]) -> Division | None:
    """The fastest way to divide a product, if it is faster than the library."""
    small = [(model.in_parts(way.step, way.step.shapes[0]), way) for way in ways if model.are_small(way.step.shapes)]
    time, best = min(small, key=lambda each: each[0], default=(0.0, None))
    if best is None or time >= _GAIN * model.by_library(best.step, best.step.shapes[0]):
        return None
    return best


def _has_pass(program: Program, candidate: Candidate) -> bool:
    """Whether something is read or written once more than in a kernel of ours: the result, or an operand where rows
    follow each other without gaps."""
    return any(isinstance(item, Statement) or _is_without_gaps(item) for item in library_way(program, candidate))


def _is_without_gaps(call: Any) -> bool:
    return call.op is MM_IN_ROWS and call.args[2] % call.args[3] != 0
