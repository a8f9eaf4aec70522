"""A schedule as one C++ source and the Python function that calls it.

Between two calls of torch's operators there is one C++ function, which runs all kernels and matrix products.  The
Python function allocates what torch sees, and passes addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ....common.pipeline.lines import line_of
from ...ir import index
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.ordered_loops import Scan, Scatter
from ...ir.program import Call, Convolution, Matrix, Product, Program, TensorRef
from ...schedule import memory
from ...schedule.kernel import Kernel
from ...schedule.schedule import Schedule
from ...schedule.stages import LoopNest, Store, plan, read_by, stored_by
from .choosing import Shape, shape_of
from .cpp import Function, print_kernel
from .cpp_scopes import NAMES
from .cpp_sequential import print_sequential
from .packing import Pack, PackedMatrix, PackedWeight
from .source import Source

_MOST_ON_STACK = 16 * 1024
"""Temporary buffers of up to so many bytes together lie on the stack, which saves an allocation in each call."""


@dataclass
class Module:
    """What is compiled and what runs it.

    ``kernels`` counts the kernels, ``calls`` names the calls of torch's operators; ``timers`` are the timed steps.
    ``constants`` are the graph's attributes that the code uses, ``packs`` what is made of them when it is loaded;
    ``products`` are the shapes of matrix products whose code is chosen then.
    """

    source: Source
    python: str
    constants: list[str]
    kernels: int
    calls: list[str] = field(default_factory=list)
    timers: list[str] = field(default_factory=list)
    packs: dict[str, Pack] = field(default_factory=dict)
    products: list[Shape] = field(default_factory=list)


def assemble(program: Program, schedule: Schedule, *, timed: bool = False, own_products: bool = True) -> Module:
    """Print everything; if ``timed``, with code that adds up the seconds of each step in ``spent``.

    With ``own_products``, the library's matrix products have a rival.
    """
    return _Assembler(program, schedule, timed, own_products).run()


class _Assembler:
    def __init__(self, program: Program, schedule: Schedule, timed: bool, own_products: bool) -> None:
        self.program = program
        self.timed = timed
        self.timers: list[str] = []
        self.own_products = own_products
        self.products: list[Shape] = []
        self.steps: list[Any] = []
        readers: dict[Buffer, list[int]] = {}
        for at, step in enumerate(schedule.steps):
            for buffer in step.reads:
                readers.setdefault(buffer, []).append(at)
        outputs = {ref.buffer for ref in program.outputs if isinstance(ref, TensorRef)}
        for at, step in enumerate(schedule.steps):
            if isinstance(step, Kernel):
                needed = {b for b in step.writes if b in outputs or any(r != at for r in readers.get(b, ()))}
                self.steps.append(plan(step, needed))
            else:
                self.steps.append(step)
        self.symbols = list(program.symbols)
        self.functions: dict[str, str] = {}
        self.function_comments: dict[str, list[str]] = {}
        self.held = {b for b in program.inputs if isinstance(b, Buffer)} | outputs
        for step in self.steps:
            if isinstance(step, Call):
                self.held |= step.reads | step.writes
        self.constants = [b for b in program.buffers if b.name in program.constants]
        self.held |= {*self.constants, *program.packs.values()}
        self.alias = self._in_place()
        self.uses = [self._touched(step) for step in self.steps]
        self.arena = memory.plan(self.uses, {b for b in set().union(*self.uses, set()) if b not in self.held})
        size = self.arena.size
        calls = any(isinstance(step, Call) for step in self.steps)
        self.arena_on_stack = type(size) is int and 0 < size <= _MOST_ON_STACK and not calls
        self.arena_may_be_on_stack = type(size) is not int and not calls  # that depends on the sizes of a call

    def run(self) -> Module:
        segments: list[list[Any]] = []
        order: list[Any] = []  # positions of segments, and calls
        for step in self.steps:
            if isinstance(step, Call):
                order.append(step)
            else:
                if not order or isinstance(order[-1], Call):
                    order.append(len(segments))
                    segments.append([])
                segments[order[-1]].append(step)
        tables = [self._table(s) for s in segments]
        bodies = [self._segment(n, s, t) for n, (s, t) in enumerate(zip(segments, tables, strict=True))]
        comments = {name: self._comment(name) for name in self.functions.values()}
        definitions = []
        if self.products or any(isinstance(pack, PackedMatrix) for pack in self.program.packs):
            definitions.append('#include "gemm.h"\n')
        if self.products:
            definitions.append(f'extern "C" {{ char way[{len(self.products)}]; }}  // of each product, as measured\n')
        if any(isinstance(pack, PackedWeight) for pack in self.program.packs):
            definitions.append('#include "convolution.h"\n')
        if self.timed:
            definitions.append('extern "C" f64 omp_get_wtime(void);\n')
            definitions.append(f'extern "C" {{ f64 spent[{len(self.timers)} + 1]; }}\n')
        kernels = {name: body for body, name in self.functions.items()}
        source = Source('#include "kernels.h"\n', "".join(definitions), kernels, "\n".join(bodies), comments)
        python = self._python(order, tables)
        calls = [str(s.op) for s in self.steps if isinstance(s, Call)]
        names = [self.program.constants[b.name] for b in self.constants]
        count = sum(isinstance(s, LoopNest) for s in self.steps)
        packs = {buffer.name: pack for pack, buffer in self.program.packs.items()}
        return Module(source, python, names, count, calls, self.timers, packs, self.products)

    def _in_place(self) -> dict[Buffer, Buffer]:
        """Results of matrix products that lie where the one kernel that reads them puts its own result."""
        readers: dict[Buffer, list[Any]] = {}
        writers: dict[Buffer, int] = {}
        for step in self.steps:
            for buffer in read_by(step) if isinstance(step, LoopNest) else step.reads:
                readers.setdefault(buffer, []).append(step)
            for buffer in stored_by(step) if isinstance(step, LoopNest) else step.writes:
                writers[buffer] = writers.get(buffer, 0) + 1
        alias: dict[Buffer, Buffer] = {}
        for step in self.steps:
            if not isinstance(step, Product) or step.target in self.held:
                continue
            using = readers.get(step.target, [])
            if len(using) != 1 or not isinstance(using[0], LoopNest):
                continue
            for target in sorted(stored_by(using[0]), key=lambda b: b.name):
                free = writers[target] == 1 and target not in alias.values()
                if free and _takes_over(using[0], step.target, target):
                    alias[step.target] = target
                    break
        return alias

    def _touched(self, step: Any) -> set[Buffer]:
        return {self.alias.get(b, b) for b in _touched(step)}

    # --- C++ ------------------------------------------------------------------------------------------------------

    def _table(self, steps: Sequence[Any]) -> list[Buffer]:
        """The buffers whose addresses a segment is passed, in order."""
        found: dict[Buffer, None] = {}
        for step in steps:
            found.update((b, None) for b in sorted(self._touched(step), key=lambda b: b.name) if b in self.held)
        return list(found)

    def _segment(self, number: int, steps: Sequence[Any], table: list[Buffer]) -> str:
        lines = [f'extern "C" i64 run{number}(char** at, char* arena, const i64* sizes) {{', "  i32 bad = 0;"]
        lines += [f"  const i64 {name} = sizes[{n}];" for n, name in enumerate(self.symbols)]
        if self.arena_on_stack:
            lines.append(f"  alignas(64) char own[{self.arena.size}];")
            lines.append("  arena = own;")
        elif self.arena_may_be_on_stack:
            lines.append(f"  alignas(64) char own[{_MOST_ON_STACK}];")
            lines.append("  if (!arena) arena = own;")
        names: dict[Buffer, str] = {}
        for n, buffer in enumerate(table):
            names[buffer] = buffer.name
            lines.append(f"  {NAMES[buffer.dtype]}* {buffer.name} = ({NAMES[buffer.dtype]}*)at[{n}];")
        for step in steps:
            for buffer in sorted(self._touched(step), key=lambda b: b.name):
                if buffer not in names:
                    names[buffer] = buffer.name
                    kind = NAMES[buffer.dtype]
                    lines.append(f"  {kind}* {buffer.name} = ({kind}*)(arena + {_text(self.arena.offsets[buffer])});")
            lines += self._timed(self._call(step)) if self.timed else [f"  {self._call(step)}"]
        return "\n".join([*lines, "  return bad;", "}\n"])

    def _timed(self, call: str) -> list[str]:
        at = len(self.timers)
        self.timers.append(call)
        return [f"  spent[{at}] -= omp_get_wtime();", f"  {call}", f"  spent[{at}] += omp_get_wtime();"]

    def _call(self, step: Any) -> str:
        if isinstance(step, Product):
            return self._product(step)
        if isinstance(step, Convolution):
            return _convolution(step)
        function = print_sequential(step) if isinstance(step, (Scan, Scatter)) else print_kernel(step)
        name = self._function(function, step)
        arguments = [self.alias.get(b, b).name for b in function.buffers] + list(function.more)
        return f"{name}({', '.join(arguments)});"

    def _function(self, function: Function, nest: LoopNest) -> str:
        name = self.functions.setdefault(function.body, f"kernel{len(self.functions)}")
        comments = self.function_comments.setdefault(name, [])
        for node in nest.origins:
            line = line_of(node)
            text = f"// {node.target}" + (f" at {line}" if line else "")
            if text not in comments:
                comments.append(text)
        return name

    def _comment(self, name: str) -> str:
        return "".join(f"{line}\n" for line in self.function_comments[name])

    def _product(self, step: Product) -> str:
        target = self.alias.get(step.target, step.target).name
        if step.packed is not None:
            left, lead, _ = _operand(step.left, step.m, step.k).split(", ")
            return f"packed_product({target}, {left}, {lead}, {step.packed.name}, {step.m}l, {step.n}l, {step.k}l);"
        left, right = (
            _operand(m, rows, columns)
            for m, rows, columns in ((step.left, step.m, step.k), (step.right, step.k, step.n))
        )
        extents = ", ".join(_text(v) for v in (step.m, step.n, step.k, step.batch, step.left.step, step.right.step))
        shape = None
        if self.own_products and step.target.dtype is torch.float32:
            transposed = (operand.endswith("true") for operand in (left, right))
            shape = shape_of(step.m, step.n, step.k, step.batch, *transposed)
        if shape is None:
            return f"product({target}, {left}, {right}, {extents});"
        if shape not in self.products:
            self.products.append(shape)
        return f"chosen_product(way[{self.products.index(shape)}], {target}, {left}, {right}, {extents});"

    # --- Python ---------------------------------------------------------------------------------------------------

    def _python(self, order: Sequence[Any], tables: list[list[Buffer]]) -> str:
        inputs = self.program.inputs
        parameters = [b.name if isinstance(b, Buffer) else f"number{n}" for n, b in enumerate(inputs)]
        lines = [f"def run({', '.join(parameters)}):"]
        for name, (position, dim) in self.program.symbols.items():
            source = parameters[position]
            lines.append(f"    {name} = {source if dim is None else f'{source}.shape[{dim}]'}")
        for buffer in inputs:
            if isinstance(buffer, Buffer) and self._is_used(buffer):
                lines += self._check_input(buffer)
        size = self.arena.size
        if self.arena_may_be_on_stack:
            lines.append("    arena_at = None")
            lines.append(f"    if {_text_py(size)} > {_MOST_ON_STACK}:")
            lines.append(f"        arena = new_arena({_text_py(size)})")
            lines.append("        arena_at = arena.data_ptr()")
        elif not (type(size) is int and size == 0) and not self.arena_on_stack:
            lines.append(f"    arena = new_arena({_text_py(size)})")
            lines.append("    arena_at = arena.data_ptr()")
        else:
            lines.append("    arena_at = None")
        made = {b for b in inputs if isinstance(b, Buffer)} | set(self.constants) | set(self.program.packs.values())
        last_use = self._last_uses(order, tables)
        for at, step in enumerate(order):
            lines += self._step(step, tables, made)
            gone = [b.name for b in made if last_use.get(b) == at and b.kind == "temp"]
            if gone:
                lines.append(f"    del {', '.join(sorted(gone))}")
        results = [self._result(ref) for ref in self.program.outputs]
        lines.append(f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
        return "\n".join(lines) + "\n"

    def _is_used(self, buffer: Buffer) -> bool:
        return any(buffer in used for used in self.uses)

    def _check_input(self, buffer: Buffer) -> list[str]:
        strides = _tuple(buffer.strides)
        if buffer.strides == index.contiguous_strides(buffer.sizes):
            test = f"not {buffer.name}.is_contiguous()"
        else:
            test = f"{buffer.name}.stride() != {strides}"
        return [f"    if {test}:", f"        {buffer.name} = fit({buffer.name}, {strides})"]

    def _last_uses(self, order: Sequence[Any], tables: list[list[Buffer]]) -> dict[Buffer, int]:
        last: dict[Buffer, int] = {}
        for at, step in enumerate(order):
            for buffer in tables[step] if isinstance(step, int) else step.reads | step.writes:
                last[buffer] = at
        return last

    def _step(self, step: Any, tables: list[list[Buffer]], made: set[Buffer]) -> list[str]:
        if isinstance(step, Call):
            return self._python_call(step, made)
        lines = []
        for buffer in tables[step]:
            if buffer not in made:
                made.add(buffer)
                lines.append(
                    f"    {buffer.name} = empty({_tuple(buffer.sizes)}, {_tuple(buffer.strides)}, dtype={buffer.dtype})"
                )
        # Sizes and other integers, which may be negative, stand behind the addresses in one table.
        entries = [f"{b.name}.data_ptr()" for b in tables[step]] + self.symbols
        lines.append(f"    table = array('q', ({', '.join(entries)}{',' if len(entries) == 1 else ''}))")
        at, sizes = "table.buffer_info()[0]", "None"
        if self.symbols:
            lines.append(f"    at = {at}")
            at, sizes = "at", f"at + {8 * len(tables[step])}"
        lines.append(f"    if run{step}({at}, arena_at, {sizes}):")
        lines.append("        bad_index()")
        return lines

    def _python_call(self, step: Call, made: set[Buffer]) -> list[str]:
        op = step.op
        arguments = [_argument(a) for a in step.args] + [f"{k}={_argument(v)}" for k, v in step.kwargs.items()]
        namespace, _, name = op.name().partition("::")
        packet, _, _ = name.partition(".")
        call = f"ops.{namespace}.{packet}.{op._overloadname}({', '.join(arguments)})"
        lines = []
        if len(step.results) == 1 and op._schema.returns[0].type.kind() != "ListType":
            lines.append(f"    result = ({call},)")
        else:
            lines.append(f"    result = {call}")
        for n, buffer in enumerate(step.results):
            if buffer is not None and (self._is_used_later(buffer) or buffer.kind == "output"):
                made.add(buffer)
                lines.append(f"    {buffer.name} = fit(result[{n}], {_tuple(buffer.strides)})")
        lines.append("    del result")
        return lines

    def _is_used_later(self, buffer: Buffer) -> bool:
        return any(buffer in (read_by(step) if isinstance(step, LoopNest) else step.reads) for step in self.steps)

    def _result(self, ref: TensorRef | Index) -> str:
        if not isinstance(ref, TensorRef):
            return _text_py(ref)
        return _shown(ref)


def _touched(step: Any) -> set[Buffer]:
    """The buffers that a step reads or writes."""
    if isinstance(step, LoopNest):
        return stored_by(step) | read_by(step)
    found: set[Buffer] = step.reads | step.writes
    return found


def _takes_over(nest: LoopNest, source: Buffer, target: Buffer) -> bool:
    """Whether ``target`` can lie where ``source`` lies: each element is read in its place before it is written."""
    stores = [
        (at, step)
        for at, stage in enumerate(nest.stages)
        for step in [*stage.before, *stage.body]
        if isinstance(step, Store) and step.buffer is target
    ]
    if len(stores) != 1 or source.dtype is not target.dtype or source.numel != target.numel:
        return False
    last, store = stores[0]
    for at, stage in enumerate(nest.stages):
        loaded = written = False  # in this pass, the element of the source; that of the target
        for step in [*stage.before, *stage.body]:
            for buffer, position in step.value.loads:
                if buffer is source:
                    if at > last or position is not store.position or (written and not loaded):
                        return False
                    loaded = True
            if isinstance(step, Store) and any(
                b is source for a in index.data_atoms(step.position) for b, _ in a.node.loads
            ):
                return False
            written |= step is store
    return True


def _convolution(step: Convolution) -> str:
    def at(ref: TensorRef | None) -> str:
        return "nullptr" if ref is None else f"{ref.buffer.name} + {_text(ref.offset)}"

    count, n, height, width = step.target.sizes
    _, channels, *sizes = step.image.sizes
    image = f"{{{at(step.image)}, {', '.join(f'{v}l' for v in (*sizes, channels))}}}"
    windows = f"{{{', '.join(f'{v}l' for v in (*step.kernel, *step.stride, *step.padding))}}}"
    return (
        f"convolution<tile_pixels({index.product((count, height, width))}l)>({step.target.name}, {at(step.addend)}, "
        f"{count}l, {height}l, {width}l, {n}l, {image}, {windows}, (f32*){step.weight.name}, {at(step.bias)}, "
        f"{'true' if step.relu else 'false'});"
    )


def _operand(matrix: Matrix, rows: Index, columns: Index) -> str:
    """Address, leading dimension and whether it is transposed."""
    plain = (type(matrix.columns) is int and matrix.columns == 1) or (type(columns) is int and columns == 1)
    leading = matrix.rows if plain else matrix.columns
    offset = f" + {_text(matrix.offset)}" if not (type(matrix.offset) is int and matrix.offset == 0) else ""
    return f"{matrix.buffer.name}{offset}, {_text(leading)}, {'false' if plain else 'true'}"


def _text(value: Index) -> str:
    """An index of sizes in C++."""
    return f"{value}l" if type(value) is int else _text_py(value).replace("//", "/")


def _text_py(value: Any) -> str:
    """An index of sizes in Python, whose operators C++ shares for what is not negative."""
    if not isinstance(value, index.Ix):
        return repr(value)
    return f"({value!r})"


def _tuple(values: Sequence[Index]) -> str:
    return "(" + "".join(f"{_text_py(v)}, " for v in values) + ")"


def _shown(ref: TensorRef) -> str:
    buffer = ref.buffer
    whole = ref.sizes == buffer.sizes and ref.strides == buffer.strides and type(ref.offset) is int and ref.offset == 0
    if whole:
        return buffer.name
    return f"shown({buffer.name}, {_tuple(ref.sizes)}, {_tuple(ref.strides)}, {_text_py(ref.offset)})"


def _argument(value: Any) -> str:
    if isinstance(value, TensorRef):
        return _shown(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_argument(v) for v in value) + "]"
    if isinstance(value, index.Ix):
        return _text_py(value)
    if isinstance(value, float):
        return f"float({str(value)!r})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    return repr(value)
