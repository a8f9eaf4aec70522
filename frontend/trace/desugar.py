"""Records what an operator does with tensors that consist of others, as operators on those.

The operator runs on fake tensors, through the ``__torch_function__`` and ``__torch_dispatch__`` of their classes, and a
mode beneath them records what reaches plain tensors.  That is below autograd, so with an operator that needs gradients
the trace starts again, and takes nothing apart.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..capture.attempts import SubclassesStayWhole
from ..guards.forms import Unknown, form_of
from ..guards.sources import Const
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.tensors import TensorValue
from .subclasses import SubclassValue

_BUILTIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_RESULTS = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.Size)


def desugared(tr: Any, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of an operator on tensors that consist of others; None if there are none among its arguments."""
    given = [*args, *kwargs.values()]
    tensors = list(_tensors_in(tr, given))
    subclasses = [value for value in tensors if isinstance(value, SubclassValue)]
    if not subclasses:
        return None
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    if tr.grad_enabled and any(value.example.requires_grad for value in tensors):
        raise SubclassesStayWhole(f"{name} of {subclasses[0].describe()} needs gradients")
    if ti.is_any_autocast_enabled():  # which the class's own operators are below of, and those of the graph are not
        raise SubclassesStayWhole(f"{name} of {subclasses[0].describe()} under autocast")
    recording = _Recording(tr, tensors)

    def run(*fake_args: Any, **fake_kwargs: Any) -> Any:
        with recording:
            return (
                getattr(fake_args[0], target)(*fake_args[1:], **fake_kwargs)
                if kind == "call_method"
                else target(*fake_args, **fake_kwargs)
            )

    run.__name__ = name
    result = tr.propagate("call_function", run, [a.fake(tr) for a in args], {k: v.fake(tr) for k, v in kwargs.items()})
    for value in subclasses:
        value.check_parts()
    return _Results(tr, recording, tensors).value(result)


def _tensors_in(tr: Any, values: Iterable[Any]) -> Iterator[TensorValue]:
    """The tensors among arguments, and what they consist of."""
    for value in values:
        if isinstance(value, TensorValue):
            yield value
            if isinstance(value, SubclassValue):
                yield from _tensors_in(tr, value.parts.values())
        elif isinstance(value, (ListValue, TupleValue)):
            yield from _tensors_in(tr, value.items(tr))


class _Recording(ti.TorchDispatchMode):
    """Records operators on plain tensors; those on others go to their classes, which end in some on plain ones."""

    def __init__(self, tr: Any, tensors: list[TensorValue]) -> None:
        super().__init__()
        self.tr = tr
        self.nodes = {id(v.example): (v.example, v.arg(tr)) for v in tensors if not isinstance(v, SubclassValue)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not all(cls in _BUILTIN or ti.is_fake_class(cls) for cls in types):
            return NotImplemented
        tr = self.tr
        given = ti.pytree.tree_map(self._fake, (args, kwargs or {}))
        node_args, node_kwargs = ti.pytree.tree_map(self._node, given)
        result = func(*given[0], **given[1])
        leaves = ti.pytree.tree_leaves(result)
        if all(id(leaf) in self.nodes for leaf in leaves if isinstance(leaf, torch.Tensor)) and leaves:
            if not func._schema.is_mutable:
                return result  # what it was given
        node = tr.create_node("call_function", func, node_args, node_kwargs)
        node.meta["example_value"] = result
        tr.note_new_symbols(node, func.__name__)
        tr.op_count += 1
        self._remember(result, node)
        return result

    def _remember(self, result: Any, node: Any) -> None:
        if isinstance(result, torch.Tensor):
            self.nodes.setdefault(id(result), (result, node))
        elif isinstance(result, (tuple, list)):
            for index, element in enumerate(result):
                if isinstance(element, torch.Tensor):
                    child = self.tr.create_node("call_function", operator.getitem, (node, index), {})
                    child.meta["example_value"] = element
                    self._remember(element, child)

    def _fake(self, leaf: Any) -> Any:
        """A tensor that the class itself has made or holds becomes an input."""
        if not isinstance(leaf, torch.Tensor) or ti.is_fake(leaf):
            return leaf
        with ti.without_modes(), self.tr.fixed_sizes():
            value = self.tr.wrap(leaf, Const(leaf, "constant tensor"))
        self.nodes[id(value.example)] = (value.example, value.arg(self.tr))
        return value.example

    def _node(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in self.nodes:
                raise GraphBreak(breaks.SUBCLASS, "a class of tensors uses one that is not among its arguments")
            return self.nodes[id(leaf)][1]
        if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(leaf)
        return leaf

    def _number(self, number: Any) -> Any:
        """The node of a symbolic number, which must be a size that is known."""
        expr = number.node.expr
        if expr.is_number:
            return int(expr) if isinstance(number, torch.SymInt) else self._refuse(expr)
        known = self.tr.node_of_symbol(expr)
        if known is not None:
            return known
        for example, node in self.nodes.values():
            for dim, size in enumerate(example.shape):
                if isinstance(size, torch.SymInt) and size.node.expr == expr:
                    found = self.tr.create_node("call_method", "size", (node, dim), {})
                    found.meta["example_value"] = size
                    return found
        return self._refuse(expr)

    def _refuse(self, expr: Any) -> Any:
        raise GraphBreak(breaks.SUBCLASS, f"a class of tensors computes a size, {expr}")


class _Results:
    """The values of what an operator has returned."""

    def __init__(self, tr: Any, recording: _Recording, tensors: list[TensorValue]) -> None:
        self.tr = tr
        self.nodes = recording.nodes
        self.known = {id(value.example): value for value in tensors}

    def value(self, result: Any) -> Value:
        if isinstance(result, torch.Tensor):
            if id(result) not in self.known:
                self.known[id(result)] = self._tensor(result)
            return self.known[id(result)]
        if isinstance(result, (tuple, list)) and type(result) is not torch.Size:
            items = list(map(self.value, result))
            return ListValue(items) if isinstance(result, list) else TupleValue(items, cls=type(result))
        if not isinstance(result, _RESULTS):
            raise GraphBreak(breaks.SUBCLASS, f"an operator of a class of tensors returns a {type(result).__name__}")
        return ConstValue(result)

    def _tensor(self, result: torch.Tensor) -> TensorValue:
        if ti.is_fake(result):
            if id(result) not in self.nodes:
                raise GraphBreak(breaks.SUBCLASS, "a class of tensors returns one that no operator has made")
            return TensorValue(self.nodes[id(result)][1], result)
        if not ti.is_wrapper(result):
            raise GraphBreak(breaks.SUBCLASS, f"an operator returns a {type(result).__qualname__}")
        names, context = result.__tensor_flatten__()
        if type(form_of(context)) is Unknown:
            raise GraphBreak(breaks.SUBCLASS, f"a {type(result).__qualname__} whose context cannot be compared")
        parts = {name: self.value(getattr(result, name)) for name in names}
        return SubclassValue(result, parts, context, type(result))
