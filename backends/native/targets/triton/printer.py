"""Printing kernels as Triton: the second printer of the loop IR.

A kernel without reductions is printed over all its points, ``BLOCK`` of them in a program.  One that reduces gets a
program for each point of its outer loops, which holds all its inner points in registers through all stages, so that
what the C++ printer keeps in rows of scratch memory is just a value here.  Where they are too many, each stage is a
loop over blocks of them, and what a later stage needs goes through memory.
"""

from __future__ import annotations

import torch

from ...ir import index
from ...ir.expressions import Buffer, compute_type
from ...ir.index import Index, Var
from ...schedule.stages import Fold, LoopNest, Stage, Store
from .scopes import TYPES, TritonKernel, Writer, loaded, stored, worst

LONGEST_ROW = 16384
"""So many points are held in registers; twice and four times as many where rows of smaller types are kept."""
_POINTS = 1024
_IN_LOOP = 2048


def print_kernel(nest: LoopNest, name: str = "kernel") -> TritonKernel:
    """The Triton function of a kernel.

    Raises:
        Unsupported: an operation that has no spelling in Triton, with the reason.
    """
    return _Printer(nest).run(name)


class _Printer:
    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.w = Writer()
        self.rows: tuple[Var, ...] = nest.rows
        if nest.by_columns:
            assert nest.vector is not None
            self.rows = (*nest.rows, nest.vector)
        self.points = index.product(v.size for v in nest.inner)

    def run(self, name: str) -> TritonKernel:
        folds = any(isinstance(step, Fold) for stage in self.nest.stages for step in stage.body)
        if not folds:
            return self.w.kernel(name, self._all_points(), _POINTS)
        programs = index.product(v.size for v in self.rows)
        self.w.write("row = tl.program_id(0).to(tl.int64)")
        self.w.unflatten("row", self.rows)
        self.w.varying = frozenset(self.nest.inner)
        if type(self.points) is int and (self.points <= LONGEST_ROW or self.nest.scratch):
            self._at_once()
            return self.w.kernel(name, programs, 1 << max(self.points - 1, 1).bit_length())
        for stage in self.nest.stages:
            self._in_blocks(stage)
        return self.w.kernel(name, programs, _IN_LOOP)

    # --- the shapes of kernels ------------------------------------------------------------------------------------

    def _all_points(self) -> Index:
        w = self.w
        loops = (*self.rows, *self.nest.inner)
        total = index.product(v.size for v in loops)
        w.write("point = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)")
        w.write(f"inside = point < {w.index(total)}")
        w.unflatten("point", loops)
        w.varying = frozenset(loops)
        for stage in self.nest.stages:
            for step in [*stage.before, *stage.body]:
                assert isinstance(step, Store)
                self._store(step)
        return index.floordiv(total + (_POINTS - 1), _POINTS)

    def _at_once(self) -> None:
        """All inner points side by side."""
        w = self.w
        w.write("x = tl.arange(0, BLOCK).to(tl.int64)")
        w.write(f"inside = x < {self.points}")
        w.unflatten("x", self.nest.inner)
        for stage in self.nest.stages:
            for store in stage.before:
                self._store(store)
            for step in stage.body:
                if isinstance(step, Store):
                    self._store(step)
                else:
                    self._fold(step)

    def _in_blocks(self, stage: Stage) -> None:
        """The inner points of one stage, block by block."""
        w = self.w
        for store in stage.before:
            self._store(store)
        if not stage.body:
            return
        folds = [_Running(step, w) for step in stage.body if isinstance(step, Fold)]
        rest = list(folds)
        w.open()
        w.write("x = start + tl.arange(0, BLOCK).to(tl.int64)")
        w.write(f"inside = x < {w.index(self.points)}")
        w.unflatten("x", self.nest.inner)
        for step in stage.body:
            if isinstance(step, Store):
                self._store(step)
            else:
                rest.pop(0).add(w)
        w.close(f"for start in range(0, {w.index(self.points)}, BLOCK):")
        for fold in folds:
            fold.finish(w)
        w.stored.clear()
        if any(isinstance(step, Store) for step in stage.body):
            w.write("tl.debug_barrier()")  # other lanes may read what was stored

    # --- statements -----------------------------------------------------------------------------------------------

    def _store(self, store: Store) -> None:
        w, buffer = self.w, store.buffer
        value = w.name(store.value)
        if buffer.kind != "row":
            w.store(buffer, store.position, value, store.value.dtype)
        # What is read back is what memory holds.
        kept = value
        if compute_type(buffer.dtype) is not buffer.dtype:
            kept = w.fresh()
            w.write(f"{kept} = {loaded(stored(value, store.value.dtype, buffer.dtype), buffer.dtype)}")
        if buffer.kind == "row":
            w.rows[buffer] = kept
        else:
            w.stored[buffer, store.position] = kept

    def _fold(self, fold: Fold) -> None:
        w = self.w
        result = w.fresh("r")
        if _finds_place(fold):
            w.write(f"_, {result} = {_block(fold, w)}")
        else:
            w.write(f"{result} = {_as_result(_block(fold, w), fold.statement.target)}")
        w.results[fold.statement.target] = result


def _finds_place(fold: Fold) -> bool:
    return str(fold.statement.reduction).startswith("arg")


def _as_result(text: str, target: Buffer) -> str:
    return f"({text}).to({TYPES[compute_type(target.dtype)]})"


def _block(fold: Fold, w: Writer) -> str:
    """The reduction of one block; of argmax and argmin the value, too."""
    kind, dtype = str(fold.statement.reduction), fold.value.dtype
    value = w.name(fold.value)
    if not w.varies(fold.value):
        value = f"tl.broadcast_to({value}, (BLOCK,))"
    if kind in ("any", "all"):
        return f"fn.{kind}_of({value}, inside)"
    if kind in ("sum", "prod"):
        return f"fn.{'total' if kind == 'sum' else 'times'}({value}, inside)"
    most = kind.endswith("max")
    if _finds_place(fold):
        return f"fn.best({value}, {w.name(fold.value.args[1])}, inside, {worst(dtype, most)}, {most})"
    return f"fn.extremum({value}, inside, {worst(dtype, most)}, {most})"


class _Running:
    """A reduction over block after block."""

    def __init__(self, fold: Fold, w: Writer) -> None:
        self.fold, self.name = fold, w.fresh("a")
        self.kind, dtype = str(fold.statement.reduction), compute_type(fold.value.dtype)
        self.most = self.kind.endswith("max")
        self.dtype = torch.float64 if self.kind == "sum" and dtype is torch.float32 else dtype
        start = {"sum": "0", "prod": "1", "any": "False", "all": "True"}.get(self.kind) or worst(dtype, self.most)
        w.write(f"{self.name} = tl.full((), {start}, {TYPES[self.dtype]})")
        if _finds_place(fold):
            w.write(f"{self.name}_at = tl.full((), 0x7FFFFFFFFFFFFFFF, tl.int64)")

    def add(self, w: Writer) -> None:
        a, block = self.name, _block(self.fold, w)
        if _finds_place(self.fold):
            w.write(f"{a}_next, {a}_there = {block}")
            w.write(f"{a}, {a}_at = fn.better({a}, {a}_at, {a}_next, {a}_there, {self.most})")
        elif self.kind in ("max", "min"):
            w.write(f"{a} = fn.joined({a}, {block}, {self.most})")
        elif self.kind in ("any", "all"):
            w.write(f"{a} = {a} {'|' if self.kind == 'any' else '&'} {block}")
        else:
            w.write(f"{a} = {a} {'+' if self.kind == 'sum' else '*'} {block}.to({TYPES[self.dtype]})")

    def finish(self, w: Writer) -> None:
        target = self.fold.statement.target
        result = w.results[target] = w.fresh("r")
        w.write(
            f"{result} = {self.name}_at" if _finds_place(self.fold) else f"{result} = {_as_result(self.name, target)}"
        )
