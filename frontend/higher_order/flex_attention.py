"""``flex_attention``: what eager computes, as operators of the graph.

Eager applies the functions of the program to one score at a time, by ``vmap``.  Functions that only compute elements
from elements give the same on all scores at once, with indices that broadcast; others end the graph.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.classify import TORCH_MARKERS
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE, FALSE = ConstValue(None), ConstValue(False)
_OPERATORS = {
    getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg", "abs", "pow", "and_", "or_", "xor", "invert",
                 "lt", "le", "gt", "ge", "eq", "ne")
}  # fmt: skip
_METHODS = frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "pow", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "sin", "cos",
     "float", "double", "int", "long", "bool", "to", "clamp", "minimum", "maximum", "where", "logical_and",
     "logical_or", "logical_not", "square", "floor", "ceil", "round", "remainder"}
)  # fmt: skip
_FUNCTIONS = _OPERATORS | {getattr(torch, name) for name in _METHODS if hasattr(torch, name)}


def flex_attention(
    tr: Tracer,
    query: Value,
    key: Value,
    value: Value,
    score_mod: Value = NONE,
    block_mask: Value = NONE,
    scale: Value = NONE,
    enable_gqa: Value = FALSE,
    return_lse: Value = FALSE,
    kernel_options: Value = NONE,
    *,
    return_aux: Value = NONE,
) -> Value:
    """``torch.nn.attention.flex_attention.flex_attention`` without gradients and further results."""
    if return_lse.truth(tr) or not _is_none(kernel_options) or not _is_none(return_aux):
        raise _refused("options or further results")
    q, k, v = _inputs(query, key, value, enable_gqa.truth(tr))
    factor = 1.0 / math.sqrt(q.example.shape[-1]) if _is_none(scale) else scale.const(tr)
    precision = torch.float64 if q.example.dtype is torch.float64 else torch.float32
    groups = q.example.shape[1] // k.example.shape[1]
    if groups != 1:
        k, v = (_call(tr, torch.repeat_interleave, t, groups, 1) for t in (k, v))
    wide_q, wide_k = _method(tr, "to", q, precision), _method(tr, "to", k, precision)
    scores = _call(tr, torch.matmul, wide_q, _method(tr, "transpose", wide_k, -2, -1))
    scores = _call(tr, operator.mul, scores, factor)
    places = _places(tr, scores)
    if not _is_none(score_mod):
        scores = _elementwise(tr, score_mod, [scores, *places], precision)
    if not _is_none(block_mask):
        mask_mod = _mask_of(tr, block_mask, q, k)
        mask = _elementwise(tr, mask_mod, list(places), torch.bool)
        scores = _call(tr, torch.where, mask, scores, -math.inf)
    weights = _call(tr, torch._safe_softmax, scores, -1)
    found = _call(tr, torch.matmul, _method(tr, "to", weights, q.example.dtype), v)
    return _laid_out(tr, found, q.example.stride())


def _refused(what: str) -> GraphBreak:
    return GraphBreak(breaks.TORCH_STATE, f"flex_attention with {what}")


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.value is None


def _inputs(query: Value, key: Value, value: Value, grouped: bool) -> list[TensorValue]:
    given = [each for each in (query, key, value) if isinstance(each, TensorValue)]
    examples = [each.example for each in given]
    if len(given) != 3 or any(t.dim() != 4 or not all(type(s) is int for s in t.shape) for t in examples):
        raise _refused("other than three tensors of four known dimensions")
    q, k, v = examples
    if torch.is_grad_enabled() and any(t.requires_grad for t in examples):
        raise _refused("gradients")
    alike = len({(t.dtype, t.device, t.shape[0]) for t in examples}) == 1 and k.shape[:3] == v.shape[:3]
    heads = q.shape[1] % k.shape[1] == 0 if grouped else q.shape[1] == k.shape[1]
    if not alike or not heads or q.shape[-1] != k.shape[-1] or not all(t.numel() for t in examples):
        raise _refused("inputs that broadcast, are empty or do not fit")
    return given


def _mask_of(tr: Tracer, block_mask: Value, q: TensorValue, k: TensorValue) -> Value:
    lengths = tuple(each.const(tr) for each in block_mask.getattr(tr, "seq_lengths").unpack(tr))
    blocks = block_mask.getattr(tr, "kv_num_blocks")
    fits = isinstance(blocks, TensorValue) and blocks.example.device == q.example.device
    if lengths != (q.example.shape[-2], k.example.shape[-2]) or not fits:
        raise _refused("a mask of other lengths, or on another device")
    return block_mask.getattr(tr, "mask_mod")


def _places(tr: Tracer, scores: TensorValue) -> list[Value]:
    """Batch, head, row and column of each score, as tensors that broadcast."""
    found: list[Value] = []
    for dim, size in enumerate(scores.example.shape):
        device: dict[str, Value] = {"device": ConstValue(scores.example.device)}
        steps = tr.emit("call_function", torch.arange, [ConstValue(size)], device)
        found.append(_method(tr, "view", steps, *(size if d == dim else 1 for d in range(4))))
    return found


def _elementwise(tr: Tracer, function: Value, args: list[Value], dtype: torch.dtype) -> TensorValue:
    """The function on all elements at once, if it computes elements from elements."""
    before = set(tr.graph.nodes)
    result = function.call(tr, args, {})
    for node in tr.graph.nodes:
        if node not in before and node.op != "placeholder":
            _check_elementwise(node)
    if not isinstance(result, TensorValue) or result.example.dtype is not dtype or result.example.requires_grad:
        raise _refused(f"a function that returns other than {dtype} for each score, or needs gradients")
    return result


def _check_elementwise(node: Node) -> None:
    tensors = [n.meta["example_value"] for n in node.all_input_nodes]
    tensors = [t for t in tensors if isinstance(t, torch.Tensor)]
    if any(t.dim() not in (0, 4) for t in tensors) and node.target is not operator.getitem:
        raise _refused("a function of tensors that have dimensions of their own")
    if node.target is operator.getitem:
        indices = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        examples = [i.meta["example_value"] for i in indices if isinstance(i, Node)]
        if len(examples) != len(indices) or len(indices) != tensors[0].dim() or any(e.dim() != 4 for e in examples):
            raise _refused("a function that selects more than one element")
        return
    if len({t.dtype for t in tensors if not t.dim()} - {t.dtype for t in tensors if t.dim()}):
        raise _refused("a function of a tensor without dimensions, of another dtype")
    known = node.target in (_METHODS if node.op == "call_method" else _FUNCTIONS)
    if not known or node.kwargs:
        raise _refused(f"a function that calls {node.target if node.op == 'call_method' else node.name}")


def _laid_out(tr: Tracer, found: TensorValue, strides: tuple[int, ...]) -> Value:
    """The result in the order of the query's dimensions in memory, the last one innermost."""
    order = sorted(range(3), key=lambda dim: -strides[dim])
    if order == [0, 1, 2]:
        return found
    moved = _method(tr, "contiguous", _method(tr, "permute", found, *order, 3))
    return _method(tr, "permute", moved, *(order.index(dim) for dim in range(3)), 3)


def _lifted(args: tuple[Any, ...]) -> list[Value]:
    return [a if isinstance(a, Value) else ConstValue(a) for a in args]


def _call(tr: Tracer, function: Any, *args: Any) -> TensorValue:
    found = tr.emit("call_function", function, _lifted(args), {})
    assert isinstance(found, TensorValue)
    return found


def _method(tr: Tracer, name: str, *args: Any) -> TensorValue:
    found = tr.emit("call_method", name, _lifted(args), {})
    assert isinstance(found, TensorValue)
    return found


TORCH_MARKERS["torch.nn.attention.flex_attention", "flex_attention"] = flex_attention
