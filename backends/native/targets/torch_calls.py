"""Products, convolutions and attention as calls of torch's own operators: what any device has."""

from __future__ import annotations

from typing import Any

import torch

from ..ir.products import Attention, Convolution, Product
from ..ir.program import Call
from ..rewrites.attention_operator import ATTENTION
from .rows_operator import MM_IN_ROWS

_aten = torch.ops.aten


def call_of(step: Product | Convolution | Attention) -> Call:
    """The call that computes what ``step`` says.

    A convolution that adds something or applies a relu itself has none: the target has said that it does this.
    """
    args: tuple[Any, ...]
    if isinstance(step, Product) and step.unit > 1:
        given = (step.left, step.right, step.target.strides[0], step.unit)
        return Call(MM_IN_ROWS, given, {}, [step.target], step.origins)
    if isinstance(step, Product):
        op = _aten.bmm.default if len(step.left.sizes) == 3 else _aten.mm.default
        return Call(op, (step.left, step.right), {}, [step.target], step.origins)
    if isinstance(step, Attention):
        args = (step.query, step.key, step.value, step.mask, step.scale)
        return Call(ATTENTION, args, {}, [step.target, step.sums], step.origins)
    assert step.addend is None and not step.relu
    settings = (step.stride, step.padding, step.dilation, step.transposed, step.output_padding, step.groups)
    args = (step.image, step.weight, step.bias, *settings)
    return Call(_aten.convolution.default, args, {}, [step.target], step.origins)
