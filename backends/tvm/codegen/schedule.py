"""A CPU schedule for the kernels between library calls: pointwise chains, reductions, softmax, norms, transposes.

TVM's own default is one thread and one loop nest per operator.  Here

* producers that are cheap, or that have one reader, are computed where they are read;
* stages that share their leading dimensions run row by row: one row of every stage at a time, so that it stays in
  cache;
* a reduction runs in several lanes, which are combined at the end (except a sum: LLVM does this itself, and better);
* the outermost loop is divided among threads if there is enough work.

Innermost loops stay plain: with elementary functions written out (``mathlib``), LLVM vectorizes them, including tails.
Loops whose extent is known only when the kernel runs are assumed to have length ``USUAL``, and are neither split nor
divided into lanes.
If a step does not apply to a kernel, the kernel keeps the result of the earlier steps; every step preserves its
meaning.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from .. import compat

log = logging.getLogger("torchmux.tvm")

LANES = 64
"""Partial results of a reduction that are computed in parallel: four vector registers of the widest kind."""

LONG = 256
"""Iterations from which an innermost loop is long enough."""

COLUMNS = 64
"""Sums of columns that are computed in parallel."""

SMALL = 16
"""Operations up to which an expression may be computed several times, rather than kept."""

WORTH_THREADS = 16 * 1024
"""Elements from which a kernel is worth waking other threads."""

USUAL = 64
"""What an extent counts as that is known only when the kernel runs."""


def mark(module: tvm.IRModule) -> tvm.IRModule:
    """Let TVM's fusion join operators that reduce rows with what is around them.

    Fusion goes by a pattern that every kernel is marked with.  One that keeps leading dimensions and reduces trailing
    ones is marked as if it were injective, since the schedule runs whole groups of such kernels row by row.
    """
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and _is_by_rows(function):
            module[name] = function.with_attr("op_pattern", 2)
    return module


def mark_zeros(module: tvm.IRModule) -> tvm.IRModule:
    """Keep what makes zeros out of TVM's fusion, for schedules of TVM's own, which inline (see :func:`_multiplies`)."""
    for name, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and _is_zero(function):
            module[name] = function.with_attr("op_pattern", 8)  # opaque: fused with nothing
    return module


def scheduled(function: Any) -> Any:
    """``function`` with a schedule; unchanged if it is not a plain loop nest."""
    schedule = s_tir.Schedule(function)
    try:
        root = schedule.get_sblock("root")
        _inline(schedule, root)
        stages = _stages(schedule, root)
    except RuntimeError as refusal:  # what TVM raises for all that it does not take; errors of Python are ours
        log.debug("a kernel stays as it is: %s", refusal)
        return function
    if not stages:
        return function
    done = _by_rows(schedule, stages) if len(stages) > 1 else None
    if done is None:
        for stage in stages:
            _alone(schedule, stage)
        done = schedule
    return done.mod["main"]


# --- what a kernel consists of ----------------------------------------------------------------------------------------


@dataclass
class _Stage:
    """One block: its loops' extents by kind, spatial ones first; integers, or expressions of sizes."""

    block: Any
    spatial: list[Any]
    reduced: list[Any]

    @property
    def size(self) -> int:
        return _count(self.spatial) * _count(self.reduced)


def _count(extents: list[Any]) -> int:
    """How many iterations there are, or about how many."""
    return math.prod(e if isinstance(e, int) else USUAL for e in extents)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    return bool(compat.Analyzer().can_prove_equal(one, other))


def _stages(schedule: Any, root: Any) -> list[_Stage]:
    """The blocks in order; empty if one of them is not spatial loops followed by reduction loops."""
    found = []
    for block in schedule.get_child_blocks(root):
        stage = _stage(schedule, block)
        if stage is None:
            return []
        found.append(stage)
    return found


def _stage(schedule: Any, block: Any) -> _Stage | None:
    kinds, extents = [], []
    for variable in schedule.get(block).iter_vars:
        if variable.iter_type not in (0, 2):
            return None
        extent = variable.dom.extent
        kinds.append(variable.iter_type == 2)
        extents.append(int(extent) if isinstance(extent, tirx.IntImm) else extent)
    if kinds != sorted(kinds) or len(schedule.get_loops(block)) != len(kinds):
        return None
    split = kinds.count(False)
    return _Stage(block, extents[:split], extents[split:])


def _is_by_rows(function: Any) -> bool:
    """Whether some block reduces, none reduces everything, and all share a leading dimension."""
    schedule = s_tir.Schedule(function)
    try:
        stages = _stages(schedule, schedule.get_sblock("root"))
    except RuntimeError:
        return False
    reductions = [stage for stage in stages if stage.reduced]
    if not reductions or not all(_reduces_neighbours(schedule, stage) for stage in reductions):
        return False
    return _count(_common(stages)) > 1


def _common(stages: list[_Stage]) -> list[Any]:
    """The leading spatial extents that all stages share; without a reduction the innermost loop is left out."""
    by_rows = any(stage.reduced for stage in stages)
    shortest: list[Any] | None = None
    for stage in stages:
        own = stage.spatial if by_rows else stage.spatial[:-1]
        if shortest is None:
            shortest = own
            continue
        same = 0
        while same < min(len(own), len(shortest)) and _same(own[same], shortest[same]):
            same += 1
        shortest = shortest[:same]
    return shortest or []


def _reduces_neighbours(schedule: Any, stage: _Stage) -> bool:
    """Whether the reduction runs along adjacent elements of the largest tensor it reads."""
    block = schedule.get(stage.block)
    reduced = [v.var for v in block.iter_vars if v.iter_type == 2]
    reads = [r for r in block.reads if r.region]
    if not reads:
        return False
    largest = max(reads, key=lambda r: len(r.region))
    found = compat.collected(largest.region[-1].min, tirx.Var)
    return any(v.same_as(r) for v in found for r in reduced)


# --- steps ------------------------------------------------------------------------------------------------------------


def _inline(schedule: Any, root: Any) -> None:
    """Compute producers where they are read, unless that would repeat something costly."""
    changed = True
    while changed:
        changed = False
        for block in schedule.get_child_blocks(root):
            consumers = schedule.get_consumers(block)
            if _is_zero(schedule.get(block)) and any(_multiplies(schedule.get(consumer)) for consumer in consumers):
                continue
            if _is_costly(schedule.get(block)) and len(consumers) > 1:
                continue
            if any(_repeats(schedule.get(block), schedule.get(consumer)) for consumer in consumers):
                continue
            try:
                schedule.compute_inline(block)
            except RuntimeError:  # a reduction, an output, or read in another way
                continue
            changed = True


def _is_zero(block: Any) -> bool:
    """Whether all that the block computes is zero."""
    stored = compat.collected(block.body, tirx.BufferStore)
    return bool(stored) and all(isinstance(s.value, tirx.FloatImm | tirx.IntImm) and s.value.value == 0 for s in stored)


def _multiplies(block: Any) -> bool:
    """Whether the block may multiply or divide what it reads.

    Where TVM sees that one of the two is zero, it takes the product for zero, nan or not, and a division ends the
    process: the error leaves a destructor.
    """
    return bool(compat.collected(block.body, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.FloorMod, tirx.Mod))


def _repeats(producer: Any, consumer: Any) -> bool:
    """Whether ``consumer`` reads ``producer`` several times, and would not stay small with that many copies.

    Extremes and clamps read what they compare two or three times, so that a chain of them grows exponentially.
    """
    made = [compat.source_of(write) for write in producer.writes]
    reads = [compat.source_of(load) for load in compat.collected(consumer.body, compat.Load)]
    count = sum(any(read.same_as(buffer) for buffer in made) for read in reads)
    return count > 1 and (_is_costly(producer) or count * _size(producer) > SMALL)


def _size(block: Any) -> int:
    return len(compat.collected(block.body, compat.Load, tirx.Select, compat.Call, tirx.Add, tirx.Mul))


def _is_costly(block: Any) -> bool:
    """Whether the block computes an elementary function or divides."""
    return bool(compat.collected(block.body, tirx.Div, compat.Call))


def _by_rows(schedule: Any, stages: list[_Stage]) -> Any:
    """Run all stages row by row; None if they do not share rows."""
    common = _common(stages)
    if _count(common) < 2:
        return None
    trial = schedule.copy()
    try:
        stages = _with_lanes(trial, stages)
        last = stages[-1]
        row = trial.fuse(*trial.get_loops(last.block)[: len(common)])
        for stage in reversed(stages[:-1]):
            trial.compute_at(stage.block, row, preserve_unit_loops=True)
            if not _is_of_one_row(trial, stage, row, len(common)):
                return None  # it would be computed again for every row
        if sum(stage.size for stage in stages) >= WORTH_THREADS:
            trial.parallel(row)
        for stage in stages:
            _lanes_innermost(trial, stage, 1)
    except RuntimeError as refusal:
        log.debug("stages do not run row by row: %s", refusal)
        return None
    return trial


def _with_lanes(schedule: Any, stages: list[_Stage]) -> list[_Stage]:
    """Divide the reductions that are long enough into lanes, unless they are sums."""
    result = []
    for stage in stages:
        known = stage.reduced and all(isinstance(e, int) for e in stage.reduced)
        length = math.prod(stage.reduced) if known else 0
        fits = length >= 2 * LANES and length % LANES == 0
        if not fits or _is_sum(schedule.get(stage.block)) or not _reduces_neighbours(schedule, stage):
            result.append(stage)
            continue
        loops = schedule.get_loops(stage.block)[len(stage.spatial) :]
        whole = schedule.fuse(*loops)
        _, lane = schedule.split(whole, [None, LANES])
        partial = schedule.rfactor(lane, len(stage.spatial))
        result.append(_Stage(partial, [*stage.spatial, LANES], [length // LANES]))
        result.append(_Stage(stage.block, stage.spatial, [LANES]))
    return result


def _is_sum(block: Any) -> bool:
    return isinstance(getattr(block.body, "value", None), tirx.Add)


def _is_of_one_row(schedule: Any, stage: _Stage, row: Any, common: int) -> bool:
    """Whether the loops of a stage inside ``row`` are those below its ``common`` leading ones."""
    size, inside = 1, False
    for loop in schedule.get_loops(stage.block):
        if inside:
            size = size * schedule.get(loop).extent
        inside = inside or schedule.get(loop).loop_var.same_as(schedule.get(row).loop_var)
    return _same(size, math.prod([*stage.spatial[common:], *stage.reduced]))


def _lanes_innermost(schedule: Any, stage: _Stage, outer: int) -> None:
    """Below the first ``outer`` loops, run a reduction around its spatial loops, with its initial value set before."""
    if not stage.reduced:
        return
    loops = schedule.get_loops(stage.block)
    carrying = _reduction_loops(schedule, stage.block)
    run = [loops[i] for i in carrying]
    lanes = [loop for i, loop in enumerate(loops) if i >= outer and i not in carrying]
    if run:
        schedule.reorder(*run, *lanes)
        schedule.decompose_reduction(stage.block, run[0])


def _reduction_loops(schedule: Any, block: Any) -> list[int]:
    """Positions of the loops that carry the block's reduction."""
    realize = tvm.get_global_func("s_tir.schedule.GetSBlockRealize")(schedule, block)
    variables: list[Any] = []
    for variable, value in zip(schedule.get(block).iter_vars, realize.iter_values, strict=True):
        if variable.iter_type == 2:
            variables += compat.collected(value, tirx.Var)
    loops = schedule.get_loops(block)
    return [i for i, loop in enumerate(loops) if any(schedule.get(loop).loop_var.same_as(v) for v in variables)]


def _alone(schedule: Any, stage: _Stage) -> None:
    """Divide the loops of one stage among threads."""
    try:
        if stage.reduced:
            _reduction_alone(schedule, stage)
        elif stage.size >= WORTH_THREADS:
            inner = _side_by_side(schedule, stage)
            loops = schedule.get_loops(stage.block)
            outer, neighbours = loops[:-inner], schedule.fuse(*loops[-inner:])
            schedule.parallel(schedule.fuse(*outer) if outer else schedule.split(neighbours, [None, 1024])[0])
    except RuntimeError as refusal:
        log.debug("a stage stays as it is: %s", refusal)


def _side_by_side(schedule: Any, stage: _Stage) -> int:
    """How many trailing loops can be one without a division in any index, at least one.

    A tensor either has these loops as its last dimensions, whole and in order, or does not depend on them.  Joining
    stops once the loop is long enough to be vectorized well, since it also takes work from the threads.
    """
    block = schedule.get(stage.block)
    variables = [v.var for v in block.iter_vars]
    count, length = 1, _count(stage.spatial[-1:])
    while count < len(variables) and length < LONG and _count(stage.spatial[: -count - 1]) > 1:
        count += 1
        length *= _count(stage.spatial[-count:][:1])
        if not all(_follows(region, variables[-count:], stage.spatial[-count:]) for region in block.reads):
            return count - 1
    return count


def _follows(region: Any, variables: list[Any], extents: list[Any]) -> bool:
    indices = [r.min for r in region.region]
    last, shape = indices[-len(variables) :], list(compat.source_of(region).shape)[-len(variables) :]
    if len(last) == len(variables) and all(i.same_as(v) for i, v in zip(last, variables, strict=True)):
        return all(map(_same, shape, extents))
    found = [variable for index in indices for variable in compat.collected(index, tirx.Var)]
    return not any(f.same_as(v) for f in found for v in variables)


def _reduction_alone(schedule: Any, stage: _Stage) -> None:
    if not stage.spatial or _count(stage.spatial) == 1:
        _with_lanes(schedule, [stage])
        return
    if _reduces_neighbours(schedule, stage):
        partial = _with_lanes(schedule, [stage])[0]
        row = schedule.fuse(*schedule.get_loops(stage.block)[: len(stage.spatial)])
        if partial is not stage and partial.block is not stage.block:
            schedule.compute_at(partial.block, row, preserve_unit_loops=True)
            _lanes_innermost(schedule, partial, 1)
    else:
        # Columns: some of them side by side, the reduction around them.
        columns = schedule.fuse(*schedule.get_loops(stage.block)[: len(stage.spatial)])
        row, _ = schedule.split(columns, [None, COLUMNS])
        _lanes_innermost(schedule, stage, 1)
    if stage.size >= WORTH_THREADS:
        schedule.parallel(row)
