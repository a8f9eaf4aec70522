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


def check_hash(hashed: Any, key: Any, container: Any, base: type) -> None:
    """That an existing dictionary or set has a key under the hash that its ``__hash__`` gives now."""
    if isinstance(hashed, HashedKey) and not (hash(key) == hash(hashed) and base.__contains__(container, key)):
        raise GraphBreak(OPERATION, f"{hashed.value.describe()}, whose hash has changed since it became a key")
