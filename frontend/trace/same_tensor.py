"""Whether two tensors of a graph may be the same object: ``x.contiguous()`` may return ``x`` itself."""

from __future__ import annotations

import operator
from typing import Any

import torch

from torchmux import torch_internals as ti

from ..values.base import Value
from ..values.tensors import TensorValue

# Operators that share memory with their operand but always return a new object.
_NEW_VIEWS = frozenset(
    {"getitem", "transpose", "permute", "view", "t", "expand", "detach", "unbind", "select", "narrow", "unsqueeze",
     "squeeze", "swapaxes", "movedim", "split", "chunk", "tensor_split", "unflatten", "diagonal", "unfold", "reshape",
     "as_strided", "view_as_real", "view_as_complex", "autograd_function"}
)  # fmt: skip


def may_be_one(left: Any, right: Any) -> bool:
    """Whether two different nodes may be the same tensor object."""
    return _origin(left) is _origin(right)


def may_be_operand(value: Value) -> bool:
    """Whether an operator may have returned one of its arguments as this tensor."""
    return isinstance(value, TensorValue) and value.node is not None and _origin(value.node) is not value.node


def _origin(node: Any) -> Any:
    """The earliest node whose tensor ``node`` may have returned unchanged."""
    while True:
        if node.op == "placeholder" and "captured" in node.meta:
            node = node.meta["captured"]  # a tensor from around a region
        if node.op not in ("call_function", "call_method"):
            return node
        maker = node
        if node.target is operator.getitem and not _is_tensor(node.args[0]):
            maker = node.args[0]  # an element of an operator's tuple
        name = maker.target if isinstance(maker.target, str) else getattr(maker.target, "__name__", "")
        example = node.meta["example_value"]
        before = (
            None
            if name in _NEW_VIEWS
            else next(
                (
                    n
                    for n in maker.all_input_nodes
                    if _is_tensor(n) and ti.share_storage(n.meta["example_value"], example)
                ),
                None,
            )
        )
        if before is None:
            return node
        node = before


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("example_value"), torch.Tensor)
