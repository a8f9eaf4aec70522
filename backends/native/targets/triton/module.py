"""A schedule as Triton kernels and the Python function that launches them."""

from __future__ import annotations

from typing import Any

from torchmux.quoting import quoted
from torchmux.registry.errors import NodesRefused

from ....common.pipeline.lines import line_of
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.operations import Unsupported
from ...ir.ordered_loops import Scan, Scatter
from ...ir.program import Program
from ...schedule.host import Host, Launch
from ..host import HostPrinter, argument, text_of
from ..target import Module
from .ordered import print_ordered
from .printer import print_kernel
from .scopes import HEAD, TritonKernel


def assemble(program: Program, host: Host, *, timed: bool) -> Module:
    """Print everything; if ``timed``, with code that adds up the seconds of each step in ``spent``.

    Raises:
        NodesRefused: an operation that has no spelling in Triton.
    """
    printer = _TritonHost(program, host, timed)
    constants = [b for b in program.buffers if b.name in program.constants]
    return Module(
        printer.run(),
        printer.source(),
        "py",
        [program.constants[b.name] for b in constants],
        [b.name for b in constants],
        [str(call.op) for call in host.calls],
        printer.timers,
        {"kernels": list(printer.functions.values()), "timers": len(printer.timers)},
    )


class _TritonHost(HostPrinter):
    """The Python function: it launches kernels on tensors, which stand for all memory.

    ``launch(kernel, programs, ...)``, ``clock`` and ``spent`` are defined by ``loading.py``.
    """

    def __init__(self, program: Program, host: Host, timed: bool) -> None:
        super().__init__(host)
        self.device = program.device
        self.timed = timed
        self.timers: list[str] = []
        self.functions: dict[str, str] = {}  # equal kernels are one function: the text without a name, and the name
        self.comments: dict[str, list[str]] = {}
        self.kernels = {id(step): printed(step) for piece in host.launches for step in piece.steps}
        self.here: set[Buffer] = set()  # what has a tensor on the device, besides what the host allocates

    def source(self) -> str:
        """All kernels."""
        if not self.functions:
            return ""
        texts = [
            "".join(self.comments[name]) + text.replace("def kernel(", f"def {name}(", 1)
            for text, name in self.functions.items()
        ]
        return "\n\n".join([HEAD, *texts])

    def arena(self, size: Index) -> list[str]:
        lines = [] if not self.host.arena.offsets else [f"arena = new_arena({text_of(size)}, {self._device()})"]
        if any(kernel.verifies for kernel in self.kernels.values()):
            lines.append(f"bad = torch.zeros((), dtype=torch.int32, device={self._device()})")
        return lines

    def _device(self) -> str:
        return argument(self.device)

    def launch(self, launch: Launch) -> list[str]:
        lines: list[str] = []
        for step in launch.steps:
            kernel = self.kernels[id(step)]
            buffers = [self.host.placed(b) for b in kernel.buffers]
            for buffer in buffers:
                lines += self._tensor(buffer)
            given = [*(b.name for b in buffers), *kernel.sizes, *(["bad"] if kernel.verifies else [])]
            given += [f"{constant}={value}" for constant, value in kernel.constants.items()]
            name = self._function(kernel, step)
            call = f"launch({name}, {text_of(kernel.programs)}, {', '.join(given)})"
            lines += self._timed(call) if self.timed else [call]
        if any(self.kernels[id(step)].verifies for step in launch.steps):
            lines += ["if bad.item():", "    raise fault((1, 0, 0))"]
        return lines

    def _tensor(self, buffer: Buffer) -> list[str]:
        """What makes a tensor on the device of a buffer, where there is none yet."""
        if buffer in self.here:
            return []
        self.here.add(buffer)
        at = self.host.arena.offsets.get(buffer)
        if at is not None:
            end = text_of(at + buffer.numel * buffer.dtype.itemsize)
            return [f"{buffer.name} = arena[{text_of(at)}:{end}].view({buffer.dtype})"]
        if buffer.device != self.device:
            return [f"{buffer.name} = {buffer.name}.to({self._device()})"]
        return []

    def _timed(self, call: str) -> list[str]:
        at = len(self.timers)
        self.timers.append(call)
        return ["begun = clock()", call, f"spent[{at}] += clock() - begun"]

    def _function(self, kernel: TritonKernel, step: Any) -> str:
        name = self.functions.setdefault(kernel.source, f"kernel{len(self.functions)}")
        comments = self.comments.setdefault(name, [])
        for node in step.origins:
            line = line_of(node)
            text = f"# {quoted(node.target)}" + (f" at {quoted(line)}" if line else "") + "\n"
            if text not in comments:
                comments.append(text)
        return name


def printed(step: Any) -> TritonKernel:
    """The kernel of a step.

    Raises:
        NodesRefused: see :func:`assemble`.
    """
    try:
        return print_ordered(step) if isinstance(step, (Scan, Scatter)) else print_kernel(step)
    except Unsupported as why:
        raise NodesRefused({node.name: str(why) for node in step.origins}) from None
