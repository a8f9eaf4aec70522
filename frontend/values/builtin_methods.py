"""Methods that C classes define: bound to a value, and called.

What a container does when one of its methods is called stands in the table ``METHODS`` of its value class, beside the
class. This module asks that table, and then the others, in ``METHOD_ORDER``.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..breaks import C_FUNCTION, GraphBreak
from .base import MISSING, Raised, Value, call_handler
from .constants import ConstValue

if TYPE_CHECKING:
    from ..guards.sources import Source
    from ..trace.tracer import FrameWriter, Tracer

NONE = ConstValue(None)


class BuiltinMethodValue(Value):
    """A method that a C class defines, bound to a value."""

    __slots__ = ("cls", "name", "owner")

    def __init__(self, owner: Value, cls: type, name: str, source: Source | None = None) -> None:
        self.owner = owner
        self.cls = cls
        self.name = name
        self.source = source

    def pytype(self) -> type:
        return types.BuiltinMethodType

    def describe(self) -> str:
        return f"method {self.cls.__name__}.{self.name}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        return (self.name, self.owner.hash_key(tr))

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.owner.call_c_method(tr, self.cls, self.name, args, kwargs)

    def asks(self, owner: Value) -> bool:
        return self.owner is owner

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstValue(self.name)
        if not hasattr(types.BuiltinMethodType, name):
            message = f"'builtin_function_or_method' object has no attribute {name!r}"
            raise Raised(tr.make_exception(AttributeError, message))
        return super().getattr(tr, name)

    def rebuild(self, out: FrameWriter) -> str:
        # by the descriptor itself: the owner's class may override the name
        raw = own_attribute(self.cls, self.name)
        owner = out.value(self.owner)
        if self.cls.__name__.endswith("_iterator"):  # which kind is rebuilt is another question
            return f"{owner}.{self.name}"
        # with its class, which CPython assumes where C requested the defining class
        return f"{out.names.const(raw)}.__get__({owner}, {out.names.const(type)}({owner}))"


def builtin_method(tr: Tracer, owner: Value, name: str) -> Value:
    """Attribute ``name`` of a value whose class is a builtin container or iterator."""
    cls = owner.pytype()
    if name == "__class__":
        return tr.lift(cls)
    raw = own_attribute(cls, name)
    if raw is MISSING:
        raise _no_attribute(tr, cls, name)
    if raw is None or isinstance(raw, str):  # __hash__, __doc__
        return ConstValue(raw)
    return BuiltinMethodValue(owner, cls, name)


def own_attribute(cls: type, name: str) -> Any:
    """What a class has for its instances under this name, and not what its metaclass has for the class."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__), MISSING)


def call_builtin_method(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call the method that builtin class ``cls`` has under ``name``, on ``owner``'s builtin contents."""
    for ask in METHOD_ORDER:
        result = ask(tr, owner, cls, name, args, kwargs)
        if result is not None:
            return result
    raise GraphBreak(C_FUNCTION, f"{cls.__name__}.{name}")


# --- what is asked, in this order ----------------------------------------------------------------------------------


def own_table(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """``METHODS`` of the value's class: what needs the representation of the container."""
    method = owner.METHODS.get(name)
    return None if method is None else call_handler(method, f"{cls.__name__}.{name}", (tr, owner, *args), kwargs)


def protocol(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """``PROTOCOL``: special methods, as every value answers them."""
    method = PROTOCOL.get(name)
    return None if method is None else call_handler(method, f"{cls.__name__}.{name}", (tr, owner, *args), kwargs)


def method_polyfill(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """``polyfills.METHOD_POLYFILLS``: what plain Python says as well."""
    polyfill = tr.method_polyfill(cls, name)
    return None if polyfill is None else polyfill.call(tr, [owner, *args], kwargs)


def no_such_method(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The program's own AttributeError, where the class has no such name."""
    if own_attribute(cls, name) is MISSING:
        raise _no_attribute(tr, cls, name)
    return None


def constants(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    """A method of a constant with constant arguments, called for real; by the frame if numbers among them change."""
    if kwargs or cls is object or not owner.is_const():
        return None
    if (computed := tr.computed(own_attribute(cls, name), [owner, *args])) is not None:
        return computed
    if not all(a.is_const() for a in args):
        return None
    found = owner.const(tr)
    return tr.fold(own_attribute(cls, name).__get__(found, type(found)), [a.const(tr) for a in args], {})


METHOD_ORDER = (own_table, protocol, method_polyfill, no_such_method, constants)


def _no_attribute(tr: Tracer, cls: type, name: str) -> Raised:
    return Raised(tr.make_exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'"))


# --- any container -------------------------------------------------------------------------------------------------


def _delitem(tr: Tracer, owner: Value, key: Value) -> Value:
    owner.delitem(tr, key)
    return NONE


def _setitem(tr: Tracer, owner: Value, key: Value, value: Value) -> Value:
    owner.setitem(tr, key, value)
    return NONE


def _equal(tr: Tracer, owner: Value, other: Value, expected: bool) -> Value:
    """``__eq__`` and ``__ne__``, called by name: they only compare with their own kind."""
    if not (issubclass(other.pytype(), owner.pytype()) or issubclass(owner.pytype(), other.pytype())):
        raise GraphBreak(C_FUNCTION, f"{owner.pytype().__name__}.__eq__ with {other.describe()}")
    return ConstValue(tr.equal(owner, other) is expected)


PROTOCOL: dict[str, Any] = {
    "__len__": lambda tr, owner: owner.length(tr),
    "__iter__": lambda tr, owner: owner.iter(tr),
    "__getitem__": lambda tr, owner, key: owner.getitem(tr, key),
    "__setitem__": _setitem,
    "__delitem__": _delitem,
    "__contains__": lambda tr, owner, item: owner.contains(tr, item),
    "__bool__": lambda tr, owner: ConstValue(owner.truth(tr)),
    "__eq__": lambda tr, owner, other: _equal(tr, owner, other, True),
    "__ne__": lambda tr, owner, other: _equal(tr, owner, other, False),
    "__init__": lambda tr, owner, *args, **kwargs: NONE,  # what cannot be changed is complete when it is allocated
    "__hash__": lambda tr, owner: ConstValue(hash(owner.hash_key(tr))),
}
