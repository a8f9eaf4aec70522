"""Arrays that the program makes of constants, and what NumPy makes of those."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...breaks import C_FUNCTION, OPERATION, GraphBreak
from .. import arrays
from ..base import Raised, Value
from ..builtin_methods import BuiltinMethodValue
from ..constants import ConstValue
from .sequences import ListValue, TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer
    from ..arrays import ArrayValue


class KnownArrayValue(Value):
    """An array that the program makes of constants: NumPy computes with it for real, as long as only constants join.

    ``joined`` is the same array in the graph, once something else has joined; once that may be ``written`` to, there
    is no other.
    """

    __slots__ = ("array", "joined", "written")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.joined: ArrayValue | None = None
        self.written = False
        self.source = None

    def pytype(self) -> type:
        return np.ndarray

    def truth(self, tr: Tracer) -> bool:
        if self.written:
            return in_graph(tr, self).truth(tr)
        return tr.fold(bool, [self.array], {}).truth(tr)

    def length(self, tr: Tracer) -> Value:
        return tr.fold(len, [self.array], {})

    def iter(self, tr: Tracer) -> Value:
        return self.for_writing(tr).iter(tr)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("shape", "ndim", "size", "dtype"):
            return tr.lift(getattr(self.array, name)) if name != "dtype" else ConstValue(self.array.dtype)
        if self.written or name == "T":  # a view
            return self.for_writing(tr).getattr(tr, name)
        if name in arrays.METHODS or name in ("tolist", "item"):
            return BuiltinMethodValue(self, np.ndarray, name)
        raise GraphBreak(C_FUNCTION, f"ndarray.{name}")

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name not in arrays.METHODS and name not in ("tolist", "item"):
            raise GraphBreak(C_FUNCTION, f"ndarray.{name}")
        return computed(tr, getattr(self.array, name), args, kwargs)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if self.written or not key.is_const() or self.array[key.const(tr)].ndim:  # which may be a view
            return self.for_writing(tr).getitem(tr, key)
        return computed(tr, operator.getitem, [self, key], {})

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.for_writing(tr).setitem(tr, key, value)

    def for_writing(self, tr: Tracer) -> ArrayValue:
        """The array of the graph, which from now on is the only one."""
        array = in_graph(tr, self)
        assert isinstance(array, arrays.ArrayValue)
        self.written = True
        return array

    def rebuild(self, out: FrameWriter) -> str:
        if self.written:
            return out.value(in_graph(out.tr, self))
        return f"{out.names.const(self.array)}.copy()"


def computed(tr: Tracer, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What NumPy makes of known arrays and constants: a new array, or a number."""

    def plain(value: Value) -> Any:
        return value.array if isinstance(value, KnownArrayValue) else value.const(tr)

    try:
        found = function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})
    except Exception as error:
        raise Raised(tr.exception(error)) from None
    if type(found) is not np.ndarray:
        return tr.lift(found)
    given = [v.array for v in (*args, *kwargs.values()) if isinstance(v, KnownArrayValue)]
    if isinstance(owner := getattr(function, "__self__", None), np.ndarray):
        given.append(owner)
    if any(np.may_share_memory(found, each) for each in given):
        raise GraphBreak(C_FUNCTION, "a view of a NumPy array that is made of constants")
    return KnownArrayValue(found)


def in_graph(tr: Tracer, value: Value) -> Value:
    """The same array as one that the graph computes with, if it is known; else the value itself."""
    if not isinstance(value, KnownArrayValue):
        return value
    if value.joined is None:
        if value.array.dtype not in arrays.DTYPES:
            raise GraphBreak(OPERATION, f"a NumPy array of {value.array.dtype}")
        constant = arrays.wrap_array(tr, value.array.copy(), None)
        assert isinstance(constant, arrays.ArrayValue)
        value.joined = arrays.made(tr.emit("call_method", "clone", [constant.tensor], {}), of_numbers=False)
    return value.joined


def known_array(tr: Tracer, value: Value) -> Value:
    """``np.array`` of constants."""
    found = np.array(_plain(tr, value))
    if found.dtype.kind not in "biuf":
        raise GraphBreak(C_FUNCTION, f"numpy.array of {value.describe()}")
    return KnownArrayValue(found)


def _plain(tr: Tracer, value: Value) -> Any:
    if isinstance(value, ListValue | TupleValue):
        return [_plain(tr, item) for item in value.unpack(tr)]
    if not isinstance(value, ConstValue):
        raise GraphBreak(C_FUNCTION, f"numpy.array of {value.describe()}")
    return value.value


def made_of_constants(tr: Tracer, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """What a function of NumPy's makes of constants: an array of a dtype that torch has."""
    found = computed(tr, function, args, kwargs)
    if isinstance(found, KnownArrayValue) and found.array.dtype not in arrays.DTYPES:
        raise GraphBreak(C_FUNCTION, f"numpy.{function.__name__} of {found.array.dtype}")
    return found
