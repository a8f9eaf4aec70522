"""Guards on builtin iterators that exist before the call: their position, and how they were created."""

from __future__ import annotations

import operator
import types
from typing import TYPE_CHECKING, Any

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
    """An iterator has this many items left."""

    left: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(operator.length_hint)}({value}) == {self.left}"

    def words(self) -> str:
        return f"has {self.left} items left"

    is_watched = always_checked


@kind
class MoreLeft(Guard):
    """An iterator has more items left than this."""

    left: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{out.const(operator.length_hint)}({value}) > {self.left}"

    def words(self) -> str:
        return f"has more than {self.left} items left"

    is_watched = always_checked


@kind
class NotBegun(Guard):
    """A generator of this code has not begun."""

    code: types.CodeType
    namespace: dict[str, Any]

    @staticmethod
    def holds(generator: types.GeneratorType) -> bool:
        """Whether a generator has not begun."""
        return generator.gi_frame is not None and not generator.gi_suspended and not generator.gi_running

    def condition(self, value: str, out: Loader) -> str:
        return (
            f"{out.const(self.holds)}({value}) and {value}.gi_code is {out.const(self.code)} "
            f"and {value}.gi_frame.f_globals is {out.const(self.namespace)}"
        )

    def words(self) -> str:
        return f"is a generator of {self.code.co_qualname} that has not begun"

    is_watched = always_checked
