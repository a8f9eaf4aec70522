"""Determines what a fused kernel computes in which pass over its inner loops.

Code that needs the result of a reduction runs in a later pass (*stage*).  If a value of an earlier stage is needed
again, it is recomputed if that is cheap, read back if it is stored anyway, or else kept in a row of scratch memory,
which stays in the processor's cache.

A buffer of half precision has one value for all that read it, in memory or not: the rounded one, which eager has.  A
forward pass that computed with another than its backward pass reads, or computes again, would leave it with differences
that nothing cancels: they are many times what rounding costs where the gradient of a normalization nearly cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..ir import index
from ..ir.expressions import Buffer, Node, Statement, compute_type, make, rewrite
from ..ir.index import Index, Var
from . import tiles
from .kernel import Kernel, Member, as_stored, split_loops

RECOMPUTE_COST = 6
COLUMNS = 32
"""So many columns are computed side by side where rows of scratch memory are kept for them."""


@dataclass(frozen=True)
class Store:
    """Write a value to memory."""

    buffer: Buffer
    position: Index
    value: Node


@dataclass(frozen=True)
class Fold:
    """Reduce a value; the result is the node ``result`` with the statement's target as its attribute."""

    statement: Statement
    value: Node


@dataclass
class Stage:
    """``before`` runs once a row, ``body`` at each point of the inner loops."""

    before: list[Store] = field(default_factory=list)
    body: list[Store | Fold] = field(default_factory=list)


@dataclass
class LoopNest:
    """A kernel ready to be printed.

    ``rows`` are looped over outside, ``inner`` inside of each stage, ``vector`` is walked in vectors: it is the last of
    ``inner``, or, if ``by_columns``, an outer variable whose neighbours are computed side by side.  With ``tile`` some
    accesses lie across ``vector`` and along ``tile``, the last of ``rows``, or of ``inner`` if ``by_columns``.
    """

    rows: tuple[Var, ...]
    inner: tuple[Var, ...]
    vector: Var | None
    by_columns: bool
    stages: list[Stage]
    scratch: list[Buffer]
    origins: list[Any]
    cost: int
    tile: Var | None = None

    @property
    def steps(self) -> list[Store | Fold]:
        """What is stored and reduced, in order."""
        return [step for stage in self.stages for step in [*stage.before, *stage.body]]


def plan(kernel: Kernel, needed: set[Buffer], scratch_bytes: int, recompute_cost: int = RECOMPUTE_COST) -> LoopNest:
    """Arrange ``kernel``; ``needed`` are the buffers that something else reads.

    A kernel may keep ``scratch_bytes`` of a row besides; what costs at most ``recompute_cost`` is computed again.
    """
    return _Planner(split_loops(kernel), needed, scratch_bytes, recompute_cost).run()


class _Planner:
    def __init__(self, kernel: Kernel, needed: set[Buffer], scratch_bytes: int, recompute_cost: int) -> None:
        inner, rows = kernel.inner_vars, kernel.outer_vars
        self.by_columns = False
        self.tile: Var | None = None
        vector: Var | None = None
        members = kernel.members
        if kernel.space:
            usual = kernel.space[-1]
            walk = tiles.choose(kernel, needed, usual)
            vector, self.tile = walk.vector, walk.tile
            self.by_columns = bool(kernel.inner) and vector not in kernel.inner
            if self.by_columns:
                rows, inner = _without(rows, vector), _last(inner, self.tile)
            elif kernel.inner:
                inner = _last(inner, vector)
            else:  # nothing is reduced: one loop is the inner one
                inner, rows = (vector,), _last(_without(rows, vector), self.tile)
        self.rows, self.inner, self.vector = rows, inner, vector
        self.members = members
        self.made: dict[Buffer, Member] = {m.statement.target: m for m in members}
        self.reduces = bool(kernel.inner)
        self.needed = needed
        self.scratch_bytes = scratch_bytes
        self.recompute_cost = recompute_cost
        self.stage_of: dict[Buffer, int] = {}
        self.kept: dict[Buffer, Buffer] = {}  # what is kept for later stages: where
        self.scratch: list[Buffer] = []
        self.memos: dict[int, dict[Node, Node]] = {}

    def run(self) -> LoopNest:
        own = []
        for member in self.members:
            target, at = member.statement.target, self._stage(member)
            own.append(at)
            # Several members may write parts of one buffer, each in its own stage.
            self.stage_of[target] = max(at, self.stage_of.get(target, 0))
        pairs = list(zip(self.members, own, strict=True))
        count = 1 + max((at + (1 if member.statement.reduction else 0) for member, at in pairs), default=0)
        stages = [Stage() for _ in range(count)]
        for member, at in pairs:
            statement = member.statement
            value = self._resolved(statement.value, at)
            if statement.reduction:
                stages[at].body.append(Fold(statement, value))
                if statement.target in self.needed:
                    result = make("result", (), compute_type(statement.target.dtype), statement.target)
                    stages[at + 1].before.append(Store(statement.target, statement.position, result))
            elif statement.target in self.needed:
                store = Store(statement.target, self._resolved_index(statement.position, at), value)
                (stages[at].before if member.outer else stages[at].body).append(store)
        self._keep(stages)
        cost = sum(m.statement.value.cost + 1 + len(m.statement.value.loads) for m in self.members if not m.outer)
        origins = [o for m in self.members for o in m.statement.origins]
        return LoopNest(
            self.rows,
            self.inner,
            self.vector,
            self.by_columns,
            stages,
            self.scratch,
            origins,
            max(cost, 1),
            self.tile,
        )

    def _stage(self, member: Member) -> int:
        stage = 0
        loads = list(member.statement.value.loads)
        loads += [pair for a in index.data_atoms(member.statement.position) for pair in a.node.loads]
        for buffer, _ in loads:
            source = self._source(buffer)
            if source is not None and buffer in self.stage_of:
                stage = max(stage, self.stage_of[buffer] + (1 if source.statement.reduction else 0))
        return stage

    def _source(self, buffer: Buffer) -> Member | None:
        """What computes the elements of a buffer here; a rewritten one is read in memory, and is what it was."""
        return None if buffer.rewritten else self.made.get(buffer)

    # --- replacing loads of what the kernel itself computes -------------------------------------------------------

    def _resolved(self, node: Node, stage: int) -> Node:
        if not any(self._source(b) for b, _ in node.loads):
            return node
        memo = self.memos.setdefault(stage, {})

        def change(old: Node, args: tuple[Node, ...]) -> Node:
            if old.op == "load":
                return self._load(old, args, stage)
            if old.op == "index":
                return make("index", (), old.dtype, self._resolved_index(old.attr, stage))
            return old if args == old.args else make(old.op, args, old.dtype, old.attr)

        return rewrite(node, change, memo)

    def _load(self, node: Node, args: tuple[Node, ...], stage: int) -> Node:
        buffer, position = node.attr
        source = self._source(buffer)
        if source is None:
            return make("load", args, node.dtype, (buffer, self._resolved_index(position, stage)))
        statement = source.statement
        if statement.reduction:
            result = make("result", (), compute_type(buffer.dtype), buffer)
            return as_stored(buffer, result)
        if source.outer or self.stage_of[buffer] == stage or statement.value.cost <= self.recompute_cost:
            return as_stored(buffer, self._resolved(statement.value, stage))
        if buffer in self.needed:
            return node
        where = self.kept.get(buffer)
        if where is None:
            where = self.kept[buffer] = self._place_to_keep(source)
        position = self._row_position() if where.kind == "row" else statement.position
        return node if where is buffer else make("load", (), node.dtype, (where, position))

    def _resolved_index(self, position: Index, stage: int) -> Index:
        if not any(self._source(b) for a in index.data_atoms(position) for b, _ in a.node.loads):
            return position
        return index.map_data(position, lambda n: self._resolved(n, stage))

    def _row_position(self) -> Index:
        loops = [*self.inner, *([self.vector] if self.by_columns and self.vector is not None else [])]
        return index.flatten([index.var(v.key, v.size) for v in loops], [v.size for v in loops])

    def _place_to_keep(self, source: Member) -> Buffer:
        """Where a value waits for a later stage: a row of scratch memory, the place of a result that is stored there
        later, or a buffer of its own."""
        buffer, position = source.statement.target, source.statement.position
        row = self._scratch(buffer)
        if row is not None:
            return row
        for member in self.members:
            target = member.statement.target
            if (
                target in self.needed
                and target not in self.kept.values()
                and not (member.statement.reduction or member.outer)
                and target.dtype is buffer.dtype
                and member.statement.position == position
                and self.stage_of[target] > self.stage_of[buffer]
                and target.over is None  # an input, which later stages may read yet
                and not any(target in other.statement.reads for other in self.members)
                and not self._is_read_after(buffer, target)
            ):
                return target
        return buffer

    def _is_read_after(self, buffer: Buffer, target: Buffer) -> bool:
        """Whether something else than ``target`` needs ``buffer`` in the stage that stores ``target``, or later."""
        last = self.stage_of[target]
        users = {buffer}  # and what is computed of it at the same point
        for member in self.members:
            statement = member.statement
            if not users.isdisjoint(statement.reads):
                is_stored = statement.reduction is not None or statement.target in self.needed
                if is_stored and statement.target is not target and self.stage_of[statement.target] >= last:
                    return True
                if statement.reduction is None:
                    users.add(statement.target)
        return False

    def _scratch(self, buffer: Buffer) -> Buffer | None:
        """A row to keep ``buffer`` in, if one will do."""
        extent = index.product(v.size for v in self.inner)
        if type(extent) is not int or not (self.rows or self.by_columns):
            return None
        sizes: tuple[Index, ...] = (extent,)
        beside = 1
        if self.by_columns:  # some columns at a time, each with its own row
            assert self.vector is not None
            sizes, beside = (extent, self.vector.size), COLUMNS
        used = sum(int(s.sizes[0]) * s.dtype.itemsize for s in self.scratch)  # type: ignore[arg-type]
        if (used + extent * buffer.dtype.itemsize) * beside > self.scratch_bytes:
            return None
        strides = index.contiguous_strides(sizes)
        row = Buffer(f"row{len(self.scratch)}", buffer.dtype, sizes, strides, buffer.device, "row")
        self.scratch.append(row)
        return row

    def _keep(self, stages: list[Stage]) -> None:
        """Store what later stages read back; doing so may make more values needed."""
        done: set[Buffer] = set()
        while len(done) < len(self.kept):
            for buffer in [b for b in self.kept if b not in done]:
                done.add(buffer)
                at = self.stage_of[buffer]
                statement = self.made[buffer].statement
                value = self._resolved(statement.value, at)
                where = self.kept[buffer]
                position = self._row_position() if where.kind == "row" else statement.position
                stages[at].body.append(Store(where, position, value))


def reads_before_writing(nest: LoopNest) -> bool:
    """Whether each pass reads what it needs of the inputs that the nest overwrites before they are overwritten.

    Values of one point are all computed before the first is stored, so only later passes count.
    """
    gone: set[Buffer] = set()
    for stage in nest.stages:
        for steps in (stage.before, stage.body):
            if any(b in gone for step in steps for b, _ in step.value.loads):
                return False
            gone |= {s.buffer.over for s in steps if isinstance(s, Store) and s.buffer.over is not None}
    return True


def _without(variables: tuple[Var, ...], one: Var) -> tuple[Var, ...]:
    return tuple(v for v in variables if v is not one)


def _last(variables: tuple[Var, ...], one: Var | None) -> tuple[Var, ...]:
    """The variables with ``one`` at the end."""
    return variables if one is None else (*_without(variables, one), one)


def stored_by(nest: LoopNest) -> set[Buffer]:
    """The buffers that a nest writes, rows of scratch memory aside."""
    found = set()
    for stage in nest.stages:
        for step in [*stage.before, *stage.body]:
            if isinstance(step, Store) and step.buffer.kind != "row":
                found.add(step.buffer)
    return found


def read_by(nest: LoopNest) -> set[Buffer]:
    """The buffers that a nest reads, rows of scratch memory aside."""
    found: set[Buffer] = set()
    for stage in nest.stages:
        for step in [*stage.before, *stage.body]:
            found |= {b for b, _ in step.value.loads}
            if isinstance(step, Store):
                found |= {b for a in index.data_atoms(step.position) for b, _ in a.node.loads}
    return {b for b in found if b.kind != "row"}
