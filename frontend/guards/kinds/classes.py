"""Guards on what a class has that only its bases or its metaclass tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..sources import attribute_of
from ..stable_objects import StableObjects
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
    """Neither a class nor one of its bases has a name, which its metaclass may have."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return f"all({self.name!r} not in c.__dict__ for c in {value}.__mro__)"

    def words(self) -> str:
        return f"has no {self.name}"

    is_watched = always_checked


def finds(cls: type, name: str) -> Any:
    """What the classes that a class derives from have under a name, before Python binds it; None for nothing."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


@kind
class ClassFinds(Guard):
    """A class or one of its bases has this very object under a name, whatever reading the attribute would give."""

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
    """Another class, which may decide that by itself, counts a class among its own, or does not."""

    cls: type
    holds: bool

    def condition(self, value: str, out: Loader) -> str:
        return f"issubclass({value}, {out.const(self.cls)}) is {self.holds}"

    def words(self) -> str:
        return f"{'counts' if self.holds else 'does not count'} as {short(self.cls)}"

    is_watched = always_checked
