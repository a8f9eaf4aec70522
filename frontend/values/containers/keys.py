"""Keys of dictionaries and elements of sets whose class says how they are hashed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...breaks import OPERATION, GraphBreak
from ..base import Value

if TYPE_CHECKING:
    from ...trace.tracer import Tracer


class HashedKey:
    """The dictionary key that an object is whose class defines ``__hash__``, and with it ``__eq__``."""

    __slots__ = ("hash", "tr", "value")

    def __init__(self, tr: Tracer, value: Value, hashed: int) -> None:
        self.tr = tr
        self.value = value
        self.hash = hashed

    def __hash__(self) -> int:
        return self.hash  # of which CPython makes the same hash as of what the program's method returns

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashedKey):
            raise GraphBreak(
                OPERATION, f"{self.value.describe()} and an object of another kind as keys of one dictionary"
            )
        return self.value is other.value or self.tr.equal(self.value, other.value)


def check_key(hashed: Any, key: Any, entries: dict[Any, Any], container: Any, base: Any) -> None:
    """That an existing dictionary or set has a key under the hash that its ``__hash__`` gives now, and none of the
    ``entries`` read so far equals it: what a key is may have changed since it became one."""
    if isinstance(hashed, HashedKey):
        is_found = hash(key) == hash(hashed) and base.__contains__(container, key)
        if not is_found or hashed in entries:
            raise GraphBreak(OPERATION, f"{hashed.value.describe()}, which has changed since it became a key")
