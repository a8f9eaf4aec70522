"""``obj.__dict__`` as the program sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks import OPERATION, GraphBreak
from ...guards.kinds.containers import Keys
from ..base import MISSING, Raised, Value
from ..builtin_methods import builtin_method
from ..constants import ConstValue
from ..containers.mappings import DictValue, pairs
from ..objects import DELETED, ObjectValue, attribute_base, own_namespace

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class InstanceDictValue(Value):
    """``obj.__dict__`` as the program sees it: reads and writes go to the instance's own attributes."""

    __slots__ = ("owner",)

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner
        self.source = None

    def pytype(self) -> type:
        return dict

    def _names(self, tr: Tracer) -> list[str]:
        owner = self.owner
        namespace = None if owner.obj is MISSING else own_namespace(owner.obj)
        real = list(namespace or ())
        if any(type(name) is not str for name in real):
            raise GraphBreak(OPERATION, f"the attributes of {owner.describe()}, not all of whose names are texts")
        if namespace is not None and owner.source is not None:
            source = owner.own_source("__dict__")
            assert source is not None
            tr.guards.add(Keys(source, tuple(real), "attributes"))
        names = [n for n in real if owner.attrs.get(n) is not DELETED and n not in owner.moved]
        return names + [n for n, v in owner.attrs.items() if type(n) is str and n not in names and v is not DELETED]

    def getitem(self, tr: Tracer, key: Value) -> Value:
        found = self.owner.own(tr, key.const(tr))
        if found is None:
            raise Raised(tr.make_exception_from_values(KeyError, [key]))
        return found

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.owner.store(tr, key.const(tr), value)

    def delitem(self, tr: Tracer, key: Value) -> None:
        self.getitem(tr, key)
        self.owner.remove(tr, key.const(tr))

    def contains(self, tr: Tracer, item: Value) -> Value:
        return ConstValue(self.owner.own(tr, item.const(tr), shadows=True) is not None)

    def snapshot(self, tr: Tracer) -> Value:
        """A dict value with the present contents, for reading methods."""
        return DictValue({n: (ConstValue(n), self.owner.own(tr, n)) for n in self._names(tr)})

    def rebuild(self, out: FrameWriter) -> str:
        getter = out.names.const(attribute_base(self.owner.cls).__getattribute__)
        return f"{getter}({out.value(self.owner)}, '__dict__')"

    def truth(self, tr: Tracer) -> bool:
        return bool(self._names(tr))

    def length(self, tr: Tracer) -> Value:
        return ConstValue(len(self._names(tr)))

    def iter(self, tr: Tracer) -> Value:
        return self.snapshot(tr).iter(tr)

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "get":
            return self.owner.own(tr, args[0].const(tr), shadows=True) or (
                args[1] if len(args) > 1 else ConstValue(None)
            )
        if name == "update":
            for key, value in [p for other in args for p in pairs(tr, other)]:
                self.setitem(tr, key, value)
            for key_name, value in kwargs.items():
                self.owner.store(tr, key_name, value)
            return ConstValue(None)
        if name == "setdefault":
            found = self.owner.own(tr, args[0].const(tr), shadows=True)
            if found is None:
                found = args[1] if len(args) > 1 else ConstValue(None)
                self.setitem(tr, args[0], found)
            return found
        if name == "pop":
            found = self.owner.own(tr, args[0].const(tr))
            if found is None and len(args) > 1:
                return args[1]
            self.delitem(tr, args[0])
            assert found is not None
            return found
        if name in ("keys", "values", "items", "copy", "__iter__", "__len__"):
            return self.snapshot(tr).call_method(tr, name, args, kwargs)
        if name in ("__getitem__", "__setitem__", "__contains__", "__delitem__"):
            return getattr(self, name.strip("_"))(tr, *args) or ConstValue(None)
        return super().call_method(tr, name, args, kwargs)
