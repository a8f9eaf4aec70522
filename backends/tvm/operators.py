"""Decides which ATen nodes can go to TVM, according to TVM's own PyTorch frontend and torchmux's handlers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.fx import Node

from ..common.adapter import formulas, support
from ..common.pipeline.decompose import RESAMPLING, core_aten
from .relax import library
from .relax.handlers import HANDLERS
from .relax.translate import DTYPES, converters

# Composite operators that are one kernel in torch, or one loop over rows in TVM.
WHOLE = ("scaled_dot_product_attention", "layer_norm", "softmax.int", "log_softmax.int")

# Operators whose converter loses digits of small results or of late ones, or overflows, and ``std``, whose converter
# divides by the count whatever the correction is; torch's table has better ways.
_BETTER_SPELLED_OUT = frozenset(
    ("celu.default", "selu.default", "mish.default", "softplus.default", "softshrink.default", "logaddexp.default",
     "log_sigmoid_forward.default", "hardsigmoid.default", "clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor",
     "linspace.default", "std.correction")
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
    return support.whole(WHOLE, lambda op: True) | RESAMPLING


_IN_A_ROW = frozenset((torch.ops.aten.searchsorted, torch.ops.aten.bucketize))
_TRUTHS = frozenset((torch.ops.aten.any, torch.ops.aten.all))

COMMON = support.Common(
    "TVM",
    DTYPES,
    words={
        "dtypes": "no code for {dtype} with torch's rounding",
        "empty": "a size of zero has another meaning in Relax",
    },
    lacks={"gaps": "its code lays out each result by the sizes and strides of the call"},
    compares_as_torch=frozenset(library.ALWAYS),
)


_aten = torch.ops.aten
_COMPARE = frozenset(
    (_aten.lt, _aten.le, _aten.gt, _aten.ge, _aten.eq, _aten.ne, _aten.maximum, _aten.minimum, _aten.clamp,
     _aten.clamp_min, _aten.clamp_max, _aten.floor_divide, _aten.div, _aten.remainder, _aten.fmod)
)  # fmt: skip
_MAY_WRAP = frozenset((_aten.add, _aten.sub, _aten.rsub, _aten.mul, _aten.neg, _aten.abs, _aten.__lshift__))


def _takes_integers_for_unlimited(node: Node) -> bool:
    """Whether ``node`` compares or divides a sum or product of integers that a caller gives, which may be at limits."""
    if node.target.overloadpacket not in _COMPARE:
        return False
    return any(
        _is_wide_integer(n) and getattr(n.target, "overloadpacket", None) in _MAY_WRAP and _is_given(n)
        for n in node.all_input_nodes
    )


def _adds_the_smallest(node: Node) -> bool:
    """Whether ``node`` is arithmetic with the smallest integer: LLVM is told that sums fit, and takes its word."""
    if getattr(node.target, "overloadpacket", None) not in _MAY_WRAP or not _is_wide_integer(node):
        return False
    smallest = torch.iinfo(node.meta["val"].dtype).min
    pending, seen = [node], {node}
    while pending:
        found = pending.pop()
        if smallest in (a for a in found.args if type(a) is int):
            return True
        new = [n for n in found.all_input_nodes if n not in seen and _is_wide_integer(n) and n.op == "call_function"]
        seen.update(new)
        pending += new
    return False


def _is_wide_integer(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64)


def _is_given(node: Node) -> bool:
    """Whether its integers follow from integers among the inputs of the graph."""
    pending, seen = [node], {node}
    while pending:
        found = pending.pop()
        if found.op == "placeholder":
            return True
        new = [n for n in found.all_input_nodes if n not in seen and _is_wide_integer(n)]
        seen.update(new)
        pending += new
    return False


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
    if op.overloadpacket is torch.ops.aten.add and 0 in node.args[1:] and node.meta["val"].is_floating_point():
        return "TVM drops an addition of 0, which changes the sign of a zero"
    if op.overloadpacket in _IN_A_ROW and any(n.meta["val"].is_floating_point() for n in node.all_input_nodes):
        return "TVM finds no place for nan in a row of numbers"
    if op.overloadpacket in _TRUTHS and node.all_input_nodes[0].meta["val"].dtype is torch.uint8:
        return "TVM's any() and all() of bytes are the bytes"
    if _takes_integers_for_unlimited(node):
        return "TVM simplifies as if integers did not wrap around"
    if op.overloadpacket is _aten.mul and node.meta["val"].dtype is torch.bool:
        return "TVM has no products of bools"
    if op is _aten.full.default and isinstance(node.args[1], float) and math.isinf(node.args[1]):
        return "TVM's converter fills nothing with infinity"
    if _adds_the_smallest(node):
        return "TVM's sums with the smallest integer do not wrap around"
    if support.takes_itself_away(node):
        return "TVM takes what is less itself for zero, which is wrong for nan and infinity"
    if op is _aten.log2.default:
        return "TVM divides logarithms, and powers of two have inexact ones"
    if op in _NO_DIGITS:
        return "TVM's formula loses all precision near zero"
    return COMMON.about_values(node) or True
