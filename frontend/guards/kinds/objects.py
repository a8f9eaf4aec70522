"""Guards on what an object is: its identity, its class, its attributes."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from ..closed import kind
from ..sources import Source, attribute_of
from ..stable_objects import OPEN, StableObjects
from .guard import Guard, always_checked, short

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class TypeIs(Guard):
    """The value is of exactly this class."""

    cls: type

    torch_name: ClassVar = "TYPE_MATCH"

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is {out.const(self.cls)}"

    def words(self) -> str:
        return f"has type {self.cls.__name__}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_type_of(value)


@kind
class Is(Guard):
    """The value is this very object."""

    obj: Any
    what: str = field(default="", compare=False)  # words, where the object's own name says little

    torch_name: ClassVar = "ID_MATCH"

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} is {out.const(self.obj)}"

    def words(self) -> str:
        return self.what or f"is {short(self.obj)}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return True


@kind
class SameObject(Guard):
    """Two paths lead to one object."""

    other: Source

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} is {out.load(self.other)}"

    def words(self) -> str:
        return f"is {self.other.words()}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return True


@kind
class AttributeIs(Guard):
    """A class or an imported module has this very object under a name."""

    name: str
    obj: Any

    def condition(self, value: str, out: Loader) -> str:
        return f"{attribute_of(value, self.name)} is {out.const(self.obj)}"

    def words(self) -> str:
        return f"has the same {self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        if isinstance(value, type):
            return objects.notes_attribute_of_class(value, self.name)
        return self.name in vars(value) and objects.notes_module(value)


@kind
class NoAttribute(Guard):
    """Reading an attribute finds nothing."""

    name: str
    what: str = field(default="", compare=False)

    def condition(self, value: str, out: Loader) -> str:
        return f"not hasattr({value}, {self.name!r})"

    def words(self) -> str:
        return f"has no {self.what}{self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return isinstance(value, type) and objects.notes_class(value)


@kind
class NotInContext(Guard):
    """A context variable is not set in this context."""

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.get({out.const(OPEN)}) is {out.const(OPEN)}"

    def words(self) -> str:
        return "is not set"

    is_watched = always_checked


@kind
class NotInDict(Guard):
    """A namespace, which is a dictionary, does not have a name."""

    name: str
    what: str = field(default="", compare=False)

    def condition(self, value: str, out: Loader) -> str:
        return f"{self.name!r} not in {value}"

    def words(self) -> str:
        return f"has no {self.what}{self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return objects.notes_contents(value)


@kind
class NoOwnAttribute(Guard):
    """The ``__dict__`` of an object does not have a name."""

    name: str

    def condition(self, value: str, out: Loader) -> str:
        return f"{self.name!r} not in {value}.__dict__"

    def words(self) -> str:
        return f"has no attribute {self.name}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return isinstance(value, type) and objects.notes_class(value)


@kind
class SlotIsEmpty(Guard):
    """A slot of an object has not been set."""

    slot: Any
    name: str = field(compare=False)

    def condition(self, value: str, out: Loader) -> str:
        slot = out.const(self.slot)
        return f"not {out.const(slot_is_set)}({slot}, {value})"

    def words(self) -> str:
        return f"has no attribute {self.name}"

    is_watched = always_checked


def slot_is_set(slot: Any, obj: Any) -> bool:
    """Whether the slot with this descriptor has a value."""
    try:
        slot.__get__(obj)
    except AttributeError:
        return False
    return True
