"""Who computes products, convolutions and attention on the CPU.

Large products of float32 stay open: which code runs them is measured when theirs is loaded (``choosing.py``).  A
convolution is given to oneDNN or to ``convolution.h`` here, by what was measured for its shape on this machine.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from ....common.onednn_lstm import ONEDNN_LSTM, ONEDNN_LSTM_BACKWARD
from ...ir.expressions import Buffer
from ...ir.products import Attention, Convolution, Product
from ...ir.program import Call, Program, TensorRef
from ...rewrites.attention_operator import ATTENTION
from ..biases import add_biases
from ..torch_calls import call_of
from .build import has_gemm
from .choosing_convolutions import Shape, is_own_faster
from .packing import PackedKernel, PackedMatrix, PackedWeight

LEAST_ROWS = 8
"""Products with fewer rows read a weight once, which packing does not make faster."""


@dataclass(eq=False, kw_only=True)
class PackedProduct(Product):
    """By ``gemm.h``, whose form of the right operand is ``packed``."""

    packed: Buffer

    @property
    def reads(self) -> set[Buffer]:
        return {self.left.buffer, self.packed}


@dataclass(eq=False, kw_only=True)
class TiledConvolution(Convolution):
    """By ``convolution.h``, whose form of the weight is ``packed``."""

    packed: Buffer

    @property
    def reads(self) -> set[Buffer]:
        return {self.packed, *(ref.buffer for ref in (self.image, self.bias, self.addend) if ref is not None)}


def is_multiplied_here(dtype: torch.dtype) -> bool:
    """Whether products of ``dtype`` are computed from C++."""
    return dtype in (torch.float32, torch.float64) and has_gemm()


def select(program: Program, *, own_convolutions: bool) -> None:
    """Decide that for each step of ``program``; with ``own_convolutions``, oneDNN's have a rival."""
    add_biases(program)
    program.items = [_selected(program, item, own_convolutions) for item in program.items]


def library_of(item: Any) -> str | None:
    """The library kernel behind a step that is no plain call of one."""
    if isinstance(item, Product) and not isinstance(item, PackedProduct):
        return "BLAS gemm"  # gemm.h may turn out to be faster when the code is loaded
    return _BEHIND.get(item.op) if isinstance(item, Call) else None


_BEHIND = {
    ATTENTION: "aten._scaled_dot_product_flash_attention_for_cpu",
    ONEDNN_LSTM: "aten.mkldnn_rnn_layer",
    ONEDNN_LSTM_BACKWARD: "aten.mkldnn_rnn_layer_backward",
}


def _selected(program: Program, item: Any, own_convolutions: bool) -> Any:
    if isinstance(item, Product):
        return _product(program, item)
    if isinstance(item, Convolution) and item.constant is not None:
        return _constant_convolution(program, item, item.constant, own_convolutions)
    if isinstance(item, (Convolution, Attention)):
        return call_of(item)
    return item


LARGEST_INT = 2**31 - 1


def _product(program: Program, step: Product) -> Product | Call:
    if not is_multiplied_here(step.target.dtype) or not fits_blas(step):
        return call_of(step)
    packed = _packed_matrix(program, step)
    return step if packed is None else PackedProduct(**_fields(step), packed=packed)


def fits_blas(step: Product) -> bool:
    """Whether the library's interface, whose sizes have 32 bits, can be told of the operands, as far as is known here.

    ``product`` of ``kernels.h`` looks again, at the sizes of a call.
    """
    sizes = (step.m, step.n, step.k, *step.left.strides[-2:], *step.right.strides[-2:])
    return all(type(s) is not int or s <= LARGEST_INT for s in sizes)


def _packed_matrix(program: Program, step: Product) -> Buffer | None:
    """The right operand in packed form, if it is a frozen weight."""
    right, left = step.right, step.left
    constant = program.frozen.get(right.buffer)
    if constant is None or len(right.sizes) != 2 or right.buffer.dtype is not torch.float32:
        return None
    sizes: Any = (step.m, step.n, step.k, right.offset, *right.strides)
    if any(type(s) is not int for s in sizes) or 1 not in right.strides:
        return None
    if sizes[0] < LEAST_ROWS or left.strides[1] != 1 or type(left.strides[0]) is not int:  # 32 bits, and no more
        return None
    return program.pack(PackedMatrix(constant, *sizes))


def _constant_convolution(
    program: Program, step: Convolution, constant: str, own_convolutions: bool
) -> Convolution | Call:
    sizes: Any = step.image.sizes
    kernel: Any = step.weight.sizes
    stride: Any = step.stride
    padding: Any = step.padding
    groups: Any = step.groups
    simple = step.dilation == (1, 1) and groups == 1 and len(padding) == len(stride) == 2
    if own_convolutions and simple:
        results: Any = step.target.sizes
        shape = Shape(sizes, kernel, results, stride, padding, step.relu, step.addend is not None)
        if is_own_faster(shape):
            packed = program.pack(PackedWeight(constant, kernel))
            return TiledConvolution(**_fields(step), packed=packed)
    dilation: Any = step.dilation
    return _by_onednn(step, program.pack(PackedKernel(constant, padding, stride, dilation, groups, sizes)))


def _by_onednn(step: Convolution, packed: Buffer) -> Call:
    weight = TensorRef(packed, packed.sizes, packed.strides, 0)
    rest = (weight, step.bias, step.padding, step.stride, step.dilation, step.groups)
    onednn = torch.ops.mkldnn
    args: tuple[Any, ...]
    if step.addend is None:
        unary = "relu" if step.relu else "none"
        args = (step.image, *rest, unary, [], "")
        return Call(onednn._convolution_pointwise.default, args, {}, [step.target], step.origins)
    if step.target is step.addend.buffer:
        op, images = onednn._convolution_pointwise_, (step.addend, step.image)
    else:
        op, images = onednn._convolution_pointwise, (step.image, step.addend)
    args = (*images, *rest, "add", None, "relu" if step.relu else None, [], None)
    return Call(op.binary, args, {}, [step.target], step.origins)


def _fields(step: Any) -> dict[str, Any]:
    return {f.name: getattr(step, f.name) for f in dataclasses.fields(step)}
