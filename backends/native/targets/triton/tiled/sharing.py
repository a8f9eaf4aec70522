"""Small products of one left operand, such as those for queries, keys and values, whose programs run side by side.

None of them has work for all multiprocessors, and each takes as long as the walk along its terms.  In one launch they
take little longer than one alone, and their weights may lie wherever they are (``schedule/together.py`` joins them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from ....ir import index
from ....ir.expressions import Buffer, Statement, compute_type, make
from ....ir.index import Var
from ....ir.products import FinishedProduct, Product
from ....ir.program import Program, TensorRef
from .candidates import Candidate
from .operands import factors


def groups(program: Program, finished: Sequence[Candidate]) -> list[list[Candidate]]:
    """Two or more products each; of those in ``finished``, the candidate there, and of others one that stores them."""
    products: dict[object, list[Product]] = {}
    for item in program.items:
        if isinstance(item, Product) and factors(item) is not None:
            products.setdefault(_place(item.left), []).append(item)
    known = {candidate.product.target: candidate for candidate in finished}
    return [_apart(group, known) for group in products.values() if len(group) > 1]


def _apart(group: Sequence[Product], known: Mapping[Buffer, Candidate]) -> list[Candidate]:
    """Candidates for all products of a group, none of which reads another product."""
    targets = {product.target for product in group}
    found = []
    for product in group:
        candidate = known.get(product.target)
        is_apart = candidate is not None and candidate.step.reads.isdisjoint(targets)
        found.append(candidate if candidate is not None and is_apart else _stored(product))
    return found


def _place(operand: TensorRef) -> object:
    return operand.buffer, operand.sizes, operand.strides, operand.offset


def _stored(product: Product) -> Candidate:
    """A kernel that does nothing else than to store the product."""
    found = factors(product)
    assert found is not None
    target = product.target
    position = found.row * target.strides[0] + found.column
    value = make("load", (), compute_type(target.dtype), (target, position))
    kept = cast("tuple[Var, Var]", (index.the_var(found.row), index.the_var(found.column)))
    finish = Statement(target, position, value, kept, origins=product.origins)
    operands = (found.left, found.right, found.row, found.column, found.term)
    return Candidate(product, (), None, FinishedProduct(target, *operands, position, finish, list(product.origins)))
