"""Decides which ATen nodes can become ONNX, according to the exporter's own registry.

Filling that registry takes a second, because it imports onnxscript's whole library.  The artifact cache keeps its
names, so a process that compiles nothing new does not need it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.adapter import attention, formulas, support
from ..common.adapter.graphs import values_in_use
from ..common.pipeline.decompose import RESAMPLING, core_aten

# Composite operators that ONNX has in one piece, or that the exporter writes better whole.  None of them ever returns
# an argument or a view of one, which an operator kept whole must not do.
WHOLE = (
    "linear", "matmul", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm", "softmax.int", "log_softmax.int",
    "scaled_dot_product_attention", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "cross_entropy_loss",
    "relu6", "prelu", "upsample_nearest2d.vec",
)  # fmt: skip

_LOGARITHMS = frozenset((torch.ops.aten.log_softmax, torch.ops.aten._log_softmax))
_PRODUCTS = frozenset((torch.ops.aten.mv.default, torch.ops.aten.matmul.default))

# Operators whose translation overflows, loses all digits of small results, is wrong at a kink, or has wrong results
# besides the first; the table has better ways.
_BETTER_SPELLED_OUT = frozenset(
    ("aten::silu", "aten::celu", "aten::selu", "aten::log_sigmoid", "aten::logaddexp", "aten::logaddexp2",
     "aten::heaviside", "aten::logit", "aten::glu", "aten::nll_loss_forward", "aten::xlogy.Tensor",
     "aten::hardtanh_backward")
)  # fmt: skip

# Translations that compute something else, by what a comparison on ordinary numbers does not show.
_WRONG = {
    "aten::erfc": "the exporter writes 1 - erf(x), which loses all precision where x is large",
    "aten::special_erfc": "the exporter writes 1 - erf(x), which loses all precision where x is large",
    "aten::special_erfcx": "the exporter's formula overflows where x is large",
    "aten::angle": "the exporter's formula returns a number where x is nan",
    "aten::atan2": "the exporter's formula returns numbers where x or y is nan",
    "aten::signbit": "the exporter writes x < 0, which ignores the sign of a zero",
    "aten::sign": "onnxruntime's sign of nan is nan, torch's is 0",
    "aten::sgn": "onnxruntime's sign of nan is nan, torch's is 0",
    "aten::trunc": "onnxruntime's where and sign lose the sign of a zero",
    "aten::log2": "the exporter divides logarithms, and powers of two have inexact ones",
    "aten::log10": "the exporter divides logarithms, and powers of ten have inexact ones",
    "aten::logcumsumexp": "the exporter's formula loses what is small beside the maximum of all",
    "aten::cumprod": "the exporter's formula returns zeros after a nan",
    "aten::grid_sampler_2d": "onnxruntime returns a number where the place is nan or infinite",
    "aten::upsample_bicubic2d.vec": "onnxruntime interpolates by cubes 20 times slower than torch",
}

# Arguments that translations do not read, by operator.  Numbers for which these make no difference hide it.
_UNREAD = {
    "aten::cross_entropy_loss": ("label_smoothing",),
    **dict.fromkeys(("aten::avg_pool2d", "aten::avg_pool3d"), ("divisor_override",)),
    **dict.fromkeys(
        ("aten::upsample_bilinear2d", "aten::upsample_bicubic2d", "aten::_upsample_bilinear2d_aa",
         "aten::_upsample_bicubic2d_aa"),
        ("scales_h", "scales_w"),
    ),
    "aten::upsample_linear1d": ("scales",),
}  # fmt: skip

# Has a translation that keeps the biased variance, where torch keeps the unbiased one.
_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default

_ROUNDED_QUOTIENTS = (torch.ops.aten.div.Tensor_mode, torch.ops.aten.div.Scalar_mode)

HALF = frozenset((torch.float16, torch.bfloat16))
DTYPES = frozenset(
    (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
)


def _of_dtype(node: Node, value: torch.Tensor) -> Literal[True] | str:
    if value.dtype not in HALF:
        return ""
    if value.device.type == "cuda":
        return True
    return f"onnxruntime computes {support.dtype_name(value.dtype)} in float32 on a CPU, which rounds differently"


COMMON = support.Common("onnxruntime", DTYPES, _of_dtype)


@functools.lru_cache(maxsize=8)
def known_operators(fingerprint: str) -> frozenset[str]:
    """The names of the operators that the installed exporter translates for real numbers."""

    def find() -> list[str]:
        return [name for name, ways in internals.onnx_operators().items() if not all(ways)]

    return support.remembered("onnxrt operators", fingerprint, find)


def decompositions(fingerprint: str) -> dict[Any, Callable[..., Any]]:
    """torch's table without what the exporter translates itself."""
    known = known_operators(fingerprint) - _BETTER_SPELLED_OUT
    table = {op: function for op, function in core_aten().items() if op.name() not in known}
    own = {op: function for op, function in formulas.TABLE.items() if op.name() not in _WRONG}
    usual = {**table, **attention.TABLE, **own}
    return {**usual, **_bounds_of_integers(usual), torch.ops.aten.silu.default: _silu, _BATCH_NORM: _batch_norm}


def _bounds_of_integers(usual: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Bounds of int64 as selections: onnxruntime takes what is just beyond int32 for neither larger nor smaller."""

    def smaller(x: torch.Tensor, y: Any) -> Any:
        return torch.where(x > y, y, x)

    def larger(x: torch.Tensor, y: Any) -> Any:
        return torch.where(x < y, y, x)

    def between(x: torch.Tensor, low: Any = None, high: Any = None) -> Any:
        x = x if low is None else larger(x, low)
        return x if high is None else smaller(x, high)

    aten = torch.ops.aten
    ways: dict[Any, Callable[..., Any]] = {
            aten.minimum.default: smaller, aten.clamp_max.default: smaller, aten.clamp_max.Tensor: smaller,
            aten.maximum.default: larger, aten.clamp_min.default: larger, aten.clamp_min.Tensor: larger,
            aten.clamp.default: between, aten.clamp.Tensor: between}  # fmt: skip

    def only_for_integers(op: Any, way: Callable[..., Any]) -> Callable[..., Any]:
        otherwise = usual.get(op, lambda *args: NotImplemented)

        def bound(x: torch.Tensor, *rest: Any) -> Any:
            numbers = all(r is None or type(r) is int or getattr(r, "dtype", None) is torch.int64 for r in rest)
            return way(x, *rest) if x.dtype is torch.int64 and numbers else otherwise(x, *rest)

        return bound

    return {op: only_for_integers(op, way) for op, way in ways.items()}


def _silu(x: torch.Tensor) -> Any:
    """With one pass over memory less than ``x * sigmoid(x)``; onnxruntime's own sigmoid is never below 1.5e-8."""
    if x.dtype in HALF:
        return NotImplemented  # each step would round
    return x / (1.0 + x.neg().exp())


def _is_double(node: Node) -> bool:
    return any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in values_in_use(node))


def _holds_floats(node: Node) -> bool:
    return bool(node.meta["val"].is_floating_point())


def _beyond_float32(node: Node) -> float | None:
    """A number of ``node`` that float32 does not have; ONNX's attributes and the exporter's constants are float32."""
    given = [*node.args, *node.kwargs.values()]
    left_out = internals.operator_schema(node.target).arguments[len(node.args) :]
    given += [argument.default_value for argument in left_out if argument.name not in node.kwargs]
    for value in given:
        if isinstance(value, float) and math.isfinite(value) and float(np.float32(value)) != value:
            return value
    return None


def _unread(node: Node) -> str | None:
    """An argument of ``node`` that its translation ignores, although it is not what it is by default."""
    names = _UNREAD.get(node.target.name(), ())
    for at, argument in enumerate(internals.operator_schema(node.target).arguments if names else ()):
        given = node.args[at] if at < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        if argument.name in names and given != argument.default_value:
            return argument.name
    return None


def _windows_begin_outside(node: Node) -> bool:
    """Whether a pool whose size is rounded up has windows in ONNX that torch leaves out, or may have them."""
    names = [argument.name for argument in internals.operator_schema(node.target).arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if not given.get("ceil_mode"):
        return False
    kernel: Any = given["kernel_size"]
    kernel = [kernel] if isinstance(kernel, int) else kernel

    def each(name: str, default: Any) -> Any:
        value = given.get(name) or default
        value = [value] if isinstance(value, int) else value
        return value * len(kernel) if len(value) == 1 else value

    values = node.meta["val"]
    sizes = node.all_input_nodes[0].meta["val"].shape[-len(kernel) :]
    found = (values[0] if isinstance(values, tuple) else values).shape[-len(kernel) :]
    if not all(type(size) is int for size in (*sizes, *found)):
        return True
    spans = zip(sizes, found, kernel, each("stride", kernel), each("padding", 0), each("dilation", 1), strict=True)
    return any(out != -((d * (k - 1) + 1 - n - 2 * p) // s) + 1 for n, out, k, s, p, d in spans)


def _batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The result, the mean and one over the deviation of the batch, and the running mean and variance after it."""
    if not training or input.dtype in HALF:
        return NotImplemented
    dims = [d for d in range(input.dim()) if d != 1]
    wide = [-1 if d == 1 else 1 for d in range(input.dim())]
    mean = input.mean(dims)
    centered = input - mean.view(wide)
    variance = (centered * centered).mean(dims)
    inverse = (variance + eps).rsqrt()
    out = centered * inverse.view(wide)
    if weight is not None:
        out = out * weight.view(wide)
    if bias is not None:
        out = out + bias.view(wide)
    count = input.numel() / input.shape[1]
    unbiased = variance * (count / (count - 1))
    new_mean = mean * momentum + running_mean * (1 - momentum)
    new_variance = unbiased * momentum + running_var * (1 - momentum)
    return out, mean, inverse, new_mean, new_variance


def whole(fingerprint: str) -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    known = known_operators(fingerprint)
    return support.whole(WHOLE, lambda op: op.name() in known) | RESAMPLING


def supports(node: Node, fingerprint: str) -> Literal[True] | str:
    """Whether ``node`` can become ONNX and mean the same, or why not."""
    op = node.target
    if not support.is_operator(node):
        return support.NOT_AN_OPERATOR
    if op.name() not in known_operators(fingerprint):
        return "the ONNX exporter has no translation"
    if op.name() in _WRONG:
        return _WRONG[op.name()]
    if reason := COMMON.about_operator(node):
        return reason
    if name := _unread(node):
        return f"the exporter ignores {name}"
    if op.overloadpacket in _LOGARITHMS and _is_double(node):
        return "onnxruntime's logarithm of softmax in float64 takes nan for a number"
    if op in _ROUNDED_QUOTIENTS and not node.meta["val"].is_floating_point():
        return "the exporter divides integers in float32, which loses digits"
    if op.overloadpacket is torch.ops.aten.fmod and node.meta["val"].dtype is torch.int64:
        return "onnxruntime's remainders of int64 lose digits beyond 2^53"
    if op.overloadpacket is torch.ops.aten.pow and not node.meta["val"].is_floating_point():
        return "onnxruntime's powers of integers differ from torch where the exponent is negative"
    if op.overloadpacket is torch.ops.aten.sum and node.all_input_nodes[0].meta["val"].dtype is torch.int64:
        return "onnxruntime's sums of int64 lose digits beyond 2^53"
    if op.overloadpacket is torch.ops.aten.prod and not node.meta["val"].is_floating_point():
        return "onnxruntime's products of integers do not wrap around"
    if any(isinstance(v, float) and v == 0 and math.copysign(1, v) < 0 for v in (*node.args, *node.kwargs.values())):
        return "onnxruntime takes -0.0 for 0.0 where a graph has both"
    if _is_double(node) and (number := _beyond_float32(node)) is not None:
        return f"ONNX keeps the number {number!r} in float32"
    if op is torch.ops.aten.scatter_reduce.two and node.args[4] in ("amax", "amin") and _holds_floats(node):
        return "onnxruntime's extremes that it scatters skip nan"
    if _windows_begin_outside(node):
        return "onnxruntime counts windows that begin outside of their input, torch does not"
    if op in _PRODUCTS and any(n.meta["val"].dim() == 1 for n in node.all_input_nodes):
        return "onnxruntime drops the transposition of a matrix that is multiplied by a vector"
    return COMMON.about_values(node) or True
