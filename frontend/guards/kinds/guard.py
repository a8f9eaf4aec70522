"""What a guard is: one assumption of a trace about the value of a source."""

from __future__ import annotations

import types
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ..closed import Member
from ..sources import Source
from ..stable_objects import StableObjects

if TYPE_CHECKING:
    from ..loader import Loader


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Guard(Member):
    """Holds as long as the program would do what was compiled.

    A kind is a subclass declared with :func:`~..closed.kind`.  It defines ``condition``, ``words`` and
    ``is_watched``, and has a field for everything else that it depends on.  ``condition`` loads further sources among
    the fields itself.
    """

    ANSWERS: ClassVar = ("condition", "words", "is_watched")

    torch_name: ClassVar[str] = "EQUALS_MATCH"  # what torch calls such a guard, for ``guard_filter_fn``

    source: Source

    def condition(self, value: str, out: Loader) -> str:
        """The Python expression that must be true; ``value`` is the variable that holds the source's value."""
        raise NotImplementedError

    def words(self) -> str:
        """The words that a user reads after those of the source, such as ``has length 3``."""
        raise NotImplementedError

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        """Whether a guard that holds for ``value`` now holds until ``objects`` sees a write.

        Until then, every source of the guard leads to the same value.  A wrong ``True`` is a wrong result.
        """
        raise NotImplementedError

    def text(self, out: Loader) -> str:
        """The condition, after loading the source."""
        return self.condition(out.load(self.source), out)

    def sources(self) -> list[Source]:
        """All sources that the guard reads."""
        values = (getattr(self, f.name) for f in fields(self))
        return [value for value in values if isinstance(value, Source)]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.source.words()} {self.words()}>"


def always_checked(self: Guard, objects: StableObjects, value: Any) -> bool:
    """The answer of a guard that no watch can replace."""
    return False


def short(obj: Any) -> str:
    """The name of an object, or its shortened ``repr``; a module may compute what it is asked for."""
    if isinstance(obj, types.ModuleType):
        return f"module {obj.__dict__.get('__name__')}"[:80]
    name = getattr(obj, "__qualname__", None) or repr(obj)
    return str(name)[:80]
