"""``Tensor.register_hook`` of what the graph computes: an ``autograd.Function`` between the tensor and its users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.utils.hooks import RemovableHandle

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.table import handles
from ..polyfills.autograd_ import HookedGradient
from ..values.base import Value
from ..values.containers.sequences import ListValue, TupleValue
from ..values.tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


class HandleValue(Value):
    """What ``register_hook`` returns; a program that removes the hook ends the graph."""

    __slots__ = ()

    def pytype(self) -> type:
        return RemovableHandle

    def truth(self, tr: Tracer) -> bool:
        return True


@handles(torch.Tensor.register_hook)
def register_hook(tr: Tracer, tensor: Value, hook: Value) -> Value:
    refused = GraphBreak(breaks.TORCH_STATE, f"Tensor.register_hook on {tensor.describe()}")
    if not isinstance(tensor, TensorValue) or tensor.is_input or tr.region is not None or not tr.grad_enabled:
        raise refused  # the hook of an input outlives the call
    if (
        not tensor.example.requires_grad
        or tensor.example.is_leaf
        or tensor.attrs
        or tensor.node.users
        or tensor.example._is_view()
        or not tr.may_hook
    ):
        # Compiled code takes the gradients of its results only from outside: those that come from earlier users of the
        # tensor in the graph would pass the hook by.
        refused.whole_frame = bool(tensor.node.users)
        raise refused
    made = tr.lift(HookedGradient).getattr(tr, "apply").call(tr, [tensor, hook], {})
    assert isinstance(made, TensorValue)
    tensor.node, tensor.example = made.node, made.example
    tr.hooked.add(made.node)
    return HandleValue()


@handles(torch.autograd.grad)
def grad(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
    """Gradients run between graphs, which do not differentiate by what they make themselves: see ``register_hook``."""
    refused = GraphBreak(breaks.TORCH_STATE, "torch.autograd.grad runs autograd")
    inputs = kwargs.get("inputs", args[1] if len(args) > 1 else None)
    each = inputs.unpack(tr) if isinstance(inputs, TupleValue | ListValue) else [inputs]
    refused.whole_frame = any(_is_used(tensor) for tensor in each)
    raise refused


@handles(torch.Tensor.retain_grad)
def retain_grad(tr: Tracer, tensor: Value) -> Value:
    refused = GraphBreak(breaks.TORCH_STATE, f"Tensor.retain_grad on {tensor.describe()}")
    refused.whole_frame = _is_used(tensor)
    raise refused


def _is_used(tensor: Value | None) -> bool:
    """Whether the graph has computed something from a tensor of its own."""
    if not isinstance(tensor, TensorValue) or tensor.is_input or not tensor.example.requires_grad:
        return False
    return bool(tensor.node.users)
