"""Kernels, products and convolutions of a graph in C++, with nothing that torch's library computes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from ...ir.index import Index
from ...ir.products import Convolution, Product
from ...ir.program import TensorRef
from ..cpu import selection
from ..cpu.cpp_scopes import NAMES
from ..cpu.module import Assembler as CpuAssembler, text_in_cpp
from ..torch_calls import call_of

_COMPUTED = (torch.float32, torch.float64)


@dataclass(eq=False, kw_only=True)
class Taken(Convolution):
    """A convolution that ``standalone.h`` computes."""

    @classmethod
    def of(cls, item: Any) -> Any:
        """What computes ``item``: a kernel of ours, or a call of torch's, which nobody can make here."""
        if isinstance(item, Product) and not (item.target.dtype in _COMPUTED and selection.fits_blas(item)):
            return call_of(item)
        if not isinstance(item, Convolution):
            return item
        spatial = len(item.stride)
        if item.transposed or item.target.dtype not in _COMPUTED or not 1 <= spatial <= 3:
            return call_of(item)
        return cls(**{f.name: getattr(item, f.name) for f in dataclasses.fields(item)})


class Assembler(CpuAssembler):
    """As that of the CPU; its functions are for one namespace."""

    linkage = "static"

    def body(self) -> str:
        """The functions ``run0``, ``run1``, ..., one for each launch, and the kernels that they call."""
        bodies = "\n".join(self._segment(launch) for launch in self.host.launches)
        kernels = [f"{self._comment(name)}NOINLINE static void {name}{body}" for body, name in self.functions.items()]
        return "\n".join([*kernels, bodies])

    def _call(self, step: Any) -> str:
        return self._direct(step) if isinstance(step, Taken) else super()._call(step)

    def _direct(self, step: Taken) -> str:
        """A call with the strides of all operands, in three dimensions of space, of which some have size 1."""
        missing = 3 - len(step.stride)

        def three(values: tuple[Index, ...], filler: int) -> str:
            return "{" + ", ".join(text_in_cpp(v) for v in (*(filler,) * missing, *values)) + "}"

        def at(ref: TensorRef) -> str:
            return f"{self.address(ref.buffer)} + {text_in_cpp(ref.offset)}"

        def strides(values: tuple[Index, ...]) -> str:
            outer, inner = values[:2], values[2:]
            return f"{{{text_in_cpp(outer[0])}, {text_in_cpp(outer[1])}, {three(inner, 0)[1:-1]}}}"

        dtype = NAMES[step.target.dtype]
        count, channels, *sizes = step.target.sizes
        _, inside, *kernel = step.weight.sizes
        bias = "nullptr, 0l" if step.bias is None else f"{at(step.bias)}, {text_in_cpp(step.bias.strides[0])}"
        shape = ", ".join(
            (
                *map(text_in_cpp, (count, channels, inside, step.groups)),
                three(tuple(sizes), 1),
                three(tuple(step.image.sizes[2:]), 1),
                three(tuple(kernel), 1),
                three(step.stride, 1),
                three(step.padding, 0),
                three(step.dilation, 1),
            )
        )
        operands = ", ".join(
            (
                f"{self.address(step.target)}, Strides{strides(step.target.strides)}",
                f"{at(step.image)}, Strides{strides(step.image.strides)}",
                f"{at(step.weight)}, Strides{strides(step.weight.strides)}",
                bias,
            )
        )
        return f"direct_convolution<{dtype}>({operands}, Shape{{{shape}}});"
