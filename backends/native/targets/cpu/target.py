"""The CPU: C++ kernels, BLAS, oneDNN, and kernels of our own where these are faster."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import torch

from ...ir import index
from ...ir.expressions import Buffer
from ...ir.index import Index
from ...ir.layout import image_layout
from ...ir.products import Product
from ...ir.program import Program
from ...ir.values import Value
from ...options import NativeOptions
from ...schedule import host, rows_together
from ...schedule.kernel import Kernel
from ...schedule.recompute import recompute
from ...schedule.schedule import Schedule
from ...schedule.stages import LoopNest
from ...schedule.unroll import unrolled
from ..target import Module, Target, Text
from . import build, computed, module, selection

SMALLEST_ATTENTION = 32768
"""Queries times keys from which the fused kernel is faster than two products and the loop between them."""

MOST_TAPS = 25
"""Windows of more elements are left to the library."""
_MOST_TERMS, _MOST_THIN, _MOST_FACTORS, _LEAST_THIN = 16, 8, 64, 16
"""What is added up for an element of a thin product, its columns, what is multiplied for a row of it, and its rows."""
FEW_CHANNELS = 16
"""The library is slow with images of so few channels, as they are read from files, unless these are last."""

_FEW_IN_ROWS = 64 * 64
"""Pixels up to which it takes two to four times as long with channels last, if none is left out."""

_FEW_PIXELS = 5_000_000
"""Multiplications for which a call of the library takes longer than a product of pixels and a weight."""

_CACHE_LINE = 64
_ATTENDS = frozenset((torch.float32, torch.float64, torch.bfloat16, torch.float16))


class Cpu(Target):
    name = "cpu"
    device_type = "cpu"
    scratch_bytes = 64 * 1024  # on the stack of a thread

    # --- forms ----------------------------------------------------------------------------------------------------

    def takes_matrix(self, matrix: Value) -> bool:
        """BLAS wants stride 1 in one of the last two dimensions, and a usual one in the other."""
        if not selection.is_multiplied_here(matrix.dtype):
            return True
        assert matrix.place is not None
        rows, columns = matrix.place.strides[-2:]
        m, n = matrix.sizes[-2:]
        return (_unit(columns, n) and _leading(rows, n, m)) or (_unit(rows, m) and _leading(columns, m, n))

    def computes_operand(self, left: Value, right: Value) -> bool:
        return computed.is_computed(left, right)

    def is_thin(self, left: Value, right: Value) -> bool:
        """Whether a library would take longer to begin than to compute: rows of a few elements times a few columns."""
        known = [s for s in (*left.sizes, right.sizes[-1]) if type(s) is int]
        if not left.dtype.is_floating_point or len(known) <= len(left.sizes):
            return False
        *batch, m, k, n = known
        few, many = min(m, n), math.prod((*batch, max(m, n)))
        most = _MOST_FACTORS if n <= m else _LEAST_THIN  # rows that lie apart are each read again
        return k <= _MOST_TERMS and few <= _MOST_THIN and k * few <= most and many >= _LEAST_THIN

    def padded_strides(self, matrix: Value) -> tuple[Index, ...] | None:
        """Rows begin in cache lines of their own, and not all in the same set of the cache."""
        if not selection.is_multiplied_here(matrix.dtype):
            return None
        line = _CACHE_LINE // matrix.dtype.itemsize
        *outer, last = matrix.sizes
        if type(last) is not int or any(type(s) is not int for s in outer) or last < line:
            return None
        step = -(-last // line) * line
        if step % (64 * line) == 0:
            step += line
        strides = [1]
        for extent in reversed(outer):
            strides.append(step)
            step *= int(extent)  # type: ignore[arg-type]
        return tuple(reversed(strides))

    def order_of_images(
        self, images: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int
    ) -> Literal["usual", "channels last"] | None:
        """Whether the images are worth more than the weight, which the library then reorders in each call."""
        if images.rank != 4 or groups != 1:
            return None
        if images.dtype is not torch.float32:
            lie_so = not transposed and images.dtype in _ATTENDS and image_layout(images) is not None
            return "channels last" if lie_so else None
        if transposed:  # which the library computes at a half to nine tenths of the time, if channels lie side by side
            return "channels last" if weight.numel <= 2 * images.numel else None  # type: ignore[operator]
        _, channels, height, width = weight.sizes
        if channels < FEW_CHANNELS:  # type: ignore[operator]
            pixels = math.prod((images.sizes[0], *images.sizes[2:]))
            last = height * width > 1 and (max(stride) > 1 or pixels > _FEW_IN_ROWS)  # type: ignore[operator]
        else:
            lie_so = image_layout(images) is not None
            last = lie_so and (height * width == 1 or weight.numel <= 2 * images.numel)  # type: ignore[operator]
        return "channels last" if last else "usual"

    def differentiates_by_channels(self, weight: Value, groups: int) -> bool:
        """Windows of single channels in float32: the library takes up to six times as long for other images.

        In half precision it is the other way round.
        """
        channels = weight.sizes[1]
        alone = groups > 1 and type(channels) is int and channels == 1
        return alone and weight.rank == 4 and weight.dtype is torch.float32 and weight.sizes[2:] != (1, 1)

    def orders_weights(self) -> bool:
        return True  # torch's copy of a weight takes up to twice as long as a kernel here

    def texts(self, code: str, own: Mapping[str, Any]) -> list[Text]:
        needs = "libtorch_cpu.so in the process"
        assembly = functools.partial(build.assembly, code, own["optimize"])
        return [
            Text("c++", ".cpp", functools.partial(build.alone, code), needs),
            Text("assembly", ".s", assembly, needs, is_linked=True),
        ]

    def filters(self, taps: int) -> bool:
        return taps <= MOST_TAPS

    def multiplies_windows(self, images: Value, weight: Value, transposed: bool) -> bool:
        """The library is as fast for many pixels whose channels are neighbours.

        Two or three elements of half precision in a row are copied one by one, which takes as long as a product.
        """
        by_channels = image_layout(images) is not None
        row = weight.sizes[-1]
        if images.dtype.itemsize < 4:
            return transposed or by_channels or row not in (2, 3)
        work = index.product((images.numel, weight.sizes[0]))
        return not by_channels or weight.sizes[2:] != (1, 1) or (type(work) is int and work <= _FEW_PIXELS)

    def writes_windows_in_pieces(self) -> bool:
        return True

    def sums_squares_widely(self) -> bool:
        return True

    def lacks_float16(self) -> bool:
        return not computed.convolves_float16()

    def finishes_convolutions(self) -> bool:
        return torch.backends.mkldnn.is_available()

    def writes_inputs(self) -> bool:
        return True

    def library_of(self, item: Any) -> str | None:
        return selection.library_of(item) or super().library_of(item)

    def attends(self, query: torch.Tensor, scores: int) -> bool:
        if query.dtype not in _ATTENDS or scores < SMALLEST_ATTENTION:
            return False
        from . import attention_kernel  # noqa: F401  # which registers the operators

        return True

    # --- from a program to a module -------------------------------------------------------------------------------

    def plan_loops(self, kernel: Kernel, needed: set[Buffer]) -> LoopNest:
        return super().plan_loops(unrolled(kernel, needed), needed)

    def select(self, program: Program, options: NativeOptions) -> None:
        selection.select(program, own_convolutions=options.matmul != "library")
        rows_together.join_rows(program)
        recompute(program)

    def assemble(self, program: Program, schedule: Schedule, options: NativeOptions, *, timed: bool) -> Module:
        plan = host.plan(program, schedule, self.plan_loops)
        return module.assemble(program, plan, options, timed=timed)

    def build(self, module: Module, options: NativeOptions) -> bytes:
        pieces = module.parts.pieces(torch.get_num_threads()) if module.parts.main else []
        return build.compile_source(*pieces, optimize=module.own["optimize"]) if pieces else b""

    # --- what is said and tuned -----------------------------------------------------------------------------------

    def casting(self, fingerprint: str) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None] | None:
        from .casting import casting

        return casting(fingerprint)

    def hints(self, program: Program, schedule: Schedule, weights: Collection[int]) -> list[str]:
        read = {b for at in weights if isinstance(b := program.inputs[at], Buffer)}
        products = [s for s in schedule.steps if isinstance(s, Product) and not isinstance(s, selection.PackedProduct)]
        count = sum(step.right.buffer in read for step in products)
        if not count:
            return []
        return [
            f"{count} matrix products read weights as torch keeps them; options={{'freeze': True}} packs weights that "
            f"do not change."
        ]

    def variants(self, options: NativeOptions) -> list[dict[str, Any]]:
        return [{"optimize": "O3"}]


def _unit(stride: Index, extent: Index) -> bool:
    return (type(stride) is int and stride == 1) or (type(extent) is int and extent == 1)


def _leading(stride: Index, least: Index, extent: Index) -> bool:
    return (type(extent) is int and extent == 1) or index.not_negative(stride - least)
