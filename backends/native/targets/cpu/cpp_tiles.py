"""Prints kernels that walk two loops in squares: what lies across is turned in registers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ...ir import index
from ...ir.expressions import Buffer, operators_in
from ...ir.index import Index, Var
from ...schedule.stages import Fold, LoopNest, Store
from ...schedule.tiles import goes_back, is_few, is_square
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
        self.few = is_few(tile)
        self.kind = f"few<{tile.size}>" if self.few else "square"
        self.rows = str(tile.size) if self.few else "LANES"

    def _lies_across(self, buffer: Buffer, position: Index, *, stores: bool = False) -> bool:
        vector = self.printer.writer.vector
        assert vector is not None
        return buffer.kind != "row" and is_square(position, vector, self.tile, stores=stores)

    def _where(self, buffer: Buffer, position: Index) -> str:
        """The address of a square, and the step between its rows."""
        w = self.printer.writer
        assert w.vector is not None
        step = index.coefficient(position, w.vector)
        assert step is not None
        w.loop_names[self.tile] = "t"
        more = "m" if self.few else f"{w.index(step)}, n, m"
        text = f"{w.pointer(buffer)} + {w.index(position)}, {{}}{more}"
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
            name = w.fresh("square")
            w.top.write(f"{register_type(node.dtype, True)} {name}[{self.rows}];")
            assert w.vector is not None
            kind = self.kind.replace("few", "few_back") if goes_back(position, w.vector, self.tile) else self.kind
            w.top.write(f"load_{kind}({name}, {self._where(buffer, position).format('')});")
            w.squares[buffer, position] = f"{name}[k]"
        w.push(self.tile)
        w.top.write(f"i64 {self.name} = t + k;")

    def store(self, store: Store) -> bool:
        """Put a value into a square that is written afterwards; False if it lies along the vector."""
        if not self._lies_across(store.buffer, store.position, stores=True):
            return False
        w = self.printer.writer
        name = w.fresh("square")
        value = w.name(store.value, vector=True)
        w.scopes[-2].write(f"{register_type(store.value.dtype, True)} {name}[{self.rows}];")
        w.top.write(f"{name}[k] = {value};")
        self.stores.append(f"store_{self.kind}({self._where(store.buffer, store.position).format(f'{name}, ')});")
        return True

    def close(self) -> None:
        """End the loop, and write squares."""
        w = self.printer.writer
        if self.few:
            w.scopes[-2].write("#pragma GCC unroll 4")
        w.pop(f"for (int k = 0; k < {self.tile.size if self.few else 'n.n'}; k++) {{")
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
        w = self.writer
        rows = tuple(v for v in self.nest.rows if v is not self.tile)
        w.push(*rows)
        if self.squares.few:
            self._few(rows)
        else:
            self._in_blocks(rows)
            if type(self.vector.size) is not int:
                self._one_by_one_if_narrow(rows)

    def _one_by_one_if_narrow(self, rows: tuple[Var, ...]) -> None:
        """Ahead of the squares: vectors along the tile where the other loop, of any size, turns out to fill no half of
        one, as three channels of an image do not."""
        nest = dataclasses.replace(
            self.nest, rows=(*rows, self.vector), inner=(self.tile,), vector=self.tile, tile=None
        )
        along = KernelPrinter(nest)
        along.buffers = self.buffers
        along.loops()
        condition = f"if (2 * {self.writer.index(self.vector.size)} <= LANES) {{"
        inside = [f"  {line}" for line in along.writer.scopes[0].lines]
        self.writer.top.lines[:0] = [f"  {condition}", *inside, "    return;", "  }"]

    def _inside(self, opening: str) -> None:
        """The loop over the vector, and what is in it."""
        w = self.writer
        w.push(self.vector)
        if self.squares.few:
            w.top.write("constexpr i64 t = 0;")
        self.squares.open()
        for stage in self.nest.stages:
            for step in self.in_turn(stage.body):
                assert isinstance(step, Store)
                self.store(step)
        self.squares.close()
        w.pop(opening, "});")

    def _in_blocks(self, rows: tuple[Var, ...]) -> None:
        w, block = self.writer, self._block()
        extent = w.index(self.tile.size)
        count = f"(({extent} + {block - 1}) / {block})"
        w.top.write(f"i64 from = {f'row % {count}' if rows else 'row'} * {block};")
        w.top.write(f"i64 to = from + {block} < {extent} ? from + {block} : {extent};")
        if rows:
            self.row_indices(rows, f"(row / {count})")
        head = f"squares<{block}>(from, to, {w.index(self.vector.size)}, [&] (i64 t, auto n, i64"
        self._inside(f"{head} {w.loop_names[self.vector]}, auto m) {{")
        w.pop("for (i64 row = lo; row < hi; row++) {")
        blocks = index.product(v.size for v in rows) * index.floordiv(self.tile.size + (block - 1), block)
        self.close_parallel(blocks, self.vector.size * block)

    def _few(self, rows: tuple[Var, ...]) -> None:
        """The points of the tile are computed one by one, each in a vector."""
        w, name, extent = self.writer, self.writer.loop_names[self.vector], self.writer.index(self.vector.size)
        if rows:
            self.counted_indices(rows)
            self._inside(f"sweep(0, {extent}, [&] (i64 {name}, auto m) INLINE_LAMBDA {{")
            w.pop(self.counting_loop(rows))
            self.close_parallel(index.product(v.size for v in rows), self.vector.size * self.tile.size)
            return
        self._inside(f"sweep(lo, hi, [&] (i64 {name}, auto m) INLINE_LAMBDA {{")
        w.pop(f"parallel({extent}, {self.grain(self.tile.size)}, [&] (i64 lo, i64 hi) {{", "});")

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
