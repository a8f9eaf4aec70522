"""GPUs: Triton kernels; products, convolutions and attention are torch's.

Nothing here imports Triton, which is needed to run kernels, not to print them.  ``native`` does not claim GPUs yet
(``SPEC.devices``): how fast these kernels are was never measured.
"""

from __future__ import annotations

import importlib.util

import torch

from torchmux.registry.errors import BackendUnavailable

from ...ir.expressions import Buffer
from ...ir.products import Attention, Convolution, Product
from ...ir.program import Program
from ...options import NativeOptions
from ...schedule import host, splits
from ...schedule.kernel import Kernel
from ...schedule.schedule import Schedule
from ...schedule.stages import LoopNest
from ..target import Module, Target
from ..torch_calls import call_of
from . import loops, module, shapes


class Triton(Target):
    name = "triton"
    device_type = "cuda"

    def select(self, program: Program, options: NativeOptions) -> None:
        """Everything abstract is a call of torch's operators, which are the device's libraries."""
        abstract = (Product, Convolution, Attention)
        program.items = [call_of(item) if isinstance(item, abstract) else item for item in program.items]
        splits.split(program, shapes.parts)

    def plan_loops(self, kernel: Kernel, needed: set[Buffer]) -> LoopNest:
        return loops.plan(kernel, needed)

    def assemble(self, program: Program, schedule: Schedule, options: NativeOptions, *, timed: bool) -> Module:
        return module.assemble(program, host.plan(program, schedule, self.plan_loops), timed=timed)

    def build(self, module: Module, options: NativeOptions) -> bytes:
        """The text of the kernels: Triton compiles them when they are launched first, and has a cache of its own."""
        if importlib.util.find_spec("triton") is None:
            raise BackendUnavailable("native needs Triton on this device: pip install triton")
        return module.code.encode()

    def wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
