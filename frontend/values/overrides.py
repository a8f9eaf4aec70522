"""Objects of the program's that override torch's functions with ``__torch_function__``."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from .. import breaks
from ..breaks import GraphBreak
from .base import MISSING, Value
from .constants import ConstValue
from .containers.mappings import DictValue
from .containers.sequences import SequenceValue, TupleValue
from .objects import ObjectValue
from .tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_NAME = "__torch_function__"


def overrides(tr: Tracer, value: Any) -> bool:
    """Whether an object's class has a ``__torch_function__``; guarded."""
    if not isinstance(value, ObjectValue):
        return False
    raw = tr.static_lookup(value.cls, _NAME)
    tr.guard_lookup(value.cls, _NAME, raw)
    return raw is not MISSING


def overriding(tr: Tracer, values: Any) -> list[Value]:
    """Who is asked, in order, one of each class: the objects among arguments, and in lists and tuples of them."""
    found: list[Value] = []
    for value in values:
        for each in value.items(tr) if isinstance(value, SequenceValue) else [value]:
            if isinstance(each, ObjectValue) and overrides(tr, each):
                if all(each.cls is not other.pytype() for other in found):
                    derived = (i for i, other in enumerate(found) if issubclass(each.cls, other.pytype()))
                    found.insert(next(derived, len(found)), each)
    return found


def call_override(tr: Tracer, function: Value, asked: list[Value], args: list[Value], kwargs: Any) -> Value:
    """What the first of ``asked`` answers; ``kwargs`` is None where torch gives none.

    Raises:
        GraphBreak: none of them knows the function.
    """
    classes = TupleValue([tr.lift(each.pytype()) for each in asked])
    named = [] if kwargs is None else [DictValue({name: (ConstValue(name), value) for name, value in kwargs.items()})]
    for each in asked:
        result = each.getattr(tr, _NAME).call(tr, [function, classes, TupleValue(args), *named], {})
        if not (isinstance(result, ConstValue) and result.value is NotImplemented):
            return result
    raise GraphBreak(breaks.OPERATION, f"{function.describe()}, which no {_NAME} implements")


def overridden_method(tr: Tracer, name: str, owner: Value, *args: Value, **kwargs: Value) -> Value | None:
    """``tensor.name(...)`` where an argument overrides it; None if none does."""
    if not (asked := overriding(tr, [*args, *kwargs.values()])):
        return None
    raw = tr.static_lookup(torch.Tensor, name)
    if not isinstance(raw, types.MethodDescriptorType) or owner.pytype() is not torch.Tensor:
        raise GraphBreak(breaks.OPERATION, f"Tensor.{name} with {asked[0].describe()}, which overrides it")
    return call_override(tr, tr.wrap(raw, None), asked, [owner, *args], kwargs or None)


def refuse_operator(tr: Tracer, symbol: str, tensor: Value, other: Value) -> None:
    """Break where a tensor's own special method would ask ``other``."""
    if isinstance(tensor, TensorValue) and overrides(tr, other):
        raise GraphBreak(breaks.OPERATION, f"{symbol} of a tensor and {other.describe()}, which overrides it")
