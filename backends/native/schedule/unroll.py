"""Short rows are written out: what is reduced over a few elements is one expression, computed for many rows at once.

Reducing the lanes of a vector takes as long for three numbers as for sixteen, and most of the lanes lie idle.  Where a
kernel's inner loops have few points, each statement becomes one for every point, without inner loops.  Rows are then
walked in vectors, whose elements are picked from memory that is read whole.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Buffer, Node, Statement, compute_type, make, rewrite, substitute
from ..ir.index import Index, Var
from . import tiles
from .kernel import MOST_BESIDE, Kernel, Member, as_stored, merge_loops, split_loops

MOST_WORK = 1000
"""About how many simple instructions may be written out for a row."""
LEAST_ROWS = 8
_GAIN = 0.8
"""Other loops than those that there are must be so much cheaper."""

_COMPUTED = 1 / 16
"""What a simple instruction costs, beside an access that is contiguous."""

_PLACES = torch.int32
_COMBINED = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


def unrolled(kernel: Kernel, needed: set[Buffer]) -> Kernel:
    """``kernel`` without short loops that cost too much; ``needed`` are its buffers that something else reads."""
    if kernel.inner:
        if not _may(kernel):
            return kernel
        kernel = _written_out(kernel, needed)
    # Of what is not reduced, a short row is a vector with idle lanes, or elements that lie apart.
    while (found := _with_one_loop_less(kernel, needed)) is not None:
        kernel = found
    return kernel


def _with_one_loop_less(kernel: Kernel, needed: set[Buffer]) -> Kernel | None:
    """The kernel without the short loop whose absence makes it cheapest; None if no such loop makes it cheaper."""
    kernel = split_loops(kernel)
    short = [v for v in kernel.space if type(v.size) is int and v.size <= MOST_BESIDE]
    if not short:
        return None
    walk = tiles.choose(kernel, needed, kernel.space[-1])
    if walk.vector not in short and not tiles.reads_or_writes_apart(kernel, needed, walk):
        return None
    best: Kernel | None = None
    least = _GAIN * _cost(kernel, needed)
    touched = tiles.accesses(kernel.members, needed)
    for variable in short:
        # Of rows that lie apart, nothing is read whole: they would be many statements that the compiler gives up on.
        if variable is not walk.vector and not any(tiles.is_beside(a.position, variable) for a in touched):
            continue
        rows = dataclasses.replace(kernel, inner=frozenset((variable,)))
        if _may(rows):
            found = _written_out(rows, needed)
            cost = _cost(found, needed) / variable.size  # type: ignore[operator]
            if cost < least:
                best, least = found, cost
    return best


def _cost(kernel: Kernel, needed: set[Buffer]) -> float:
    """What the accesses and what is computed cost, for each point."""
    walk = tiles.choose(kernel, needed, kernel.space[-1])
    computed = sum(m.statement.value.cost for m in kernel.members)
    return (
        tiles.cost_of(kernel, tiles.accesses(kernel.members, needed), walk)
        + _COMPUTED * tiles.filling(walk.vector) * computed
    )


def _written_out(kernel: Kernel, needed: set[Buffer]) -> Kernel:
    variables = kernel.inner_vars
    points = [dict(zip(variables, at, strict=True)) for at in itertools.product(*(range(v.size) for v in variables))]  # type: ignore[arg-type]
    once = _Values({})
    rows = [once, *(_Values(point, once.made) for point in points)]
    members: list[Member] = []
    for member in kernel.members:
        statement = member.statement
        if statement.reduction:
            value = _reduced(statement.reduction, [row.value(statement) for row in rows[1:]])
            once.made[statement.target] = ops.cast(value, compute_type(statement.target.dtype))
            places = [once]
        else:
            places = [once] if member.outer else rows[1:]
            for row in places:
                row.made[statement.target] = row.value(statement)
        if statement.target in needed:
            members += (_moved(member, kernel.outer_vars, row) for row in places)
    return merge_loops(Kernel(_longest_last(kernel.outer_vars), frozenset(), members))


def _may(kernel: Kernel) -> bool:
    """Whether the inner loops of ``kernel`` are few enough points, beside many rows."""
    points = index.product(v.size for v in kernel.inner)
    if not kernel.is_on_cpu or not kernel.inner or type(points) is not int or not 1 < points <= MOST_BESIDE:
        return False
    rows = index.product(v.size for v in kernel.outer_vars)
    if type(rows) is int and rows < LEAST_ROWS:
        return False
    statements = [m.statement for m in kernel.members if not m.outer]
    if any(s.target.rewritten or s.target.over is not None for s in (m.statement for m in kernel.members)):
        return False
    if len(kernel.inner) > 1 and any(s.reduction and s.reduction.startswith("arg") for s in statements):
        return False  # of equals, the first one counts
    return points * sum(s.value.cost + 1 for s in statements) <= MOST_WORK


@dataclass
class _Values:
    """What is computed at one point of the inner loops, or, without a point, once a row."""

    point: Mapping[Var, Index]
    of_row: Mapping[Buffer, Node] = field(default_factory=dict)
    made: dict[Buffer, Node] = field(default_factory=dict)
    memo: dict[Node, Node] = field(default_factory=dict)

    def value(self, statement: Statement) -> Node:
        return self._at(statement.value)

    def position(self, statement: Statement) -> Index:
        return index.substitute(statement.position, self.point, self._at)

    def _at(self, node: Node) -> Node:
        return self._resolved(substitute(node, self.point, self.memo))

    def _resolved(self, node: Node) -> Node:
        """The node with what the kernel has computed in place of what it would read."""

        def change(old: Node, args: tuple[Node, ...]) -> Node:
            if old.op == "load":
                buffer, position = old.attr
                found = self.made.get(buffer, self.of_row.get(buffer))
                if found is not None:
                    return as_stored(buffer, found)
                return make("load", args, old.dtype, (buffer, index.map_data(position, self._resolved)))
            if old.op == "index":
                return make("index", (), old.dtype, index.map_data(old.attr, self._resolved))
            return old if args == old.args else make(old.op, args, old.dtype, old.attr)

        return rewrite(node, change, {})


def written_out(statement: Statement) -> Node:
    """What a reduction over few points is, as one expression of each."""
    variables = statement.reduced
    points = itertools.product(*(range(v.size) for v in variables))  # type: ignore[arg-type]
    values = [substitute(statement.value, dict(zip(variables, at, strict=True))) for at in points]
    assert statement.reduction is not None
    return ops.cast(_reduced(statement.reduction, values), compute_type(statement.target.dtype))


def _moved(member: Member, rows: tuple[Var, ...], values: _Values) -> Member:
    old = member.statement
    position, value = values.position(old), values.made[old.target]
    new = dataclasses.replace(old, position=position, value=value, kept=rows, reduced=(), reduction=None)
    return Member(new, member.at, False)


def _reduced(kind: str, values: Sequence[Node]) -> Node:
    """The reduction of some elements."""
    if kind.startswith("arg"):
        return _best(kind == "argmax", values)
    while len(values) > 1:
        values = [ops.binary(_COMBINED[kind], *pair) if len(pair) == 2 else pair[0] for pair in _pairs(values)]
    total = values[0]
    if kind == "sum" and total.dtype.is_floating_point:
        total = ops.binary("add", total, ops.const(0.0, total.dtype))  # a sum of zeros below 0 is 0
    return total


def _pairs(values: Sequence[Node]) -> Iterator[Sequence[Node]]:
    return (values[at : at + 2] for at in range(0, len(values), 2))


def _best(most: bool, pairs: Sequence[Node]) -> Node:
    """Where the best element is, the first of equals; a nan is better than all numbers."""
    best, at = pairs[0].args[0], ops.cast(pairs[0].args[1], _PLACES)
    for pair in pairs[1:]:
        value, place = pair.args
        wins = ops.compare("gt" if most else "lt", value, best)
        if value.dtype.is_floating_point:
            is_first_nan = ops.binary("and", ops.compare("ne", value, value), ops.compare("eq", best, best))
            wins = ops.binary("or", wins, is_first_nan)
        at = ops.where(wins, ops.cast(place, _PLACES), at)
        best = ops.where(wins, value, best)
    return at


def _longest_last(rows: tuple[Var, ...]) -> tuple[Var, ...]:
    """The variables with a long one at the end, which is walked in vectors."""
    if not rows or type(rows[-1].size) is not int or rows[-1].size >= LEAST_ROWS:
        return rows
    longest = max(rows, key=lambda v: v.size if type(v.size) is int else 1 << 62)
    return (*(v for v in rows if v is not longest), longest)
