"""``isinstance`` against a protocol of :mod:`typing`: whether an object has its members."""

from __future__ import annotations

import types
import typing
from typing import TYPE_CHECKING, Any

from .. import breaks
from ..breaks import GraphBreak
from ..guards.kinds.classes import IsInstance
from ..values.base import MISSING, Value
from ..values.constants import CONST_TYPES
from ..values.objects import ObjectValue

if TYPE_CHECKING:
    from .tracer import Tracer

_METHODS = (types.FunctionType, staticmethod, classmethod)


def has_members(tr: Tracer, value: Value, protocol: Any) -> bool:
    """The answer for an object from outside, whose class does not derive from the protocol; guarded by asking again.

    Python keeps answers in caches, so the members alone do not tell what it says.

    Raises:
        GraphBreak: the trace has made or changed the object, or code of the program decides.
    """
    if value.pytype() in CONST_TYPES and protocol.__module__ == "typing":
        return issubclass(value.pytype(), protocol)  # nobody changes such a class
    unclear = GraphBreak(breaks.OPERATION, f"isinstance() with protocol {protocol.__qualname__}")
    if type(value) is not ObjectValue or value.obj is MISSING or value.source is None or value.attrs:
        raise unclear
    if type(protocol).__module__ != "typing" or not protocol._is_runtime_protocol or tr.effects.classes:
        raise unclear
    for name in ("__getattr__", "__getattribute__", *_members(protocol)):
        raw = tr.static_lookup(value.cls, name)
        tr.guard_lookup(value.cls, name, raw)
        is_asked = isinstance(raw, types.FunctionType) if name.startswith("__getattr") else not _is_plain(raw)
        if is_asked:
            raise unclear
    found = isinstance(value.obj, protocol)
    tr.guards.add(IsInstance(value.source, protocol, found))
    return found


def _is_plain(raw: Any) -> bool:
    """Whether no code of the program runs where what a class has is looked up for an object."""
    return raw is MISSING or isinstance(raw, _METHODS) or not hasattr(type(raw), "__get__")


def _members(protocol: Any) -> set[str]:
    known = getattr(protocol, "__protocol_attrs__", None)  # from CPython 3.12 on
    return typing._get_protocol_attrs(protocol) if known is None else known  # type: ignore[attr-defined]
