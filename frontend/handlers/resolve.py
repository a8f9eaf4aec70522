"""The one door of a call: what calling a C function, a torch function or a class means.

``meaning_of`` asks the rules in ``CALL_ORDER``; the first that knows the callable decides.  README.md beside this file
says what belongs behind which of them.  What has no meaning here is refused, and a class is instantiated as Python
does it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from .. import polyfills
from ..breaks import C_FUNCTION, OPERATION, GraphBreak
from ..values.base import Value, call_handler
from ..values.classes import ClassValue, name_of, refused_call
from ..values.constants import ConstValue, SymValue
from ..values.containers.sequences import ListValue
from ..values.functions import PartialValue
from ..values.objects import ObjectValue
from ..values.tensors import TensorValue
from .classify import is_replaced
from .table import CLASSES, FOLDABLE, FUNCTIONS, TAKES

if TYPE_CHECKING:
    from ..trace.tracer import Meaning, Tracer

_OBJECT_METHODS = frozenset({"__getattribute__", "__setattr__", "__eq__", "__ne__", "__hash__", "__init__"})


def meaning_of(tr: Tracer, obj: Any) -> Meaning | None:
    """What to do for a call of ``obj``, a function written in C or by torch, or a class; None if no rule knows it."""
    for rule in CALL_ORDER:
        meaning = rule(tr, obj)
        if meaning is not None:
            return meaning
    return None


# --- the rules, in the order in which they are asked ----------------------------------------------------------------


def handler(tr: Tracer, obj: Any) -> Meaning | None:
    """``table.CLASSES`` and ``table.FUNCTIONS``: what needs the tracer's own representation."""
    try:
        found = (CLASSES if isinstance(obj, type) else FUNCTIONS).get(obj)
    except TypeError:  # without a hash
        return None
    if found is None:
        return _class_method(tr, obj)
    if isinstance(obj, type):
        least, most, named = TAKES.get(obj, (0, sys.maxsize, True))

        def construct(tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
            if not least <= len(args) <= most or (kwargs and not named):
                raise refused_call(obj)
            return found(tr, obj, args, kwargs)

        return construct
    name = name_of(obj)
    return lambda tr, args, kwargs: call_handler(found, name, (tr, *args), kwargs)


def _class_method(tr: Tracer, obj: Any) -> Meaning | None:
    """The handler of a class method written in C, as what Python binds to the class: a new object for each reading."""
    owner = getattr(obj, "__self__", None) if isinstance(obj, types.BuiltinMethodType) else None
    if not isinstance(owner, type):
        return None
    raw = tr.static_lookup(owner, obj.__name__)
    found = FUNCTIONS.get(raw) if isinstance(raw, types.ClassMethodDescriptorType) else None
    if found is None:
        return None
    name = name_of(obj)
    return lambda tr, args, kwargs: call_handler(found, name, (tr, tr.lift(owner), *args), kwargs)


def polyfill(tr: Tracer, obj: Any) -> Meaning | None:
    """``polyfills.lookup``: what plain Python says as well, traced in its place."""
    found = polyfill_of(tr, obj)
    return None if found is None else found.call


def method_of_first_argument(tr: Tracer, obj: Any) -> Meaning | None:
    """``list.append(x, 1)``: the class's own method on ``x``, whatever the class of ``x`` overrides."""
    if not isinstance(obj, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return None
    cls, name = obj.__objclass__, obj.__name__

    def call(tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args:
            raise refused_call(obj)
        owner, *rest = args
        if isinstance(owner, TensorValue) and is_replaced(torch.Tensor, name):
            raise GraphBreak(OPERATION, f"Tensor.{name} in the place of which there is another")
        if not issubclass(owner.pytype(), cls):
            raise refused_call(obj)
        if isinstance(owner, ConstValue) and cls is not object and tr.static_lookup(owner.pytype(), name) is not obj:
            raise refused_call(obj)  # the class of the constant has another
        if cls is object and not isinstance(owner, (ObjectValue, ClassValue)):
            if name in _OBJECT_METHODS or isinstance(owner, ConstValue):
                return _object_method(tr, name, owner, rest)
        return owner.call_c_method(tr, cls, name, rest, kwargs)

    return call


def constants(tr: Tracer, obj: Any) -> Meaning | None:
    """``table.FOLDABLE``: what computes a constant from constants is called for real."""
    try:
        if obj not in FOLDABLE:
            return None
    except TypeError:  # without a hash
        return None

    def call(tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not all(map(_is_plain, (*args, *kwargs.values()))):
            raise refused_call(obj)
        found = tr.computed(obj, args, kwargs)
        return found or tr.fold(obj, [_plain(tr, a) for a in args], {k: _plain(tr, v) for k, v in kwargs.items()})

    return call


CALL_ORDER: tuple[Callable[[Tracer, Any], Meaning | None], ...] = (
    handler,
    polyfill,
    method_of_first_argument,
    constants,
)


# --- what they share ------------------------------------------------------------------------------------------------


def polyfill_of(tr: Tracer, obj: Any) -> Value | None:
    """The plain Python function or class that is traced instead of a C one."""
    found = polyfills.lookup(obj)
    if found is None:
        return None
    function, leading = found
    value = tr.wrap(function, None)
    return PartialValue(value, [tr.lift(a) for a in leading], {}) if leading else value


def _object_method(tr: Tracer, name: str, owner: Value, args: list[Value]) -> Value:
    """A method of ``object`` on something that is no object of a Python class."""
    if name == "__getattribute__":
        return owner.getattr(tr, args[0].const(tr))
    if name == "__eq__" and owner is args[0]:
        return ConstValue(True)
    raise GraphBreak(C_FUNCTION, f"object.{name}")


def _is_plain(value: Value) -> bool:
    """Whether a value is a constant or a list of them, as functions take that only compute."""
    if type(value) is ListValue:
        return all(isinstance(element, (ConstValue, SymValue)) for element in value._items)
    return value.is_const() or isinstance(value, SymValue)


def _plain(tr: Tracer, value: Value) -> Any:
    return [element.const(tr) for element in value.items(tr)] if isinstance(value, ListValue) else value.const(tr)
