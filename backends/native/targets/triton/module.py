"""A schedule as Triton kernels and the Python function that launches them."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from torchmux.quoting import quoted
from torchmux.registry.errors import NodesRefused

from ....common.pipeline.lines import line_of
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.operations import Unsupported
from ...ir.ordered_loops import Scan, Scatter
from ...ir.products import FinishedProduct
from ...ir.program import Program
from ...lowering.writes import is_write
from ...schedule import host, stages
from ...schedule.host import Host, Launch
from ...schedule.kernel import Kernel
from ...schedule.schedule import Schedule
from ...schedule.stages import LoopNest
from ...schedule.together import Together
from ..host import HostPrinter, argument, text_of
from ..target import Module
from . import beside
from .ordered import print_ordered
from .printer import print_kernel
from .scopes import HEAD, TritonKernel
from .tiled.printing import print_product


def assemble(
    program: Program, schedule: Schedule, plan_loops: Callable[[Kernel, set[Buffer]], LoopNest], *, timed: bool
) -> Module:
    """Print everything; if ``timed``, with code that adds up the seconds of each step in ``spent``.

    Raises:
        NodesRefused: an operation that has no spelling in Triton.
    """
    from .gpu_host import GpuHost

    kernels: dict[int, TritonKernel] = {}

    def kind(step: Any) -> Hashable:
        if not isinstance(step, (LoopNest, FinishedProduct)):
            return None
        kernel = kernels[id(step)] = printed(step)
        return beside.kind(kernel)

    plan = host.plan(program, schedule, plan_loops, kind)
    for step in (step for piece in plan.launches for step in piece.steps):
        if isinstance(step, Together):
            kernels[id(step)] = beside.joined([kernels[id(part)] for part in step.steps])
        elif id(step) not in kernels:
            kernels[id(step)] = printed(step)
    printer = (InterpretedHost if program.device.type == "cpu" else GpuHost)(program, plan, kernels, timed)
    constants = [b for b in program.buffers if b.name in program.constants]
    return Module(
        printer.run(),
        printer.source(),
        "py",
        [program.constants[b.name] for b in constants],
        [b.name for b in constants],
        [str(call.op) for call in plan.calls],
        printer.timers,
        {"timers": len(printer.timers), **printer.own()},
        printer.parts(),
    )


_Function = tuple[str, tuple[torch.dtype, ...], tuple[tuple[str, Any], ...]]
"""The text of a kernel without a name, the types of its buffers, and its constants."""


class TritonHost(HostPrinter):
    """The Python function of a graph, and its kernels; ``clock`` and ``spent`` are defined by ``loading.py``."""

    def __init__(self, program: Program, plan: Host, kernels: Mapping[int, TritonKernel], timed: bool) -> None:
        super().__init__(plan)
        self.program = program
        self.device = program.device
        self.timed = timed
        self.timers: list[str] = []
        self.functions: dict[_Function, str] = {}  # equal kernels are one function, of this name
        self.comments: dict[str, list[str]] = {}
        self.kernels = kernels  # by the identity of their steps

    def source(self) -> str:
        """All kernels."""
        if not self.functions:
            return ""
        texts = ["".join(self.comments[name]) + named(text, name) for (text, _, _), name in self.functions.items()]
        return "\n\n".join([HEAD, *texts])

    @abstractmethod
    def own(self) -> Mapping[str, Any]:
        """What ``loading.load`` needs."""

    def parts(self) -> Any:
        """What ``Triton.build`` needs besides."""
        return None

    def verifies(self) -> bool:
        """Whether a kernel checks indices."""
        return any(kernel.verifies for kernel in self.kernels.values())

    def device_text(self) -> str:
        return argument(self.device)

    def clocked(self, call: str) -> list[str]:
        """A call whose time is told, if times are."""
        if not self.timed:
            return [call]
        at = len(self.timers)
        self.timers.append(call)
        return ["begun = clock()", call, f"spent[{at}] += clock() - begun"]

    def function(self, kernel: TritonKernel, step: Any) -> str:
        """The name of a kernel in the text of all."""
        # Types and constants are compiled into machine code, and do not show in the text.
        made_for = tuple(b.dtype for b in kernel.buffers), tuple(constants_of(kernel).items())
        name = self.functions.setdefault((kernel.source, *made_for), f"kernel{len(self.functions)}")
        comments = self.comments.setdefault(name, [])
        for node in step.origins:
            line = line_of(node)
            text = f"# {quoted(node.target)}" + (f" at {quoted(line)}" if line else "") + "\n"
            if text not in comments:
                comments.append(text)
        return name


class InterpretedHost(TritonHost):
    """For Triton's interpreter: each kernel is launched by ``launch(kernel, programs, ...)`` on tensors, which stand
    for all memory, and what kernels say of indices is read at once."""

    def __init__(self, program: Program, plan: Host, kernels: Mapping[int, TritonKernel], timed: bool) -> None:
        super().__init__(program, plan, kernels, timed)
        self.made: set[Buffer] = set()  # which parts of the arena are tensors

    def own(self) -> Mapping[str, Any]:
        return {"device": "interpreter", "kernels": list(self.functions.values())}

    def arena(self, size: Index) -> list[str]:
        lines = [] if not self.host.arena.offsets else [f"arena = new_arena({text_of(size)}, {self.device_text()})"]
        if self.verifies():
            lines.append(f"bad = torch.zeros((), dtype=torch.int32, device={self.device_text()})")
        return lines

    def launch(self, launch: Launch) -> list[str]:
        lines: list[str] = []
        for step in launch.steps:
            kernel = self.kernels[id(step)]
            buffers = [self.host.placed(b) for b in kernel.buffers]
            for buffer in buffers:
                lines += self._tensor(buffer)
            given = [*(b.name for b in buffers), *kernel.sizes, *(["bad"] if kernel.verifies else [])]
            name = self.function(kernel, step)
            fixed = [f"{name}={value!r}" for name, value in constants_of(kernel).items()]
            lines += self.clocked(f"launch({name}, {text_of(kernel.programs)}, {', '.join([*given, *fixed])})")
        if any(self.kernels[id(step)].verifies for step in launch.steps):
            lines += ["if bad.item():", "    raise fault((1, 0, 0))"]
        return lines

    def _tensor(self, buffer: Buffer) -> list[str]:
        """What makes a tensor of a buffer, where there is none yet."""
        at = self.host.arena.offsets.get(buffer)
        if at is None or buffer in self.made:
            return []
        self.made.add(buffer)
        end = text_of(at + buffer.numel * buffer.dtype.itemsize)
        return [f"{buffer.name} = arena[{text_of(at)}:{end}].view({buffer.dtype})"]


def named(text: str, name: str) -> str:
    """The text of a kernel, and of what it consists of, under another name than ``kernel``."""
    return re.sub(r"\bkernel(?=(_\d+)?\()", name, text)


def constants_of(kernel: TritonKernel) -> dict[str, Any]:
    """The arguments of a kernel that are part of its code, and Triton's options among them."""
    return dict(kernel.constants)


def printed(step: Any) -> TritonKernel:
    """The kernel of a step.

    Raises:
        NodesRefused: see :func:`assemble`.
    """
    if isinstance(step, LoopNest):
        _check_order_of_writes(step)
    try:
        if isinstance(step, FinishedProduct):
            return print_product(step)
        return print_ordered(step) if isinstance(step, (Scan, Scatter)) else print_kernel(step)
    except Unsupported as why:
        raise NodesRefused({node.name: str(why) for node in step.origins}) from None


def _check_order_of_writes(nest: LoopNest) -> None:
    """A kernel reads an input only before it writes to it.

    Raises:
        NodesRefused: it does not; torch then makes these writes.
    """
    if stages.reads_before_writing(nest):
        return
    reason = "an input is read after a part of it was overwritten"
    writes = [node for node in nest.origins if is_write(node)]
    raise NodesRefused({node.name: reason for node in writes or nest.origins})
