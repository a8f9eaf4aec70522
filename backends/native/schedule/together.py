"""Which small kernels one launch runs side by side.

Starting a kernel takes a GPU as long as reading a megabyte or more.  Kernels that need nothing of each other, such as
those for the parameters of an optimizer or the parts of a ``cat``, are therefore started at once where they are small.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.expressions import Buffer
from ..ir.index import Index, Ix, Var
from .memory import is_large
from .placement import reads_of, writes_of
from .stages import LoopNest, Store

_MOST = 24
"""So many kernels are started at once."""
_MOST_BUFFERS = 120
_FARTHEST = 64
"""So many steps ahead a kernel may be moved."""

Kind = Callable[[Any], Hashable]
"""Which steps run side by side: those of equal kind; None stands for those that are started alone."""


@dataclass(eq=False)
class Together:
    """``steps`` run side by side: none reads or writes what another one writes."""

    steps: list[Any]
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return set().union(*map(reads_of, self.steps))

    @property
    def writes(self) -> set[Buffer]:
        return set().union(*map(writes_of, self.steps))


@dataclass
class _Group:
    """Steps that will be one, with what they read and write, as it lies in memory."""

    steps: list[Any]
    kind: Hashable
    reads: set[Buffer]
    writes: set[Buffer]

    def conflicts(self, other: _Group) -> bool:
        if not (self.writes.isdisjoint(other.reads) and self.reads.isdisjoint(other.writes)):
            return True
        return any(not self._writes_apart(other, buffer) for buffer in self.writes & other.writes)

    def _writes_apart(self, other: _Group, buffer: Buffer) -> bool:
        """Whether the two write different parts of ``buffer``, as those of ``cat`` do."""
        mine, others = ([at for step in group.steps for at in _positions(step, buffer)] for group in (self, other))
        return all(a is not None and b is not None and are_apart(a, b) for a in mine for b in others)

    def takes(self, other: _Group) -> bool:
        buffers = self.reads | self.writes | other.reads | other.writes
        return self.kind == other.kind and len(self.steps) < _MOST and len(buffers) <= _MOST_BUFFERS

    def add(self, other: _Group) -> None:
        self.steps += other.steps
        self.reads |= other.reads
        self.writes |= other.writes


def side_by_side(steps: Sequence[Any], kind: Kind) -> list[Any]:
    """``steps`` in an order of the same meaning, with kernels that run side by side as one :class:`Together`."""
    groups: list[_Group] = []
    for step in steps:
        own = kind(step)
        made = _Group([step], own, _places(reads_of(step)), _places(writes_of(step)))
        home = _home(groups, made) if own is not None else None
        if home is None:
            groups.append(made)
        else:
            home.add(made)
    return [g.steps[0] if len(g.steps) == 1 else _together(g.steps) for g in groups]


def _home(groups: Sequence[_Group], made: _Group) -> _Group | None:
    """The first group that ``made`` can join; what lies between is independent of it.

    A large tensor is not made ahead of its time.
    """
    large = {b for b in made.writes if is_large(b)}
    found = None
    for group in reversed(groups[-_FARTHEST:]):
        if group.conflicts(made):
            break
        if group.kind is not None and group.takes(made) and (group is groups[-1] or large <= group.writes):
            found = group
    return found


def _positions(step: Any, buffer: Buffer) -> Iterator[Index | None]:
    """Where a step writes to a buffer; None where that is not known."""
    if not isinstance(step, LoopNest):
        if buffer in _places(writes_of(step)):
            yield None
        return
    for stage in step.stages:
        for each in (*stage.before, *stage.body):
            if isinstance(each, Store) and buffer in _places({each.buffer}):
                yield each.position if each.buffer is buffer else None


def are_apart(left: Index, right: Index) -> bool:
    """Whether two positions are never equal, whatever their variables are, as far as intervals tell.

    They are apart if they lie in different parts of rows, or of all memory: modulo some stride, or altogether.
    """
    strides = {abs(coef) for at in (left, right) if isinstance(at, Ix) for mono, coef in at.terms if mono}
    for modulus in (None, *sorted(strides, reverse=True)):
        first, second = _interval(left, modulus), _interval(right, modulus)
        if first is not None and second is not None and (first[1] < second[0] or second[1] < first[0]):
            return True
    return False


def _interval(position: Index, modulus: int | None) -> tuple[int, int] | None:
    """The least and the greatest value of a position, or of its remainder, if that never wraps around."""
    low = high = 0
    for mono, coef in position.terms if isinstance(position, Ix) else [((), position)]:
        if modulus is not None and mono and coef % modulus == 0:
            continue
        reach = 1
        for atom in mono:
            if not isinstance(atom, Var) or type(atom.size) is not int:
                return None
            reach *= max(atom.size - 1, 0)
        if not mono:
            low, high = low + coef, high + coef
        elif coef > 0:
            high += coef * reach
        else:
            low += coef * reach
    if modulus is None:
        return low, high
    turns = low // modulus
    low, high = low - turns * modulus, high - turns * modulus
    return (low, high) if high < modulus else None


def _together(steps: list[Any]) -> Together:
    return Together(steps, list(dict.fromkeys(node for step in steps for node in step.origins)))


def _places(buffers: set[Buffer]) -> set[Buffer]:
    """The buffers in whose memory these lie."""
    return {b if b.over is None else b.over for b in buffers}
