"""Decides which ATen nodes OpenVINO accepts: its frontend is asked by name, and each kind of call is tried.

The artifact cache keeps the names for which the frontend has rules.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch.fx import Node

from ..common.adapter import attention, formulas, support
from ..common.adapter.graphs import elements_in_use
from ..common.pipeline.decompose import core_aten
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
# dimensions; of a row of nothing but -inf it makes nan in the next, which is there to make zeros of it; the next four
# have no digits where they are small; the last one's number is rounded down.
_BETTER_SPELLED_OUT = (
    "aten::split.Tensor", "aten::unbind.int",
    "aten::new_zeros", "aten::new_ones", "aten::new_full", "aten::_safe_softmax",
    "aten::celu", "aten::selu", "aten::softplus", "aten::log_sigmoid_forward", "aten::rad2deg",
)  # fmt: skip

# The same of operators that torch's table leaves whole.
_PRECISE = {
    op: function for op, function in formulas.TABLE.items() if op is not torch.ops.aten.sigmoid.default
}  # OpenVINO's sigmoid is precise

_ERFC = "OpenVINO computes 1 - erf(x), which loses all precision where x is large"
_ERFINV = "OpenVINO's inverse of erf has only three correct digits where x is near 1"
_LOGARITHMS = "OpenVINO divides logarithms, and powers of two and ten have inexact ones"
_DISTANCES = "OpenVINO's distances come from products of points, which cancel"
_FEW_DIGITS = {
    torch.ops.aten._cdist_forward.default: _DISTANCES,
    torch.ops.aten.log2.default: _LOGARITHMS,
    torch.ops.aten.log10.default: _LOGARITHMS,
    torch.ops.aten.erfc.default: _ERFC,
    torch.ops.aten.special_erfc.default: _ERFC,
    torch.ops.aten.erfinv.default: _ERFINV,
    torch.ops.aten.special_erfinv.default: _ERFINV,
}

_SUMS = frozenset(
    (torch.ops.aten.add.Tensor, torch.ops.aten.add.Scalar, torch.ops.aten.sub.Tensor, torch.ops.aten.sub.Scalar,
     torch.ops.aten.rsub.Tensor, torch.ops.aten.rsub.Scalar)
)  # fmt: skip

_aten = torch.ops.aten
_PLUS = frozenset((_aten.add.Tensor, _aten.add.Scalar))
_REVERSED = frozenset((_aten.rsub.Tensor, _aten.rsub.Scalar))
_PRODUCTS = frozenset((_aten.mul.Tensor, _aten.mul.Scalar))
_BEHIND_A_SCALE = frozenset(
    (_aten.neg.default, _aten.t.default, _aten.permute.default, _aten.transpose.int, _aten.alias.default)
)
_FILLED = {_aten.full: 1, _aten.full_like: 1, _aten.new_full: 2, _aten.scalar_tensor: 0}
"""Operators that fill a tensor with a number, and where it stands."""

_MADE = {_aten.zeros: 0, _aten.zeros_like: 0, _aten.new_zeros: 0, _aten.ones: 1, _aten.ones_like: 1, _aten.new_ones: 1}
"""Operators that fill a tensor with a number of their own."""

_TRUTHS = frozenset(getattr(packet, name) for packet in (_aten.any, _aten.all) for name in packet.overloads())

_LOGICAL = frozenset(
    (_aten.logical_and.default, _aten.logical_or.default, _aten.logical_xor.default, _aten.logical_not.default)
)

_ORDERS = frozenset((_aten.lt, _aten.le, _aten.gt, _aten.ge, _aten.eq, _aten.ne))

DTYPES = frozenset((torch.float32, torch.int64, torch.int32, torch.bool))
_NARROW = frozenset((torch.int16, torch.int8, torch.uint8))
_IN_FLOAT32 = frozenset((torch.float64, torch.float16, torch.bfloat16))


def _of_dtype(node: Node, value: torch.Tensor) -> str:
    if value.dtype in _IN_FLOAT32:
        return f"OpenVINO computes {support.dtype_name(value.dtype)} in float32 on a CPU, which rounds differently"
    if value.dtype in _NARROW and node.target is not torch.ops.aten._to_copy.default:
        return f"OpenVINO's {support.dtype_name(value.dtype)} does not wrap around as torch's does"
    return ""


COMMON = support.Common("OpenVINO", DTYPES | _NARROW, _of_dtype, lowest_is_finite=True)


@functools.lru_cache(maxsize=8)
def unknown_operators(fingerprint: str) -> frozenset[str]:
    """The names of those operators in torch's table, or in ``WHOLE``, that the installed frontend has no rule for."""

    def find() -> list[str]:
        return [op.name() for op in without_rule([*core_aten(), *support.operators_named(WHOLE)])]

    return support.remembered("openvino operators", fingerprint, find)


def decompositions(fingerprint: str) -> dict[Any, Callable[..., Any]]:
    """torch's table without what the frontend has a rule for."""
    wanted = unknown_operators(fingerprint).union(_BETTER_SPELLED_OUT)
    table = {op: function for op, function in core_aten().items() if op.name() in wanted}
    return table | attention.TABLE | _PRECISE


def whole(fingerprint: str) -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    unknown = unknown_operators(fingerprint)
    return support.whole(WHOLE, lambda op: op.name() not in unknown)


# ``expand`` is not among these: it is rewritten.
_TO_A_SHAPE = frozenset((torch.ops.aten.expand_copy.default, torch.ops.aten.repeat.default))


def supports(node: Node, fingerprint: str) -> Literal[True] | str:
    """Whether ``node`` can run in OpenVINO and mean the same, or why not."""
    if reason := _refused_untried(node):
        return reason

    def others() -> Iterator[Node]:
        return (each for each in node.graph.nodes if not _refused_untried(each))

    return trial.refusal(node, fingerprint, others) or True


def _refused_untried(node: Node) -> str:
    """Why ``node`` cannot run in OpenVINO, where no trial would show it; or an empty string."""
    op = node.target
    if not support.is_operator(node):
        return support.NOT_AN_OPERATOR
    if node.meta.get("val") is None:
        return "it has no result: it looks at numbers, and may raise an exception"
    if reason := COMMON.about_operator(node):
        return reason
    if op is _aten.abs.default and node.meta["val"].dim() < 2 and _is_joined_vector(node.args[0]):
        return "OpenVINO overwrites vectors that it has joined with their absolute values"
    if op is _aten.grid_sampler_2d.default:
        return "OpenVINO multiplies differences of pixels, which are nan between infinite ones"
    if op is _aten._log_softmax.default:
        return "OpenVINO's logarithm of softmax takes nan for a number"
    if support.takes_itself_away(node):
        return "OpenVINO's softmax of a scalar is 1, also of nan and infinity"
    if op in _FEW_DIGITS:
        return _FEW_DIGITS[op]
    if _adds_a_number(node) and any(_adds_a_number(n) and len(n.users) == 1 for n in node.all_input_nodes):
        return "OpenVINO merges two successive additions of numbers, where torch rounds in between"
    if _scales(node) and any(_is_scaled(n, node) for n in node.all_input_nodes):
        return "OpenVINO merges two successive products with numbers, of which the first may be infinite or zero"
    if _adds_a_number(node) and op not in _PLUS and _number(node.args[op in _REVERSED]) == 0:
        return "OpenVINO takes zero less a number for its opposite, also where it is zero"
    if op in _TRUTHS and node.all_input_nodes[0].meta["val"].is_floating_point():
        return "OpenVINO takes nan for False in any() and all()"
    if op in _LOGICAL and any(n.meta["val"].is_floating_point() for n in node.all_input_nodes):
        return "OpenVINO takes nan for False in logical operators on few elements"
    if op is torch.ops.aten.constant_pad_nd.default and len(node.args) > 2 and _is_negative_zero(node.args[2]):
        return "OpenVINO drops the sign of a zero that pads"
    to_bool = op is _aten._to_copy.default and node.meta["val"].dtype is torch.bool
    if (to_bool or op.overloadpacket in _ORDERS or op in _TRUTHS) and any(_is_int32(n) for n in node.all_input_nodes):
        return "OpenVINO compares int32 in float32"
    if op in _PLUS and node.meta["val"].is_floating_point() and 0 in map(_number, node.args[:2]):
        return "OpenVINO drops an addition of 0, which changes the sign of a zero"
    if op is torch.ops.aten.topk.default and 1 in elements_in_use(node):
        return "OpenVINO's topk orders equal numbers differently from torch"
    if op in _TO_A_SHAPE and not node.args[1]:
        return "OpenVINO 2026.4 ends the process, or writes no result, where a scalar is broadcast to a scalar"
    if reason := COMMON.about_values(node):
        return reason
    if integers.is_long(node.meta.get("val")) and not integers.fit(node):
        return "OpenVINO keeps 64-bit integers in 32 bits, and these are not known to fit"
    if op.overloadpacket is _aten.sum and not node.meta["val"].is_floating_point() and not integers.sums_exactly(node):
        return "OpenVINO adds integers in float32, which has not all of them beyond 2^24"
    if integers.unchecked_index(node):
        return "OpenVINO reads beyond the end where an index is out of range, and this one is not known to be in range"
    return ""


def _is_joined_vector(node: Any) -> bool:
    """Whether ``node`` is a vector that consists of others, or follows from one alone, by what OpenVINO may leave out.

    It computes the absolute values of such a vector's parts instead, for whatever else reads the vector.
    """
    while isinstance(node, Node) and node.op == "call_function":
        if node.target in (_aten.cat.default, _aten.stack.default):
            return bool(node.meta["val"].dim() == 1)
        if len(node.all_input_nodes) != 1:
            return False
        node = node.all_input_nodes[0]
    return False


def _is_int32(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype is torch.int32


def _adds_a_number(node: Any) -> bool:
    """Whether ``node`` adds a number to floats, takes one off, or takes them off a number."""
    if (
        not isinstance(node, Node)
        or node.op != "call_function"
        or node.target not in _SUMS
        or not node.meta["val"].is_floating_point()
    ):
        return False
    return any(_number(value) is not None for value in node.args[:2])


def _is_known(value: Any) -> bool:
    """Whether it is a number of the program, or a tensor that does not depend on inputs."""
    return _number(value) is not None or (isinstance(value, Node) and value.op == "get_attr")


def _scales(node: Node) -> bool:
    """Whether ``node`` multiplies floats with what is known before a call."""
    is_product = node.op == "call_function" and node.target in _PRODUCTS
    return is_product and node.meta["val"].is_floating_point() and any(map(_is_known, node.args[:2]))


def _factor(node: Node) -> float | None:
    """The size of the number that ``node`` multiplies with, if it is one."""
    found = [n for n in map(_number, node.args[:2]) if n is not None]
    return abs(found[0]) if len(found) == 1 else None


def _is_scaled(node: Node, outer: Node) -> bool:
    """Whether ``node`` is a product that may not be joined with that of ``outer``, or that with another sign or order,
    or with a number that is added.

    Factors that all make numbers larger, or all smaller, may be joined where their product is a number of the type:
    what is infinite or zero on the way is so in the end.  All of a chain count, since one of them is made of all.
    """
    factors, adds = [_factor(outer)], False
    while len(node.users) == 1:
        if _scales(node):
            factors.append(_factor(node))
            if adds or not _may_be_joined(factors, outer.meta["val"].dtype):
                return True
        elif not (_adds_a_number(node) or node.target in _BEHIND_A_SCALE):
            return False
        adds |= _adds_a_number(node)
        inner = [n for n in node.all_input_nodes if not _is_known(n)]
        if not inner:
            return False
        node = inner[0]
    return False


def _may_be_joined(factors: Sequence[float | None], dtype: torch.dtype) -> bool:
    known, limits = [f for f in factors if f is not None], torch.finfo(dtype)
    if len(known) < len(factors):
        return False
    product = math.prod(known)
    return (min(known) >= 1 and product <= limits.max) or (max(known) <= 1 and product >= limits.tiny)


def _number(value: Any) -> float | None:
    """What ``value`` is, as a number of the program or a tensor filled with one."""
    if isinstance(value, Node):
        packet = getattr(value.target, "overloadpacket", None)
        value = value.args[_FILLED[packet]] if packet in _FILLED else _MADE.get(packet)
    return value if isinstance(value, int | float) else None


def _is_negative_zero(value: Any) -> bool:
    return isinstance(value, float) and value == 0 and math.copysign(1, value) < 0
