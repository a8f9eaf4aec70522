"""``types.MappingProxyType``: a dictionary through which nobody writes."""

from __future__ import annotations

import collections
import gc
import types
from typing import TYPE_CHECKING, Any

from ...breaks import OPERATION, GraphBreak
from ...guards.sources import Proxied, Source
from ..base import Raised, Value
from ..builtin_methods import builtin_method
from .mappings import VIEWS, DictValue, DictViewValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

_READS = frozenset(
    {"get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__", "__reversed__"}
)


class ProxyValue(Value):
    """What reads the dictionary ``mapping``."""

    __slots__ = ("mapping",)

    def __init__(self, mapping: DictValue, source: Source | None = None) -> None:
        self.mapping = mapping
        self.source = source

    def pytype(self) -> type:
        return types.MappingProxyType

    def truth(self, tr: Tracer) -> bool:
        return self.mapping.truth(tr)

    def length(self, tr: Tracer) -> Value:
        return self.mapping.length(tr)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        return self.mapping.getitem(tr, key)

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        raise Raised(tr.make_exception(TypeError, "'mappingproxy' object does not support item assignment"))

    def delitem(self, tr: Tracer, key: Value) -> None:
        raise Raised(tr.make_exception(TypeError, "'mappingproxy' object doesn't support item deletion"))

    def contains(self, tr: Tracer, item: Value) -> Value:
        return self.mapping.contains(tr, item)

    def iter(self, tr: Tracer) -> Value:
        return self.mapping.iter(tr)

    def unpack(self, tr: Tracer) -> list[Value]:
        return self.mapping.unpack(tr)

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name not in _READS:
            raise GraphBreak(OPERATION, f"method {name!r} of {self.describe()}")
        return self.mapping.call_method(tr, name, args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(types.MappingProxyType)}({out.value(self.mapping)})"


def proxied(proxy: Any) -> Any:
    """The mapping behind a proxy or a view, which only the garbage collector knows."""
    return gc.get_referents(proxy)[0]


def wrap_proxy(tr: Tracer, obj: types.MappingProxyType, source: Source | None) -> Value:
    """An existing proxy; its mapping is read and guarded like any other."""
    tr.guards_type(source, types.MappingProxyType)
    mapping = None if source is None else tr.wrap(proxied(obj), Proxied(source))
    if not isinstance(mapping, DictValue):
        raise GraphBreak(OPERATION, "a mappingproxy of something else than a dictionary, or known without a path")
    return ProxyValue(mapping, source)


def wrap_view(tr: Tracer, obj: Any, source: Source | None) -> Value:
    """An existing view of a dictionary, which is read and guarded like any other."""
    tr.guards_type(source, type(obj))
    is_plain = type(proxied(obj)) in (dict, collections.OrderedDict)
    mapping = tr.wrap(proxied(obj), Proxied(source)) if is_plain and source is not None else None
    if not isinstance(mapping, DictValue):
        raise GraphBreak(OPERATION, f"a {type(obj).__name__} of something else than a dictionary, or without a path")
    return DictViewValue(mapping, VIEWS[type(obj)], source)
