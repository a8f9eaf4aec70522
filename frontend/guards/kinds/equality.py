"""Guards on constants: the same class and an equal value, since ``1 == True == 1.0``; :func:`equals` picks one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..closed import kind
from ..sources import Source
from ..stable_objects import StableObjects, is_scalar
from .guard import Guard, always_checked, short

if TYPE_CHECKING:
    from ..loader import Loader

_SHORT = 60  # characters; longer literals are constants of the check


def equals(source: Source, value: Any) -> Guard:
    """The guard that a value is of the class of this one, and equal to it."""
    if value is None or value is True or value is False or value is Ellipsis:
        return IsSingleton(source, value)
    if type(value) is float:
        return IsNaN(source) if value != value else EqualsFloat(source, value)
    if type(value) in (int, str) and len(repr(value)) < _SHORT:
        return EqualsLiteral(source, value)
    if type(value) is complex:
        return EqualsComplex(source, value)
    if type(value) is range:
        return EqualsRange(source, value)
    if isinstance(value, np.generic):
        return EqualsNumpyScalar(source, value)
    return EqualsObject(source, value)


@kind
class IsSingleton(Guard):
    """The value is ``None``, ``True``, ``False`` or ``...``."""

    value: Any

    def condition(self, value: str, out: Loader) -> str:
        return f"{value} is {'...' if self.value is Ellipsis else self.value}"

    def words(self) -> str:
        return f"is {self.value}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return True


@kind
class EqualsLiteral(Guard):
    """An int or a str that is printed as it is."""

    value: int | str

    def condition(self, value: str, out: Loader) -> str:
        # the class comes first: another one may have an __eq__ of the program's
        return f"type({value}) is {type(self.value).__name__} and {value} == {self.value!r}"

    def words(self) -> str:
        return f"== {self.value!r}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class IsNaN(Guard):
    """A float that is not a number."""

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is float and {value} != {value}"

    def words(self) -> str:
        return "is nan"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class EqualsFloat(Guard):
    """A float, to the bit: ``0.0 == -0.0``, and a compiled graph may tell them apart."""

    value: float

    def condition(self, value: str, out: Loader) -> str:
        return f"type({value}) is float and {value}.hex() == {self.value.hex()!r}"

    def words(self) -> str:
        return f"== {self.value!r}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class EqualsComplex(Guard):
    """A complex number, to the bit."""

    value: complex

    def condition(self, value: str, out: Loader) -> str:
        parts = (self.value.real.hex(), self.value.imag.hex())
        return f"type({value}) is complex and ({value}.real.hex(), {value}.imag.hex()) == {parts!r}"

    def words(self) -> str:
        return f"== {self.value!r}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value)


@kind
class EqualsNumpyScalar(Guard):
    """A scalar of one of NumPy's classes, to the bit."""

    value: np.generic

    def condition(self, value: str, out: Loader) -> str:
        cls, data = out.const(type(self.value)), out.const(self.value.tobytes())
        return f"type({value}) is {cls} and {value}.tobytes() == {data}"

    def words(self) -> str:
        return f"== {self.value!r}"

    is_watched = always_checked


@kind
class EqualsRange(Guard):
    """A range: those of the same numbers are equal, and may stop elsewhere."""

    value: range

    def condition(self, value: str, out: Loader) -> str:
        parts = (self.value.start, self.value.stop, self.value.step)
        return f"type({value}) is range and ({value}.start, {value}.stop, {value}.step) == {parts!r}"

    def words(self) -> str:
        return f"== {self.value!r}"

    is_watched = always_checked


@kind
class EqualsObject(Guard):
    """Any other constant: long text, bytes, a dtype."""

    value: Any

    def condition(self, value: str, out: Loader) -> str:
        cls, expected = out.const(type(self.value)), out.const(self.value)
        return f"type({value}) is {cls} and {value} == {expected}"

    def words(self) -> str:
        return f"== {short(self.value)}"

    def is_watched(self, objects: StableObjects, value: Any) -> bool:
        return is_scalar(value) and is_scalar(self.value)


@kind
class BuiltinPartEquals(Guard):
    """The builtin value in an object of a class derived from ``str``, ``int`` or ``float``, past its own methods."""

    base: type
    value: Any

    def condition(self, value: str, out: Loader) -> str:
        base = out.const(self.base)
        if self.base is float:
            return f"{base}.hex({value}) == {out.const(float.hex(self.value))}"
        reads = {str: "__str__", int: "__index__"}[self.base]
        return f"{base}.{reads}({value}) == {out.const(self.value)}"

    def words(self) -> str:
        return f"== {self.value!r}"

    is_watched = always_checked
