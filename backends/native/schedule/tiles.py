"""Which loop of a kernel is walked in vectors, and which one with it in squares: chosen by what the accesses cost.

Neighbours in memory should be neighbours in a vector.  Where some accesses are contiguous in one loop and others in
another, as in ``a + b.t()``, no order of the loops serves all of them.  Such a kernel walks both loops in squares: a
square of what lies across is read with contiguous loads and turned in registers.  A target prints squares or leaves
them alone; the choice depends on strides only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..ir import index
from ..ir.expressions import Buffer, operators_in
from ..ir.index import Index, Var
from .kernel import FEW, MOST_BESIDE, Kernel, Member

ACROSS = 10.0
"""What an access costs whose elements lie apart, as single loads and stores do; a contiguous one costs 1."""
IN_SQUARES = 2.5
IN_STEPS = 3.0
"""What lies apart by a few elements: whole vectors are read, and the elements picked."""
BACKWARDS = 1.5
SHUFFLED = 1.5
"""The same where all of the elements are wanted, one after the other."""
FOLDED = 6.0
"""What it costs to reduce the lanes of a vector to one number, once a row."""
WRAPPED = 2.0
"""What begins anew at the end of a row: contiguous but for one vector in a row."""
_HELD = 0.3  # one value for all of a vector
_SIDE = 8  # about how many elements a vector has
_GAIN = 0.75
"""Another order than that of memory must be so much cheaper."""


@dataclass(frozen=True)
class Access:
    """One load or store; ``guarded`` loads may read only where a condition holds.

    ``beside`` are the distances of what else the kernel reads, or writes, of the same buffer.
    """

    buffer: Buffer
    position: Index
    bytes: int
    stores: bool
    guarded: bool
    beside: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Walk:
    """``vector`` is walked in vectors; ``tile``, if there is one, with it in squares."""

    vector: Var
    tile: Var | None


def step_of(position: Index, variable: Var) -> Index | None:
    """The stride of ``variable``; None if data or a division depends on it."""
    if any(variable in a.node.free for a in index.data_atoms(position)):
        return None
    return index.coefficient(position, variable)


@dataclass(frozen=True)
class Wrapped:
    """A position that is ``base`` plus the remainder of ``left``, which steps by one, and ``right``."""

    base: Index
    left: Index
    right: Index


def wrapped(position: Index, variable: Var) -> Wrapped | None:
    """How a position in a row that begins anew where it ends, as that of ``roll``, follows ``variable``."""
    if not isinstance(position, index.Ix) or any(variable in a.node.free for a in index.data_atoms(position)):
        return None
    varying = [(mono, coef) for mono, coef in position.terms if any(variable in index.free_in(a) for a in mono)]
    if len(varying) != 1 or len(varying[0][0]) != 1 or varying[0][1] != 1:
        return None
    (only,) = varying[0][0]
    if not isinstance(only, index.Rem) or variable in index.free(only.right):
        return None
    if not _is(index.coefficient(only.left, variable), 1):
        return None
    return Wrapped(position - index.remainder(only.left, only.right), only.left, only.right)


def is_square(position: Index, vector: Var, tile: Var | None, *, stores: bool = False) -> bool:
    """Whether an access lies across ``vector`` and along ``tile``."""
    if tile is None or not isinstance(position, index.Ix):
        return False
    across, along = step_of(position, vector), step_of(position, tile)
    if across is None or _is(across, 0) or _is(across, 1) or not _is(along, 1):
        return False
    return not is_few(tile) or across == tile.size or (goes_back(position, vector, tile) and not stores)


def goes_back(position: Index, vector: Var, tile: Var) -> bool:
    """Whether the squares of a tile of few points follow each other backwards, as in a mirrored image."""
    across = step_of(position, vector)
    return is_few(tile) and across is not None and across == -tile.size


def is_few(tile: Var) -> bool:
    """Whether a tile is so short that its points are computed one by one: what lies across is shuffled then."""
    return type(tile.size) is int and tile.size <= FEW


def accesses(members: Iterable[Member], needed: set[Buffer]) -> list[Access]:
    """What a kernel reads from and writes to memory."""
    found: dict[Access, None] = {}
    members = list(members)
    made = {m.statement.target for m in members}
    for member in members:
        statement = member.statement
        for node in operators_in(statement.value):
            if node.op == "load" and node.attr[0] not in made:
                buffer, position = node.attr
                found[Access(buffer, position, buffer.dtype.itemsize, False, bool(node.args))] = None
        if statement.target in needed and not statement.reduction:
            target = statement.target
            found[Access(target, statement.position, target.dtype.itemsize, True, False)] = None
    return [dataclasses.replace(a, beside=distances) for a, distances in _neighbours(found)]


def _neighbours(found: Iterable[Access]) -> Iterator[tuple[Access, frozenset[int]]]:
    """Each access with the distances of those to which there is a known one."""
    groups: list[dict[Access, int]] = []  # of each access the distance from the first of its group
    for access in found:
        for group in groups:
            first = next(iter(group))
            if (
                first.buffer is access.buffer
                and first.stores is access.stores
                and not (first.guarded or access.guarded)
            ):
                distance = access.position - first.position
                if type(distance) is int:
                    group[access] = distance
                    break
        else:
            groups.append({access: 0})
    for group in groups:
        for access, own in group.items():
            yield access, frozenset(other - own for other in group.values())


def choose(kernel: Kernel, needed: set[Buffer], usual: Var) -> Walk:
    """How to walk the loops of ``kernel``; ``usual`` is the last one in the order of memory."""
    touched = accesses(kernel.members, needed)
    written = [m.statement.position for m in kernel.members if m.statement.reduction and m.statement.target in needed]
    positions = [*(a.position for a in touched), *written]
    unit = [v for v in kernel.space if any(_is(step_of(p, v), 1) for p in positions)]
    near = [v for v in kernel.space if v not in unit and any(_is_near(step_of(p, v)) for p in positions)]
    if not kernel.is_on_cpu:  # threads of a GPU read what is near each other together, in whatever order
        near = []
    best = Walk(usual, None)
    least = _GAIN * cost_of(kernel, touched, best)
    for vector in [usual, *(v for v in (*unit, *near) if v is not usual)]:
        tiles = [t for t in unit if t is not vector and _may_tile(kernel, vector, t)]
        for tile in [t for t in tiles if is_few(t)] if vector in near else [None, *tiles]:
            walk = Walk(vector, tile)
            cost = cost_of(kernel, touched, walk)
            if cost < least:
                best, least = walk, cost
    return best


def _may_tile(kernel: Kernel, vector: Var, tile: Var) -> bool:
    """Squares are made of loops that nothing is reduced over, or of columns and what is reduced over."""
    if not kernel.inner:
        return True
    return vector not in kernel.inner and tile in kernel.inner and not is_few(tile)


def cost_of(kernel: Kernel, touched: Sequence[Access], walk: Walk) -> float:
    """What the accesses of a kernel cost that is walked so, for each point."""
    cost = filling(walk.vector) * sum(_access_cost(a, walk) for a in touched)
    extent = index.product(v.size for v in kernel.inner)
    if walk.vector in kernel.inner and type(extent) is int and extent:
        folds = sum(1 for m in kernel.members if m.statement.reduction)
        cost += folds * FOLDED * _SIDE / extent
    return cost


def reads_or_writes_apart(kernel: Kernel, needed: set[Buffer], walk: Walk) -> bool:
    """Whether some of what lies side by side in no vector is read or written one element at a time."""
    touched = accesses(kernel.members, needed)
    return any(_access_cost(a, walk) >= ACROSS for a in touched)


def _access_cost(access: Access, walk: Walk) -> float:
    step = step_of(access.position, walk.vector)
    if step is not None and _is(step, 0):
        return _HELD
    if step is None:
        around = None if access.stores or access.guarded else wrapped(access.position, walk.vector)
        return WRAPPED if around is not None and not _is_within(around.right, _SIDE) else ACROSS
    if _is(step, 1):
        is_short = _is_within(walk.vector.size, _SIDE - 1)  # narrow elements save nothing in so short a row
        return max(1.0 if is_short else 0.0, 0.5 + access.bytes / 8)
    if not access.guarded and is_square(access.position, walk.vector, walk.tile, stores=access.stores):
        assert walk.tile is not None
        return SHUFFLED if is_few(walk.tile) else IN_SQUARES * filling(walk.tile)
    if type(step) is int and 1 < step <= MOST_BESIDE and not access.guarded and _is_beside(access, step):
        return SHUFFLED
    if _is(step, -1) and not access.stores:
        return BACKWARDS
    if type(step) is int and abs(step) <= FEW and not access.stores and not access.guarded:
        return IN_STEPS
    return ACROSS


def is_beside(position: Index, variable: Var) -> bool:
    """Whether what is read or written at adjacent points of a loop is adjacent, or in one vector."""
    step = step_of(position, variable)
    return type(step) is int and 0 < abs(step) <= MOST_BESIDE


def _is_beside(access: Access, count: int) -> bool:
    """Whether so many elements beside each other are all read, or all written, and this is one of them."""
    return any(all(n - first in access.beside for n in range(count)) for first in range(count))


def filling(variable: Var) -> float:
    """How many lanes are computed for each that is used."""
    extent = variable.size
    if type(extent) is not int:
        return 1.0
    return -(-extent // _SIDE) * _SIDE / max(extent, 1)


def _is_within(extent: Index, most: int) -> bool:
    return type(extent) is int and extent <= most


def _is_near(step: Index | None) -> bool:
    return type(step) is int and 1 < abs(step) <= FEW


def _is(step: Index | None, value: int) -> bool:
    return type(step) is int and step == value
