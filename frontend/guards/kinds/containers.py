"""Guards on lists, tuples, dictionaries and sets: how many elements, which keys, in which order."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from ..closed import kind
from ..sources import Source
from ..stable_objects import StableObjects, is_scalar
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader

_BY_VALUE = frozenset({int, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout})


@kind
class Length(Guard):
    """A container has this many elements."""

    length: int
    what: str = field(default="", compare=False)  # what it has so many of

    def condition(self, value: str, out: Loader) -> str:
        return f"len({value}) == {self.length}"

    def words(self) -> str:
        return f"has {self.length} {self.what}" if self.what else f"has length {self.length}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_contents(value)


@kind
class RawLength(Guard):
    """The length of a container whose class may override ``__len__``; ``base`` is the builtin class behind it."""

    base: type
    length: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(self.base)}.__len__({value}) == {self.length}"

    def words(self) -> str:
        return f"has {self.length} items"

    is_watched = always_checked


@kind
class NotEmpty(Guard):
    """A dictionary has any key at all, or none."""

    holds: bool

    def condition(self, value: str, out: Loader) -> str:
        return value if self.holds else f"not {value}"

    def words(self) -> str:
        return "is not empty" if self.holds else "is empty"

    is_watched = always_checked


@kind
class Keys(Guard):
    """A dictionary has these keys, in this order; all of them are constants.

    Their classes come first: 1, True and 1.0 are equal, and so are a text and whatever says that it is.
    """

    keys: tuple
    what: str = field(default="", compare=False)  # what the keys stand for

    def condition(self, value: str, out: Loader) -> str:
        if not self.keys:
            return f"not tuple({value})"
        types = out.const(tuple(map(type, self.keys)))
        return f"tuple(map(type, {value})) == {types} and tuple({value}) == {out.const(self.keys)}"

    def words(self) -> str:
        return f"has the same {self.what}" if self.what else f"has the keys {list(self.keys)!r:.80}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_keys(value)


class Same:
    """Wraps an object so that comparisons are by identity."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __hash__(self) -> int:
        return object.__hash__(self.obj)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.obj is other.obj


def face(key: Any) -> Any:
    """What distinguishes a constant key from all others: 1, True and 1.0 are equal, and so are 0.0 and -0.0."""
    cls = type(key)
    if cls is tuple:
        return cls, *map(face, key)
    if cls is float or cls is complex:
        return cls, repr(key)
    return (cls, key) if cls in _BY_VALUE else Same(key)


def faces(keys: Any, positions: tuple[int, ...]) -> tuple:
    """What distinguishes the keys at these positions from all others."""
    return tuple(face(keys[position]) for position in positions)


@kind
class KeysAt(Guard):
    """A list of keys or elements has these at these positions: the same objects, or constants equal to the bit."""

    positions: tuple[int, ...]
    faces: tuple

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(faces)}({value}, {out.const(self.positions)}) == {out.const(self.faces)}"

    def words(self) -> str:
        return "are the same"

    is_watched = always_checked


@kind
class HasKey(Guard):
    """A dictionary has a key, or does not have it; ``base`` is the builtin class behind it."""

    base: type
    key: Any
    present: bool
    what: str = field(compare=False)  # the key, for a person

    def condition(self, value: str, out: Loader) -> str:
        key = out.const(self.key)
        return f"{out.const(self.base)}.__contains__({value}, {key}) is {self.present}"

    def words(self) -> str:
        return f"has {'a' if self.present else 'no'} key {self.what}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return self.base is dict and objects.notes_contents(value) and all(map(is_scalar, (self.key, *value)))


@kind
class HasKeyFrom(Guard):
    """A dictionary has the object of another source as a key, or does not."""

    base: type
    key: Source
    present: bool
    what: str = field(compare=False)

    def condition(self, value: str, out: Loader) -> str:
        key = out.load(self.key)
        return f"{out.const(self.base)}.__contains__({value}, {key}) is {self.present}"

    def words(self) -> str:
        return f"has {'a' if self.present else 'no'} key {self.what}"

    is_watched = always_checked


@kind
class SameElements(Guard):
    """A set has these elements, all of them constants; ``base`` is the builtin class behind it."""

    base: type
    elements: frozenset

    def condition(self, value: str, out: Loader) -> str:
        if all(type(element) is str for element in self.elements):
            base, texts = out.const(self.base), out.const(frozenset({str}))
            equal = f"{base}.__eq__({value}, {out.const(self.elements)}) is True"
            return f"{texts}.issuperset(map(type, {base}.__iter__({value}))) and {equal}"
        elements = out.const(frozenset(map(face, self.elements)))
        return f"frozenset(map({out.const(face)}, {out.const(self.base)}.__iter__({value}))) == {elements}"

    def words(self) -> str:
        return "has the same elements"

    is_watched = always_checked


@kind
class SetOrder(Guard):
    """A set iterates over its elements in this order."""

    base: type
    elements: tuple

    def condition(self, value: str, out: Loader) -> str:
        elements = out.const(self.elements)
        return f"tuple({out.const(self.base)}.__iter__({value})) == {elements}"

    def words(self) -> str:
        return "has its elements in the same order"

    is_watched = always_checked
