"""Checking that kernels, schedules and loop nests are well formed, as ``ir/verify.py`` checks programs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ..ir import index, verify
from ..ir.expressions import Buffer, Node, operators_in
from ..ir.index import Var
from ..ir.program import Program
from ..ir.verify import Malformed, Report, reporter
from .kernel import Kernel, Member
from .schedule import Schedule
from .stages import Fold, LoopNest, Store, reads_before_writing


def verify_schedule(plan: Schedule, program: Program, after: str) -> None:
    """Raise :class:`Malformed` for the first step of ``plan`` that breaks a rule."""
    for step in plan.steps:
        if isinstance(step, Kernel):
            kernel(step, program.symbols, after)
    verify.order(_in_turn(plan), program, after)
    _complete(plan, program, after)


def _in_turn(plan: Schedule) -> list[Any]:
    """The statements of kernels, and the other steps, in the order in which they run."""
    return [
        item
        for step in plan.steps
        for item in ([m.statement for m in step.members] if isinstance(step, Kernel) else [step])
    ]


def _complete(plan: Schedule, program: Program, after: str) -> None:
    """What is written at all is written as often as in the program, by statements that are in one kernel each."""
    wanted: dict[Buffer, int] = {}
    found: dict[Buffer, int] = {}
    for items, counts in ((program.items, wanted), (_in_turn(plan), found)):
        for item in items:
            for buffer in verify.writes_of(item):
                counts[buffer] = counts.get(buffer, 0) + 1
    for buffer, count in found.items():
        if count != wanted.get(buffer):
            raise Malformed(after, "the steps", "steps", f"{buffer} is written {count} times, not {wanted.get(buffer)}")
    places = [m.at for step in plan.steps if isinstance(step, Kernel) for m in step.members]
    if len(set(places)) != len(places):
        raise Malformed(after, "the steps", "steps", "a statement is in two kernels")


def kernel(checked: Kernel, known: Collection[str], after: str) -> None:
    """The loops of a kernel are those of its statements, which read one another where they are computed."""
    wrong = reporter(after, f"the kernel {checked.name}")
    if len(set(checked.space)) != len(checked.space) or not checked.inner <= set(checked.space):
        raise wrong("variables", "a loop comes twice, or an inner loop is none of the kernel's")
    if [m.at for m in checked.members] != sorted(m.at for m in checked.members):
        raise wrong("steps", "statements are not in the order of the program")
    made: dict[Buffer, Member] = {}
    for member in checked.members:
        _member(member, checked, made, known, reporter(after, member.statement))
        made[member.statement.target] = member


def _member(member: Member, kernel: Kernel, made: dict[Buffer, Member], known: Collection[str], wrong: Report) -> None:
    item = member.statement
    space = kernel.outer_vars if member.outer else kernel.space
    verify.types(item.value, wrong)
    verify.variables(item.value, item.position, space, wrong)
    verify.symbols(item.value, item.position, space, known, wrong)
    verify.bounds(item.value, item.position, item.target, space, wrong)
    verify.reduction(item, wrong)
    if item.reduction and (member.outer or not kernel.inner or index.free(item.position) & kernel.inner):
        raise wrong("reduction", "a reduction keeps a loop that it is over, or runs outside of it")
    for buffer, position in item.value.loads:
        source = made.get(buffer)
        if source is not None and source.statement.position != position and not buffer.rewritten:
            raise wrong("order", f"{buffer} is read at {position}, and computed at {source.statement.position}")


# --- stages -----------------------------------------------------------------------------------------------------------


def verify_nest(checked: LoopNest, after: str) -> None:
    """Raise :class:`Malformed` unless each stage uses what the stages before it have finished."""
    _Stages(checked, after).run()


def _described(checked: LoopNest) -> str:
    stored = {step.buffer for stage in checked.stages for step in _steps(stage) if isinstance(step, Store)}
    return f"the loops that store {', '.join(sorted(map(str, stored)))}"


def _steps(stage: Any) -> list[Store | Fold]:
    return [*stage.before, *stage.body]


class _Stages:
    """What is known while the stages of one nest are walked in order."""

    def __init__(self, checked: LoopNest, after: str) -> None:
        self.nest, self.after = checked, after
        self.wrong = reporter(after, _described(checked))
        self.finished: set[Buffer] = set()  # the reductions of earlier stages
        self.rows_kept: set[Buffer] = set()  # the rows of scratch memory that hold something

    def run(self) -> None:
        if not reads_before_writing(self.nest):
            raise self.wrong("overwritten", "a later pass reads what an earlier one has overwritten")
        outside = self._loops()
        self.is_empty = any(type(v.size) is int and v.size < 1 for v in outside | set(self.nest.inner))
        everywhere = outside | set(self.nest.inner)
        for stage in self.nest.stages:
            for store in stage.before:
                self._step(store, outside)
            folds: set[Buffer] = set()
            for step in stage.body:
                self._step(step, everywhere)
                if isinstance(step, Fold):
                    folds.add(step.statement.target)
            self.finished |= folds

    def _loops(self) -> set[Var]:
        """The variables that have one value for a row, or for a column."""
        rows, inner, vector = self.nest.rows, self.nest.inner, self.nest.vector
        outside = [*rows, vector] if self.nest.by_columns else list(rows)
        if len({*outside, *inner}) != len(outside) + len(inner):
            raise self.wrong("variables", "a loop comes twice")
        if not self.nest.by_columns and vector is not (inner[-1] if inner else None):
            raise self.wrong("variables", f"{vector} is walked in vectors, and is not the last inner loop")
        return {v for v in outside if v is not None}

    def _step(self, step: Store | Fold, space: set[Var]) -> None:
        where = step.statement if isinstance(step, Fold) else f"{step.buffer}[{step.position}] = {step.value}"
        wrong = reporter(self.after, where)
        position = step.position if isinstance(step, Store) else 0
        verify.types(step.value, wrong)
        verify.variables(step.value, position, space, wrong)
        self._values(step.value, wrong)
        for atom in index.data_atoms(position):
            self._values(atom.node, wrong)
        if isinstance(step, Store):
            if not self.is_empty:
                verify.inside(step.buffer, step.position, "written", wrong)
            if step.buffer.kind == "row":
                if step.buffer not in self.nest.scratch:
                    raise wrong("buffers", f"{step.buffer} is no row of these loops")
                self.rows_kept.add(step.buffer)

    def _values(self, value: Node, wrong: Report) -> None:
        for node in operators_in(value):
            if node.op == "result" and node.attr not in self.finished:
                raise wrong("stages", f"the reduction into {node.attr} is used before it is finished")
            if node.op == "load" and node.attr[0].kind == "row" and node.attr[0] not in self.rows_kept:
                raise wrong("stages", f"the row {node.attr[0]} is read before it is kept")
