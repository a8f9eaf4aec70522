"""Reductions over rows of a few columns, as the colors of pixels or the coordinates of points: many rows at a time.

A vector of the columns alone would be mostly empty.  Neighbouring rows that follow each other without a gap are one row
of more columns, which is reduced first; what is left are so many results for each of the columns.
"""

from __future__ import annotations

from ..ir import index
from ..ir.expressions import Statement
from ..ir.index import Index, Var
from ..ir.program import Program
from .splits import Parts, Splitter

_MOST_COLUMNS = 12
"""Rows of more elements fill a vector well enough."""
_WIDEST = 128
_LANES = 16
_LEAST = 256
"""Elements that are worth a second statement."""
_KINDS = frozenset(("sum", "prod", "max", "min", "any", "all"))


def join_rows(program: Program) -> None:
    """Let such reductions of ``program`` take many rows at a time."""
    _Joining(program).run()


class _Joining(Splitter):
    def parts(self, old: Statement) -> Parts | None:
        loop = next((v for v in reversed(old.reduced) if v.size != 1), None)
        if any(type(v.size) is not int for v in (*old.kept, *old.reduced)):
            return None
        if loop is None or old.reduction not in _KINDS:
            return None
        moving = [p for _, p in old.value.loads if not index.free(p).isdisjoint(old.reduced)]
        if not moving:
            return None
        first, columns = _near(old, moving[0])
        points = index.product(v.size for v in (*old.kept[first:], *old.reduced))
        assert type(points) is int
        if not 1 < columns <= _MOST_COLUMNS or points < _LEAST or (together := _together(loop, columns)) < 2:
            return None
        if any(_near(old, p) != (first, columns) or index.coefficient(p, loop) != columns for p in moving):
            return None
        return _parts(old, loop, together, first)


def _near(old: Statement, position: Index) -> tuple[int, int]:
    """The first of the last kept loops that walk neighbours in memory, and how many neighbours these are."""
    columns, first = 1, len(old.kept)
    while first > 0 and (old.kept[first - 1].size == 1 or index.coefficient(position, old.kept[first - 1]) == columns):
        first -= 1
        extent = old.kept[first].size
        assert type(extent) is int
        columns *= extent
    return first, columns


def _together(loop: Var, columns: int) -> int:
    """How many rows are taken at a time: what leaves the fewest lanes idle, and then the most."""
    extent = loop.size
    assert type(extent) is int
    divisors = [n for n in range(2, min(_WIDEST // columns, extent // 2) + 1) if extent % n == 0]
    return max(divisors, key=lambda n: (_used(n * columns), n), default=1)


def _used(columns: int) -> float:
    return columns / (-(-columns // _LANES) * _LANES)


def _parts(old: Statement, loop: Var, together: int, place: int) -> Parts | None:
    extent = loop.size
    assert type(extent) is int
    part, step = index.var(f"{loop.key}p", together), index.var(f"{loop.key}w", extent // together)
    the_part, the_step = index.the_var(part), index.the_var(step)
    if the_part is None or the_step is None:
        return None
    within = tuple(the_step if v is loop else v for v in old.reduced)
    return Parts(the_part, within, {loop: step * together + part}, None, place)
