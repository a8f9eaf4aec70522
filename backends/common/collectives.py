"""Functional collectives of an ATen graph: fewer of them, without copies, and with something to compute meanwhile.

The trace waits for each at once.  Where a backend leaves them to torch, its parts end where one starts and where one is
waited for, and what one does not need is computed in between (see ``pipeline.partition``).  Processes must start their
collectives in the same order, so they keep that of the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from torchmux import torch_internals as internals

from .pipeline import aliasing

NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd", "c10d", "symm_mem", "_dtensor")
_aten = torch.ops.aten
_HEAVY = frozenset((_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default))


def communicates(node: Node) -> bool:
    """Whether ``node`` starts a collective, or waits for one."""
    return (
        node.op == "call_function"
        and isinstance(node.target, internals.OpOverload)
        and node.target.namespace in NAMESPACES
    )


def starts(node: Node) -> bool:
    """Whether ``node`` starts a collective whose result others must wait for."""
    return communicates(node) and bool(node.users) and all(map(waits, node.users))


def waits(node: Node) -> bool:
    return communicates(node) and _name(node) == "wait_tensor"


def is_heavy(node: Node) -> bool:
    """Whether a node takes long enough to be computed while another process is waited for."""
    return node.target in _HEAVY


def _name(node: Node) -> str:
    return str(getattr(node.target, "_opname", ""))


def add_before_summing(graph: Graph) -> None:
    """Communicate the sum of two tensors once, where the sums of each over the processes are added.

    The gradient of what several sharded layers take is such a sum.  The numbers of additions and of roundings stay.
    """
    for node in list(graph.nodes):
        if node.target is not _aten.add.Tensor or node.kwargs or len(node.args) != 2:
            continue
        first, second = (_summed(operand) for operand in node.args)
        if first is None or second is None or first is second:
            continue
        known = node.meta.get("val")
        values = [known, *(start.args[0].meta.get("val") for start in (first, second))]
        if first.args[1:] != second.args[1:] or not all(_alike(known, value) for value in values):
            continue
        with graph.inserting_before(node):
            added = graph.call_function(_aten.add.Tensor, (first.args[0], second.args[0]))
            summed = graph.call_function(first.target, (added, *first.args[1:]))
            waited = graph.call_function(node.args[0].target, (summed,))
        for made, like in ((added, node), (summed, first), (waited, node.args[0])):
            made.meta = dict(like.meta) | {"val": known}
        node.replace_all_uses_with(waited)
        for gone in (node, *node.all_input_nodes, first, second):
            graph.erase_node(gone)


def _summed(operand: Any) -> Node | None:
    """The ``all_reduce`` that only ``operand`` waits for, which is used once, if it adds."""
    if not isinstance(operand, Node) or not waits(operand) or len(operand.users) != 1:
        return None
    start = operand.args[0]
    if not isinstance(start, Node) or len(start.users) != 1 or _name(start) != "all_reduce" or start.kwargs:
        return None
    return start if isinstance(start.args[0], Node) and start.args[1] == "sum" else None


def _alike(one: Any, other: Any) -> bool:
    return (
        isinstance(other, torch.Tensor)
        and one.shape == other.shape
        and one.dtype == other.dtype
        and one.device == other.device
        and other.is_contiguous()
    )


def overwritable(graph: Graph, made: Iterable[Node]) -> frozenset[Node]:
    """The ``all_reduce`` nodes whose result may lie where their argument does, which saves torch a copy.

    Args:
        made: results of compiled parts, each in memory of its own.
    """
    root, parts = aliasing.roots(graph), set(made)
    families: dict[Node, list[Node]] = {}
    for node, base in root.items():
        families.setdefault(base, []).append(node)
    output = graph.output_node()
    found = set()
    for node in graph.nodes:
        if not communicates(node) or _name(node) != "all_reduce" or node.kwargs:
            continue
        base = root[node.args[0]]
        shown = set(families[base])
        others = {user for each in shown for user in each.users} - shown - {node}
        if base.op == "call_function" and parts & shown and not others and output not in others:
            found.add(node)
    return frozenset(found)


def all_reduce_in_place(tensor: torch.Tensor, *args: Any) -> torch.Tensor:
    """``all_reduce`` of a tensor that nobody needs any more; of one that is not contiguous, torch makes a copy."""
    functional = torch.ops._c10d_functional
    found: torch.Tensor = (functional.all_reduce_ if tensor.is_contiguous() else functional.all_reduce)(tensor, *args)
    return found
