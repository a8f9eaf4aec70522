"""Guards on numbers that are symbolic in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..closed import kind
from ..stable_objects import StableObjects, is_scalar
from .guard import Guard

if TYPE_CHECKING:
    from ..loader import Loader

_BOUND = 1 << 63
LARGEST_FLOAT32 = 3.4028234663852886e38


@kind
class IsInt64(Guard):
    """An int that fits into 64 bits."""

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is int and {-_BOUND} <= {value} < {_BOUND}"

    def words(self) -> str:
        return "is an int of 64 bits"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class FitsFloat32(Guard):
    """A float other than zero, whose sign is lost in algebra, that is no larger than any float32."""

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is float and {-LARGEST_FLOAT32} <= {value} <= {LARGEST_FLOAT32} and {value} != 0.0"

    def words(self) -> str:
        return "is a float other than zero, in the range of float32"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class AtLeast(Guard):
    """A size is no smaller than its mark allows."""

    low: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} >= {self.low}"

    def words(self) -> str:
        return f">= {self.low}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class AtMost(Guard):
    """A size is no larger than its mark allows."""

    high: int

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} <= {self.high}"

    def words(self) -> str:
        return f"<= {self.high}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)
