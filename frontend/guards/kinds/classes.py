"""Guards on a class that involve its bases or its metaclass."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..sources import attribute_of
from ..stable_objects import OPEN, StableObjects
from .guard import Guard, always_checked, short

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class ClassMethodIs(Guard):
    """A class finds the class method with this function under a name."""

    name: str
    function: Callable

    def condition(self, value: str, out: Loader) -> str:
        return f"{attribute_of(value, self.name)}.__func__ is {out.const(self.function)}"

    def words(self) -> str:
        return f"has the same {self.name}"

    is_watched = always_checked


@kind
class NotInClasses(Guard):
    """Neither a class nor any of its bases defines a name; its metaclass may."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return f"all({self.name!r} not in c.__dict__ for c in {value}.__mro__)"

    def words(self) -> str:
        return f"has no {self.name}"

    is_watched = always_checked


def finds(cls: type, name: str) -> Any:
    """The attribute that a class or its bases define under a name, before Python binds it; OPEN if they do not."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return OPEN


@kind
class ClassFinds(Guard):
    """A class or one of its bases defines this very object under a name, whatever reading the attribute returns."""

    name: str
    raw: Any

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(finds)}({value}, {self.name!r}) is {out.const(self.raw)}"

    def words(self) -> str:
        return f"has the same {self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_class(value)


@kind
class DerivesAsBefore(Guard):
    """A class has the same bases, in the same order."""

    mro: tuple[type, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.__mro__ == {out.const(self.mro)}"

    def words(self) -> str:
        return "derives from the same classes"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_class(value)


@kind
class IsSubclass(Guard):
    """``issubclass`` gives this answer for a class and another one, which may define ``__subclasscheck__``."""

    cls: type
    holds: bool

    def condition(self, value: str, out: Loader) -> str:
        return f"issubclass({value}, {out.const(self.cls)}) is {self.holds}"

    def words(self) -> str:
        return f"{'counts' if self.holds else 'does not count'} as {short(self.cls)}"

    is_watched = always_checked


@kind
class IsInstance(Guard):
    """``isinstance`` gives this answer for an object and a class that defines ``__instancecheck__``."""

    cls: type
    holds: bool

    def condition(self, value: str, out: Loader) -> str:
        return f"isinstance({value}, {out.const(self.cls)}) is {self.holds}"

    def words(self) -> str:
        return f"{'counts' if self.holds else 'does not count'} as {short(self.cls)}"

    is_watched = always_checked


def derived_from(cls: type, references: tuple[weakref.ref, ...]) -> bool:
    """Whether the classes that derive directly from a class are those that are referred to, in their order."""
    found: list[type] = type.__subclasses__(cls)
    return len(found) == len(references) and all(a is b() for a, b in zip(found, references, strict=True))


@kind
class HasSubclasses(Guard):
    """These classes, and no others, derive directly from a class."""

    references: tuple[weakref.ref, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(derived_from)}({value}, {out.const(self.references)})"

    def words(self) -> str:
        return f"has the same {len(self.references)} subclasses"

    is_watched = always_checked
