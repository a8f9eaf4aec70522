"""``id(x)``: a number that programs compare, keep as a key, or return.

Of an object that is there in each call, it is a constant (``KnownIdValue``).  Of any other, it is only known which
object it belongs to, and code that needs the number itself asks for it again (``IdValue``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...breaks import OPERATION, GraphBreak
from ..base import MISSING, Value
from ..constants import ConstValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class KnownIdValue(ConstValue):
    """The address of an object that guards know by its identity."""

    __slots__ = ("of",)

    def __init__(self, of: Value, real: Any) -> None:
        super().__init__(id(real))
        self.of = of


class IdValue(Value):
    """The address of an object that is another one in each call."""

    __slots__ = ("of",)

    def __init__(self, of: Value) -> None:
        super().__init__()
        self.of = of

    def pytype(self) -> type:
        return int

    def describe(self) -> str:
        return f"id() of {self.of.describe()}"

    def truth(self, tr: Tracer) -> bool:
        return True

    def const(self, tr: Tracer) -> Any:
        raise GraphBreak(OPERATION, self.describe())

    def hash_key(self, tr: Tracer) -> Any:
        """No object from outside has the address of one that the trace makes; any may have that of an argument."""
        if not is_new(tr, self.of):
            raise GraphBreak(OPERATION, f"{self.describe()} as a key")
        return IdValue, self.of

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(id)}({out.value(self.of)})"


def is_new(tr: Tracer, value: Value) -> bool:
    """Whether the trace has made this object, and no operator may have returned it twice."""
    return value.source is None and value.real() is MISSING and not tr.may_be_operand(value)


def are_one(tr: Tracer, left: Value, right: Value) -> bool:
    """Whether two numbers, of which one is an address, are equal."""
    if isinstance(left, (IdValue, KnownIdValue)) and isinstance(right, (IdValue, KnownIdValue)):
        return tr.is_same(left.of, right.of)
    address, other = (left, right) if isinstance(left, IdValue) else (right, left)
    if issubclass(other.pytype(), (int, float, complex)):
        raise GraphBreak(OPERATION, f"{address.describe()} == {other.describe()}")
    return False
