"""Tensors that a program makes on the CPU, for a graph on another device.

``torch.zeros(n).bool().to(x.device)`` and ``x[torch.arange(3)]`` make tensors from nothing but numbers.  Left on the
CPU, torch would make them in each call, between the parts that a backend compiles, and copy them to the device, which
no CUDA graph holds.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from torchmux import torch_internals as internals

from .pipeline import aliasing
from .pipeline.decompose import is_random

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_CONVERSIONS = frozenset((_aten._to_copy.default, _aten.copy.default))
_INDEXING = frozenset((_aten.index.Tensor, _aten._unsafe_index.Tensor, _aten.index_select.default))
_SIZED_BY_VALUES = frozenset((torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape))


def make_where_used(graph: Graph) -> None:
    """Let the device of ``graph`` make what is made on the CPU from numbers, and is then read on that device only.

    What is returned, drawn at random, or asked for its values stays on the CPU, as does all that it is made from.
    """
    device = _device_of(graph)
    if device is None:
        return
    root = aliasing.roots(graph)
    shown = {root[node] for node in graph.output_node().all_input_nodes}
    moved: dict[Node, None] = {}
    for node in graph.nodes:
        if root[node] not in shown and _is_made(node):
            if all(n in moved or _is_number_for(n, node) for n in _tensors_of(node)):
                moved[node] = None
    left: list[Node] = [node for node in moved if not all(u in moved or _reads(u, node, device) for u in node.users)]
    while left:  # with it stays what it is made from, and what is made from it
        node = left.pop()
        if node in moved:
            del moved[node]
            left += [*node.all_input_nodes, *(user for user in node.users if user in moved)]
    for node in moved:
        if not _tensors_of(node) or "device" in node.kwargs:
            kept = {name: value for name, value in node.kwargs.items() if name != "pin_memory"}
            node.kwargs = {**kept, "device": device}
        example = node.meta["val"]
        with example.fake_mode:
            node.meta["val"] = torch.empty_strided(example.shape, example.stride(), dtype=example.dtype, device=device)


def _device_of(graph: Graph) -> torch.device | None:
    """The one device other than the CPU; None without one, or with several."""
    found = {v.device for n in graph.nodes if isinstance(v := n.meta.get("val"), torch.Tensor) and v.device != _CPU}
    return found.pop() if len(found) == 1 else None


def _tensors_of(node: Node) -> list[Node]:
    """What ``node`` reads but for sizes."""
    return [n for n in node.all_input_nodes if n.op == "get_attr" or isinstance(n.meta.get("val"), torch.Tensor)]


def _is_made(node: Node) -> bool:
    value = node.meta.get("val")
    if node.op != "call_function" or not internals.is_fake(value) or value.device != _CPU:
        return False
    if value.layout is not torch.strided:
        return False
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in ("aten", "prims"):
        return False
    is_plain = not node.target._schema.is_mutable and not is_random(node.target) and not node.is_impure()
    takes_device = any(a.name == "device" for a in node.target._schema.arguments)
    return is_plain and _SIZED_BY_VALUES.isdisjoint(node.target.tags) and (takes_device or bool(_tensors_of(node)))


def _is_number_for(node: Node, user: Node) -> bool:
    """Whether ``node`` is a number of the program's, which ``user`` takes from the CPU wherever it computes."""
    value = node.meta.get("val")
    is_number = node.op == "get_attr" and isinstance(value, torch.Tensor) and value.dim() == 0
    return is_number and torch.Tag.pointwise in user.target.tags


def _reads(user: Node, node: Node, device: torch.device) -> bool:
    """Whether ``user`` computes on ``device`` from ``node``, and takes an operand there as well as on the CPU."""
    value = user.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.device != device:
        return False
    if user.target in _INDEXING or (user.target in _CONVERSIONS and user.args[-1 if len(user.args) > 1 else 0] is node):
        return True
    is_operator = isinstance(user.target, torch._ops.OpOverload)
    return is_operator and node.meta["val"].dim() == 0 and torch.Tag.pointwise in user.target.tags
