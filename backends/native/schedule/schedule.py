"""Which statements run together, and in which order.

Fusion is greedy.  Statements are processed in the order of the graph.  Each joins the kernels that it reads from,
starting with the one that saves most memory traffic, and then those that read the same data.  Fusion never creates a
cycle: a kernel joins another only if no third one must run between them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir import index
from ..ir.expressions import Buffer, Statement
from ..ir.layout import ONCE_COST, is_short_beside_a_function
from ..ir.program import Call, Program
from .kernel import Kernel, NotFused, fuse, merge_loops, of_statement
from .memory import LARGE, is_late
from .reinplace import is_checking, overwrites, written_by
from .stages import plan, reads_before_writing

_SIBLINGS = 6
"""How many other readers of a buffer a kernel is compared with."""

_ROW = 64 * 1024
"""How many bytes of a row a kernel may keep, where it is planned to see what its passes read."""


@dataclass
class Schedule:
    """``steps`` are kernels, calls and products in order; ``apart`` are pairs that were not fused, and why."""

    steps: list[Any]
    apart: list[tuple[Kernel, Kernel, str]] = field(default_factory=list)


def schedule(program: Program, *, fusion: bool = True, epilogues: bool = True) -> Schedule:
    """Fuse and order the items of ``program``; ``epilogues`` may be fused into the reduction before them."""
    return _Scheduler(program, fusion, epilogues).run()


class _Scheduler:
    def __init__(self, program: Program, fusion: bool, epilogues: bool) -> None:
        self.program = program
        self.fusion = fusion
        self.epilogues = epilogues
        self.groups: list[Any] = []  # a kernel or another item; None once it has joined another
        self.standing: dict[int, None] = {}  # those that have not
        self.root: list[int] = []
        self.before: list[set[int]] = []  # direct predecessors, as they were numbered when found
        self.ancestors: list[int] = []  # bit sets
        self.apart: list[tuple[Kernel, Kernel, str]] = []
        self.spread: set[Buffer] = set()

    def run(self) -> Schedule:
        items = list(self._alive())
        self.spread = _spread(items)
        writers: dict[Buffer, list[int]] = {}
        readers: dict[Buffer, list[int]] = {}
        shared = _written_in_parts(items)
        last_call: int | None = None
        checking: list[int] = []
        for item in items:
            at = len(self.groups)
            before = {w for b in item.reads for w in writers.get(b, ())}
            for buffer in written_by(item):
                if buffer.rewritten or not isinstance(item, Statement):  # which may change what is there
                    before.update((*readers.get(buffer, ()), *writers.get(buffer, ())))
            if overwritten := overwrites(item):
                before.update(checking)
                before |= {g for b in overwritten for g in readers.get(b, ())}
            if is_checking(item):
                checking.append(at)
            if isinstance(item, Call):
                # Calls keep their order: random ones draw in it, and the others do not care.
                if last_call is not None:
                    before.add(last_call)
                last_call = at
            self._append(of_statement(item, at) if isinstance(item, Statement) else item, before)
            if isinstance(item, Statement) and self.fusion:
                self._join_producers(at, shared)
                self._join_siblings(at, readers, shared)
            for buffer in item.reads:
                readers.setdefault(buffer, []).append(at)
            for buffer in [item.target] if isinstance(item, Statement) else item.writes:
                writers.setdefault(buffer, []).append(at)
        return Schedule([merge_loops(g) if isinstance(g, Kernel) else g for g in self._order()], self.apart)

    def _alive(self) -> Iterable[Any]:
        """The items whose results are used; calls may have effects on the random number generator, and stay."""
        wanted = {ref.buffer for ref in self.program.outputs if hasattr(ref, "buffer")}
        wanted |= {b for b in self.program.buffers if b.over is not None}
        kept = []
        for item in reversed(self.program.items):
            writes = {item.target} if isinstance(item, Statement) else item.writes
            if isinstance(item, Call) or writes & wanted:
                wanted |= item.reads
                kept.append(item)
        return reversed(kept)

    # --- the graph of groups --------------------------------------------------------------------------------------

    def _append(self, group: Any, before: set[int]) -> None:
        at = len(self.groups)
        self.groups.append(group)
        self.root.append(at)
        self.standing[at] = None
        self.before.append(before)
        bits = 0
        for p in {self._find(b) for b in before}:
            bits |= (1 << p) | self.ancestors[p]
        self.ancestors.append(bits)

    def _find(self, at: int) -> int:
        while self.root[at] != at:
            at = self.root[at]
        return at

    def _predecessors(self, at: int) -> set[int]:
        return {p for b in self.before[at] if (p := self._find(b)) != at}

    def _would_cycle(self, a: int, b: int) -> bool:
        """Whether something must run after one of two groups and before the other."""
        return any(self.ancestors[p] >> a & 1 for p in self._predecessors(b) if p != a) or any(
            self.ancestors[p] >> b & 1 for p in self._predecessors(a) if p != b
        )

    def _try(self, a: int, b: int, shared: set[Buffer]) -> bool:
        """Fuse group ``b`` into group ``a``, ``a`` being the earlier one."""
        left, right = self.groups[a], self.groups[b]
        try:
            if self._would_cycle(a, b):
                raise NotFused("another step must run between them")
            first, second = (right, left) if self.ancestors[a] >> b & 1 else (left, right)
            if self._ends_slowly(first, second):
                raise NotFused("what is computed once per row takes longer in rows than by itself")
            if not self.epilogues and _reduced_by(first) & second.reads:
                raise NotFused("epilogue_fusion is off")
            fused = fuse(first, second, shared)
            if fused.inner and any(b.over is not None for b in fused.writes):
                if not reads_before_writing(plan(fused, fused.writes, _ROW)):
                    raise NotFused("a later pass over the row reads what an earlier one has overwritten")
        except NotFused as why:
            self.apart.append((left, right, str(why)))
            return False
        self.groups[a] = fused
        self.groups[b] = None
        self.root[b] = a
        self.before[a] |= self.before[b]
        both = (1 << a) | (1 << b)
        self.ancestors[a] = (self.ancestors[a] | self.ancestors[b]) & ~both
        del self.standing[b]
        for g in self.standing:
            if self.ancestors[g] & both:
                self.ancestors[g] |= self.ancestors[a] | (1 << a)
        return True

    def _ends_slowly(self, rows: Kernel, end: Kernel) -> bool:
        """Whether ``end`` computes something expensive of each row's result that nothing in the rows needs."""
        if not rows.inner or end.inner or not rows.is_on_cpu:
            return False
        points = index.product(v.size for v in end.space)
        if points != index.product(v.size for v in rows.outer_vars):
            return False
        return (
            is_short_beside_a_function(index.product(v.size for v in rows.inner), points)
            and any(m.statement.value.cost >= ONCE_COST for m in end.members)
            and not end.writes & self.spread
        )

    # --- candidates -----------------------------------------------------------------------------------------------

    def _join_producers(self, at: int, shared: set[Buffer]) -> None:
        for p in sorted(self._predecessors(at), key=lambda p: -self._traffic(p, at)):
            at, p = self._find(at), self._find(p)
            if at != p and isinstance(self.groups[p], Kernel):
                self._try(min(p, at), max(p, at), shared)

    def _join_siblings(self, at: int, readers: dict[Buffer, list[int]], shared: set[Buffer]) -> None:
        at = self._find(at)
        tried = {at}
        for buffer in sorted(self.groups[at].reads, key=lambda b: -_bytes(b)):
            for other in reversed(readers.get(buffer, ())[-_SIBLINGS:]):
                at, other = self._find(at), self._find(other)
                if other in tried or at == other or not isinstance(self.groups[other], Kernel):
                    continue
                tried.add(other)
                self._try(min(at, other), max(at, other), shared)

    def _traffic(self, p: int, at: int) -> int:
        group = self.groups[p]
        if not isinstance(group, Kernel):
            return 0
        return sum(_bytes(b) for b in group.writes & self.groups[at].reads)

    # --- order ----------------------------------------------------------------------------------------------------

    def _order(self) -> list[Any]:
        """Dependencies first; calls as late as possible, so that what is between them is in few pieces.  Kernels that
        make more large tensors than they are the last to read are late too."""
        waiting = {g: self._predecessors(g) for g in sorted(self.standing)}
        after: dict[int, list[int]] = {g: [] for g in waiting}
        for g, before in waiting.items():
            for p in before:
                after[p].append(g)
        ready = [(isinstance(self.groups[g], Call), g) for g, before in waiting.items() if not before]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            _, g = heapq.heappop(ready)
            order.append(g)
            for u in after[g]:
                waiting[u].discard(g)
                if not waiting[u]:
                    heapq.heappush(ready, (isinstance(self.groups[u], Call), u))
        assert len(order) == len(waiting), "the groups form a cycle"
        self._put_off(order, after)
        return [self.groups[g] for g in order]

    def _put_off(self, order: list[int], after: Mapping[int, Sequence[int]]) -> None:
        """Move kernels to before what first needs them, where that saves memory.

        Inputs of a graph may be freed after their last use where large tensors have memory of their own, and stay in
        any case where they have not.
        """
        last = {b: g for g in order for b in self.groups[g].reads}
        stay = {b for b in self.program.inputs if isinstance(b, Buffer) and b.device.type not in LARGE}
        for g in reversed(order.copy()):
            group = self.groups[g]
            large = [b for b in group.writes if is_late(b)] if isinstance(group, Kernel) and after[g] else []
            ending = sum(_bytes(b) for b in group.reads - stay if last[b] == g) if large else 0
            if sum(map(_bytes, large)) > ending:
                order.remove(g)
                order.insert(min(map(order.index, after[g])), g)


def _reduced_by(kernel: Kernel) -> set[Buffer]:
    return {m.statement.target for m in kernel.members if m.statement.reduction}


def _spread(items: Sequence[Any]) -> set[Buffer]:
    """The buffers that are read at more points than they have elements, also by what is made of them."""
    found: set[Buffer] = set()
    for item in reversed(items):
        if isinstance(item, Statement):
            points = index.product(v.size for v in (*item.kept, *item.reduced))
            is_wide = item.target in found and not item.reduction
            found |= {b for b in item.reads if is_wide or points != b.numel}
    return found


def _bytes(buffer: Buffer) -> int:
    numel = buffer.numel
    if type(numel) is not int:
        assert isinstance(numel, index.Ix)
        numel = max(coef * 64 ** len(mono) for mono, coef in numel.terms)
    return numel * buffer.dtype.itemsize


def _written_in_parts(items: Iterable[Any]) -> set[Buffer]:
    """The buffers that several items write: parts of them, or a call changes what is there."""
    seen: set[Buffer] = set()
    twice: set[Buffer] = set()
    for item in items:
        for buffer in [item.target] if isinstance(item, Statement) else item.writes:
            (twice if buffer in seen else seen).add(buffer)
    return twice
