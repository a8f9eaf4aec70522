"""The host side of a graph as a C++ function of addresses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from ... import faults
from ...ir import index
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.program import Extent, Solved, TensorRef
from ...schedule.host import (
    Allocate,
    ComputeSize,
    FitInput,
    Host,
    HostStep,
    Launch,
    MakeArena,
    ReadSize,
    Release,
    Require,
    Return,
)
from ..cpu.module import MOST_ON_STACK, REPORTED, text_in_cpp

if TYPE_CHECKING:
    from .assembler import Assembler

MOST_DIMENSIONS = 8
"""Of a tensor that goes in or out: the room that ``torchmux_tensor`` has for sizes."""

DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.bool: 11,
    torch.bfloat16: 15,
}
"""The numbers of dtypes in the C interface, which are those of torch's ``ScalarType``."""


def print_host(host: Host, assembler: Assembler, places: Mapping[Buffer, str], inputs: Sequence[str]) -> str:
    """``run(in, weights, out)``: 0, or -1 after ``fail``.

    ``places`` are C++ expressions for the addresses of inputs and constants, ``inputs`` those of all inputs of the
    graph, of which some are numbers.
    """
    return _Printer(host, assembler, places, inputs).run()


class _Printer:
    def __init__(self, host: Host, assembler: Assembler, places: Mapping[Buffer, str], inputs: Sequence[str]) -> None:
        self.host, self.assembler, self.places, self.inputs = host, assembler, places, inputs
        self.parameters = {b: at for at, b in enumerate(host.parameters) if isinstance(b, Buffer)}

    def run(self) -> str:
        lines = [
            "static int run(const torchmux_tensor* in, const char* weights, torchmux_tensor* out) {",
            "  Memory memory;",
        ]
        lines += [f"  char* {b.name} = (char*)({place});" for b, place in self.places.items()]
        for step in self.host.steps:
            lines += [f"  {line}" for line in self.lines(step)]
        return "\n".join([*lines, "}", ""])

    def lines(self, step: HostStep) -> list[str]:
        match step:
            case ReadSize(name, at, extent, factor):
                return [f"const i64 {name} = {self._number(at, extent)} / {factor};"]
            case ComputeSize(name, value):
                return [f"const i64 {name} = {text_in_cpp(value)};"]
            case Require(need):
                return [f"if ({text_in_cpp(need.size)} == 0) return fail({json.dumps(need.words)});"]
            case FitInput(buffer):
                return self._fit(buffer)
            case MakeArena(size):
                return self._arena(size)
            case Allocate(buffer):
                return self._made(buffer.name, _bytes(buffer))
            case Launch():
                return self._launch(step)
            case Release(buffers):
                return [f"memory.release({b.name});" for b in buffers]
            case Return(results):
                return self._return(results)
            case _:  # graphs with any other step are refused before
                raise AssertionError(step)

    def _number(self, at: int, extent: Extent | Solved | None) -> str:
        if isinstance(extent, Solved):
            return f"({self._number(at, None)} - ({extent.offset})) / {extent.factor}"
        if extent is None:
            return f"(i64)({self.inputs[at]})"
        # Inputs of a call have no gaps; weights have sizes that are known.
        kind, dim = extent
        found = self.inputs[at].removesuffix(".data")
        return f"{found}.sizes[{dim}]" if kind == "size" else f"stride_of({found}, {dim})"

    def _fit(self, buffer: Buffer) -> list[str]:
        """Inputs have no gaps: one for which the code expects another layout is copied."""
        usual = index.contiguous_strides(buffer.sizes)
        if all(
            (type(s) is int and s <= 1) or a is b or (type(a) is int and a == b)
            for s, a, b in zip(buffer.sizes, usual, buffer.strides, strict=True)
        ):
            return []
        fitted = f"fitted_{buffer.name}"
        return [
            *self._made(fitted, _bytes(buffer), declare=True),
            _copy(fitted, buffer.strides, buffer.name, usual, buffer.sizes, buffer.dtype),
            f"{buffer.name} = {fitted};",
        ]

    def _made(self, name: str, size: str, *, declare: bool = True) -> list[str]:
        kind = "char* " if declare else ""
        return [f"{kind}{name} = memory.take({size});", f"if (!{name}) return fail(OUT_OF_MEMORY);"]

    def _arena(self, size: Index) -> list[str]:
        if self.assembler.arena_on_stack or (type(size) is int and size == 0):
            return ["char* arena = nullptr;"]
        made = [f"arena = memory.take({text_in_cpp(size)});", "if (!arena) return fail(OUT_OF_MEMORY);"]
        if not self.assembler.arena_may_be_on_stack:
            return ["char* arena;", *made]
        return ["char* arena = nullptr;", f"if ({text_in_cpp(size)} > {MOST_ON_STACK}) {{", *made, "}"]

    def _launch(self, launch: Launch) -> list[str]:
        number, symbols = launch.number, self.assembler.symbols
        verifies = number in self.assembler.verifying
        entries = [b.name for b in launch.tensors]
        entries += ["nullptr"] * (max(REPORTED if verifies else 1, len(entries)) - len(entries))
        sizes = f"sizes{number}" if symbols else "nullptr"
        lines = [f"char* at{number}[] = {{{', '.join(entries)}}};"]
        if symbols:
            lines.append(f"const i64 {sizes}[] = {{{', '.join(symbols)}}};")
        call = f"run{number}(at{number}, arena, {sizes})"
        if not verifies:
            return [*lines, f"{call};"]
        return [*lines, f"if ({call}) return fail_at((const i64*)at{number}, FAULTS, {len(faults.FAULTS)});"]

    def _return(self, results: Sequence[TensorRef | Index]) -> list[str]:
        lines = ["for (int i = 0; i < OUTPUTS; i++) out[i] = torchmux_tensor();"]
        given: set[Buffer] = set()
        for at, ref in enumerate(results):
            if not isinstance(ref, TensorRef):
                lines += [
                    f"if (!give(out[{at}], {DTYPES[torch.int64]}, 0, nullptr, 8)) return fail_and_drop(out, OUTPUTS);"
                ]
                lines += [f"*(i64*)out[{at}].data = {text_in_cpp(ref)};"]
                continue
            buffer, item = ref.buffer, ref.buffer.dtype.itemsize
            sizes = ", ".join(map(text_in_cpp, ref.sizes)) or "0"
            lines += ["{", f"  const i64 sizes[] = {{{sizes}}};"]
            usual = index.contiguous_strides(ref.sizes)
            whole = (
                ref.sizes == buffer.sizes
                and ref.strides == usual
                and type(ref.offset) is int
                and ref.offset == 0
                and buffer not in self.parameters
                and buffer not in given
                and buffer in self._allocated()
            )
            head = f"out[{at}], {DTYPES[buffer.dtype]}, {len(ref.sizes)}, sizes"
            if whole:
                given.add(buffer)
                lines += [f"  memory.hand({head}, {buffer.name});", "}"]
                continue
            lines.append(f"  if (!give({head}, {item})) return fail_and_drop(out, OUTPUTS);")
            source = f"({buffer.name} + {text_in_cpp(ref.offset)} * {item})"
            lines.append("  " + _copy(f"(char*)out[{at}].data", usual, source, ref.strides, ref.sizes, buffer.dtype))
            lines.append("}")
        return [*lines, "return 0;"]

    def _allocated(self) -> set[Buffer]:
        return {step.buffer for step in self.host.steps if isinstance(step, Allocate)}


def _copy(
    to: str,
    to_strides: Sequence[Index],
    source: str,
    strides: Sequence[Index],
    sizes: Sequence[Index],
    dtype: torch.dtype,
) -> str:
    a, b, c = (f"Numbers{{{{{', '.join(map(text_in_cpp, values))}}}}}.at" for values in (to_strides, strides, sizes))
    return f"copy_strided({to}, {a}, {source}, {b}, {c}, {len(sizes)}, {dtype.itemsize});"


def _bytes(buffer: Buffer) -> str:
    """What ``buffer`` takes, from its first to its last element."""
    last: Index = 1
    for extent, stride in zip(buffer.sizes, buffer.strides, strict=True):
        last = last + (extent - 1) * stride
    empty = " || ".join(f"{text_in_cpp(s)} == 0" for s in buffer.sizes)
    size = f"{text_in_cpp(last)} * {buffer.dtype.itemsize}"
    return f"({empty}) ? 0 : {size}" if empty else size
