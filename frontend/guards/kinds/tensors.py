"""Guards on properties of tensors that torch's check of tensors does not cover."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..forms import accepts, apart, flattens_to, shows_leaf
from ..sources import Source
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class PropertyEquals(Guard):
    """A property of a tensor has this value."""

    name: str
    value: Any
    what: str = field(default="", compare=False)

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.{self.name} == {out.const(self.value)}"

    def words(self) -> str:
        return self.what or f"has {self.name} {self.value}"

    is_watched = always_checked


@kind
class ShowsNoLeaf(Guard):
    """A tensor that is written to is no view of a leaf that requires a gradient."""

    def condition(self, value: str, out: Loader) -> str:
        return f"not {out.const(shows_leaf)}({value})"

    def words(self) -> str:
        return "shows no memory of a leaf"

    is_watched = always_checked


@kind
class FlattensTo(Guard):
    """A tensor that consists of others consists of those of these names, and is otherwise made of the same."""

    form: Any = field(hash=False)

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(flattens_to)}({value}) == {out.const(self.form)}"

    def words(self) -> str:
        return "is made of the same"

    is_watched = always_checked


@kind
class ContextAccepted(Guard):
    """A tensor consists of those of these names, and its class takes what it is otherwise made of for the same."""

    cls: Any
    names: Any = field(hash=False)
    context: Any = field(hash=False)

    def condition(self, value: str, out: Loader) -> str:
        given = f"{out.const(self.cls)}, {out.const(self.names)}, {out.const(self.context)}"
        return f"{out.const(accepts)}({value}, {given})"

    def words(self) -> str:
        return "is made of what its class takes for the same"

    is_watched = always_checked


@kind
class DistributedAs(Guard):
    """A DTensor is distributed in this way."""

    how: Any = field(hash=False)

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(self.how)}.is_of({value})"

    def words(self) -> str:
        return f"is distributed as {self.how.placements}"

    is_watched = always_checked


@kind
class Strides(Guard):
    """A tensor has these strides, including those of dimensions of size one."""

    strides: tuple[int, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.stride() == {self.strides}"

    def words(self) -> str:
        return f"has strides {self.strides}"

    is_watched = always_checked


@kind
class StorageOffset(Guard):
    """A tensor starts at this element of its storage."""

    offset: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{value}.storage_offset() == {self.offset}"

    def words(self) -> str:
        return f"starts at element {self.offset}"

    is_watched = always_checked


@kind
class ApartInMemory(Guard):
    """An array shares no memory with any of these arrays and tensors, one of which is written to, or it is."""

    others: tuple[Source, ...]

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(apart)}({value}, {', '.join(map(out.load, self.others))})"

    def words(self) -> str:
        return f"shares no memory with {', '.join(other.words() for other in self.others)}"

    is_watched = always_checked
