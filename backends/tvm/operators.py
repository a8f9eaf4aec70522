"""Which ATen nodes can go to TVM: asked of the converters of TVM's own PyTorch frontend, besides our handlers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.adapter import formulas
from ..common.adapter.graphs import values_in_use
from ..common.pipeline.aliasing import BY_ADDRESS, reads_by_address, writes
from ..common.pipeline.decompose import (
    TRAPS,
    can_stay_whole,
    compares_numbers,
    core_aten,
    draws_nothing,
    is_random,
    may_trap,
    rounds_down,
)
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
    """torch's table without what goes to TVM as it is."""
    table = {**core_aten(), **formulas.CLAMPS}
    return {op: function for op, function in table.items() if not known(op)}


@functools.cache
def whole() -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    found = set()
    for name in WHOLE:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if can_stay_whole(op):
            found.add(op)
    return frozenset(found)


def supports(node: Node) -> Literal[True] | str:
    """Whether ``node`` may go to TVM, or why not; translation and the check of results have the last word."""
    op = node.target
    if not isinstance(op, internals.OpOverload):
        return "not an ATen operator"
    if not known(op):
        return "TVM's PyTorch frontend has no converter"
    if writes(node):
        return "it writes to its arguments"
    if reads_by_address(node):
        return BY_ADDRESS
    if compares_numbers(node) and op not in library.ALWAYS:
        return "TVM's comparisons pass over nan, torch's do not"
    if may_trap(node):
        return TRAPS
    if rounds_down(node):
        return "TVM's remainder of floats has other answers than torch where a number is infinite"
    if op.overloadpacket is torch.ops.aten.mul and 0 in node.args[1:] and node.meta["val"].is_floating_point():
        return "TVM takes anything times 0 for 0, which is not so of nan and infinity"
    if op in _NO_DIGITS:
        return "TVM's formula has no digits left near zero"
    if is_random(op) and not draws_nothing(node):
        return "random numbers would not be torch's for the same seed"
    for value in values_in_use(node):
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            return "a float or bool that is known at run time only"
        if not isinstance(value, torch.Tensor):
            continue
        if value.layout is not torch.strided:
            return f"TVM has no {value.layout} tensors"
        if value.dtype not in DTYPES:
            return f"no code for {str(value.dtype).removeprefix('torch.')} that rounds as torch does"
        if any(type(size) is int and size == 0 for size in value.shape):
            return "Relax gives a size of zero another meaning"
    return True
