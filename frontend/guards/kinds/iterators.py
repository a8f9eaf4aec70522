"""Guards on builtin iterators that exist before the call: their position, and how they were created."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from ..closed import kind
from .guard import Guard, always_checked

if TYPE_CHECKING:
    from ..loader import Loader


@kind
class StandsAt(Guard):
    """An iterator over a sequence is at this position, as ``__reduce__`` reports it."""

    position: int | None

    def condition(self, value: str, out: Loader) -> str:
        return f"({value}.__reduce__()[2:] or (None,))[0] == {out.const(self.position)}"

    def words(self) -> str:
        return f"stands at {self.position or 0}"

    is_watched = always_checked


@kind
class IsStrict(Guard):
    """A ``zip`` was created with ``strict=True``, or without."""

    strict: bool

    def condition(self, value: str, out: Loader) -> str:
        return f"(len({value}.__reduce__()) > 2) is {self.strict}"

    def words(self) -> str:
        return "is strict" if self.strict else "is not strict"

    is_watched = always_checked


@kind
class ItemsLeft(Guard):
    """An iterator over a dictionary has this many items left."""

    left: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(operator.length_hint)}({value}) == {self.left}"

    def words(self) -> str:
        return f"has {self.left} items left"

    is_watched = always_checked
