"""Floats that are known only at run time, passed to operators as tensors.

Compilers that accept only tensors would have to leave the product of a tensor and such a float to torch.  torch
therefore converts the float to a tensor without dimensions before the operator, which gives the same result.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from torchmux import torch_internals as internals

aten = torch.ops.aten

# Operators that take a tensor where a Python number stands, and do the same with it.
_TAKES_TENSORS = {aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor}
# Narrower types are computed in float32 by torch, with the number in full: rounding it first would be another result.
_DTYPES = (torch.float32, torch.float64)


def as_tensors(graph: Graph) -> None:
    """Give operators tensors instead of floats, where that computes the same."""
    made: dict[tuple[Node, torch.dtype, torch.device], Node] = {}
    for node in list(graph.nodes):
        result = node.meta.get("val")
        if node.target not in _TAKES_TENSORS or node.kwargs or not internals.is_fake(result):
            continue
        if result.dtype not in _DTYPES:
            continue
        for number in filter(_is_float, node.args):
            key = (number, result.dtype, result.device)
            if key not in made:
                with result.fake_mode:
                    made[key] = _tensor(graph, number, result)
            node.replace_input_with(number, made[key])


def is_number(node: Node) -> bool:
    """Whether ``node`` only carries a number into a tensor."""
    if node.target is aten._to_copy.default:
        node = node.args[0]
        if not isinstance(node, Node):
            return False  # vmap hands on plain numbers
    return node.target is aten.scalar_tensor.default and _is_float(node.args[0])


def _is_float(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.SymFloat)


def _tensor(graph: Graph, number: Node, like: torch.Tensor) -> Node:
    """The number as a tensor; one that is too large for float32 is infinity there, as it is in eager's arithmetic."""
    node = _call(graph, aten.scalar_tensor.default, number, dtype=torch.float64, device=like.device)
    if like.dtype is not torch.float64:
        node = _call(graph, aten._to_copy.default, node, dtype=like.dtype)
    return node


def _call(graph: Graph, target: Any, argument: Node, **options: Any) -> Node:
    with graph.inserting_after(argument):
        node = graph.call_function(target, (argument,), options)
    node.meta["val"] = target(argument.meta["val"], **options)
    return node
