"""Which values of half precision are rounded where they are computed, though nothing stores them.

A kernel keeps what it passes on in float32, which is nearer to the exact result than eager's.  Where a number decides
(it becomes an integer, a truth value or a position), nearer is another answer: 127.4 stays below 127.5, which eager's
bfloat16 rounds to.  So whatever leads there is rounded as eager rounds it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch.fx import Graph, Node

_aten = torch.ops.aten

_DECIDE = frozenset((
    _aten.round, _aten.ceil, _aten.floor, _aten.trunc, _aten.frac, _aten.sign, _aten.sgn, _aten.signbit,
    _aten.floor_divide, _aten.remainder, _aten.fmod, _aten.heaviside, _aten.bucketize, _aten.searchsorted, _aten.eq,
    _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge, _aten.argmax, _aten.argmin, _aten.sort, _aten.topk, _aten.max,
    _aten.min, _aten.cummax, _aten.cummin, _aten.nonzero, _aten.logical_and, _aten.logical_or, _aten.logical_xor,
    _aten.logical_not, _aten.any, _aten.all,
))  # fmt: skip
_HALF = (torch.bfloat16, torch.float16)
_CONVERSIONS = (_aten._to_copy, _aten.to)


def decisive(graph: Graph) -> set[Node]:
    """The nodes of half precision of which something decides, directly or through other elementwise operators."""
    open_, found = [n for n in graph.nodes if n.op == "call_function" and _decides(n)], set[Node]()
    seen = set(open_)
    while open_:
        for node in open_.pop().all_input_nodes:
            if node in seen or node.op != "call_function":
                continue
            seen.add(node)
            if any(v.dtype in _HALF for v in _tensors(node)):
                found.add(node)
            if _elementwise(node):
                open_.append(node)
    return found


def _decides(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    taken = [v for n in node.all_input_nodes for v in _tensors(n)]
    if not any(v.is_floating_point() for v in taken):
        return False
    if packet in _DECIDE:
        return True
    if packet is _aten.div and node.kwargs.get("rounding_mode"):
        return True
    return packet in _CONVERSIONS and not any(v.dtype in (*_HALF, torch.float32, torch.float64) for v in _tensors(node))


def _elementwise(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return torch.Tag.pointwise in node.target.tags or node.target.is_view or node.target.overloadpacket in _CONVERSIONS


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    value = node.meta.get("val")
    return (v for v in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(v, torch.Tensor))
