"""Prints loops whose order matters as C++ functions."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...ir import index
from ...ir.expressions import Buffer, Node
from ...ir.index import Var
from ...ir.ordered_loops import Scan, Scatter
from .cpp import PARALLEL_WORK, Function, sizes_in, sizes_of
from .cpp_scopes import NAMES, Writer, register_type, with_own_numbers

_COMBINED = {
    "add": "{old} + {new}",
    "mul": "{old} * {new}",
    "max": "maximum({old}, {new})",
    "min": "minimum({old}, {new})",
}


_RUNNING = {"sum": "{a} + {b}", "prod": "{a} * {b}", "max": "maximum({a}, {b})", "min": "minimum({a}, {b})"}


def print_sequential(step: Scan | Scatter) -> Function:
    """The C++ function of a step."""
    return _Printer(step).run()


class _Printer:
    def __init__(self, step: Scan | Scatter) -> None:
        self.step = step
        self.buffers: dict[Buffer, str] = {}
        if isinstance(step, Scan):
            self.vector = next((v for v in reversed(step.rows) if _is_unit(step, v)), None)
            if self.vector is None and _runs_in_vectors(step):
                self.vector = step.along
            self.variables: tuple[Var, ...] = (*step.rows, step.along)
        else:
            self.vector = step.vector
            self.variables = (*step.apart, *step.serial)
        self.writer = Writer(self._pointer, self.vector)
        for n, variable in enumerate(self.variables):
            self.writer.loop_names[variable] = f"i{n}"

    def _pointer(self, buffer: Buffer) -> str:
        return self.buffers.setdefault(buffer, f"p{len(self.buffers)}")

    def run(self) -> Function:
        if isinstance(self.step, Scan):
            self._scan(self.step)
        else:
            self._scatter(self.step)
        lines = self.writer.scopes[0].lines
        found = {str(a) for v in self.variables for a in sizes_of(v.size)} | sizes_in(self.step.value)
        found |= {str(a) for a in sizes_of(self.step.position)}
        for atom in index.data_atoms(self.step.position):
            found |= sizes_in(atom.node)
        sizes = sorted(found)
        arguments = [f"{NAMES[b.dtype]}* {name}" for b, name in self.buffers.items()] + [f"i64 {s}" for s in sizes]
        verifies = any("check(" in line for line in lines)
        if verifies:
            arguments.append("i64* bad")
        body = f"({', '.join(arguments)}) {{\n" + "\n".join(with_own_numbers(lines, arguments)) + "\n}\n"
        return Function(body, tuple(self.buffers), (*sizes, *(["bad"] if verifies else [])))

    # --- sums along a dimension -----------------------------------------------------------------------------------

    def _scan(self, step: Scan) -> None:
        w = self.writer
        if self.vector is None and step.rows:
            self._scan_of_rows(step)
            return
        if self.vector is step.along:
            self._scan_in_vectors(step)
            return
        rows = [v for v in step.rows if v is not self.vector]
        for variable in rows:
            w.push(variable)
        if self.vector is not None:
            w.push(self.vector)
        kind = register_type(step.value.dtype, self.vector is not None)
        start = _start(step)
        w.top.write(f"{kind} sum = {f'splat(({NAMES[step.value.dtype]}){start})' if self.vector else start};")
        w.push(step.along)
        w.top.write(f"sum = {_RUNNING[step.op].format(a='sum', b=self._name(step.value))};")
        self._store("sum", step.value)
        self._pop(step.along)
        self._pop_rows(rows, [step.along])

    def _scan_in_vectors(self, step: Scan) -> None:
        """Along a row: a vector's lanes in a few steps, then what the vectors before have come to."""
        w = self.writer
        for variable in step.rows:
            w.push(variable)
        kind = register_type(step.value.dtype, False)
        w.top.write(f"const {kind} first = {_start(step)}; {kind} sum = first;")
        w.push(step.along)
        combined = _RUNNING[step.op].format(a="a", b="b")
        combine = f"[] (auto a, auto b) INLINE_LAMBDA {{ return {combined}; }}"
        w.top.write(f"auto all = running({self._name(step.value)}, sum, first, {combine});")
        self._store("all", step.value)
        self._pop(step.along)
        self._pop_rows(list(step.rows), [step.along])

    def _scan_of_rows(self, step: Scan) -> None:
        """Some rows at a time: each sum waits for the one before in its row, but for none of another row."""
        w = self.writer
        *outer, beside = step.rows
        for variable in outer:
            w.push(variable)
        kind = register_type(step.value.dtype, False)
        w.push()
        w.top.write("constexpr int K = decltype(rows)::n;")
        w.top.write(f"{kind} sum[K]; for (auto& each : sum) each = {_start(step)};")
        w.push(step.along)
        w.push(beside)
        w.top.write(f"i64 {w.loop_names[beside]} = at + k;")
        value = self._name(step.value)
        w.top.write(f"sum[k] = {_RUNNING[step.op].format(a='sum[k]', b=f'({kind}){value}')};")
        self._store("sum[k]", step.value)
        w.scopes[-2].write("#pragma GCC unroll 4")
        w.pop("for (int k = 0; k < K; k++) {")
        self._pop(step.along)
        bounds = f"0, {w.index(beside.size)}" if outer else "lo, hi"
        w.pop(f"some_rows({bounds}, [&] (i64 at, auto rows) {{", "});")
        if outer:
            self._pop_rows(outer, [beside, step.along])
        else:
            self._parallel(w.index(beside.size), [step.along])

    def _store(self, text: str, value: Node) -> None:
        """Write what ``text`` names, of the type of ``value``, to where the step writes."""
        w, step = self.writer, self.step
        if value.dtype is not step.target.dtype:
            text = w._cast(value.dtype, step.target.dtype, text, self.vector is not None)
        at = f"{self._pointer(step.target)} + {w.index(step.position)}"
        w.top.write(f"store({at}, {text}, m);" if self.vector is not None else f"store({at}, {text});")

    def _name(self, value: Node) -> str:
        return self.writer.name(value, vector=True) if self.vector is not None else self.writer.name(value)

    # --- writing where data says ----------------------------------------------------------------------------------

    def _scatter(self, step: Scatter) -> None:
        w = self.writer
        rows = [v for v in step.apart if v is not self.vector]
        innermost = self.vector
        if innermost is None and rows and _walks(step, rows[-1]):
            innermost = rows.pop()  # memory is walked in order
        inside = [*step.serial, *([innermost] if innermost is not None else [])]
        for variable in [*rows, *inside]:
            w.push(variable)
        value = self._name(step.value)
        if step.combine:
            at = f"{self._pointer(step.target)} + {w.index(step.position)}"
            old = f"load({at}, m)" if self.vector is not None else f"load({at})"
            kind = register_type(step.value.dtype, self.vector is not None)
            value = _COMBINED[step.combine].format(old=old, new=value)
            value = f"({kind})({value})" if self.vector is None else value
        self._store(value, step.value)
        shared = innermost is not None and not rows
        for variable in reversed(inside):
            self._pop(variable, shared=shared and variable is innermost)
        if shared:
            assert innermost is not None
            self._parallel(w.index(innermost.size), list(step.serial))
        else:
            self._pop_rows(rows, inside)

    # --- loops ----------------------------------------------------------------------------------------------------

    def _pop(self, variable: Var, *, shared: bool = False) -> None:
        """Close the innermost loop; one that threads share goes from ``lo`` to ``hi``."""
        w = self.writer
        name, extent = w.loop_names[variable], w.index(variable.size)
        start, end = ("lo", "hi") if shared else ("0", extent)
        if variable is self.vector:
            w.pop(f"sweep({start}, {end}, [&] (i64 {name}, auto m) INLINE_LAMBDA {{", "});")
        else:
            w.pop(f"for (i64 {name} = {start}; {name} < {end}; {name}++) {{")

    def _pop_rows(self, rows: Sequence[Var], inside: Sequence[Var]) -> None:
        """Close the loops over rows, the outermost of which threads share."""
        w = self.writer
        if isinstance(self.step, Scan) and self.vector not in (None, self.step.along):
            assert self.vector is not None
            self._pop(self.vector, shared=not rows)
            if not rows:
                self._parallel(w.index(self.vector.size), inside)
                return
        for variable in reversed(rows[1:]):
            self._pop(variable)
        if rows:
            name = w.loop_names[rows[0]]
            w.pop(f"for (i64 {name} = lo; {name} < hi; {name}++) {{")
            self._parallel(w.index(rows[0].size), [*rows[1:], *inside])

    def _parallel(self, count: str, inside: Sequence[Var]) -> None:
        """Wrap the loop over ``count`` that was written last into one over threads."""
        w = self.writer
        lines = w.top.lines
        indent = "  " * w.top.indent
        start = next(n for n in reversed(range(len(lines))) if _opens(lines[n], indent))
        loop = lines[start:]
        del lines[start:]
        points = w.index(index.product(v.size for v in inside))
        cost = max(1, self.step.value.cost)
        w.top.write(f"parallel({count}, 64 + {PARALLEL_WORK // cost}l / (1 + {points}), [&] (i64 lo, i64 hi) {{")
        w.top.lines += ["  " + line for line in loop]
        w.top.write("});")


def _opens(line: str, indent: str) -> bool:
    return line.startswith((f"{indent}for (", f"{indent}sweep(", f"{indent}some_rows("))


def _start(step: Scan) -> str:
    """What changes nothing that it is combined with."""
    dtype = step.value.dtype
    if step.op in ("sum", "prod"):
        return "0" if step.op == "sum" else "1"
    if dtype.is_floating_point:
        return f"{'-' if step.op == 'max' else ''}__builtin_inf()"
    info = torch.iinfo(dtype)
    return f"({NAMES[dtype]})({info.min + 1}l - 1)" if step.op == "max" else f"({NAMES[dtype]}){info.max}l"


_IN_VECTORS = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))


def _runs_in_vectors(step: Scan) -> bool:
    """Whether neighbours in a row are neighbours in memory, in all that is read as well, or the same element.

    Four rows side by side, lane by lane, are as fast in float64, but where each number has to be rounded to half
    precision, and for extremes of 64-bit integers.
    """
    if step.value.dtype not in _IN_VECTORS or not _is_unit(step, step.along):
        return False
    rounds = step.target.dtype in (torch.bfloat16, torch.float16)
    extreme = step.op in ("max", "min")
    lanes = step.value.dtype is torch.int64 if extreme else step.value.dtype is torch.float64 and not rounds
    if lanes and index.product(v.size for v in step.rows) != 1:
        return False
    loads = list(step.value.loads)
    steps = [index.coefficient(position, step.along) for _, position in loads]
    depends = any(step.along in a.node.free for _, position in loads for a in index.data_atoms(position))
    backwards = (-1,) if step.value.dtype is not torch.int64 else ()
    return not depends and all(type(s) is int and s in (0, 1, *backwards) for s in steps)


def _walks(step: Scatter, variable: Var) -> bool:
    """Whether neighbours in ``variable`` are neighbours in all that is read, indices included."""
    stride = index.coefficient(step.position, variable)
    if type(stride) is int and stride > 1:
        return False  # what is written lies apart
    loads = [pair for a in index.data_atoms(step.position) for pair in a.node.loads] + list(step.value.loads)
    steps = [index.coefficient(position, variable) for _, position in loads]
    return _is_unit(step, variable) or (bool(steps) and all(type(s) is int and s in (0, 1) for s in steps))


def _is_unit(step: Scan | Scatter, variable: Var) -> bool:
    stride = index.coefficient(step.position, variable)
    return type(stride) is int and stride == 1
