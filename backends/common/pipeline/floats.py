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
_TAKES_TENSORS = {aten.mul.Tensor, aten.add.Tensor, aten.sub.Tensor, aten.div.Tensor, aten.floor_divide.default}
# Operators of a tensor and a number behind it, and those that do the same with a tensor in its place.
_OF_TENSORS = {
    aten.eq.Scalar: aten.eq.Tensor, aten.ne.Scalar: aten.ne.Tensor, aten.lt.Scalar: aten.lt.Tensor,
    aten.le.Scalar: aten.le.Tensor, aten.gt.Scalar: aten.gt.Tensor, aten.ge.Scalar: aten.ge.Tensor,
    aten.remainder.Scalar: aten.remainder.Tensor, aten.masked_fill.Scalar: aten.masked_fill.Tensor,
    aten.fill.Scalar: aten.fill.Tensor, aten.clamp_min.default: aten.maximum.default,
    aten.clamp_max.default: aten.minimum.default,
}  # fmt: skip
_ALL = {*_OF_TENSORS.values(), aten.clamp.default}
# Narrower types are computed in float32 by torch, with the number in full: rounding it first would be another result.
_DTYPES = (torch.float32, torch.float64)


def as_tensors(graph: Graph) -> None:
    """Give operators tensors instead of floats, where that computes the same."""
    made: dict[tuple[Node, torch.dtype, torch.device], Node] = {}
    for node in list(graph.nodes):
        numbers = list(filter(_is_float, node.args))
        if numbers and node.target is aten.full.default and _fits(numbers[0], node.meta["val"].dtype):
            _multiply_ones(graph, node)
        if not numbers or node.kwargs:
            continue
        like = node.meta.get("val") if node.target in _TAKES_TENSORS else _value(node.args[0])
        if not internals.is_fake(like) or like.dtype not in _DTYPES:
            continue
        users = _take_tensors(graph, node)
        if not users:
            continue
        for number in numbers:
            key = (number, like.dtype, like.device)
            if key not in made:
                with like.fake_mode:
                    made[key] = _tensor(graph, number, like)
            for user in users:
                user.replace_input_with(number, made[key])


def _fits(number: Node, dtype: torch.dtype) -> bool:
    """Whether ``full`` takes the number: what is computed of a float may be too large for float32, an error."""
    symbol = number.meta["val"].node
    return dtype is torch.float64 or (symbol.expr.is_symbol and symbol.has_hint())


def _multiply_ones(graph: Graph, node: Node) -> None:
    """Make ``full`` a product, which takes a tensor; each compiler has it, and it keeps zero's sign."""
    with graph.inserting_before(node):
        ones = graph.call_function(aten.full.default, (node.args[0], 1.0), dict(node.kwargs))
    ones.meta = dict(node.meta)
    node.target, node.args, node.kwargs = aten.mul.Tensor, (ones, node.args[1]), {}


def _take_tensors(graph: Graph, node: Node) -> list[Node]:
    """The nodes that take tensors where ``node`` took numbers, if there is an operator for that."""
    before = []
    if node.target is aten.clamp.default:
        before = _bound_by_bound(graph, node)
    elif node.target in _OF_TENSORS:
        node.target = _OF_TENSORS[node.target]
    elif node.target is aten.rsub.Scalar and len(node.args) == 2:
        node.target, node.args = aten.sub.Tensor, node.args[::-1]
    return [*before, node] if node.target in _TAKES_TENSORS or node.target in _ALL else []


def _value(argument: Any) -> Any:
    return argument.meta.get("val") if isinstance(argument, Node) else None


def _bound_by_bound(graph: Graph, node: Node) -> list[Node]:
    """Make ``clamp`` one operator for each bound: the node, and those before it."""
    tensor, low, high = (*node.args, None)[:3]
    before = []
    if low is not None and high is not None:
        with graph.inserting_before(node):
            first = graph.call_function(*_bounded(tensor, low, None))
        first.meta = dict(node.meta)
        tensor, low = first, None
        before.append(first)
    node.target, node.args = _bounded(tensor, low, high)
    return before


def _bounded(tensor: Node, low: Any, high: Any) -> tuple[Any, tuple]:
    if _is_float(low) or _is_float(high):
        return (aten.maximum.default, (tensor, low)) if high is None else (aten.minimum.default, (tensor, high))
    return aten.clamp.default, (tensor, low, high)


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
