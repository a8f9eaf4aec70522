"""Decides which ATen nodes can go to TVM, according to TVM's own PyTorch frontend and torchmux's handlers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.fx import Node

from ..common.adapter import formulas, support
from ..common.pipeline.decompose import core_aten
from .relax import library
from .relax.handlers import HANDLERS
from .relax.translate import DTYPES, converters

# Composite operators that are one kernel in torch, or one loop over rows in TVM.
WHOLE = ("scaled_dot_product_attention", "layer_norm", "softmax.int", "log_softmax.int")

# Operators whose converter loses all digits of small results, or overflows; torch's table has better ways.
_BETTER_SPELLED_OUT = frozenset(
    ("celu.default", "selu.default", "mish.default", "softplus.default", "softshrink.default", "logaddexp.default",
     "log_sigmoid_forward.default", "hardsigmoid.default", "clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor")
)  # fmt: skip

# TVM takes the one off again that a formula adds, so that no formula helps these.
_NO_DIGITS = frozenset(
    (torch.ops.aten.atanh.default, torch.ops.aten.log1p.default, torch.ops.aten.expm1.default,
     torch.ops.aten.elu.default)
)  # fmt: skip


@functools.cache
def _converted() -> frozenset[str]:
    return converters()


def known(op: Any) -> bool:
    """Whether some way leads from ``op`` to Relax."""
    if op in HANDLERS or library.has_kernel(op):
        return True
    return op.__name__ in _converted() and op.__name__ not in _BETTER_SPELLED_OUT


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch's table without operators that go to TVM unchanged."""
    table = {**core_aten(), **formulas.CLAMPS, torch.ops.aten.nll_loss_forward.default: formulas.nll_loss}
    return {op: function for op, function in table.items() if not known(op)}


@functools.cache
def whole() -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    return support.whole(WHOLE, lambda op: True)


COMMON = support.Common(
    "TVM",
    DTYPES,
    words={
        "dtypes": "no code for {dtype} with torch's rounding",
        "empty": "a size of zero has another meaning in Relax",
    },
    compares_as_torch=frozenset(library.ALWAYS),
)


def supports(node: Node) -> Literal[True] | str:
    """Whether ``node`` may go to TVM, or why not; translation and the check of results have the last word."""
    op = node.target
    if not support.is_operator(node):
        return support.NOT_AN_OPERATOR
    if not known(op):
        return "TVM's PyTorch frontend has no converter"
    if reason := COMMON.about_operator(node):
        return reason
    if op.overloadpacket is torch.ops.aten.mul and 0 in node.args[1:] and node.meta["val"].is_floating_point():
        return "TVM replaces anything times 0 by 0, which is wrong for nan and infinity"
    if op in _NO_DIGITS:
        return "TVM's formula loses all precision near zero"
    return COMMON.about_values(node) or True
