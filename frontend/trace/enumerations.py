"""Enumerations and metaclasses of the program's: operators are computed while tracing, so what they call is guarded.

An operation on a member or on a class is folded: Python computes it once, and the graph has its result.  That is
right only while the class goes on answering as :mod:`enum` or ``type`` does.  Code of the program's behind an
operation, such as an ``__eq__``, could read anything, so it breaks the graph; a ``_missing_`` is traced.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from .. import breaks
from ..breaks import GraphBreak
from ..guards.sources import Attr, Const

if TYPE_CHECKING:
    from .tracer import Tracer


def ask_operand(tr: Tracer, operand: Any, *methods: str) -> None:
    """``operand``, if it is a member or a class, is about to be asked for these special methods.

    Raises:
        GraphBreak: the program's own code would answer.
    """
    cls = type(operand)
    if isinstance(operand, type) and cls is not type and not tr.is_settled_class(cls):
        for name in methods:
            _answers_as_built_in(tr, cls, name)
    if not isinstance(operand, enum.Enum) or tr.is_settled_class(cls):
        return
    for name in methods:
        _answers_as_built_in(tr, cls, name)
    tr.guards.equals(Attr(Const(operand, str(operand)), "_value_"), operand._value_)


def ask_class(tr: Tracer, cls: enum.EnumMeta, method: str) -> None:
    """``cls`` is about to be asked for a special method of its metaclass.

    Raises:
        GraphBreak: the program's own code would answer.
    """
    if tr.is_settled_class(cls):
        return
    _answers_as_built_in(tr, type(cls), method)
    tr.guard_text(cls, _members, _members(cls), "has the members that it had")


def asks_for_missing(tr: Tracer, cls: enum.EnumMeta, given: Any) -> bool:
    """Whether the member for a value is what a ``_missing_`` of the program's says.

    Raises:
        GraphBreak: code of the program's compares the value with those of members.
    """
    if tr.is_settled_class(cls):
        return False
    if _is_compared(cls, given):
        raise GraphBreak(breaks.OPERATION, f"{cls.__qualname__}({given!r:.60})")
    if isinstance(given, cls) or given in cls._value2member_map_:
        return False
    found = tr.static_lookup(cls, "_missing_")
    plain = found.__func__ if isinstance(found, classmethod) else None
    if isinstance(plain, types.FunctionType) and not tr.is_settled_function(plain):
        return True
    _answers_as_built_in(tr, cls, "_missing_")
    return False


def _members(cls: enum.EnumMeta) -> list[tuple[Any, int, str]]:
    """What names and values lead to: the members themselves, whose own ``==`` is not asked."""
    by_value = cls._value2member_map_
    return [(name, id(member), repr(member._value_)) for name, member in cls._member_map_.items()] + [
        (repr(value), id(member), "") for value, member in by_value.items()
    ]


def _is_compared(cls: enum.EnumMeta, given: Any) -> bool:
    return type(given).__hash__ is None or isinstance(type(given).__eq__, types.FunctionType)


def _answers_as_built_in(tr: Tracer, cls: type, name: str) -> None:
    found = tr.static_lookup(cls, name)
    plain = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if isinstance(plain, types.FunctionType) and not tr.is_settled_function(plain):
        raise GraphBreak(breaks.OPERATION, f"{name} of {cls.__qualname__}, which the program defines")
    tr.guard_lookup(cls, name, found)
