"""Which ATen nodes OpenVINO takes: asked of its frontend by name, and by trial of each kind of call.

The names that the frontend has rules for are kept in the artifact cache.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.adapter import attention, formulas
from ..common.adapter.graphs import elements_in_use, values_in_use
from ..common.cache.cache import default_cache, text_key
from ..common.pipeline import aliasing
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
from . import integers, trial
from .translate import without_rule

# Composite operators that are worth keeping in one piece where the frontend has a rule for them.  None of them ever
# returns an argument or a view of one, which an operator kept whole must not do.
WHOLE = (
    "linear", "matmul", "scaled_dot_product_attention", "rms_norm", "layer_norm", "softmax.int", "conv1d", "conv2d",
    "conv3d", "outer", "one_hot", "take_along_dim", "argsort", "repeat_interleave.self_int", "upsample_nearest1d.vec",
    "upsample_nearest2d.vec", "upsample_nearest3d.vec", "upsample_linear1d.vec", "upsample_bilinear2d.vec",
    "upsample_trilinear3d.vec", "upsample_bicubic2d.vec",
)  # fmt: skip

# Operators with a rule that torch's table serves better.  The first two need the length of a dimension, which the
# frontend loses track of where a view takes a size from an input; of the next three it cannot make a result without
# dimensions; of a row of nothing but -inf it makes nan in the next, which is there to make zeros of it; the last five
# have no digits where they are small.
_BETTER_SPELLED_OUT = (
    "aten::split.Tensor", "aten::unbind.int",
    "aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::_safe_softmax",
    "aten::celu", "aten::selu", "aten::mish", "aten::softplus", "aten::log_sigmoid_forward",
)  # fmt: skip

# The same of operators that torch's table leaves whole.
_PRECISE = {
    op: function for op, function in formulas.TABLE.items() if op is not torch.ops.aten.sigmoid.default
}  # OpenVINO's sigmoid is precise

_ERFC = "OpenVINO computes 1 - erf(x), which has no digits left where x is large"
_ERFINV = "OpenVINO's inverse of erf has three digits where x is near 1"
_FEW_DIGITS = {
    torch.ops.aten.erfc.default: _ERFC,
    torch.ops.aten.special_erfc.default: _ERFC,
    torch.ops.aten.erfinv.default: _ERFINV,
    torch.ops.aten.special_erfinv.default: _ERFINV,
}

_SUMS = frozenset(
    (torch.ops.aten.add.Tensor, torch.ops.aten.add.Scalar, torch.ops.aten.sub.Tensor, torch.ops.aten.sub.Scalar)
)

DTYPES = frozenset((torch.float32, torch.int64, torch.int32, torch.bool))
_NARROW = frozenset((torch.int16, torch.int8, torch.uint8))
_IN_FLOAT32 = frozenset((torch.float64, torch.float16, torch.bfloat16))


@functools.lru_cache(maxsize=8)
def unknown_operators(fingerprint: str) -> frozenset[str]:
    """The names of those operators in torch's table, or in ``WHOLE``, that the installed frontend has no rule for."""
    cache, key = default_cache(), text_key("openvino operators", fingerprint)
    stored = cache.load(key) if cache is not None else None
    if stored is not None:
        return frozenset(json.loads(stored))
    names = frozenset(op.name() for op in without_rule([*core_aten(), *_composites()]))
    if cache is not None:
        cache.store(key, json.dumps(sorted(names)).encode())
    return names


def _composites() -> list[Any]:
    found = []
    for name in WHOLE:
        packet, _, overload = name.partition(".")
        found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


def decompositions(fingerprint: str) -> dict[Any, Callable[..., Any]]:
    """torch's table without what the frontend has a rule for."""
    wanted = unknown_operators(fingerprint).union(_BETTER_SPELLED_OUT)
    table = {op: function for op, function in core_aten().items() if op.name() in wanted}
    return table | attention.TABLE | _PRECISE


def whole(fingerprint: str) -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    unknown = unknown_operators(fingerprint)
    return frozenset(op for op in _composites() if op.name() not in unknown and can_stay_whole(op))


# ``expand`` is not among these: it is rewritten.
_TO_A_SHAPE = frozenset((torch.ops.aten.expand_copy.default, torch.ops.aten.repeat.default))


def supports(node: Node, fingerprint: str) -> Literal[True] | str:
    """Whether ``node`` can run in OpenVINO and mean the same, or why not."""
    op = node.target
    if not isinstance(op, internals.OpOverload):
        return "not an ATen operator"
    if is_random(op) and not draws_nothing(node):
        return "random numbers would not be torch's for the same seed"
    if aliasing.writes(node):
        return "it writes to its arguments"
    if aliasing.reads_by_address(node):
        return aliasing.BY_ADDRESS
    if compares_numbers(node, lowest_is_finite=True):
        return "OpenVINO's comparisons pass over nan, torch's do not"
    if may_trap(node):
        return TRAPS
    if rounds_down(node):
        return "OpenVINO's remainder of floats has other answers than torch where a number is infinite"
    if op in _FEW_DIGITS:
        return _FEW_DIGITS[op]
    if _adds_a_number(node) and _adds_a_number(node.args[0]) and len(node.args[0].users) == 1:
        return "OpenVINO makes one addition of two numbers that follow one another, where torch rounds in between"
    if op is torch.ops.aten.topk.default and 1 in elements_in_use(node):
        return "which of equal numbers OpenVINO's topk returns first is not what torch's does"
    if op in _TO_A_SHAPE and not node.args[1]:
        return "OpenVINO 2026.4 ends the process, or writes no result, where a scalar is broadcast to a scalar"
    return _about_values(node) or trial.refusal(node, fingerprint) or True


def _adds_a_number(node: Any) -> bool:
    """Whether ``node`` adds a number to floats, or takes one off."""
    if (
        not isinstance(node, Node)
        or node.op != "call_function"
        or node.target not in _SUMS
        or not node.meta["val"].is_floating_point()
    ):
        return False
    return isinstance(node.args[1], int | float)


def _about_values(node: Node) -> str:
    converts = node.target is torch.ops.aten._to_copy.default
    for value in values_in_use(node):
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            return "a float or bool that is known at run time only would lose precision as an input of OpenVINO"
        if not isinstance(value, torch.Tensor):
            continue
        if value.layout is not torch.strided:
            return f"OpenVINO has no {value.layout} tensors"
        if value.dtype in _IN_FLOAT32:
            return f"OpenVINO computes {_name(value.dtype)} in float32 on a CPU, which rounds otherwise"
        if value.dtype in _NARROW and not converts:
            return f"OpenVINO's {_name(value.dtype)} does not wrap around as torch's does"
        if value.dtype not in DTYPES | _NARROW:
            return f"OpenVINO has no operators on {_name(value.dtype)}"
        if any(type(size) is int and size == 0 for size in value.shape):
            return "OpenVINO's operators are not made for tensors without elements"
    if integers.is_long(node.meta.get("val")) and not integers.fit(node):
        return "OpenVINO keeps 64-bit integers in 32 bits, and these are not known to fit"
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
