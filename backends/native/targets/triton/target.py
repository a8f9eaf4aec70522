"""GPUs: Triton kernels; products, convolutions and attention are torch's, which are cuBLAS, cuDNN and flash attention.

Nothing here imports Triton, which is needed to compile kernels, not to print them.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from torchmux.registry.errors import BackendUnavailable

from ...ir import index
from ...ir.expressions import Buffer
from ...ir.program import Program
from ...ir.values import Value
from ...options import NativeOptions
from ...schedule import splits
from ...schedule.kernel import Kernel
from ...schedule.recompute import recompute
from ...schedule.schedule import Schedule
from ...schedule.stages import LoopNest
from ..target import Module, Target, Text
from . import compiling, loops, module, selection, shapes
from .tiled import choosing


def capability_of(device: torch.device) -> int:
    """The compute capability of a GPU, 90 for 9.0."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


_HALF = (torch.bfloat16, torch.float16)


def _by_tensor_cores(dtype: torch.dtype) -> bool:
    """Whether cuDNN convolves images of this type by them."""
    return dtype in _HALF or (dtype is torch.float32 and torch.backends.cudnn.allow_tf32)


def _multiplied_by_tensor_cores(dtype: torch.dtype) -> bool:
    return dtype in _HALF or (dtype is torch.float32 and torch.backends.cuda.matmul.allow_tf32)


_MULTIPLIES_BFLOAT16, _HOPPER = 80, 90
"""Compute capabilities: tensor cores take bfloat16 from the first on, and the model of products is the second's."""
_FEW_PARTS = 4
_SMALL = 2**22
"""Copying so many elements takes about as long as starting some kernels."""
_PIECE = 16
"""So many bytes of a row libraries read and write at once."""
_WORTH_A_COPY = 256
"""A product of so many rows, columns and terms takes longer than copying its operands."""


def _is_turned(matrix: Value) -> bool:
    """Whether the elements of a column lie side by side in memory."""
    return matrix.place is not None and type(matrix.place.strides[0]) is int and matrix.place.strides[0] == 1


class Triton(Target):
    name = "triton"
    device_type = "cuda"

    def writes_inputs(self) -> bool:
        return True

    def texts(self, code: str, own: Mapping[str, Any]) -> list[Text]:
        return [Text("triton", ".py", functools.partial(str, code))]

    def trains_in_channels_last(self, images: torch.Tensor) -> bool:
        return _by_tensor_cores(images.dtype)

    def row_unit(self, left: Value, right: Value) -> int:
        extents = (*left.sizes, *right.sizes)
        usual = [index.usual(s) for s in extents]
        large = len(extents) == 4 and all(s is not None and s >= _WORTH_A_COPY for s in usual)
        if not large or not _multiplied_by_tensor_cores(left.dtype):
            return 1
        unit = _PIECE // left.dtype.itemsize
        turned, by_columns = map(_is_turned, (left, right))
        side_by_side = left.sizes[0 if turned else 1], right.sizes[0 if by_columns else 1]
        if any(type(s) is not int for s in side_by_side):
            return 1
        # The number of rows does not matter, unless they are the columns of what lies in memory.
        matter = extents if turned else extents[1:]
        return unit if any(type(s) is int and s % unit for s in matter) else 1

    def chooses_parts(self, parts: Sequence[Value]) -> bool:
        """A kernel for each part takes longer to start than small parts to copy, and what is computed stays out of
        memory."""
        if len(parts) > _FEW_PARTS:
            return False
        total = sum((p.numel for p in parts), start=0)
        return (type(total) is int and total <= _SMALL) or any(p.place is None for p in parts)

    def orders_weights(self) -> bool:
        return True

    def shifts_convolutions(self) -> bool:
        return True

    def interpolates_at_once(self) -> bool:
        return True

    def order_of_images(
        self, images: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int
    ) -> Literal["usual", "channels last"] | None:
        """cuDNN computes with tensor cores in channels last, and reorders images that lie otherwise in each call; torch
        copies sequences of other strides."""
        if (
            not transposed
            and _by_tensor_cores(images.dtype)
            and (images.rank == 4 or (images.rank == 3 and groups == 1))
        ):
            return "channels last"
        return "usual" if images.rank == 3 else None

    def select(self, program: Program, options: NativeOptions) -> None:
        if options.matmul == "measured" and options.fusion and options.epilogue_fusion:
            choice, is_known = self._choice(program, options)
            choosing.select(program, choice, share=is_known)
        selection.select(program)
        recompute(program, saves_kernels=True)
        splits.split(program, shapes.parts)

    def _choice(self, program: Program, options: NativeOptions) -> tuple[choosing.Choice, bool]:
        """Who computes products that something finishes, and whether the model is of this GPU, which is Hopper's."""
        if program.device.type != self.device_type or not torch.cuda.is_available():
            return choosing.by_model(program), True
        capability = capability_of(program.device)
        is_known = capability >= _HOPPER
        if options.max_autotune and capability >= _MULTIPLIES_BFLOAT16:
            from .tiled import measuring

            return measuring.measured(program, capability), is_known
        return choosing.by_model(program) if is_known else choosing.by_library, is_known

    def variants(self, options: NativeOptions) -> list[dict[str, Any]]:
        return [] if options.matmul == "library" else [{"matmul": "library"}]

    def plan_loops(self, kernel: Kernel, needed: set[Buffer]) -> LoopNest:
        return loops.plan(kernel, needed)

    def assemble(self, program: Program, schedule: Schedule, options: NativeOptions, *, timed: bool) -> Module:
        return module.assemble(program, schedule, self.plan_loops, timed=timed)

    def prepare(self, device: torch.device) -> None:
        """Start the processes that compile kernels."""
        if device.type == self.device_type:
            compiling.warm_up()

    def build(self, module: Module, options: NativeOptions) -> bytes:
        """Machine code for the GPU of the graph; the text of the kernels for the interpreter."""
        if importlib.util.find_spec("triton") is None:
            raise BackendUnavailable("native needs Triton on this device: pip install triton")
        if module.own["device"] == "interpreter":
            return module.code.encode()
        if not module.parts:
            return b""
        capability = capability_of(torch.device(module.own["device"]))
        cubins = compiling.compile_all(module.parts, capability)
        names = [job.name for job in module.parts]
        return compiling.packed(dict(zip(names, cubins, strict=True)), capability)

    def wait(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
