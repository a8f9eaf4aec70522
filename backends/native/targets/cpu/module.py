"""A schedule as one C++ source and the Python function that calls it.

Between two calls to torch's operators there is one C++ function, which runs all kernels and matrix products.  The
Python function allocates what torch sees, and passes addresses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchmux.quoting import quoted

from ....common.pipeline.lines import line_of
from ...ir import index
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.ordered_loops import Scan, Scatter
from ...ir.products import ComputedProduct, Product
from ...ir.program import Program, TensorRef
from ...options import NativeOptions
from ...schedule.host import Host, Launch
from ...schedule.placement import reads_of, writes_of
from ...schedule.stages import LoopNest
from ..host import HostPrinter, text_of
from ..target import Module
from .calls.plan import plan_of
from .choosing import Shape, shape_of
from .computed import print_product
from .cpp import Function, KernelPrinter
from .cpp_columns import ColumnsPrinter
from .cpp_plain import PlainPrinter, is_plain
from .cpp_scopes import NAMES
from .cpp_sequential import print_sequential
from .cpp_tiles import TilesPrinter
from .packing import PackedMatrix, PackedWeight, as_json
from .selection import PackedProduct, TiledConvolution
from .source import Source

MOST_ON_STACK = 16 * 1024
"""Temporary buffers of up to this many bytes in total are on the stack, which saves an allocation in each call."""

STEPS_OF_A_PART = 32
"""What a compiler needs for a function grows faster than the function: one of more steps than this is divided."""

_STOP = "  if (bad[0]) return;  // nothing is written to an input after a fault"

REPORTED = 3
"""The numbers that tell of a bad index (:func:`~...faults.fault`)."""


def assemble(program: Program, host: Host, options: NativeOptions, *, timed: bool) -> Module:
    """Print everything; if ``timed``, with code that adds up the seconds of each step in ``spent``."""
    return Assembler(program, host, options, timed).run()


class Assembler:
    linkage = 'extern "C"'  # of the functions that the host calls

    def __init__(self, program: Program, host: Host, options: NativeOptions, timed: bool) -> None:
        self.program = program
        self.host = host
        self.optimize = options.optimize
        self.timed = timed
        self.timers: list[str] = []
        self.own_products = options.matmul != "library"  # those of the library have a rival
        self.products: list[Shape] = []
        self.computes = False  # whether there are products whose right operand is computed
        self.symbols = list(program.symbols)
        self.checked = False  # whether a step of this launch so far has verified an index
        self.verifying: set[int] = set()  # the launches that may report a fault
        self.functions: dict[str, str] = {}
        self.function_comments: dict[str, list[str]] = {}
        size = host.arena.size
        self.arena_on_stack = type(size) is int and 0 < size <= MOST_ON_STACK and not host.calls
        self.arena_may_be_on_stack = type(size) is not int and not host.calls  # that depends on the sizes of a call

    def run(self) -> Module:
        bodies = [self._segment(launch) for launch in self.host.launches]
        comments = {name: self._comment(name) for name in self.functions.values()}
        packs: dict[str, Any] = {buffer.name: pack for pack, buffer in self.program.packs.items()}
        definitions = []
        if self.products or any(isinstance(pack, PackedMatrix) for pack in packs.values()):
            definitions.append('#include "gemm.h"\n')
        if self.products:
            definitions.append(f'extern "C" {{ char way[{len(self.products)}]; }}  // of each product, as measured\n')
        if any(isinstance(pack, PackedWeight) for pack in packs.values()):
            definitions.append('#include "convolution.h"\n')
        if self.timed:
            definitions.append('extern "C" f64 omp_get_wtime(void);\n')
            definitions.append(f'extern "C" {{ f64 spent[{len(self.timers)} + 1]; }}\n')
        kernels = {name: body for body, name in self.functions.items()}
        includes = '#include "kernels.h"\n'
        if any(
            word in body
            for body in kernels.values()
            for word in ("squares<", "columns<", "_few<", "_few_back<", "in_steps<", "_back(", "sweep_over(")
        ):
            includes += '#include "tiles.h"\n'
        if self.computes:
            includes += '#include "computed.h"\n'
        source = Source(includes, "".join(definitions), kernels, "\n".join(bodies), comments)
        constants = [b for b in self.program.buffers if b.name in self.program.constants]
        calls = [str(call.op) for call in self.host.calls]
        own: dict[str, Any] = {
            "packs": as_json(packs),
            "products": [dataclasses.astuple(shape) for shape in self.products],
            "optimize": self.optimize if bodies else "",
            "launches": len(bodies),
            "timers": len(self.timers),
            "attends": any(op.startswith("torchmux.") for op in calls),
        }
        printer = _CtypesHost(self)
        has_no_arena = self.arena_on_stack
        plan = plan_of(
            printer,
            self.symbols,
            verifies=bool(self.verifying),
            arena_from=None if has_no_arena else MOST_ON_STACK if self.arena_may_be_on_stack else 0,
        )
        own["plan"] = None if self.timed else plan
        return Module(
            printer.run(),
            source.whole(),
            "cpp",
            [self.program.constants[b.name] for b in constants],
            [b.name for b in constants],
            calls,
            self.timers,
            own,
            source,
        )

    # --- C++ ------------------------------------------------------------------------------------------------------

    def _segment(self, launch: Launch) -> str:
        """The function of a launch: it does the steps itself, or calls parts that do so many each."""
        at = {buffer: n for n, buffer in enumerate(launch.tensors)}
        self.checked = False
        parts = [
            self._part(launch.steps[first : first + STEPS_OF_A_PART], at)
            for first in range(0, len(launch.steps), STEPS_OF_A_PART)
        ]
        start, end = [], []
        if self.arena_on_stack:
            start = [f"  alignas(64) char own[{self.host.arena.size}];", "  arena = own;"]
        elif self.arena_may_be_on_stack:
            start = [f"  alignas(64) char own[{MOST_ON_STACK}];", "  if (!arena) arena = own;"]
        if any("bad);" in line for part in parts for line in part):
            self.verifying.add(launch.number)
            start.insert(0, f"  i64 bad[{REPORTED}] = {{}};")
            # What was found goes where the addresses came from.
            end = ["  if (!bad[0]) return 0;", "  i64* told = (i64*)at;"]
            end += [f"  for (int i = 0; i < {REPORTED}; i++) told[i] = bad[i];", "  return 1;"]
        end = end or ["  return 0;"]
        head = f"{self.linkage} i64 run{launch.number}(char** at, char* arena, const i64* sizes) {{"
        if len(parts) == 1 and not any(_STOP in line for line in parts[0]):
            return "\n".join([head, *start, *parts[0], *end, "}\n"])
        told = "bad" if launch.number in self.verifying else "nullptr"
        names = [f"part{launch.number}_{n}" for n in range(len(parts))]
        taken = "(char** at, char* arena, const i64* sizes, i64* bad)"
        functions = [
            "\n".join([f"NOINLINE static void {name}{taken} {{", *part, "}\n"])
            for name, part in zip(names, parts, strict=True)
        ]
        calls = [f"  {name}(at, arena, sizes, {told});" for name in names]
        return "\n".join([*functions, head, *start, *calls, *end, "}\n"])

    def _part(self, steps: Sequence[Any], at: Mapping[Buffer, int]) -> list[str]:
        """Some steps, and the sizes and addresses that they need; ``at`` says where in its table a tensor's is."""
        lines = [f"  const i64 {name} = sizes[{n}];" for n, name in enumerate(self.symbols)]
        named: set[Buffer] = set()
        checked = self.checked  # whether something was since the last look at what was found
        for step in steps:
            if checked and any(b.over is not None for b in writes_of(step)):
                lines.append(_STOP)
                checked = False
            for buffer in sorted(self.host.touched(step) - named, key=lambda b: b.name):
                place = (
                    f"at[{at[buffer]}]" if buffer in at else f"(arena + {text_in_cpp(self.host.arena.offsets[buffer])})"
                )
                kind = NAMES.get(buffer.dtype, "u8")  # of others, code reads what shows their memory
                lines.append(f"  {kind}* {buffer.name} = ({kind}*){place};")
                named.add(buffer)
            call = self._call(step)
            lines += self._timed(call) if self.timed else [f"  {call}"]
            if "bad);" in call:
                checked = self.checked = True
        return lines

    def _timed(self, call: str) -> list[str]:
        at = len(self.timers)
        self.timers.append(call)
        return [f"  spent[{at}] -= omp_get_wtime();", f"  {call}", f"  spent[{at}] += omp_get_wtime();"]

    def _call(self, step: Any) -> str:
        if isinstance(step, Product):
            return self._product(step)
        if isinstance(step, TiledConvolution):
            return self._convolution(step)
        if isinstance(step, ComputedProduct):
            function = print_product(step)
            self.computes = True
        elif isinstance(step, (Scan, Scatter)):
            function = print_sequential(step)
        else:
            touched = reads_of(step) | writes_of(step)
            function = _print_kernel(step, over_itself=len({self.host.placed(b) for b in touched}) < len(touched))
        name = self._function(function, step)
        arguments = [self.address(b) for b in function.buffers] + list(function.more)
        return f"{name}({', '.join(arguments)});"

    def address(self, buffer: Buffer) -> str:
        """Where a buffer lies, as an address of its elements."""
        placed = self.host.placed(buffer)
        return placed.name if placed.dtype is buffer.dtype else f"({NAMES[buffer.dtype]}*){placed.name}"

    def _function(self, function: Function, step: LoopNest | ComputedProduct) -> str:
        name = self.functions.setdefault(function.body, f"kernel{len(self.functions)}")
        comments = self.function_comments.setdefault(name, [])
        for node in step.origins:
            line = line_of(node)
            text = f"// {quoted(node.target)}" + (f" at {quoted(line)}" if line else "")
            if text not in comments:
                comments.append(text)
        return name

    def _comment(self, name: str) -> str:
        return "".join(f"{line}\n" for line in self.function_comments[name])

    def _product(self, step: Product) -> str:
        target = self.address(step.target)
        if isinstance(step, PackedProduct):
            left, lead, _ = self._operand(step.left).split(", ")
            return f"packed_product({target}, {left}, {lead}, {step.packed.name}, {step.m}l, {step.n}l, {step.k}l);"
        left, right = self._operand(step.left), self._operand(step.right)
        steps = (ref.strides[0] if len(ref.sizes) == 3 else 0 for ref in (step.left, step.right))
        extents = ", ".join(text_in_cpp(v) for v in (step.m, step.n, step.k, step.batch, *steps))
        shape = None
        if self.own_products and step.target.dtype is torch.float32:
            transposed = (operand.endswith("true") for operand in (left, right))
            shape = shape_of(step.m, step.n, step.k, step.batch, *transposed)
        if shape is None:
            return f"product({target}, {left}, {right}, {extents});"
        if shape not in self.products:
            self.products.append(shape)
        return f"chosen_product(way[{self.products.index(shape)}], {target}, {left}, {right}, {extents});"

    def _convolution(self, step: TiledConvolution) -> str:
        def at(ref: TensorRef | None) -> str:
            return "nullptr" if ref is None else f"{self.address(ref.buffer)} + {text_in_cpp(ref.offset)}"

        count, n, height, width = step.target.sizes
        _, channels, *sizes = step.image.sizes
        image = f"{{{at(step.image)}, {', '.join(f'{v}l' for v in (*sizes, channels))}}}"
        windows = f"{{{', '.join(f'{v}l' for v in (*step.weight.sizes[2:], *step.stride, *step.padding))}}}"
        target = self.address(step.target)
        return (
            f"convolution<tile_pixels({index.product((count, height, width))}l)>({target}, {at(step.addend)}, "
            f"{count}l, {height}l, {width}l, {n}l, {image}, {windows}, (f32*){step.packed.name}, {at(step.bias)}, "
            f"{'true' if step.relu else 'false'});"
        )

    def _operand(self, matrix: TensorRef) -> str:
        """Address, leading dimension and whether it is transposed."""
        columns = matrix.sizes[-1]
        down, along = matrix.strides[-2:]
        plain = (type(along) is int and along == 1) or (type(columns) is int and columns == 1)
        leading = down if plain else along
        offset = f" + {text_in_cpp(matrix.offset)}" if not (type(matrix.offset) is int and matrix.offset == 0) else ""
        return f"{self.address(matrix.buffer)}{offset}, {text_in_cpp(leading)}, {'false' if plain else 'true'}"


class _CtypesHost(HostPrinter):
    """The Python function: it calls ``run0``, ``run1``, ... with the addresses of tensors."""

    def __init__(self, module: Assembler) -> None:
        super().__init__(module.host)
        self.module = module

    def arena(self, size: Index) -> list[str]:
        if self.module.arena_on_stack or (type(size) is int and size == 0):
            return ["arena_at = None"]
        made = [f"arena = new_arena({text_of(size)})", "arena_at = arena.data_ptr()"]
        if not self.module.arena_may_be_on_stack:
            return made
        return ["arena_at = None", f"if {text_of(size)} > {MOST_ON_STACK}:", *(f"    {line}" for line in made)]

    def launch(self, launch: Launch) -> list[str]:
        symbols = self.module.symbols
        # Sizes and other integers, which may be negative, follow the addresses in a table that says what failed.
        addresses = [f"{b.name}.data_ptr()" for b in launch.tensors]
        call = f"run{launch.number}"
        if launch.number in self.module.verifying:
            entries = addresses + symbols
            entries += ["0"] * (REPORTED - len(entries))
            sizes = f"at + {8 * len(addresses)}" if symbols else "None"
            return [
                f"table = array('q', ({', '.join(entries)}))",
                "at = table.buffer_info()[0]",
                f"if {call}(at, arena_at, {sizes}):",
                f"    raise fault(table[:{REPORTED}])",
            ]
        return [f"{call}({_packed(addresses)}, arena_at, {_packed(symbols)})"]


def _print_kernel(nest: LoopNest, *, over_itself: bool) -> Function:
    """The C++ function of a kernel in the shape of its loops.  Equal kernels on other buffers have the same text.

    With ``over_itself`` a result lies where what it is made of does.
    """
    if nest.by_columns:
        return ColumnsPrinter(nest).run()
    if nest.tile is not None:
        return TilesPrinter(nest).run()
    if is_plain(nest) and not over_itself:  # plain loops store before they have read all
        return PlainPrinter(nest).run()
    return KernelPrinter(nest, over_itself=over_itself).run()


def _packed(numbers: list[str]) -> str:
    """Bytes of so many integers of 64 bits: they take half the time of an array."""
    return f"pack('{len(numbers)}q', {', '.join(numbers)})" if numbers else "None"


def text_in_cpp(value: Index) -> str:
    """An index of sizes in C++, whose ``/`` and ``%`` are those of Python only where nothing is negative."""
    if not isinstance(value, index.Ix):
        return f"{value}l"
    terms = []
    for mono, coef in value.terms:
        factors = [f"{coef}l"] if coef != 1 or not mono else []
        terms.append("*".join([*factors, *map(_atom_in_cpp, mono)]))
    return f"({' + '.join(terms)})"


def _atom_in_cpp(atom: index.Atom) -> str:
    if not isinstance(atom, (index.Div, index.Rem)):
        return atom.key
    left, right = text_in_cpp(atom.left), text_in_cpp(atom.right)
    divides = isinstance(atom, index.Div)
    if index.not_negative(atom.left):
        return f"({left} {'/' if divides else '%'} {right})"
    return f"{'floor_div' if divides else 'floor_rem'}((i64)({left}), (i64)({right}))"
