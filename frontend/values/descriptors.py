"""The descriptor protocol: what an attribute that is found on a class gives for an object of it."""

from __future__ import annotations

import collections
import functools
import types
from typing import TYPE_CHECKING, Any

from ..breaks import C_FUNCTION, OPERATION, GraphBreak
from ..guards.sources import Attr, Const, Descriptor
from .base import MISSING, Raised, Value
from .builtin_methods import BuiltinMethodValue, own_attribute
from .constants import ConstValue

if TYPE_CHECKING:
    from ..guards.sources import Source
    from ..trace.tracer import FrameWriter, Tracer

_FIELD = type(vars(collections.namedtuple("_Example", "field"))["field"])  # what a named tuple has for a field
SLOT_WRAPPERS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)


def is_c_method(raw: Any, name: str) -> bool:
    """Whether C code defines what a class has under the name, for that name: ``__getattr__ = dict.get`` does not."""
    return isinstance(raw, SLOT_WRAPPERS) and raw.__name__ == name


class MethodValue(Value):
    """A bound method of a Python function."""

    __slots__ = ("function", "owner")

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.function = function
        self.owner = owner
        self.source = source

    def pytype(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {getattr(self.function, 'qualname', self.function.describe())}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        return MethodValue, self.function.hash_key(tr), self.owner.hash_key(tr)  # which no tuple of the program's is

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(tr, [self.owner, *args], kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "__func__":
            return self.function
        if name == "__self__":
            return self.owner
        if name == "__call__":
            return self
        if name == "__class__":
            return tr.lift(types.MethodType)
        if name != "__doc__" and own_attribute(types.MethodType, name) is not MISSING:
            raise self.not_understood(f"attribute {name!r} of {self.describe()}")  # it is not the function's
        return self.function.getattr(tr, name)

    def rebuild(self, out: FrameWriter) -> str:
        method = out.names.const(types.MethodType)
        return f"{method}({out.value(self.function)}, {out.value(self.owner)})"


def class_attribute(tr: Tracer, owner: Value, cls: type, name: str) -> Value | None:
    """What ``owner.name`` finds on its class, bound to ``owner``; None if the class has no such attribute."""
    raw = tr.static_lookup(cls, name)
    if raw is MISSING:
        return None
    return bind_class_attribute(tr, owner, cls, name, raw)


def class_method(tr: Tracer, raw: classmethod, owner: Value) -> MethodValue:
    """What a ``classmethod`` gives of the class ``owner``."""
    function = raw.__func__
    if hasattr(type(function), "__get__") and not isinstance(function, types.FunctionType):
        raise GraphBreak(OPERATION, f"a classmethod of a {type(function).__name__}, which may bind by itself")
    return MethodValue(tr.wrap(function, None), owner)


def bind_class_attribute(
    tr: Tracer, owner: Value, cls: type, name: str, raw: Any, bound_to: type | None = None
) -> Value:
    """The descriptor protocol for an attribute found on a class; ``bound_to`` is the owner's, if it is another one."""
    if hasattr(type(raw), "__get__") and not isinstance(raw, (types.FunctionType, property, classmethod)):
        tr.guard_lookup(cls, name, raw)
    if isinstance(raw, types.FunctionType):
        tr.guard_class_attribute(cls, name, raw)
        return MethodValue(tr.wrap(raw, None), owner)
    if isinstance(raw, property):
        tr.guard_class_attribute(cls, name, raw)
        if raw.fget is None:
            raise Raised(tr.make_exception(AttributeError, f"unreadable attribute {name!r}"))
        return tr.wrap(raw.fget, None).call(tr, [owner], {})
    if isinstance(raw, staticmethod):
        return tr.wrap(raw.__func__, Attr(Const(cls, cls.__qualname__), name))
    if isinstance(raw, classmethod):
        tr.guard_class_attribute(cls, name, raw)
        return class_method(tr, raw, tr.lift(bound_to or cls))
    if isinstance(raw, functools._lru_cache_wrapper):
        return MethodValue(tr.wrap(raw, Attr(Const(cls, cls.__qualname__), name)), owner)
    if isinstance(raw, functools.cached_property):
        return _cached_property(tr, owner, raw)
    if isinstance(raw, (SLOT_WRAPPERS, types.BuiltinFunctionType)):
        if isinstance(raw, types.BuiltinFunctionType):
            return tr.wrap(raw, None)
        return BuiltinMethodValue(owner, raw.__objclass__, raw.__name__)
    if isinstance(raw, _FIELD) and issubclass(owner.pytype(), tuple):  # C reads the tuple, whatever its class defines
        storage = owner.storage(tr)  # type: ignore[attr-defined]
        if storage is not None:
            return storage.getitem(tr, ConstValue(raw.__reduce__()[1][0]))
    if isinstance(raw, (types.GetSetDescriptorType, types.MemberDescriptorType)):
        raise GraphBreak(OPERATION, f"attribute {name!r} of {owner.describe()}")
    getter = tr.static_lookup(type(raw), "__get__")
    tr.guard_lookup(type(raw), "__get__", getter)
    source = Attr(Const(cls, cls.__qualname__), name)
    if isinstance(getter, types.FunctionType):
        holder = next(c for c in cls.__mro__ if name in c.__dict__)
        path = Descriptor(Const(holder, holder.__qualname__), name)
        return tr.wrap(getter, None).call(tr, [tr.wrap(raw, path), owner, tr.lift(bound_to or cls)], {})
    if getter is not MISSING and not isinstance(raw, type):
        raise GraphBreak(C_FUNCTION, f"descriptor {name!r} of {cls.__qualname__}")
    return tr.wrap(raw, source)


def _cached_property(tr: Tracer, owner: Value, raw: functools.cached_property) -> Value:
    assert raw.attrname is not None
    value = tr.wrap(raw.func, None).call(tr, [owner], {})
    owner.store(tr, raw.attrname, value)
    return value
