"""Printing kernels as Triton: the second printer of the loop IR.

A kernel without reductions is printed over its points: on a line, or in tiles where some accesses lie along one loop
and others along another one.  One that reduces gets an axis of rows and an axis of what is reduced over.  Where a row
fits into registers, it stays there through all stages, so that memory is read once.  Where it does not, each stage
is a loop over blocks of it; :mod:`.onepass` does with one loop what would take two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...ir import index
from ...ir.expressions import Buffer, Node, compute_type, operators_in
from ...ir.index import Index, Var
from ...schedule import rounding, tiles
from ...schedule.stages import Fold, LoopNest, Stage, Store
from . import onepass, shapes
from .axes import Axis
from .folds import Running, folded
from .scopes import TritonKernel, Writer, loaded, stored
from .shapes import Shape


def print_kernel(nest: LoopNest, name: str = "kernel") -> TritonKernel:
    """The Triton function of a kernel.

    Raises:
        Unsupported: an operation that has no spelling in Triton, with the reason.
    """
    return _Printer(nest, name).run()


class _Printer:
    w: Writer

    def __init__(self, nest: LoopNest, name: str) -> None:
        self.nest, self.name = nest, name
        self.itemsize = min((b.dtype.itemsize for b in _touched(nest)), default=4)

    def run(self) -> TritonKernel:
        if any(isinstance(step, Fold) for stage in self.nest.stages for step in stage.body):
            return self._reduction()
        if self.nest.tile is not None and not tiles.is_few(self.nest.tile):
            return self._in_tiles(self.nest.tile)
        return self._along_a_line()

    def _writer(self, *axes: Axis) -> Writer:
        found = Writer(*axes)
        found.allow_rough(self.nest.steps)
        return found

    # --- kernels that do not reduce -------------------------------------------------------------------------------

    def _along_a_line(self) -> TritonKernel:
        loops = (*self.nest.rows, *self.nest.inner)
        found = shapes.along_a_line(index.product(v.size for v in loops), self.itemsize, _cost(self.nest))
        axis = axis_of("x", loops, found)
        self.w = self._writer(axis)
        self.w.start_programs([axis])
        self._points()
        return self.w.kernel(self.name, found)

    def _in_tiles(self, tile: Var) -> TritonKernel:
        rest = tuple(v for v in self.nest.rows if v is not tile)
        batch = Axis("z", rest, None, False)
        found = shapes.in_tiles(batch.total, tile.size, self.nest.inner[0].size, self.itemsize)
        y, x = axis_of("y", (tile,), found), axis_of("x", self.nest.inner, found)
        self.w = self._writer(y, x)
        self.w.start_programs([batch, y, x] if rest else [y, x])
        self._points()
        return self.w.kernel(self.name, found)

    def _points(self) -> None:
        for stage in self.nest.stages:
            self._run([*stage.before, *stage.body], {})

    # --- kernels that do ------------------------------------------------------------------------------------------

    def _reduction(self) -> TritonKernel:
        nest = self.nest
        rows = nest.rows
        if nest.by_columns:
            assert nest.vector is not None
            rows = (*rows, nest.vector)
        points = index.product(v.size for v in nest.inner)
        total = index.product(v.size for v in rows)
        passes = sum(bool(s.body) for s in nest.stages)
        held: tuple[Shape, ...] | None = None
        exponentials = onepass.adds_exponentials(nest.stages)
        is_exact = not rounding.hides_units(nest.steps)
        read = _only_read(nest)
        if read is not None and not nest.by_columns and type(points) is int:
            if shapes.reads_ahead(total, points, self.itemsize):
                return self._ahead(rows, points, read)
        few = shapes.is_held(points, full_reads(nest), self.itemsize, exponentials and is_exact)
        if type(points) is int and (few or nest.scratch):
            if nest.by_columns:
                held = shapes.held_columns(total, max(points, 1), self.itemsize, passes)
            if not nest.by_columns or (held is None and nest.scratch):
                held = shapes.held_rows(total, max(points, 1), self.itemsize)
        if held is not None:
            found = held
        elif nest.by_columns:
            found = shapes.walked_columns(total, points, _cost(nest), self.itemsize)
        else:
            found = shapes.walked_rows(total, points, self.itemsize, passes, exponentials)
        r = axis_of("r", nest.inner, found)
        x = axis_of("x", rows, found)
        if dict(found[0].blocks)["XBLOCK"] == 1:
            x.block, x.masked = None, False
            found = tuple(Shape(s.blocks[1:], s.warps, s.stages, s.programs) for s in found)
        self.w = self._writer(x, r)
        if rows:
            self.w.start_programs([x])
        if held is not None:
            self._at_once(r)
        else:
            stages = list(nest.stages)
            while stages:
                stages = stages[self._in_blocks(stages, r) :]
        return self.w.kernel(self.name, found)

    def _at_once(self, r: Axis) -> None:
        """All inner points side by side."""
        self.w.start(r, "")
        self._stages_at_once(r)

    def _stages_at_once(self, r: Axis) -> None:
        def fold(step: Fold) -> None:
            self.w.results[step.statement.target] = folded(step, self.w, r)

        for stage in self.nest.stages:
            self._run(stage.before, {})
            self._run(stage.body, {at: partial(fold, s) for at, s in enumerate(stage.body) if isinstance(s, Fold)})

    def _ahead(self, rows: tuple[Var, ...], points: int, read: tuple[Buffer, Index]) -> TritonKernel:
        """Row after row, the next one of which is read before one is computed."""
        found = shapes.ahead(points)
        r, x = axis_of("r", self.nest.inner, found), Axis("x", rows, None, False)
        w = self.w = self._writer(x, r)
        buffer, position = read

        def raw(row: str) -> str:
            w.start(x, row)
            return w.read(buffer, position, w.axes_of(index.free(position)))

        w.start(r, "")
        w.write(f"ahead = {raw('tl.program_id(0)')}")
        w.open(all_inside=True)
        w.write(f"here = {loaded('ahead', buffer.dtype)}")
        w.write(f"ahead = {raw(f'tl.minimum(row + tl.num_programs(0), {w.index(x.total)} - 1)')}")
        w.start(x, "row")
        w.stored[buffer, position] = "here"
        self._stages_at_once(r)
        w.close(f"for row in range(tl.program_id(0), {w.index(x.total)}, tl.num_programs(0)):")
        return w.kernel(self.name, found)

    def _in_blocks(self, stages: Sequence[Stage], r: Axis) -> int:
        """The inner points of the first stage, block by block, or of the first two; says of how many."""
        self._run(stages[0].before, {})
        if not stages[0].body:
            return 1
        both = onepass.found(stages, self.w, r)
        running: dict[int, Running | onepass.Both] = {
            at: both if both is not None and step is both.first else Running(step, self.w, r)
            for at, step in enumerate(stages[0].body)
            if isinstance(step, Fold)
        }

        self._loop(r, lambda: self._run(stages[0].body, {at: each.add for at, each in running.items()}))
        for fold in running.values():
            fold.finish()
        if both is not None:
            self._run(stages[1].before, {})
        self.w.stored.clear()
        if any(isinstance(step, Store) for step in stages[0].body) and len(stages) > 1:
            self.w.write("tl.debug_barrier()")  # other lanes may read what was stored
        return 1 if both is None else 2

    def _loop(self, r: Axis, body: Callable[[], None]) -> None:
        w, first = self.w, self.w.fresh("start")
        w.open()
        w.walked = r
        w.start(r, first)
        body()
        w.walked = None
        w.close(f"for {first} in range(0, {w.index(r.total)}, {r.block}):")

    # --- statements -----------------------------------------------------------------------------------------------

    def _run(self, steps: Sequence[Store | Fold], folds: Mapping[int, Callable[[], None]]) -> None:
        """What happens at the points of a block: everything is read before anything is written.

        ``folds`` are functions for the reductions among the steps, by their positions.
        """
        for at, step in enumerate(steps):
            if isinstance(step, Store):
                self.w.name(step.value)
                self.w.index(step.position)
            else:
                folds[at]()
        for step in steps:
            if isinstance(step, Store):
                self._store(step)

    def _store(self, store: Store) -> None:
        w, buffer = self.w, store.buffer
        value = w.name(store.value)
        if buffer.kind != "row":
            w.store(buffer, store.position, value, store.value.dtype, store.value.free)
        # What is read back is what memory holds.
        kept = value
        if compute_type(buffer.dtype) is not buffer.dtype:
            if not self._is_read_back(buffer):
                return
            kept = w.fresh()
            w.write(f"{kept} = {loaded(stored(value, store.value.dtype, buffer.dtype), buffer.dtype)}")
        if buffer.kind == "row":
            w.rows[buffer] = kept
        else:
            w.stored[buffer, store.position] = kept

    def _is_read_back(self, buffer: Buffer) -> bool:
        return any(
            read is buffer
            for stage in self.nest.stages
            for step in [*stage.before, *stage.body]
            for read, _ in step.value.loads
        )


def axis_of(name: str, loops: tuple[Var, ...], found: tuple[Shape, ...]) -> Axis:
    """An axis whose blocks have any of these shapes."""
    block = f"{name.upper()}BLOCK"
    largest = max(dict(s.blocks)[block] for s in found)
    total = index.product(v.size for v in loops)
    return Axis(name, loops, block, type(total) is not int or total == 0 or total % largest != 0)


def full_reads(nest: LoopNest) -> int:
    """How many values are read for each inner point."""
    return len({node.attr for node in _read_inside(nest) if not _is_shared(node.free, nest)})


def _read_inside(nest: LoopNest) -> list[Node]:
    """What is read at inner points, if only by the first row."""
    found = [node for stage in nest.stages for step in stage.body for node in operators_in(step.value)]
    return [node for node in found if node.op == "load" and not node.free.isdisjoint(nest.inner)]


def _only_read(nest: LoopNest) -> tuple[Buffer, Index] | None:
    """What is read of each inner point, if that is one value of its own, and under no condition."""
    nodes = _read_inside(nest)
    found = {node.attr for node in nodes}
    is_plain = not any(node.args or _is_shared(node.free, nest) for node in nodes)
    return found.pop() if len(found) == 1 and is_plain and not nest.scratch else None


def _cost(nest: LoopNest) -> int:
    """About how many instructions what costs most takes for an element."""
    return max((step.value.cost for stage in nest.stages for step in stage.body), default=0)


def _is_shared(variables: frozenset[Var], nest: LoopNest) -> bool:
    """Whether all rows read the same."""
    return bool(nest.rows) and variables.isdisjoint(nest.rows) and not nest.by_columns


def _touched(nest: LoopNest) -> set[Buffer]:
    return {
        b
        for stage in nest.stages
        for step in [*stage.before, *stage.body]
        for b in [*(b for b, _ in step.value.loads), *([step.buffer] if isinstance(step, Store) else [])]
    }
