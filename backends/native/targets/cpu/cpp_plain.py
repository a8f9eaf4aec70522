"""Prints kernels on narrow or wide integers as plain loops, which the compiler itself turns into vectors.

The vectors of ``kernels.h`` have as many lanes for each type as a register has of float32: with a byte an element, most
of a register would lie idle, and 64-bit integers take two.  A compiler chooses the lanes by the types of a loop, where
all that the loop does is arithmetic: functions such as ``exp`` exist for vectors only, and sums of floats may not be
reordered.
"""

from __future__ import annotations

import torch

from ...ir import index
from ...ir.expressions import Node, compute_type, operators_in
from ...ir.index import Index, Var
from ...schedule.kernel import FEW
from ...schedule.stages import Fold, LoopNest, Stage, Store
from ...schedule.tiles import Wrapped, wrapped
from .cpp import PARALLEL_WORK, Accumulator, KernelPrinter, stored
from .cpp_scopes import NAMES, Writer, is_truncated, register_type

_OTHER_WIDTH = frozenset((torch.int8, torch.uint8, torch.int16, torch.int64, torch.bool))
_ARITHMETIC = frozenset(
    (
        *("const", "index", "load", "result", "cast", "add", "sub", "mul", "div", "and", "or", "xor", "not", "neg"),
        *("bitwise_not", "abs", "floor_div", "floor_rem", "maximum", "minimum", "where", "shl", "shr"),
        *("lt", "le", "gt", "ge", "eq", "ne"),
    )
)
_COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
_MOST_MASKS = 4
"""With more comparisons of floats than this, as in pooling with indices, g++ takes elements one by one."""

_FOLDS = frozenset(("sum", "prod", "max", "min", "any", "all"))


def is_plain(nest: LoopNest) -> bool:
    """Whether plain loops compute ``nest``, and are worth it."""
    if nest.by_columns or nest.vector is None or nest.scratch:
        return False
    if not nest.rows and len(nest.inner) > 1:
        return False
    if _rows_in_two(nest) is not None:
        return True
    worth = False
    masks: set[Node] = set()
    for stage in nest.stages:
        for step in [*stage.before, *stage.body]:
            if isinstance(step, Store) and _is_dealt(step, nest.vector):
                return False
            if isinstance(step, Fold):
                if step.statement.reduction not in _FOLDS or step.value.dtype.is_floating_point:
                    return False
                worth |= step.value.dtype in _OTHER_WIDTH
            elif is_copy(step):
                worth = True  # the compiler may know a copy of memory
                if not all(_is_simple(n, nest.vector) for n in operators_in(step.value)):
                    return False
                continue
            elif step.buffer.dtype is torch.float16:
                return False
            else:
                # Rounding has an instruction, which compilers do not choose.
                worth |= step.buffer.dtype in _OTHER_WIDTH
                worth |= _is_exact(stored(step)) and _has_bfloat16(step)
            for node in operators_in(step.value if isinstance(step, Fold) else stored(step)):
                if not _is_simple(node, nest.vector):
                    return False
                if node.op in _COMPARISONS and node.args[0].dtype.is_floating_point:
                    masks.add(node)
                if node.op == "load" and node.attr[0].dtype is torch.float16:
                    return False
                varies = node.op == "load" and nest.vector in node.free
                worth |= varies and node.attr[0].dtype in _OTHER_WIDTH
    return worth and len(masks) <= _MOST_MASKS


def _is_dealt(store: Store, vector: Var) -> bool:
    """Whether bytes are put between others so far apart that compilers store them one by one."""
    step = index.coefficient(store.position, vector)
    return store.buffer.dtype.itemsize == 1 and type(step) is int and 2 < step <= FEW


def is_copy(store: Store) -> bool:
    """Whether elements move as they are, without arithmetic."""
    value = store.value
    return value.op == "load" and not value.args and value.attr[0].dtype is store.buffer.dtype


def _rows_in_two(nest: LoopNest) -> tuple[Store, Wrapped] | None:
    """The copy that is all of ``nest``, if its rows begin anew where they end, as those of ``roll`` do."""
    (stage, *more), vector = nest.stages, nest.vector
    if more or stage.before or len(stage.body) != 1 or not nest.rows or nest.inner != (vector,) or vector is None:
        return None
    (store,) = stage.body
    if not isinstance(store, Store) or not is_copy(store) or index.coefficient(store.position, vector) != 1:
        return None
    around = wrapped(store.value.attr[1], vector)
    if around is None or type(vector.size) is not int or type(around.right) is not int or vector.size > around.right:
        return None
    return store, around


def _is_simple(node: Node, vector: Var) -> bool:
    if node.op == "check":
        return vector not in node.free
    if node.op == "load":
        position = node.attr[1]
        if node.args or wrapped(position, vector) is not None:
            return False
        return all(vector not in a.node.free for a in index.data_atoms(position))
    if node.op == "round":
        return node.attr is torch.bfloat16
    if node.op == "cast" and node.dtype is torch.float64:
        return False
    if node.op == "cast" and node.dtype.is_floating_point and is_truncated(node.args[0]):
        return False  # what is hidden from the compiler (``settled``) is computed one by one
    return node.op in _ARITHMETIC


def _has_bfloat16(store: Store) -> bool:
    loads = (n.attr[0].dtype for n in operators_in(store.value) if n.op == "load")
    return torch.bfloat16 in (store.buffer.dtype, *loads)


def _is_exact(node: Node) -> bool:
    """Whether a number is a bfloat16 as it is: one of some that are chosen from."""
    if node.op == "load":
        return node.attr[0].dtype is torch.bfloat16
    if node.op == "const":
        return float(torch.tensor(node.attr, dtype=torch.bfloat16)) == node.attr
    if node.op == "round":
        return True
    chosen = node.args[1:] if node.op == "where" else node.args
    return node.op in ("where", "maximum", "minimum", "neg", "abs") and all(map(_is_exact, chosen))


class PlainPrinter(KernelPrinter):
    """Loops over elements; ``q0`` is the address ``p0`` in a variable that no write can change."""

    def __init__(self, nest: LoopNest) -> None:
        super().__init__(nest)
        self.writer = Writer(self._local, None)
        for n, variable in enumerate([*nest.rows, *nest.inner]):
            self.writer.loop_names[variable] = f"i{n}"

    def _local(self, buffer: object) -> str:
        return "q" + self._pointer(buffer)[1:]  # type: ignore[arg-type]

    def _by_rows(self) -> None:
        if self.rowless:
            self._one_row()
            self._declare_addresses()
            return
        w, nest = self.writer, self.nest
        w.push()
        w.push(*nest.rows)
        self.counted_indices(nest.rows)
        for stage in nest.stages:
            self.before(stage)
            self._stage_in_row(stage)
        w.pop(self.counting_loop(nest.rows))
        rows, points = index.product(v.size for v in nest.rows), index.product(v.size for v in nest.inner)
        self._pop_parallel(rows, self.grain(points))

    def _addresses(self, indent: str) -> list[str]:
        return [f"{indent}auto q{name[1:]} = {name};" for name in self.buffers.values()]

    def _pop_parallel(self, count: Index, grain: str) -> None:
        """Close the loop over threads, which begins with copies of all addresses."""
        w = self.writer
        w.top.lines[:0] = self._addresses("    ")
        w.pop(f"parallel({w.index(count)}, {grain}, [&] (i64 lo, i64 hi) {{", "});")
        self._declare_addresses()  # for what is read ahead of the loop

    def _declare_addresses(self) -> None:
        """Addresses for the whole kernel, once."""
        top = self.writer.top
        known = set(top.lines)
        top.lines[:0] = [line for line in self._addresses("  ") if line not in known]

    def _stage_in_row(self, stage: Stage) -> None:
        w, nest = self.writer, self.nest
        if not stage.body:
            return
        if (found := _rows_in_two(nest)) is not None:
            self._copy_in_two(*found)
            return
        accumulators = [_PlainAccumulator(s, w.fresh("a")) for s in stage.body if isinstance(s, Fold)]
        for accumulator in accumulators:
            accumulator.open_block(w)
        depth = len(w.scopes) - 1
        for variable in nest.inner:
            w.push(variable)
        self._body(stage, accumulators)
        for variable in reversed(nest.inner):
            name = w.loop_names[variable]
            w.pop(f"for (i64 {name} = 0, end = {w.index(variable.size)}; {name} < end; {name}++) {{")
            if variable is nest.vector:
                _independent(w)
        for accumulator in accumulators:
            w.results[accumulator.fold.statement.target] = (accumulator.finish(w), depth, False)

    def _copy_in_two(self, store: Store, around: Wrapped) -> None:
        """Copy the elements up to the end of a row, and then those from its beginning."""
        w, vector = self.writer, self.nest.vector
        assert vector is not None
        name, extent, right = w.loop_names[vector], w.index(vector.size), w.index(around.right)
        start = index.remainder(index.substitute(around.left, {vector: 0}), around.right)
        w.top.write(f"i64 start = {w.index(start)};")
        w.top.write(f"i64 turn = {right} - start < {extent} ? {right} - start : {extent};")
        w.push(vector)
        to = f"{w.pointer(store.buffer)}[{w.index(store.position)}]{_member(store)}"
        source = f"{w.pointer(store.value.attr[0])}[{w.index(around.base)} + {name}"
        for first, end, apart in (("0", "turn", "+ start"), ("turn", extent, "- turn")):
            w.scopes[-2].write("#pragma GCC ivdep")
            w.scopes[-2].write(f"for (i64 {name} = {first}; {name} < {end}; {name}++) {{")
            w.scopes[-2].write(f"  {to} = {source} {apart}]{_member(store)};")
            w.scopes[-2].write("}")
        w.scopes[-2].lines += w.scopes.pop().lines

    def _shared_stage(self, stage: Stage) -> None:
        w, nest = self.writer, self.nest
        assert nest.vector is not None
        name = w.loop_names[nest.vector]
        accumulators = [_PlainAccumulator(s, w.fresh("a")) for s in stage.body if isinstance(s, Fold)]
        for accumulator in accumulators:
            accumulator.declare_parts(w)
        w.push()
        for accumulator in accumulators:
            accumulator.open_part(w)
            accumulator.open_block(w)
        w.push(nest.vector)
        self._body(stage, accumulators)
        w.pop(f"for (i64 {name} = lo; {name} < hi; {name}++) {{")
        _independent(w)
        for accumulator in accumulators:
            accumulator.close_block(w)
            accumulator.close_part(w)
        self._pop_parallel(nest.vector.size, str(max(1024, PARALLEL_WORK // nest.cost)))
        for accumulator in accumulators:
            w.results[accumulator.fold.statement.target] = (accumulator.finish_parts(w), 0, False)

    def store(self, store: Store) -> None:
        w = self.writer
        if not is_copy(store):
            value = stored(store)
            if store.buffer.dtype is torch.bfloat16 and _is_exact(value):
                at = f"{w.pointer(store.buffer)} + {w.index(store.position)}"
                w.top.write(f"store_exact({at}, {w.name(value)});")
            else:
                super().store(store)
            return
        source, position = store.value.attr
        member = _member(store)
        to = f"{w.pointer(store.buffer)}[{w.index(store.position)}]{member}"
        w.top.write(f"{to} = {w.pointer(source)}[{w.index(position)}]{member};")


def _member(store: Store) -> str:
    """What of an element is copied."""
    return {torch.bool: ".value", torch.bfloat16: ".bits", torch.float16: ".bits"}.get(store.buffer.dtype, "")


def _independent(w: Writer) -> None:
    """Say of the loop that was written last that no turn reads what another one writes."""
    at = max(n for n, line in enumerate(w.top.lines) if line == "  " * w.top.indent + line.lstrip() and "for (" in line)
    w.top.lines.insert(at, "#pragma GCC ivdep")


class _PlainAccumulator(Accumulator):
    """What a reduction keeps: one number, of which the compiler makes as many as it likes."""

    def _type(self) -> str:
        return "u8" if self.kind in ("any", "all") else NAMES[compute_type(self.fold.value.dtype)]

    def finish(self, w: Writer) -> str:
        result = w.fresh("r")
        w.top.write(f"{register_type(self.dtype, False)} {result} = {self.name};")
        return result

    def open_block(self, w: Writer) -> None:
        w.top.write(f"{self._type()} {self.name} = {self._start()};")

    def add(self, w: Writer, value: Node) -> None:
        w.top.write(f"{self.name} = {self._merge(self.name, w.name(value))};")

    def close_block(self, w: Writer) -> None:
        w.top.write(f"{self.name}_all = {self._merge(f'{self.name}_all', self.name)};")
