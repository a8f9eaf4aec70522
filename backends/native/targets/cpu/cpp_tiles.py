"""Prints kernels that walk two loops in squares: what lies across is turned in registers."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir import index
from ...ir.expressions import Buffer, operators_in
from ...ir.index import Index, Var
from ...schedule.stages import Fold, LoopNest, Store
from ...schedule.tiles import is_square
from .cpp import KernelPrinter
from .cpp_scopes import register_type

_LINE = 64
"""The bytes of a cache line."""


class Squares:
    """The squares of one walk over ``tile`` and the vector: read before a loop over ``tile``, and written after it."""

    def __init__(self, printer: KernelPrinter, tile: Var, steps: Iterable[Store | Fold]) -> None:
        self.printer, self.tile = printer, tile
        self.name = printer.writer.loop_names[tile]
        self.steps = list(steps)
        self.stores: list[str] = []

    def _lies_across(self, buffer: Buffer, position: Index) -> bool:
        vector = self.printer.writer.vector
        assert vector is not None
        return buffer.kind != "row" and is_square(position, vector, self.tile)

    def _where(self, buffer: Buffer, position: Index) -> str:
        """The address of a square, and the step between its rows."""
        w = self.printer.writer
        assert w.vector is not None
        step = index.coefficient(position, w.vector)
        assert step is not None
        w.loop_names[self.tile] = "t"
        text = f"{w.pointer(buffer)} + {w.index(position)}, {{}}{w.index(step)}, n, m"
        w.loop_names[self.tile] = self.name
        return text

    def open(self) -> None:
        """Read squares, and begin the loop over ``tile``."""
        w = self.printer.writer
        loads = {
            node.attr: node
            for step in self.steps
            for node in operators_in(step.value)
            if node.op == "load" and not node.args and self._lies_across(*node.attr)
        }
        for (buffer, position), node in loads.items():
            name = w.fresh("s")
            w.top.write(f"{register_type(node.dtype, True)} {name}[LANES];")
            w.top.write(f"load_square({name}, {self._where(buffer, position).format('')});")
            w.squares[buffer, position] = f"{name}[k]"
        w.push(self.tile)
        w.top.write(f"i64 {self.name} = t + k;")

    def store(self, store: Store) -> bool:
        """Put a value into a square that is written afterwards; False if it lies along the vector."""
        if not self._lies_across(store.buffer, store.position):
            return False
        w = self.printer.writer
        name = w.fresh("s")
        value = w.name(store.value, vector=True)
        w.scopes[-2].write(f"{register_type(store.value.dtype, True)} {name}[LANES];")
        w.top.write(f"{name}[k] = {value};")
        self.stores.append(f"store_square({self._where(store.buffer, store.position).format(f'{name}, ')});")
        return True

    def close(self) -> None:
        """End the loop, and write squares."""
        w = self.printer.writer
        w.pop("for (int k = 0; k < n.n; k++) {")
        for line in self.stores:
            w.top.write(line)
        w.squares.clear()


class TilesPrinter(KernelPrinter):
    """Prints a kernel without reductions whose last row loop and vector loop are walked in squares."""

    def __init__(self, nest: LoopNest) -> None:
        super().__init__(nest)
        assert nest.tile is not None and nest.vector is not None
        self.tile, self.vector = nest.tile, nest.vector
        self.squares = Squares(self, nest.tile, [step for stage in nest.stages for step in stage.body])

    def loops(self) -> None:
        w, nest = self.writer, self.nest
        block = self._block()
        rows = tuple(v for v in nest.rows if v is not self.tile)
        w.push(*rows)
        extent = w.index(self.tile.size)
        count = f"(({extent} + {block - 1}) / {block})"
        w.top.write(f"i64 from = {f'row % {count}' if rows else 'row'} * {block};")
        w.top.write(
            f"i64 to = from + {block} < {w.index(self.tile.size)} ? from + {block} : {w.index(self.tile.size)};"
        )
        if rows:
            self.row_indices(rows, f"(row / {count})")
        w.push(self.vector)
        self.squares.open()
        for stage in nest.stages:
            for step in self.in_turn(stage.body):
                assert isinstance(step, Store)
                self.store(step)
        self.squares.close()
        head = f"squares<{block}>(from, to, {w.index(self.vector.size)}, [&] (i64 t, auto n, i64"
        w.pop(f"{head} {w.loop_names[self.vector]}, auto m) {{", "});")
        w.pop("for (i64 row = lo; row < hi; row++) {")
        blocks = index.product(v.size for v in rows) * index.floordiv(self.tile.size + (block - 1), block)
        self.close_parallel(blocks, self.vector.size * block)

    def _block(self) -> int:
        """So many elements of either loop fill cache lines."""
        stores = [step for stage in self.nest.stages for step in stage.body if isinstance(step, Store)]
        widths = [b.dtype.itemsize for s in stores for b, _ in s.value.loads] + [
            s.buffer.dtype.itemsize for s in stores
        ]
        return max(16, _LINE // max(widths))

    def store(self, store: Store) -> None:
        if not self.squares.store(store):
            super().store(store)
