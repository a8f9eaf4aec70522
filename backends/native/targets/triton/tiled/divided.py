"""Products of few elements and many terms, whose terms are divided among programs.

Each program sums a part of the terms of a tile, so that more of them share the walk, and stores its sums in float32.
The kernel that reads the product adds the parts, where a library needs a kernel of its own; see "split-k" in
https://docs.nvidia.com/cutlass/latest/media/docs/cpp/efficient_gemm.html.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import cast

import torch

from ....ir import index, operations as ops
from ....ir.expressions import Statement, compute_type, make, substitute
from ....ir.index import Var
from ....ir.products import Convolution, FinishedProduct, Product
from ....ir.program import Program
from ....ir.uses import Uses
from .. import shapes
from .operands import Factors, factors

_PARTS = (2, 4, 8)
_LEAST_TERMS = 192
"""So many terms are worth a program."""


@dataclass(frozen=True)
class Division:
    """``step`` would sum parts of ``product``."""

    product: Product | Convolution
    step: FinishedProduct


def find(program: Program) -> Iterator[list[Division]]:
    """The ways to divide each product that only statements read, one of which can add the parts."""
    uses = Uses(program, program.items)
    for item in program.items:
        if not isinstance(item, (Product, Convolution)) or item.target in uses.returned:
            continue
        readers, found = uses.readers.get(item.target, ()), factors(item)
        if found is None or found.shift is not None or not all(isinstance(reader, Statement) for reader in readers):
            continue
        if isinstance(item, Convolution) or item.target.strides[0] == found.columns:
            counts = [n for n in _PARTS if found.terms % n == 0 and found.terms // n >= _LEAST_TERMS]
            yield [Division(item, _parts(item, found, count)) for count in counts]


def _parts(product: Product | Convolution, found: Factors, count: int) -> FinishedProduct:
    """What computes the parts; whoever chooses it gives it a target."""
    part, term = index.var("s0", count), index.var("t0", found.terms // count)
    row, column, whole_term, slowest = map(index.the_var, (found.row, found.column, found.term, part))
    places = {cast("Var", whole_term): part * (found.terms // count) + term}
    left, right = (substitute(operand, places, {}) for operand in (found.left, found.right))
    target, at = product.target, found.row * found.columns + found.column
    value = make("load", (), compute_type(target.dtype), (target, at))
    kept = cast("tuple[Var, ...]", (slowest, row, column))
    position = part * (found.rows * found.columns) + at
    finish = Statement(target, position, value, kept, origins=product.origins)
    operands = (left, right, found.row, found.column, term)
    step = FinishedProduct(target, *operands, at, finish, list(product.origins), part=part)
    shape = shapes.small_tiles_of_products(step.rows, step.columns, step.terms)
    step.shapes = (replace(shape, programs=shape.programs * count),)
    return step


def divide(program: Program, chosen: Division) -> None:
    product, step = chosen.product, chosen.step
    made = program.buffer(torch.float32, (step.parts, step.rows, step.columns))
    step.finish = replace(step.finish, target=made)
    loads = [make("load", (), torch.float32, (made, n * made.strides[0] + step.position)) for n in range(step.parts)]
    total = functools.reduce(functools.partial(ops.binary, "add"), loads)
    kept = step.finish.kept[1:]
    added = Statement(product.target, step.position, total, kept, origins=list(product.origins))
    at = program.items.index(product)
    program.items[at : at + 1] = [step, added]
