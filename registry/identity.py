"""When two backends, or two sets of options, are the same: keys for caches."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any


def frozen(value: Any) -> Any:
    """A hashable key that is equal for equal values, but distinguishes ``1`` from ``True`` and ``1.0``.

    Functions and unhashable objects are equal only to themselves.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return (type(value), *((f.name, frozen(getattr(value, f.name))) for f in dataclasses.fields(value)))
    if isinstance(value, Mapping):
        return (dict, frozenset((key, frozen(item)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return (type(value), *(frozen(item) for item in value))
    if isinstance(value, (set, frozenset)):
        return (set, frozenset(frozen(item) for item in value))
    if callable(value):
        return SameObject(value)
    try:
        hash(value)
    except TypeError:
        return SameObject(value)
    return (type(value), value)


class SameObject:
    """Equal only to a wrapper of the same object.  It holds the object, so no other object can get its id.

    A bound method is a new object at every access; two of them are the same if object and function are.
    """

    __slots__ = ("_identity", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        is_method = isinstance(value, types.MethodType)
        self._identity = (id(value.__self__), id(value.__func__)) if is_method else (id(value),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameObject) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)
