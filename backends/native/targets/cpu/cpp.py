"""Prints kernels as C++ functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node, compute_type, operators_in
from ...ir.index import Index, Var
from ...schedule.kernel import MOST_BESIDE
from ...schedule.stages import Fold, LoopNest, Stage, Store, read_by, stored_by
from .cpp_scopes import NAMES, Writer, literal, register_type, with_own_numbers

PARALLEL_WORK = 40_000
"""A kernel is worth a second thread if it computes more simple operations than this."""

_EVEN = 16
"""Rows of a multiple of so many elements are whole vectors."""

_LONG_ROW = 16384
"""Longer sums of float32 are taken in blocks, whose sums are added in float64."""


@dataclass(frozen=True)
class Function:
    """A printed kernel: ``body`` is everything after the name; its arguments are buffers, then ``more``."""

    body: str
    buffers: tuple[Buffer, ...]
    more: tuple[str, ...]


class KernelPrinter:
    """Prints a kernel that is walked row by row; what derives from it has loops of another shape."""

    def __init__(self, nest: LoopNest, *, over_itself: bool = False) -> None:
        self.nest = nest
        # Whether points may be computed twice: not where a result replaces what it is made of.
        self.repeats = not over_itself and not (read_by(nest) & stored_by(nest))
        self.buffers: dict[Buffer, str] = {}
        self.writer = Writer(self._pointer, nest.vector)
        self.writer.reads = _always_read(nest)
        self.rowless = not nest.rows
        self.pending: dict[Store, dict[Store, str]] = {}  # by the first of a group that is stored side by side
        for n, variable in enumerate([*nest.rows, *nest.inner]):
            self.writer.loop_names[variable] = f"i{n}"

    def _pointer(self, buffer: Buffer) -> str:
        if buffer.kind == "row":
            return buffer.name
        return self.buffers.setdefault(buffer, f"p{len(self.buffers)}")

    def run(self) -> Function:
        self.loops()
        lines = self.writer.scopes[0].lines
        sizes = sorted(
            {str(a) for v in [*self.nest.rows, *self.nest.inner] for a in sizes_of(v.size)} | self._free_sizes()
        )
        arguments = [f"{NAMES[b.dtype]}* {name}" for b, name in self.buffers.items()] + [f"i64 {s}" for s in sizes]
        verifies = any("check(" in line for line in lines)
        if verifies:
            arguments.append("i64* bad")
        body = f"({', '.join(arguments)}) {{\n" + "\n".join(with_own_numbers(lines, arguments)) + "\n}\n"
        return Function(body, tuple(self.buffers), (*sizes, *(["bad"] if verifies else [])))

    def _free_sizes(self) -> set[str]:
        found: set[str] = set()
        for stage in self.nest.stages:
            for step in [*stage.before, *stage.body]:
                found |= sizes_in(step.value)
                if isinstance(step, Store):
                    found |= {str(a) for a in sizes_of(step.position)}
        if self.nest.vector is not None:
            found |= {str(a) for a in sizes_of(self.nest.vector.size)}
        return found

    # --- the shapes of loops --------------------------------------------------------------------------------------

    def loops(self) -> None:
        """Write the loops with all that is in them."""
        if self.nest.vector is None:
            self._point()
        else:
            self._by_rows()

    def _point(self) -> None:
        """No loop at all: one element."""
        for stage in self.nest.stages:
            self.before(stage)
            self._body(stage, ())

    def _by_rows(self) -> None:
        """Rows on all threads, each walked in vectors once for every stage."""
        w, nest = self.writer, self.nest
        if self.rowless:
            self._one_row()
            return
        rows = index.product(v.size for v in nest.rows)
        w.push(*nest.rows)
        for row in nest.scratch:
            w.top.write(f"alignas(64) {NAMES[row.dtype]} {row.name}[{row.sizes[0]}];")
        self.counted_indices(nest.rows)
        for stage in nest.stages:
            self.before(stage)
            self._stage_in_row(stage)
        w.pop(self.counting_loop(nest.rows))
        self.close_parallel(rows, index.product(v.size for v in nest.inner))

    def row_indices(self, rows: tuple[Var, ...], position: str = "row") -> None:
        """The loop variables from the number of the row."""
        w = self.writer
        for variable in reversed(rows[1:]):
            extent = w.divisor(variable.size)
            w.top.write(f"i64 {w.loop_names[variable]} = {position} % {extent};")
            position = f"({position} / {extent})"
        w.top.write(f"i64 {w.loop_names[rows[0]]} = {position};")

    def counted_indices(self, rows: tuple[Var, ...]) -> None:
        """The loop variables in a :meth:`counting_loop`."""
        if len(rows) < 2:
            self.row_indices(rows)
            return
        for variable in rows:
            name = self.writer.loop_names[variable]
            self.writer.top.write(f"i64 {name} = n{name};")

    def counting_loop(self, rows: tuple[Var, ...]) -> str:
        """The loop over rows, which counts its variables on: divisions would take longer than a short row."""
        if len(rows) < 2:
            return "for (i64 row = lo; row < hi; row++) {"
        w = self.writer
        starts, steps, position = [], [], "lo"
        for variable in reversed(rows[1:]):
            name, extent = f"n{w.loop_names[variable]}", w.divisor(variable.size)
            starts.append(f"{name} = {position} % {extent}")
            steps.append(f"++{name} == {extent} && ({name} = 0, ")
            position = f"({position} / {extent})"
        outermost = f"n{w.loop_names[rows[0]]}"
        step = "".join(steps) + f"++{outermost}" + ")" * len(steps)
        return f"for (i64 row = lo, {', '.join(starts)}, {outermost} = {position}; row < hi; row++, {step}) {{"

    def close_parallel(self, count: Index, points: Index) -> None:
        """Wrap what the outermost scope holds from the last loop on into a loop over threads."""
        w = self.writer
        loop = w.top.lines
        start = next(i for i in reversed(range(len(loop))) if loop[i].lstrip().startswith(("for (i64 row", "sweep(lo")))
        inside = ["  " + line for line in loop[start:]]
        del loop[start:]
        w.top.write(f"parallel({w.index(count)}, {self.grain(points)}, [&] (i64 lo, i64 hi) {{")
        loop += inside
        w.top.write("});")

    def grain(self, points: Index) -> str:
        """How many rows are worth a thread."""
        if type(points) is int:
            return str(max(1, PARALLEL_WORK // max(1, points * self.nest.cost)))
        return f"1 + {PARALLEL_WORK // self.nest.cost}l / (1 + {self.writer.index(points)})"

    def _one_row(self) -> None:
        """A single row: its elements are shared among threads, stage by stage."""
        nest = self.nest
        for stage in nest.stages:
            self.before(stage)
            if not stage.body:
                continue
            if len(nest.inner) == 1:
                self._shared_stage(stage)
            else:
                self._stage_in_row(stage)

    def before(self, stage: Stage) -> None:
        for store in self.in_turn(stage.before):
            assert isinstance(store, Store)
            self.store(store)

    def _stage_in_row(self, stage: Stage) -> None:
        """All inner loops of a stage; sums are declared before and completed after them."""
        if not stage.body:
            return
        w, nest = self.writer, self.nest
        assert nest.vector is not None
        folds = [step for step in stage.body if isinstance(step, Fold)]
        extent = nest.vector.size
        in_blocks = len(nest.inner) == 1 and _is_long(extent) and any(_is_float_sum(f) for f in folds)
        accumulators = [self._declare(f, in_blocks) for f in folds]
        depth = len(w.scopes) - 1
        for variable in nest.inner[:-1]:
            w.push(variable)
        if in_blocks:
            w.push()
            for accumulator in accumulators:
                accumulator.open_block(w)
        w.push(nest.vector)
        self._body(stage, accumulators)
        name = w.loop_names[nest.vector]
        start, end = (
            ("block", f"(block + 8192 < {w.index(extent)} ? block + 8192 : {w.index(extent)})")
            if in_blocks
            else ("0", w.index(extent))
        )
        if folds:
            w.pop(f"fold_sweep({start}, {end}, [&] (i64 {name}, auto m, int u) {{", "});")
        else:
            ragged = type(extent) is int and extent % _EVEN
            sweep = "sweep_over" if self.repeats and ragged else "sweep"
            w.pop(f"{sweep}({start}, {end}, [&] (i64 {name}, auto m) INLINE_LAMBDA {{", "});")
        if in_blocks:
            for accumulator in accumulators:
                accumulator.close_block(w)
            w.pop(f"for (i64 block = 0; block < {w.index(extent)}; block += 8192) {{")
        for variable in reversed(nest.inner[:-1]):
            name = w.loop_names[variable]
            w.pop(f"for (i64 {name} = 0; {name} < {w.index(variable.size)}; {name}++) {{")
        for accumulator in accumulators:
            w.results[accumulator.fold.statement.target] = (accumulator.finish(w), depth, False)

    def _shared_stage(self, stage: Stage) -> None:
        """One long loop on all threads; each reduces its piece, and the pieces are reduced in the end."""
        w, nest = self.writer, self.nest
        assert nest.vector is not None
        folds = [step for step in stage.body if isinstance(step, Fold)]
        name, extent = w.loop_names[nest.vector], w.index(nest.vector.size)
        accumulators = [self._declare_none(f) for f in folds]
        for accumulator in accumulators:
            accumulator.declare_parts(w)
        w.push()
        for accumulator in accumulators:
            accumulator.open_part(w)
        if folds:
            w.push()
            for accumulator in accumulators:
                accumulator.open_block(w)
        w.push(nest.vector)
        self._body(stage, accumulators)
        if folds:
            w.pop(f"fold_sweep(block, block + 8192 < hi ? block + 8192 : hi, [&] (i64 {name}, auto m, int u) {{", "});")
            for accumulator in accumulators:
                accumulator.close_block(w)
            w.pop("for (i64 block = lo; block < hi; block += 8192) {")
        else:
            w.pop(f"sweep(lo, hi, [&] (i64 {name}, auto m) INLINE_LAMBDA {{", "});")
        for accumulator in accumulators:
            accumulator.close_part(w)
        grain = max(1024, PARALLEL_WORK // nest.cost)
        w.pop(f"parallel({extent}, {grain}, [&] (i64 lo, i64 hi) {{", "});")
        for accumulator in accumulators:
            w.results[accumulator.fold.statement.target] = (accumulator.finish_parts(w), 0, False)

    # --- what is inside -------------------------------------------------------------------------------------------

    def _body(self, stage: Stage, accumulators: Sequence[Accumulator]) -> None:
        rest = list(accumulators)
        steps = list(self.in_turn(stage.body))
        beside = self._beside(steps) if self._in_vector() else {}
        for step in steps:
            if step in beside:
                self._store_beside(beside[step], step)
            elif isinstance(step, Store):
                self.store(step)
            else:
                rest.pop(0).add(self.writer, step.value)

    def _beside(self, steps: Sequence[Store | Fold]) -> dict[Store | Fold, list[Store]]:
        """Stores whose elements lie side by side and are as far apart as there are stores: those of each such group.

        All parts of a complex number are stored together, or the rows of a stack along the last dimension.
        """
        w = self.writer
        groups: dict[tuple[Buffer, int], list[Store]] = {}
        for step in steps:
            if isinstance(step, Store) and not w._is_vector_index(step.position):
                assert w.vector is not None
                apart = index.coefficient(step.position, w.vector)
                if type(apart) is int and 2 <= apart <= MOST_BESIDE:
                    groups.setdefault((step.buffer, apart), []).append(step)
        found: dict[Store | Fold, list[Store]] = {}
        for (_, apart), stores in groups.items():
            ends = [s for s in stores if all(_has_at(stores, s, -n) for n in range(1, apart))]
            for last in ends if len(ends) * apart == len(stores) else ():
                group = [_has_at(stores, last, n + 1 - apart) for n in range(apart)]
                found.update((each, group) for each in group if each is not None)  # type: ignore[misc]
        return found

    def _store_beside(self, group: list[Store], step: Store | Fold) -> None:
        """Write a group with the last of its stores."""
        w = self.writer
        assert isinstance(step, Store)
        value = w.name(stored(step), vector=True)
        done = self.pending.setdefault(group[0], {})
        done[step] = value
        if len(done) < len(group):
            return
        name, kind = w.fresh("few"), register_type(step.value.dtype, True)
        w.top.write(f"{kind} {name}[] = {{{', '.join(done[s] for s in group)}}};")
        w.top.write(f"store_few<{len(group)}>({w.place(step.buffer, group[0].position)}, {name}, m);")

    def in_turn(self, steps: Iterable[Store | Fold]) -> Iterator[Store | Fold]:
        """The steps, of which those that overwrite inputs come last.

        All that overwrites inputs is computed before the first of it is stored: it may be read of these inputs.
        """
        overwriting: list[Store] = []
        for step in steps:
            if isinstance(step, Store) and step.buffer.over is not None:
                self.writer.name(step.value, vector=True if self._in_vector() else None)
                overwriting.append(step)
            else:
                yield step
        yield from overwriting

    def _in_vector(self) -> bool:
        vector = self.writer.vector
        return vector is not None and any(vector in s.variables for s in self.writer.scopes)

    def store(self, store: Store) -> None:
        w = self.writer
        vector = w.vector
        base = w.pointer(store.buffer)
        in_vector = self._in_vector()
        if not in_vector:
            w.top.write(f"store({base} + {w.index(store.position)}, {w.name(stored(store))});")
            return
        assert vector is not None
        value = w.name(stored(store), vector=True)
        step = None if w._is_vector_index(store.position) else index.coefficient(store.position, vector)
        if type(step) is int and step == 1:
            w.top.write(f"store({w.place(store.buffer, store.position)}, {value}, m);")
        else:
            w.top.write(f"scatter({base}, {w.index_vector(store.position)}, {value}, m);")

    def _declare(self, fold: Fold, in_blocks: bool) -> Accumulator:
        accumulator = Accumulator(fold, self.writer.fresh("a"))
        accumulator.declare(self.writer, in_blocks)
        return accumulator

    def _declare_none(self, fold: Fold) -> Accumulator:
        return Accumulator(fold, self.writer.fresh("a"))


def _always_read(nest: LoopNest) -> set[tuple[Buffer, Index]]:
    """What a kernel reads whatever conditions hold."""
    steps = [step for stage in nest.stages for step in (*stage.before, *stage.body)]
    nodes = (node for step in steps for node in operators_in(step.value))
    return {node.attr for node in nodes if node.op == "load" and not node.args}


def _has_at(stores: Iterable[Store], of: Store, distance: int) -> Store | None:
    """The store that writes so many elements behind ``of``."""
    found = (s for s in stores if type(d := s.position - of.position) is int and d == distance)
    return next(found, None)


def stored(store: Store) -> Node:
    """What is written, before memory of half precision rounds it."""
    value = store.value
    return value.args[0] if value.op == "round" and value.attr is store.buffer.dtype else value


def sizes_of(value: Index) -> list[index.Size]:
    return [a for a in value.atoms() if isinstance(a, index.Size)] if isinstance(value, index.Ix) else []


def sizes_in(node: Node) -> set[str]:
    found: set[str] = set()
    for n in operators_in(node):
        for value in [*n._indices(), *([n.attr[0]] if n.op == "check" else [])]:
            found |= {str(a) for a in sizes_of(value)}
    return found


def _is_long(extent: Index) -> bool:
    return type(extent) is not int or extent > _LONG_ROW


def _is_float_sum(fold: Fold) -> bool:
    return fold.statement.reduction == "sum" and fold.value.dtype is torch.float32


def lowest(dtype: torch.dtype, most: bool) -> str:
    """What every value is at least (or at most) as good as."""
    if dtype.is_floating_point:
        return literal(float("-inf") if most else float("inf"), dtype)
    bounds = torch.iinfo(dtype)
    return literal(bounds.min if most else bounds.max, dtype)


class Accumulator:
    """What a reduction along rows keeps: vectors whose lanes are reduced in the end."""

    def __init__(self, fold: Fold, name: str) -> None:
        self.fold = fold
        self.name = name
        self.kind = str(fold.statement.reduction)
        self.dtype = compute_type(fold.value.dtype)
        self.scalar = register_type(self.dtype, False)
        self.type = register_type(self.dtype, True)
        self.wide = "f64" if self.dtype is torch.float32 and self.kind == "sum" else self.scalar

    @property
    def is_index(self) -> bool:
        return self.kind.startswith("arg")

    def identity(self) -> str:
        if self.kind in ("max", "min"):
            return f"splat({lowest(self.dtype, self.kind == 'max')})"
        return {"sum": f"{self.type}{{}}", "prod": f"splat(({self.scalar})1)", "any": "mask{}", "all": "~mask{}"}[
            self.kind
        ]

    def vectors(self) -> str:
        if self.is_index:
            most = self.kind == "argmax"
            return f"Best<{self.type}> {self.name} = {{splat({lowest(self.dtype, most)}), {{}}}};"
        return f"{self.type} {self.name}[FOLDS] = ALIKE({self.identity()});"

    def combine(self, a: str, b: str) -> str:
        if self.kind in ("max", "min"):  # the next one waits for the first operand no longer than it must
            return f"{self.kind}imum({b}, {a})"
        return f"{a} { ({'sum': '+', 'prod': '*', 'any': '|', 'all': '&'}[self.kind]) } {b}"

    def _folded(self) -> str:
        """The lanes of all vectors as one scalar."""
        all_vectors = f"{self.name}[0]"
        for n in range(1, 4):
            all_vectors = self.combine(all_vectors, f"{self.name}[{n}]")
        function = {
            "sum": "total", "prod": "times", "max": f"greatest<{self.scalar}>", "min": f"smallest<{self.scalar}>",
            "any": "any_of", "all": "all_of",
        }[self.kind]  # fmt: skip
        return f"{function}({all_vectors})"

    def _start(self) -> str:
        if self.kind in ("max", "min"):
            return lowest(self.dtype, self.kind == "max")
        return {"sum": "0", "prod": "1", "any": "false", "all": "true"}[self.kind]

    def add(self, w: Writer, value: Node) -> None:
        text = w.name(value, vector=True)
        if self.is_index:
            at = w.name(value.args[1], vector=True)
            w.top.write(f"better<{'true' if self.kind == 'argmax' else 'false'}>({self.name}, {text}, {at}, m);")
            return
        into = f"{self.name}[u]"
        w.top.write(f"{into} = {self.combine(into, f'keep(m, {text}, {self.identity()})')};")

    # --- in one go, or in blocks whose results are added up in a wider type ---------------------------------------

    def declare(self, w: Writer, in_blocks: bool) -> None:
        self.in_blocks = in_blocks and not self.is_index
        if self.in_blocks:
            w.top.write(f"{self.wide} {self.name}_all = {self._start()};")
        else:
            w.top.write(self.vectors())

    def open_block(self, w: Writer) -> None:
        if not self.is_index:
            w.top.write(self.vectors())

    def close_block(self, w: Writer) -> None:
        if not self.is_index:
            w.top.write(f"{self.name}_all = {self._merge(f'{self.name}_all', self._folded())};")

    def _merge(self, a: str, b: str) -> str:
        if self.kind in ("max", "min"):
            return f"{self.kind}imum({a}, ({self.scalar}){b})"
        return self.combine(a, b)

    def finish(self, w: Writer) -> str:
        result = w.fresh("r")
        if self.is_index:
            w.top.write(f"i64 {result} = best_of<{'true' if self.kind == 'argmax' else 'false'}>({self.name}).at;")
        else:
            value = f"{self.name}_all" if self.in_blocks else self._folded()
            w.top.write(f"{self.scalar} {result} = {value};")
        return result

    # --- in pieces, one for each thread ---------------------------------------------------------------------------

    def declare_parts(self, w: Writer) -> None:
        if self.is_index:
            w.top.write(
                f"One<{self.scalar}> {self.name}_parts[MOST_THREADS]; bool {self.name}_used[MOST_THREADS] = {{}};"
            )
        else:
            w.top.write(f"{self.wide} {self.name}_parts[MOST_THREADS];")
            w.top.write(f"for (auto& part : {self.name}_parts) part = {self._start()};")

    def open_part(self, w: Writer) -> None:
        if self.is_index:
            w.top.write(self.vectors())
        else:
            w.top.write(f"{self.wide} {self.name}_all = {self._start()};")

    def close_part(self, w: Writer) -> None:
        most = "true" if self.kind == "argmax" else "false"
        if self.is_index:
            w.top.write(f"{self.name}_parts[piece()] = best_of<{most}>({self.name}); {self.name}_used[piece()] = true;")
        else:
            w.top.write(f"{self.name}_parts[piece()] = {self.name}_all;")

    def finish_parts(self, w: Writer) -> str:
        result = w.fresh("r")
        if self.is_index:
            most = "true" if self.kind == "argmax" else "false"
            w.top.write(f"i64 {result} = best_part<{most}>({self.name}_parts, {self.name}_used);")
            return result
        w.top.write(f"{self.wide} {self.name}_sum = {self._start()};")
        w.top.write(f"for (auto part : {self.name}_parts) {self.name}_sum = {self._merge(f'{self.name}_sum', 'part')};")
        w.top.write(f"{self.scalar} {result} = ({self.scalar}){self.name}_sum;")
        return result
