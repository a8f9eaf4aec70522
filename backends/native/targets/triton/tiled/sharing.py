"""Small products of one left operand, such as those for queries, keys and values, whose programs run side by side.

None of them has work for all multiprocessors, and each takes as long as the walk along its terms.  In one launch they
take little longer than one alone, and their weights may lie wherever they are (``schedule/together.py`` joins them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....ir.expressions import Buffer
from ....ir.products import Product
from ....ir.program import Program, TensorRef
from .candidates import Candidate, stored
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
        found.append(candidate if candidate is not None and is_apart else stored(product))
    return found


def _place(operand: TensorRef) -> object:
    return operand.buffer, operand.sizes, operand.strides, operand.offset
