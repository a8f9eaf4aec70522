"""Which ATen nodes can become ONNX: asked of the exporter's own registry.

Filling that registry takes a second, since it imports onnxscript's whole library.  Its names are kept in the artifact
cache, so that a process that compiles nothing new does not need it.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.cache import default_cache, text_key
from ..common.decompose import can_stay_whole, core_aten, is_random

# Composite operators that ONNX has in one piece, or that the exporter writes better whole.  None of them ever returns
# an argument or a view of one, which an operator kept whole must not do.
WHOLE = (
    "linear", "matmul", "conv1d", "conv2d", "conv3d", "layer_norm", "group_norm", "softmax.int", "log_softmax.int",
    "scaled_dot_product_attention", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "cross_entropy_loss",
    "selu", "relu6", "prelu", "log_sigmoid", "upsample_nearest2d.vec", "upsample_bilinear2d.vec",
    "upsample_bicubic2d.vec",
)  # fmt: skip

DTYPES = frozenset(
    (torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
)

# The argument that says whether a random operator draws at all, and the value with which it does not.
_DETERMINISTIC_IF: Mapping[str, tuple[str, Any]] = {
    "aten::scaled_dot_product_attention": ("dropout_p", 0.0),
    "aten::dropout": ("train", False),
    "aten::native_dropout": ("train", False),
}


@functools.lru_cache(maxsize=8)
def known_operators(fingerprint: str) -> frozenset[str]:
    """The names of the operators that the installed exporter translates for real numbers."""
    cache, key = default_cache(), text_key("onnxrt operators", fingerprint)
    stored = cache.load(key) if cache is not None else None
    if stored is not None:
        return frozenset(json.loads(stored))
    names = frozenset(name for name, ways in internals.onnx_operators().items() if not all(ways))
    if cache is not None:
        cache.store(key, json.dumps(sorted(names)).encode())
    return names


def decompositions(fingerprint: str) -> dict[Any, Callable[..., Any]]:
    """torch's table without what the exporter translates itself."""
    known = known_operators(fingerprint)
    return {op: function for op, function in core_aten().items() if op.name() not in known}


def whole(fingerprint: str) -> frozenset[Any]:
    """The composite operators to keep in one piece."""
    known = known_operators(fingerprint)
    found = set()
    for name in WHOLE:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        if op.name() in known and can_stay_whole(op):
            found.add(op)
    return frozenset(found)


def supports(node: Node, fingerprint: str) -> Literal[True] | str:
    """Whether ``node`` can become ONNX and mean the same, or why not."""
    op = node.target
    if not isinstance(op, internals.OpOverload):
        return "not an ATen operator"
    if op.name() not in known_operators(fingerprint):
        return "the ONNX exporter has no translation"
    if is_random(op) and not _draws_nothing(node):
        return "random numbers would not be torch's for the same seed"
    for value in _values(node):
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            return "a float or bool that is known at run time only would lose precision as an ONNX input"
        if not isinstance(value, torch.Tensor):
            continue
        if value.layout is not torch.strided:
            return f"ONNX has no {value.layout} tensors"
        if value.dtype in (torch.float16, torch.bfloat16):
            return f"onnxruntime computes {_name(value.dtype)} in float32 on a CPU, which rounds otherwise"
        if value.dtype not in DTYPES:
            return f"ONNX has no operators on {_name(value.dtype)}"
        if any(type(size) is int and size == 0 for size in value.shape):
            return "onnxruntime's operators are not made for tensors without elements"
    return True


def _draws_nothing(node: Node) -> bool:
    rule = _DETERMINISTIC_IF.get(node.target.name())
    if rule is None:
        return False
    name, value = rule
    for position, argument in enumerate(internals.operator_schema(node.target).arguments):
        if argument.name == name:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(name, argument.default_value)
            return given == value
    return False


def _values(node: Node) -> list[Any]:
    """What goes into the node and what comes out and is used, as far as it is known."""
    out = node.meta.get("val")
    if isinstance(out, (tuple, list)):
        results = [u.meta.get("val") for u in node.users if u.target is operator.getitem]
    else:
        results = [out]
    return [n.meta.get("val") for n in node.all_input_nodes] + results


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
