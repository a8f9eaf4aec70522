"""The host side of a graph, in neutral steps: what the function that runs the graph does, in order.

It reads sizes, takes inputs in the layout that the code was made for, allocates, launches what stands between two
calls of torch's operators, makes these calls, and returns tensors.  A target prints these steps (``targets/host.py``),
and what a launch is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.config import config

from ..ir.expressions import Buffer
from ..ir.index import Index
from ..ir.program import Call, Computed, Extent, Need, Program, Solved, TensorRef
from . import memory
from .kernel import Kernel
from .memory import Arena
from .placement import in_place, reads_of, taken_over, writes_of
from .schedule import Schedule
from .stages import LoopNest
from .together import Kind, side_by_side
from .verify import verify_nest


@dataclass(frozen=True)
class ReadSize:
    """``name`` is the input at a position, a number, what follows from it, or one of its sizes or strides, divided by a
    factor of it."""

    name: str
    input: int
    extent: Extent | Solved | None
    factor: int


@dataclass(frozen=True)
class ComputeSize:
    """``name`` is what follows from sizes before it."""

    name: str
    value: Index


@dataclass(frozen=True)
class FitInput:
    """An input that lies otherwise than the code expects is copied."""

    buffer: Buffer


@dataclass(frozen=True)
class Share:
    """The new content of an input, as calls know it, is the input itself; what shows it is a view of it."""

    buffer: Buffer


@dataclass(frozen=True)
class Overwrite:
    """What follows writes to these inputs: their versions change."""

    buffers: list[Buffer]


@dataclass(frozen=True)
class GiveBack:
    """An input that was copied, because it lies otherwise than the code expects, gets what was written to the copy."""

    buffer: Buffer


@dataclass(frozen=True)
class Require:
    """A size of this call must not be 0, or eager would raise."""

    need: Need


@dataclass(frozen=True)
class MakeArena:
    """Memory for what torch never sees, in bytes, which may be none: all that :attr:`Host.arena` places."""

    size: Index


@dataclass(frozen=True)
class Allocate:
    """A tensor, for its strides, on its device."""

    buffer: Buffer


@dataclass(frozen=True)
class TakeOver:
    """A tensor in the memory of ``source``, which only the next launch still reads."""

    buffer: Buffer
    source: Buffer


@dataclass(frozen=True)
class Launch:
    """Kernels and other steps of the target, one after the other.

    ``tensors`` are the buffers among those that they touch that are tensors of the host; the rest lies in the arena.
    """

    number: int
    steps: list[Any]
    tensors: list[Buffer]


@dataclass(frozen=True)
class CallOperator:
    """A call of torch's; ``kept`` are its results that are used, None for the others."""

    call: Call
    kept: list[Buffer | None]


@dataclass(frozen=True)
class Release:
    """Tensors that nothing uses any more; an input is freed if the caller has given it away."""

    buffers: list[Buffer]


@dataclass(frozen=True)
class Return:
    """What the graph returns: tensors and numbers."""

    results: list[TensorRef | Index]


HostStep = (
    ReadSize | ComputeSize | Require | FitInput | Share | MakeArena | Allocate | TakeOver | Overwrite | Launch
    | CallOperator | Release | GiveBack | Return
)  # fmt: skip


@dataclass
class Host:
    """``parameters`` of the function are the inputs, a buffer or, for a number, its name; ``steps`` its body.

    ``alias`` are buffers that lie where another one lies; ``arena`` places those that are no tensors.
    """

    parameters: list[Buffer | str]
    steps: list[HostStep]
    alias: dict[Buffer, Buffer]
    arena: Arena

    def placed(self, buffer: Buffer) -> Buffer:
        """The buffer where ``buffer`` lies."""
        return self.alias.get(buffer, buffer)

    def touched(self, step: Any) -> set[Buffer]:
        """The buffers that a step reads or writes, as they are placed."""
        return {self.placed(b) for b in reads_of(step) | writes_of(step)}

    @property
    def launches(self) -> list[Launch]:
        return [step for step in self.steps if isinstance(step, Launch)]

    @property
    def calls(self) -> list[Call]:
        return [step.call for step in self.steps if isinstance(step, CallOperator)]


def plan(
    program: Program,
    schedule: Schedule,
    plan_loops: Callable[[Kernel, set[Buffer]], LoopNest],
    kind: Kind | None = None,
) -> Host:
    """What the function that runs ``schedule`` does; ``plan_loops`` arranges a kernel, of which so much is needed.

    Kernels of one ``kind`` are run side by side where that is possible.
    """
    return _Planner(program, schedule, plan_loops, kind).run()


_aten = torch.ops.aten
_MAKING = (
    _aten.mm.default, _aten.bmm.default, _aten.addmm.default, _aten.baddbmm.default, _aten._addmm_activation.default,
    _aten.convolution.default, _aten.convolution_backward.default,
)  # fmt: skip
"""Operators whose results lie in memory that nothing else uses; some others return what they were given."""


class _Planner:
    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        plan_loops: Callable[[Kernel, set[Buffer]], LoopNest],
        kind: Kind | None,
    ) -> None:
        self.program = program
        readers: dict[Buffer, list[int]] = {}
        for at, step in enumerate(schedule.steps):
            for buffer in step.reads:
                readers.setdefault(buffer, []).append(at)
        outputs = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
        self.work: list[Any] = []
        for at, step in enumerate(schedule.steps):
            if isinstance(step, Kernel):
                needed = {
                    b
                    for b in step.writes
                    if b in outputs or b.over is not None or any(r != at for r in readers.get(b, ()))
                }
                nest = plan_loops(step, needed)
                if config.debug:
                    verify_nest(nest, "planning loops")
                self.work.append(nest)
            else:
                self.work.append(step)
        if kind is not None:
            self.work = side_by_side(self.work, kind)
        self.inputs = {b for b in program.inputs if isinstance(b, Buffer)}
        constants = {b for b in program.buffers if b.name in program.constants}
        self.shown = {b: b.shows for b in program.buffers if b.shows is not None}
        self.given = self.inputs | set(self.shown) | constants | set(program.packs.values())
        self.held = self.given | outputs  # the tensors: what torch sees
        self.called: set[Buffer] = set()  # what calls of torch's operators get and make
        for step in self.work:
            if isinstance(step, Call):
                self.called |= step.reads | step.writes
        self.held |= self.called
        self.host = Host(
            [b if isinstance(b, Buffer) else f"number{n}" for n, b in enumerate(program.inputs)],
            [],
            {b: b.over for b in program.buffers if b.over is not None} | self.shown | in_place(self.work, self.held),
            Arena({}, 0),
        )
        self.uses = [self.host.touched(step) for step in self.work]
        if self.called:  # what these allocate can lie where such buffers were
            self.held |= {b for b in set().union(*self.uses) - self.held if memory.is_large(b)}
        self.taken = taken_over(self.work, self._own_tensors())
        self.cuts = self._cuts() if self.called else set()
        self.host.arena = memory.plan(self.uses, set().union(*self.uses, set()) - self.held)

    def run(self) -> Host:
        steps = self.host.steps
        for name, found in self.program.symbols.items():
            steps.append(ComputeSize(name, found.value) if isinstance(found, Computed) else ReadSize(name, *found))
        steps += [Require(need) for need in self.program.needs]
        used = set().union(*self.uses, set())
        steps += [FitInput(b) for b in self.program.inputs if isinstance(b, Buffer) and b in used]
        steps += [Share(b) for b in self.program.buffers if b.over is not None and b in self.called]
        steps += [Share(b) for b in self.shown if b in self.called]
        steps.append(MakeArena(self.host.arena.size))
        pieces = self._pieces()
        marked: set[Buffer] = set()  # the inputs whose change has been told
        last: dict[Buffer, int] = {}
        for at, piece in enumerate(pieces):
            for buffer in piece.tensors if isinstance(piece, Launch) else piece.call.reads | piece.call.writes:
                last[buffer] = at
        leaving: dict[int, list[Buffer]] = {}
        whole = self._not_only_read()
        for buffer, at in last.items():
            # Nothing that is freed after the last piece could be used again.
            is_read = buffer in self.inputs and buffer not in whole and at < len(pieces) - 1
            if is_read or (buffer.kind == "temp" and buffer.over is None):
                leaving.setdefault(at, []).append(buffer)
        made = set(self.given)
        for at, piece in enumerate(pieces):
            if isinstance(piece, Launch):
                fresh = [b for b in piece.tensors if b not in made]
                steps += [TakeOver(b, self.taken[b]) if b in self.taken else Allocate(b) for b in fresh]
            else:
                fresh = [b for b in piece.kept if b is not None]
            made.update(fresh)
            if isinstance(piece, Launch):
                told = {b for step in piece.steps for b in self._overwritten(step)} - marked
                if told:
                    steps.append(Overwrite(sorted(told, key=lambda b: b.name)))
                marked |= told
            steps.append(piece)
            gone = [b for b in leaving.get(at, ()) if b in made]
            if gone:
                steps.append(Release(sorted(gone, key=lambda b: b.name)))
        steps += [GiveBack(b) for b in sorted(marked, key=lambda b: b.name)]
        steps.append(Return(list(self.program.outputs)))
        return self.host

    def _own_tensors(self) -> set[Buffer]:
        """The large tensors that are neither given nor returned, and share memory with no other."""
        made = {b for step in self.work for b in ([] if isinstance(step, Call) else writes_of(step))}
        made |= {b for s in self.work if isinstance(s, Call) and s.op in _MAKING for b in s.results if b is not None}
        sharing = set(self.host.alias) | set(self.host.alias.values())
        return {b for b in (made & self.held) - sharing if b.kind == "temp" and b.over is None and memory.is_large(b)}

    def _not_only_read(self) -> set[Buffer]:
        """The buffers that are returned or written to, or where another one lies."""
        returned = {ref.buffer for ref in self.program.outputs if isinstance(ref, TensorRef)}
        return returned | set(self.host.alias.values()) | {b for step in self.work for b in self._overwritten(step)}

    def _overwritten(self, step: Any) -> set[Buffer]:
        return {b.over for b in writes_of(step) if b.over is not None}

    def _cuts(self) -> set[int]:
        """The steps before which a new launch begins, so that large tensors are freed before others are made."""
        lives: dict[Buffer, tuple[int, int]] = {}
        for at, used in enumerate(self.uses):
            for buffer in used - self.given:
                while buffer in self.taken:
                    buffer = self.taken[buffer]
                if memory.is_large(buffer):
                    lives[buffer] = (lives.get(buffer, (at, at))[0], len(self.uses) if buffer.kind == "output" else at)
        ends = {at for at, step in enumerate(self.work) if isinstance(step, Call)}
        return memory.cuts([(*life, memory.size_in_bytes(b)) for b, life in lives.items()], ends, len(self.work))

    def _pieces(self) -> list[Launch | CallOperator]:
        """The calls, and what stands between two of them, in one or more launches."""
        pieces: list[Launch | CallOperator] = []
        launches = 0
        told: set[Buffer] = set()  # the tensors of the last launch
        read = set().union(*map(reads_of, self.work), set())
        for at, step in enumerate(self.work):
            if isinstance(step, Call):
                kept = [b if b is not None and (b in read or b.kind == "output") else None for b in step.results]
                pieces.append(CallOperator(step, kept))
                continue
            if not pieces or not isinstance(pieces[-1], Launch) or at in self.cuts:
                pieces.append(Launch(launches, [], []))
                launches += 1
                told = set()
            launch = pieces[-1]
            assert isinstance(launch, Launch)
            launch.steps.append(step)
            fresh = (self.host.touched(step) & self.held) - told
            launch.tensors.extend(sorted(fresh, key=lambda b: b.name))
            told |= fresh
        return pieces
