"""Prints kernels that reduce columns: neighbouring ones are reduced side by side, some vectors of them at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from ...ir import index
from ...ir.expressions import Node
from ...ir.index import Index, Var
from ...schedule.stages import COLUMNS, Fold, LoopNest, Stage, Store
from .cpp import Accumulator, KernelPrinter, lowest
from .cpp_scopes import NAMES, Writer, register_type
from .cpp_tiles import Squares

_BLOCK = 32
"""Sums of more float32 are taken in blocks, whose sums are added in float64: a thousand that are added one after the
other are off by nine times what eager's sums are, which are added in a tree."""


class ColumnsPrinter(KernelPrinter):
    """``columns`` calls its body for ``K`` vectors of columns, ``c0`` being the first; ``c`` is one of vector ``k``.

    What varies from column to column is an array of ``K`` vectors outside of the loops over ``k``.  With squares it
    is one vector at a time, and no such loop.
    """

    def __init__(self, nest: LoopNest) -> None:
        super().__init__(nest)
        assert nest.vector is not None
        self.vector = nest.vector
        self.writer.loop_names[nest.vector] = "c"
        self.squares: Squares | None = None
        if nest.scratch:
            self.writer.row_position = self._row_position

    def loops(self) -> None:
        w, nest = self.writer, self.nest
        most = "1" if nest.tile else f"({COLUMNS} / LANES)" if nest.scratch else "COLUMN_VECTORS"
        if any(f.is_index for stage in nest.stages for f in _accumulators(stage, w)):
            most = f"({most} + 1) / 2"
        w.push(*nest.rows)
        if nest.rows:
            self.counted_indices(nest.rows)
        w.push(*([self.vector] if nest.tile else []))
        w.top.write("constexpr int K = decltype(beside)::n;")
        for row in nest.scratch:
            w.top.write(f"alignas(64) {NAMES[row.dtype]} {row.name}[{row.sizes[0]} * K * LANES];")
        for stage in nest.stages:
            if stage.before:
                self._each_vector(functools.partial(self.before, stage))
            if stage.body:
                self._stage(stage)
        name = "c" if nest.tile else "c0"
        extent, points = w.index(self.vector.size), index.product(v.size for v in nest.inner)
        bounds = f"0, {extent}" if nest.rows else "lo, hi"
        w.pop(f"columns<{most}>({bounds}, [&] (i64 {name}, auto m, auto beside) {{", "});")
        if nest.rows:
            w.pop(self.counting_loop(nest.rows))
            self.close_parallel(index.product(v.size for v in nest.rows), points * self.vector.size)
            return
        # Pieces are whole vectors side by side, so that no thread has more than one remainder.
        inside = w.scopes.pop().lines
        group = f"({most} * LANES)"
        w.top.write(
            f"parallel(({extent} + {group} - 1) / {group}, {self.grain(points * 32)}, [&] (i64 from, i64 to) {{"
        )
        w.top.write(f"  i64 lo = from * {group}, hi = to * {group} < {extent} ? to * {group} : {extent};")
        w.top.lines += inside
        w.top.write("});")

    def _each_vector(self, body: Callable[[], None]) -> None:
        """What ``body`` writes, for each vector of columns."""
        if self.nest.tile:
            body()
            return
        self._open_vector()
        body()
        self._close_vector()

    def _open_vector(self) -> None:
        w = self.writer
        w.push(self.vector)
        w.move_results(len(w.scopes) - 1)
        w.top.write("i64 c = c0 + k * LANES;")

    def _close_vector(self) -> None:
        w = self.writer
        w.scopes[-2].write("#pragma GCC unroll 8")
        w.pop("for (int k = 0; k < K; k++) {")

    def _stage(self, stage: Stage) -> None:
        """All inner loops of a stage; sums are declared before and completed after them."""
        w, nest = self.writer, self.nest
        accumulators = _accumulators(stage, w)
        if not nest.tile:
            self._hoist(stage)
        loops, block = self._loops(any(a.sums for a in accumulators))
        for accumulator in accumulators:
            accumulator.declare(w, in_blocks=block > 0)
        for n, (variables, _, _) in enumerate(loops):
            if n == block > 0:
                for accumulator in accumulators:
                    accumulator.open_block(w)
            w.push(*variables)
        if nest.tile:
            self.squares = Squares(self, nest.tile, stage.body)
            self.squares.open()
            self._steps(stage, accumulators, "0")
            self.squares.close()
            self.squares = None
        else:
            self._open_vector()
            self._steps(stage, accumulators, "k")
            self._close_vector()
        for n, (_, opening, closing) in reversed(list(enumerate(loops))):
            w.pop(opening, closing)
            if n == block > 0:
                for accumulator in accumulators:
                    accumulator.close_block(w)
        depth = len(w.scopes) - 1
        for accumulator in accumulators:
            name = accumulator.result("0" if nest.tile else "k")
            w.results[accumulator.fold.statement.target] = (name, depth, True)

    def _loops(self, sums: bool) -> tuple[list[tuple[tuple[Var, ...], str, str]], int]:
        """The inner loops: their variables, how they begin and end; and the one around which sums begin anew, or 0."""
        w, inner = self.writer, self.nest.inner

        def loop(variable: Var, start: str, end: str) -> tuple[tuple[Var, ...], str, str]:
            name = w.loop_names[variable]
            if variable is self.nest.tile:
                return (), f"sweep({start}, {end}, [&] (i64 t, auto n) {{", "});"
            return (variable,), f"for (i64 {name} = {start}; {name} < {end}; {name}++) {{", "}"

        extents = [w.index(v.size) for v in inner]
        loops = [loop(v, "0", extent) for v, extent in zip(inner, extents, strict=True)]
        inside = 1
        for n, (variable, extent) in reversed(list(enumerate(zip(inner, extents, strict=True)))):
            points: Index = inside * variable.size
            if not sums or (type(points) is int and points <= _BLOCK):
                inside = points if type(points) is int else inside
                continue
            step = _BLOCK // inside
            end = f"(block + {step} < {extent} ? block + {step} : {extent})"
            around = ((), f"for (i64 block = 0; block < {extent}; block += {step}) {{", "}")
            return [*loops[:n], around, loop(variable, "block", end), *loops[n + 1 :]], n + 1
        return loops, 0

    def _steps(self, stage: Stage, accumulators: Sequence[ColumnAccumulator], at: str) -> None:
        rest = list(accumulators)
        for step in self.in_turn(stage.body):
            if isinstance(step, Store):
                self.store(step)
            else:
                rest.pop(0).add_at(self.writer, step.value, at)

    def store(self, store: Store) -> None:
        if self.squares is None or not self.squares.store(store):
            super().store(store)

    # --- what does not change in the inner loops ------------------------------------------------------------------

    def _hoist(self, stage: Stage) -> None:
        """Compute what differs from column to column only, before the loops."""
        w = self.writer
        inner = frozenset(self.nest.inner)
        found: dict[Node, None] = {}

        def visit(node: Node, seen: set[Node]) -> None:
            if node in seen or any(node in s.names for s in w.scopes):
                return
            seen.add(node)
            if node.op in ("const", "result"):
                return
            if not node.free & inner and not any(b.kind == "row" for b, _ in node.loads):
                if w.is_vector(node):
                    found[node] = None
                return
            for argument in node.args:
                visit(argument, seen)

        seen: set[Node] = set()
        for step in stage.body:
            visit(step.value, seen)
        if not found:
            return
        names = {node: w.fresh("h") for node in found}
        for node, name in names.items():
            w.top.write(f"{register_type(node.dtype, True)} {name}[K];")
        self._open_vector()
        for node, name in names.items():
            w.top.write(f"{name}[k] = {w.name(node, vector=True)};")
        self._close_vector()
        for node, name in names.items():
            w.top.names[node] = f"{name}[k]"

    def _row_position(self, position: Index) -> str:
        """Where a row of scratch memory has an element: rows of the columns at hand lie between each other."""
        w = self.writer
        row = index.floordiv(index.substitute(position, {self.vector: 0}), self.vector.size)
        lane = "0" if self.nest.tile else "k"
        return f"({w.index(row)} * K + {lane}) * LANES"


def _accumulators(stage: Stage, w: Writer) -> list[ColumnAccumulator]:
    return [ColumnAccumulator(step, w.fresh("a")) for step in stage.body if isinstance(step, Fold)]


class ColumnAccumulator(Accumulator):
    """What a reduction along columns keeps: vectors, each lane of which is a result."""

    @property
    def sums(self) -> bool:
        """Whether rounding errors of many additions would add up."""
        return self.kind == "sum" and self.dtype is torch.float32

    @property
    def is_short(self) -> bool:
        """Whether a place is the same for all columns, and fits into 32 bits."""
        place = self.fold.value.args[1]
        return place.op in ("index", "const") and index.less(place.attr, 2**31)

    def _array(self, name: str) -> str:
        if self.in_blocks and name != self.name:
            return f"f64v {name}[K]; for (auto& v : {name}) v = f64v{{}};"
        if self.is_index:
            kind = f"BestRow<{self.type}>" if self.is_short else f"Best<{self.type}>"
            worst = f"splat({lowest(self.dtype, self.kind == 'argmax')})"
            return f"{kind} {name}[K]; for (auto& v : {name}) v = {kind}{{{worst}, {{}}}};"
        return f"{self.type} {name}[K]; for (auto& v : {name}) v = {self.identity()};"

    def declare(self, w: Writer, in_blocks: bool) -> None:
        self.in_blocks = in_blocks and self.sums
        w.top.write(self._array(f"{self.name}_all" if self.in_blocks else self.name))

    def open_block(self, w: Writer) -> None:
        if self.in_blocks:
            w.top.write(self._array(self.name))

    def close_block(self, w: Writer) -> None:
        if self.in_blocks:
            added = f"{self.name}_all[k] + convert<f64v>({self.name}[k])"
            w.top.write(f"for (int k = 0; k < K; k++) {self.name}_all[k] = {added};")

    def add_at(self, w: Writer, value: Node, at: str) -> None:
        text, into = w.name(value, vector=True), f"{self.name}[{at}]"
        if self.is_index:
            place = f"(i32){w.name(value.args[1])}" if self.is_short else w.name(value.args[1], vector=True)
            w.top.write(f"better<{'true' if self.kind == 'argmax' else 'false'}>({into}, {text}, {place}, All());")
        else:
            w.top.write(f"{into} = {self.combine(into, text)};")

    def result(self, at: str) -> str:
        if self.in_blocks:
            return f"convert<f32v>({self.name}_all[{at}])"
        if not self.is_index:
            return f"{self.name}[{at}]"
        return f"convert<i64v>({self.name}[{at}].at)" if self.is_short else f"{self.name}[{at}].at"
