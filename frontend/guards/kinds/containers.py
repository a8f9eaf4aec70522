"""Guards on lists, tuples, dictionaries and sets: how many elements, which keys, in which order."""

from __future__ import annotations

import operator
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..sources import Source
from ..stable_objects import StableObjects
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


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
    """A dictionary has a key, or none."""

    holds: bool

    def condition(self, value: str, out: Loader) -> str:
        return value if self.holds else f"not {value}"

    def words(self) -> str:
        return "is not empty" if self.holds else "is empty"

    is_watched = always_checked


@kind
class Keys(Guard):
    """A dictionary has these keys, in this order; all of them are constants."""

    keys: tuple
    what: str = field(default="", compare=False)  # what the keys stand for

    def condition(self, value: str, out: Loader) -> str:
        return f"tuple({value}) == {out.const(self.keys)}"

    def words(self) -> str:
        return f"has the same {self.what}" if self.what else f"has the keys {list(self.keys)!r:.80}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_contents(value)


@kind
class KeyTypes(Guard):
    """The keys of a dictionary are of these classes: 1, True and 1.0 are equal."""

    types: tuple[type, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"tuple(map(type, {value})) == {out.const(self.types)}"

    def words(self) -> str:
        return "has keys of the same types"

    is_watched = always_checked


@kind
class SameKeys(Guard):
    """The keys of a dictionary are these very objects, in this order."""

    keys: tuple

    def condition(self, value: str, out: Loader) -> str:
        keys = out.const(self.keys)
        return f"all(map({out.const(operator)}.is_, {value}, {keys}))"

    def words(self) -> str:
        return "has the same keys"

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

    is_watched = always_checked


@kind
class HasKeyFrom(Guard):
    """The same for the object that another source leads to."""

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
    """A set has these elements; ``base`` is the builtin class behind it."""

    base: type
    elements: frozenset

    def condition(self, value: str, out: Loader) -> str:
        elements = out.const(self.elements)
        return f"{out.const(self.base)}.__eq__({value}, {elements}) is True"

    def words(self) -> str:
        return "has the same elements"

    is_watched = always_checked


@kind
class SetOrder(Guard):
    """A set gives its elements in this order."""

    base: type
    elements: tuple

    def condition(self, value: str, out: Loader) -> str:
        elements = out.const(self.elements)
        return f"tuple({out.const(self.base)}.__iter__({value})) == {elements}"

    def words(self) -> str:
        return "has its elements in the same order"

    is_watched = always_checked
