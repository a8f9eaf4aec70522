"""Follows sources to their values, to tell which guards hold for as long as a watch sees no write."""

from __future__ import annotations

from typing import Any

from .kinds.guard import Guard
from .kinds.objects import Is
from .sources import Source
from .stable_objects import OPEN, StableObjects


class Walk(StableObjects):
    """Where sources lead, and what their guards need not be checked for.

    Neither is known here: a source follows itself, and a guard says what it depends on.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._values: dict[Source, Any] = {}

    def value(self, source: Source) -> Any:
        """What a source leads to for as long as nothing noted changes, or OPEN."""
        if source not in self._values:
            parent = None if source.parent is None else self.value(source.parent)
            self._values[source] = OPEN if parent is OPEN else source.follow(self, parent)
        return self._values[source]

    def settles(self, guard: Guard) -> bool:
        """Whether a guard that holds now holds until something noted changes."""
        if any(self.value(source) is OPEN for source in guard.sources()):
            return False
        return guard.is_watched(self, self.value(guard.source))

    def may_keep(self, value: Any) -> bool:
        """Whether a value is known, and none of those that must be free to go."""
        return value is not OPEN and not any(value is root for root in self.roots.values())

    def pins(self) -> dict[Source, Guard]:
        """The tables in modules that change: each must still be the one whose contents were followed."""
        return {path: Is(path, table) for path, table in self.pinned.items() if isinstance(path, Source)}
