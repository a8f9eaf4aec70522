"""Guards on what a class has that only its bases or its metaclass tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..closed import kind
from ..sources import attribute_of
from .guard import Guard, always_checked

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
