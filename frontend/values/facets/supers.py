"""``super(cls, owner)``."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ...breaks import OPERATION, GraphBreak
from ...guards.kinds.objects import NoOwnAttribute
from ...guards.sources import Const, Descriptor, RawAttr, Source
from ..base import Raised, Value
from ..constants import ConstValue
from ..descriptors import bind_class_attribute, class_method

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class SuperValue(Value):
    """``super(cls, owner)``."""

    __slots__ = ("cls", "owner")

    def __init__(self, cls: type, owner: Value, source: Source | None = None) -> None:
        self.cls = cls
        self.owner = owner
        self.source = source

    def pytype(self) -> type:
        return super

    def getattr(self, tr: Tracer, name: str) -> Value:
        real = self.owner.real()
        on_class = isinstance(real, type) and issubclass(real, self.cls)
        mro = real.__mro__ if on_class else self.owner.pytype().__mro__
        tr.guard_bases(mro[0])
        for cls in mro[mro.index(self.cls) + 1 :]:
            if name in cls.__dict__:
                raw = cls.__dict__[name]
                if on_class:
                    return self._on_class(tr, cls, name, raw)
                return bind_class_attribute(tr, self.owner, cls, name, raw, mro[0])
            if not tr.is_settled_class(cls):
                tr.guards.add(NoOwnAttribute(Const(cls, cls.__qualname__), name))
        raise Raised(tr.make_exception(AttributeError, f"'super' object has no attribute {name!r}"))

    def _on_class(self, tr: Tracer, cls: type, name: str, raw: Any) -> Value:
        tr.guard_lookup(cls, name, raw)
        if isinstance(raw, classmethod):
            return class_method(tr, raw, self.owner)
        if isinstance(raw, staticmethod):
            return tr.wrap(raw.__func__, None)
        if isinstance(getter := tr.static_lookup(type(raw), "__get__"), types.FunctionType):
            tr.guard_lookup(type(raw), "__get__", getter)
            path = Descriptor(Const(cls, cls.__qualname__), name)
            return tr.wrap(getter, None).call(tr, [tr.wrap(raw, path), ConstValue(None), self.owner], {})
        return tr.wrap(getattr(cls, name), None)

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        raise GraphBreak(OPERATION, "setting an attribute through super()")

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(super)}({out.names.const(self.cls)}, {out.value(self.owner)})"


def make_super(tr: Tracer, cls: Any, owner: Value) -> SuperValue:
    """What ``super(cls, owner)`` gives."""
    real = owner.real()
    of_class = isinstance(cls, type) and isinstance(real, type) and cls in real.__mro__
    if not of_class and cls not in owner.pytype().__mro__:
        raise GraphBreak(OPERATION, f"super() of {owner.describe()}, which is not of that class")
    return SuperValue(cls, owner)


def wrap_super(tr: Tracer, obj: Any, source: Source | None) -> SuperValue:
    """What ``super()`` returned before a graph break; its own attributes are read past its look-up of others."""
    if source is not None:
        tr.guards.type_is(source, super)
        tr.guards.is_object(RawAttr(source, "__thisclass__"), obj.__thisclass__)
    owner = object.__getattribute__(obj, "__self__")
    if owner is None:
        raise GraphBreak(OPERATION, "super() that is bound to no object")
    return SuperValue(obj.__thisclass__, tr.wrap(owner, source and RawAttr(source, "__self__")), source)
