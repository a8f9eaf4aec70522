"""The Python function of a graph that runs on a GPU: it passes addresses, and launches what stands between two calls of
torch's operators by one call.

``current_stream``, ``new_here``, ``aligned``, ``launch0`` and so on, and ``bad`` are defined by ``loading.py``.
Nothing here waits for the GPU: a kernel that finds an index out of range stops the device, as torch's own kernels do,
and the program hears of it when it waits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from ...ir import index
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.program import Program, TensorRef
from ...schedule.host import FitInput, Host, Launch
from ..host import text_of, tuple_of
from .axes import LIMIT, greatest
from .compiling import Job
from .loading import ALIGNMENT
from .module import TritonHost, constants_of, named
from .scopes import HEAD, NARROW_HEAD, TritonKernel

POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.bool: "*i1",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}
"""What Triton calls pointers to memory of these types."""

_SIZE = re.compile(r'(\w+): "(i\d+)"')


class GpuHost(TritonHost):
    """See the module."""

    def __init__(self, program: Program, plan: Host, kernels: Mapping[int, TritonKernel], timed: bool) -> None:
        super().__init__(program, plan, kernels, timed)
        self.launches: list[dict[str, Any]] = []
        self.jobs: dict[str, Job] = {}
        self.wide: dict[str, Job] = {}  # by the same names, with indices of 64 bits; compiled when they are needed
        self.limited: dict[tuple[str, ...], str] = {}  # what tells whether all of these are small
        # What kernels read and write, and torch's operators or callers give: its addresses are told to kernels.
        steps = [step for piece in plan.launches for step in piece.steps]
        used = {plan.placed(b) for step in steps for b in self.kernels[id(step)].buffers}
        self.addressed = {b for b in used if b not in plan.arena.offsets}
        self.told: set[Buffer] = set()  # whose addresses have a name already

    def run(self) -> str:
        head, _, body = super().run().partition("\n")
        return (
            f"{head}\n    stream = current_stream({self.device.index or 0})\n{body}"
            if self.launches
            else f"{head}\n{body}"
        )

    def own(self) -> Mapping[str, Any]:
        known = self.program.constants
        constants = {self._here(b): known[b.name] for b in self.addressed if b.name in known}
        return {
            "device": str(self.device),
            "launches": self.launches,
            "wide": {name: asdict(job) for name, job in self.wide.items()},
            "verifies": self.verifies(),
            "constants": constants,
        }

    def parts(self) -> list[Job]:
        return list(self.jobs.values())

    def arena(self, size: Index) -> list[str]:
        if not self.host.arena.offsets:
            return []
        return [f"arena = new_here(({text_of(size)},), (1,), torch.uint8)", "arena_at = arena.data_ptr()"]

    def allocation(self, buffer: Buffer, ref: TensorRef | None) -> str:
        if buffer.device != self.device:
            return super().allocation(buffer, ref)
        shape = buffer if ref is None else ref
        return f"{buffer.name} = new_here({tuple_of(shape.sizes)}, {tuple_of(shape.strides)}, {buffer.tensor_dtype})"

    # --- launches -------------------------------------------------------------------------------------------------

    def launch(self, launch: Launch) -> list[str]:
        lines: list[str] = []
        for step in launch.steps:
            for buffer in self.kernels[id(step)].buffers:
                lines += self._address(self.host.placed(buffer))
        for steps in [[step] for step in launch.steps] if self.timed else [launch.steps]:
            lines += self._piece(steps)
        return lines

    def _piece(self, steps: list[Any]) -> list[str]:
        """The launch of kernels one after the other."""
        slots: dict[str, int] = {}
        told: list[list[Any]] = []
        small: set[Index] = set()
        for step in steps:
            kernel = self.kernels[id(step)]
            name = self.function(kernel, step)
            self.jobs.setdefault(name, job(kernel, name, narrow=kernel.narrow is not None))
            if kernel.narrow is not None:
                self.wide.setdefault(name, job(kernel, name, narrow=False))
                small |= kernel.narrow
            grid = [kernel.programs, 1, 1]
            given = [self._at(self.host.placed(b)) for b in kernel.buffers]
            given += [*kernel.sizes, *(["bad.data_ptr()"] if kernel.verifies else [])]
            told.append(
                [
                    name,
                    [slots.setdefault(text_of(count), len(slots)) for count in grid],
                    [slots.setdefault(text, len(slots)) for text in given],
                ]
            )
        number = len(self.launches)
        name = f"launch{number}"
        self.launches.append({"steps": told, "slots": len(slots), "in_64_bits": bool(small)})
        before: list[str] = []
        if small:
            before, is_small = self._test(small)
            name = f"({name} if {is_small} else wide{number})"
        comment = f"  # {', '.join(step[0] for step in told)}"
        return before + self.clocked(f"{name}(stream, {', '.join(slots)}){comment}")

    def _test(self, small: set[Index]) -> tuple[list[str], str]:
        """What finds out whether 32 bits do, where no one has yet, and the name of the answer."""
        texts = tuple(text_of(bound) for bound in greatest(small))
        known = texts in self.limited
        name = self.limited.setdefault(texts, f"small{len(self.limited)}")
        return [] if known else [f"{name} = {' and '.join(f'{text} < {LIMIT}' for text in texts)}"], name

    def _at(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        at = self.host.arena.offsets.get(buffer)
        return f"at_{buffer.name}" if at is None else f"arena_at + {text_of(at)}"

    def _address(self, buffer: Buffer) -> list[str]:
        """What finds the address of a buffer that is a tensor, where no one has yet."""
        if buffer in self.told or buffer in self.host.arena.offsets:
            return []
        self.told.add(buffer)
        name = self._here(buffer)
        # Of what lies on the CPU, kernels read a copy: torch's operators read it where it is.
        moved = buffer.device != self.device and buffer.name not in self.program.constants
        return [
            *([f"{name} = {buffer.name}.to({self.device_text()})"] if moved else []),
            f"at_{buffer.name} = {name}.data_ptr()",
        ]

    def _here(self, buffer: Buffer) -> str:
        """The name of a buffer, or of its copy, on the device."""
        return buffer.name if buffer.device == self.device else f"here_{buffer.name}"

    # --- tensors that others made ---------------------------------------------------------------------------------

    def fit(self, step: FitInput) -> list[str]:
        buffer, name = step.buffer, step.buffer.name
        if buffer not in self.addressed or buffer.device != self.device:
            return super().fit(step)
        self.told.add(buffer)
        kept = [f"given_{name} = {name}"] if buffer in self.written else []
        strides = tuple_of(buffer.strides)
        usual = buffer.strides == index.contiguous_strides(buffer.sizes)
        test = f"not {name}.is_contiguous()" if usual else f"{name}.stride() != {strides}"
        return [
            *kept,
            f"at_{name} = {name}.data_ptr()",
            f"if at_{name} % {ALIGNMENT} or {test}:",
            f"    {name} = aligned({name}, {strides})",
            f"    at_{name} = {name}.data_ptr()",
        ]

    def fit_result(self, buffer: Buffer) -> list[str]:
        if buffer not in self.addressed or buffer.device != self.device:
            return super().fit_result(buffer)
        self.told.discard(buffer)
        return [f"{buffer.name} = aligned({buffer.name}, {tuple_of(buffer.strides)})"]


EXACT = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""Products and sums are rounded one by one, and functions know subnormal numbers, as in eager's kernels."""

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def job(kernel: TritonKernel, name: str, *, narrow: bool) -> Job:
    """How a kernel is compiled under ``name``; if ``narrow``, with 32 bits for what sizes decide about."""
    types = dict(_SIZE.findall(kernel.source.partition("\n    ")[0]))
    signature = {f"p{n}": POINTERS[b.dtype] for n, b in enumerate(kernel.buffers)}
    signature |= {size: "i32" if narrow else types.get(size, "i64") for size in kernel.sizes}
    constants = constants_of(kernel)
    options: dict[str, Any] = dict(EXACT)
    options |= {option: constants.pop(option) for option in _OPTIONS if option in constants}
    if kernel.verifies:
        signature["bad"] = "*i32"
        options |= {"debug": True, "sanitize_overflow": False}  # so that a check stops the device
    source = (NARROW_HEAD if narrow else HEAD) + named(kernel.source, name)
    return Job(name, source, signature, constants, options)
