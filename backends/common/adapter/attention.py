"""torch's fused attention on a CPU, forward and backward, expressed by smaller operators.

In training torch records its own kernel, ``_scaled_dot_product_flash_attention_for_cpu``, which other compilers do not
know, or know only by name.  The formulas are those of FlashAttention (Dao et al., 2022, arXiv:2205.14135, section 3 and
appendix B), without the tiling: with ``S`` the scaled, masked products and ``L`` the logarithm of the sum of ``exp(S)``
over a row, the weights are ``P = exp(S - L)``.  As in torch, a completely masked row gets zeros, also in ``L``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node


def _forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p or not (query.is_contiguous() or query.transpose(1, 2).is_contiguous()):
        return NotImplemented
    key, value = _for_each_head(key, query), _for_each_head(value, query)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    largest = scores.amax(-1, keepdim=True)
    if attn_mask is not None:
        empty = largest == -math.inf
        largest = largest.masked_fill(empty, 0.0)
    weights = (scores - largest).exp()
    total = weights.sum(-1, keepdim=True)
    if attn_mask is not None:
        total = total.masked_fill(empty, 1.0)
    out = torch.matmul(weights / total, value)
    logsumexp = (total.log() + largest).squeeze(-1)
    return out if query.is_contiguous() else _laid_out(out), _laid_out(logsumexp)


def _backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if dropout_p:
        return NotImplemented
    heads = key.shape[1]
    key, value = _for_each_head(key, query), _for_each_head(value, query)
    weights = (_scores(query, key, is_causal, attn_mask, scale) - logsumexp.unsqueeze(-1)).exp()
    grad_value = torch.matmul(weights.transpose(-2, -1), grad_out)
    grad_weights = torch.matmul(grad_out, value.transpose(-2, -1))
    grad_scores = weights * (grad_weights - (grad_out * out).sum(-1, keepdim=True)) * _scale(query, scale)
    grad_query = torch.matmul(grad_scores, key)
    grad_key = torch.matmul(grad_scores.transpose(-2, -1), query)
    return _laid_out(grad_query), _laid_out(_summed(grad_key, heads)), _laid_out(_summed(grad_value, heads))


def _scores(query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None) -> Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) * _scale(query, scale)
    if attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(-1)
        columns = torch.arange(key.shape[-2], device=query.device)
        scores = scores.masked_fill(columns > rows, -math.inf)
    return scores


def _for_each_head(tensor: Tensor, query: Tensor) -> Tensor:
    """A key or a value for each head of the query, some of which may share one."""
    times = query.shape[1] // tensor.shape[1]
    return tensor if times == 1 else tensor.repeat_interleave(times, 1)


def _summed(gradient: Tensor, heads: int) -> Tensor:
    """What heads that share a key or a value contribute, added up."""
    if gradient.shape[1] == heads:
        return gradient
    return gradient.unflatten(1, (heads, gradient.shape[1] // heads)).sum(2)


def _scale(query: Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale


def _laid_out(tensor: Tensor) -> Tensor:
    """The heads next to the last dimension in memory: so torch's kernel has all results but the first, which is laid
    out as the query is."""
    return tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format).transpose(1, 2)


def clear_masked_rows(graph: Graph) -> None:
    """Let attention return zeros for rows that a mask hides completely: runtimes' softmax of nothing is nan.

    A comparison on made-up masks shows that only where they happen to hide a whole row.
    """
    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.scaled_dot_product_attention.default):
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        if mask is None:
            continue
        insert = _Inserter(graph, node)
        is_bool = mask.meta["val"].dtype is torch.bool
        hidden = insert(aten.logical_not.default, mask) if is_bool else insert(aten.eq.Scalar, mask, -math.inf)
        least = insert(aten.amin.default, insert(aten._to_copy.default, hidden, dtype=torch.float32), [-1], True)
        # ``masked_fill`` would be contiguous, whatever the layout of the heads.
        like = node.meta["val"]
        zero = insert(aten.full.default, [], 0.0, dtype=like.dtype, device=like.device)
        filled = insert(aten.where.self, insert(aten.eq.Scalar, least, 1.0), zero, node)
        node.replace_all_uses_with(filled, lambda user, filled=filled: user is not filled)


class _Inserter:
    """Inserts one node behind the other, and computes what is known of each."""

    def __init__(self, graph: Graph, last: Node) -> None:
        self._graph, self._last, self._mode = graph, last, last.meta["val"].fake_mode

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        with self._graph.inserting_after(self._last):
            self._last = made = self._graph.call_function(op, args, kwargs)
        known = torch.fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        with self._mode:
            made.meta["val"] = op(*known[0], **known[1])
        return made


TABLE: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _backward,
}
"""For a decomposition table; calls with dropout stay unchanged."""
