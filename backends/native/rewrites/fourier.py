"""The gradient of a Fourier transform of real numbers, by a transform to real numbers.

Autograd fills up the half spectrum that it has with zeros, transforms it as complex numbers, and drops the imaginary
parts.  A transform to real numbers adds the conjugate of what it reads, and so gives the same from half of each number
but for those that are their own conjugates.  It does half of the work, and what it reads is half as large.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ...common.adapter.graphs import copy_graph
from .freezing import STANDS_FOR

_aten = torch.ops.aten
_EMPTY = (_aten.new_zeros.default, _aten.zeros.default, _aten.zeros_like.default, _aten.full.default)


def real_transforms(gm: GraphModule) -> GraphModule:
    """``gm``, or a copy of it in which no complex transform is made for its real parts alone."""
    if not any(_reads(node) for node in gm.graph.find_nodes(op="call_function", target=_TRANSFORM)):
        return gm
    gm = copy_graph(gm)
    for node in list(gm.graph.find_nodes(op="call_function", target=_TRANSFORM)):
        if (half := _reads(node)) is not None:
            _replace(node, half)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


_TRANSFORM = _aten._fft_c2c.default


def _reads(node: Node) -> Node | None:
    """The half of a spectrum that ``node`` transforms back where only real parts are wanted and the rest is zero."""
    arguments: Any = node.args
    filled, dims, _, forward = arguments
    if forward or not dims or not all(map(_takes_real_parts, node.users)):
        return None
    if not isinstance(filled, Node) or filled.target is not _aten.slice_scatter.default:
        return None
    written: Any = (*filled.args, *(0, 0, None, 1)[len(filled.args) - 2 :])
    into, half, dim, start, end, step = written
    sizes = node.meta["val"].shape
    if node.meta["val"].device.type != "cpu":  # only there, transforms are known to pass over imaginary parts
        return None
    if not all(type(n) is int for n in sizes) or not _is_zeros(into) or filled.kwargs:
        return None
    last = dims[-1] % len(sizes)
    count = sizes[last] // 2 + 1
    places = dim % len(sizes) == last and start == 0 and end == count and step == 1
    return half if places and half.meta["val"].shape[last] == count else None


def _takes_real_parts(node: Node) -> bool:
    return node.target is _aten.view_as_real.default and all(
        user.target is _aten.select.int and user.args[1] % node.meta["val"].dim() == node.meta["val"].dim() - 1
        and user.args[2] == 0
        for user in node.users
    )  # fmt: skip


def _is_zeros(node: Node) -> bool:
    return node.target in _EMPTY and (node.target is not _aten.full.default or node.args[1] == 0)


def _replace(node: Node, half: Node) -> None:
    dims, scale = node.args[1:3]
    value = node.meta["val"]
    last = dims[-1] % value.dim()
    count, size = value.shape[last] // 2 + 1, value.shape[last]
    graph = node.graph
    with graph.inserting_before(node):
        reads = _made(graph, node, _aten.mul.Scalar, half, 0.5)
        for at in (0, count - 1)[: 2 - size % 2]:
            own = _made(graph, node, _aten.slice.Tensor, half, last, at, at + 1)
            reads = _made(graph, node, _aten.slice_scatter.default, reads, own, last, at, at + 1)
        made = _made(graph, node, _aten._fft_c2r.default, reads, dims, scale, size)
        for real in [user for pairs in node.users for user in pairs.users]:
            alias = graph.call_function(_aten.alias.default, (made,))
            alias.meta = {**real.meta, STANDS_FOR: (real.name,)}  # strides are those of the real parts in pairs
            real.replace_all_uses_with(alias)


def _made(graph: Graph, stands_for: Node, op: Any, *args: Any) -> Node:
    node = graph.call_function(op, args)
    values = torch.fx.map_arg(args, lambda n: n.meta["val"])
    node.meta = {**stands_for.meta, "val": op(*values), STANDS_FOR: (stands_for.name,)}
    return node
