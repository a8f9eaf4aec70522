"""NumPy's arrays in reverse, in parts and in order.

No tensor walks its memory backwards, so an array in reverse stays what it was reversed from until something is computed
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks import C_FUNCTION, GraphBreak
from ..arrays import FUNCTIONS, METHODS, OF_COPIES, AnyArray, ArrayValue, made, plain_array
from ..base import Value
from ..builtin_methods import BuiltinMethodValue, call_builtin_method
from ..constants import ConstValue
from .array_functions import ravel
from .iteration import SequenceIterator
from .sequences import ListValue, SliceValue, TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class ReversedArrayValue(AnyArray):
    """A view of ``array`` that runs backwards along ``dims``.  What is written to the array later shows in it."""

    __slots__ = ("array", "dims")

    def __init__(self, array: ArrayValue, dims: frozenset[int]) -> None:
        self.array = array
        self.dims = dims
        self.source = None

    def pytype(self) -> type:
        return np.ndarray

    def truth(self, tr: Tracer) -> bool:
        return self.array.truth(tr)

    def length(self, tr: Tracer) -> Value:
        return self.array.length(tr)

    def iter(self, tr: Tracer) -> Value:
        return SequenceIterator(self.unpack(tr))

    def unpack(self, tr: Tracer) -> list[Value]:
        rows = self.array.unpack(tr)
        inner = frozenset(dim - 1 for dim in self.dims if dim)
        return [reversed_along(row, inner) for row in (rows[::-1] if 0 in self.dims else rows)]

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("shape", "ndim", "size", "dtype"):
            return self.array.getattr(tr, name)
        if name in METHODS and METHODS[name] in OF_COPIES:
            return BuiltinMethodValue(self, np.ndarray, name)
        raise GraphBreak(C_FUNCTION, f"ndarray.{name} of {self.describe()}")

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self.in_graph(tr), cls, name, args, kwargs)

    def in_graph(self, tr: Tracer) -> ArrayValue:
        """A copy of what it shows now."""
        dims = tr.lift(tuple(sorted(self.dims)))
        return made(tr.emit("call_function", torch.flip, [self.array.tensor, dims], {}), of_numbers=False)

    def for_writing(self, tr: Tracer) -> ArrayValue:
        raise GraphBreak(C_FUNCTION, f"writing to {self.describe()}")

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.for_writing(tr)

    def describe(self) -> str:
        return f"{self.array.describe()} in reverse"

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.names.const(np.flip)}({out.value(self.array)}, {tuple(sorted(self.dims))})"


def reversed_along(array: Value, dims: frozenset[int]) -> Value:
    """An array in reverse; of one that is reversed already, the rest."""
    if isinstance(array, ReversedArrayValue):
        return reversed_along(array.array, array.dims ^ dims)
    if not dims:
        return array
    return ReversedArrayValue(plain_array(array, "flip"), dims)


def _flipped(name: str, fixed: int | None = None) -> Any:
    """``numpy.flip``, and those of its kind that have an axis of their own."""

    def flip(tr: Tracer, array: Value, axis: Value | None = None) -> Value:
        whole = array.array if isinstance(array, ReversedArrayValue) else plain_array(array, name)
        count = whole.tensor.example.dim()
        along = fixed if fixed is not None else None if axis is None else axis.const(tr)
        given = tuple(range(count)) if along is None else along if isinstance(along, tuple) else (along,)
        dims = frozenset(dim % count for dim in given if -count <= dim < count)
        if len(dims) != len(given) or (fixed is not None and axis is not None):
            raise GraphBreak(C_FUNCTION, f"numpy.{name} along {given} of {count} axes")
        view = ArrayValue(whole.tensor)  # a new object, also where nothing is reversed
        return reversed_along(reversed_along(view, getattr(array, "dims", frozenset())), dims)

    return flip


def reversing(array: ArrayValue, key: Value) -> Value | None:
    """``array[::-1, :]``: the whole array in reverse; None for any other index."""
    parts = key._items if isinstance(key, TupleValue) else [key]
    steps = [_step(part) for part in parts]
    if None in steps or -1 not in steps or len(steps) > array.tensor.example.dim():
        return None
    dims = frozenset(dim for dim, step in enumerate(steps) if step == -1)
    return reversed_along(ArrayValue(array.tensor), dims)


def _step(part: Any) -> int | None:
    """The step of a slice of everything, forwards or backwards."""
    if not isinstance(part, SliceValue):
        return None
    start, stop, step = (
        bound.value if isinstance(bound, ConstValue) else ... for bound in (part.start, part.stop, part.step)
    )
    if start is not None or stop is not None:
        return None
    return 1 if step is None else step if step in (1, -1) else None


# --- parts ------------------------------------------------------------------------------------------------------------


def _split(name: str, axis_of: Any = None, even: bool = True) -> Any:
    """``numpy.split`` and its kind: views.  ``axis_of`` has the axis, by the number of dimensions."""

    def split(tr: Tracer, array: Value, where: Value, axis: Value | None = None) -> Value:
        given = plain_array(array, name)
        count = given.tensor.example.dim()
        dim = axis_of(count) if axis_of is not None else 0 if axis is None else axis.const(tr)
        places = where.const(tr)
        refused = GraphBreak(C_FUNCTION, f"numpy.{name} into {places} along axis {dim}")
        if (axis_of is not None and axis is not None) or type(dim) is not int or not -count <= dim < count:
            raise refused
        if type(places) is int:
            if places < 1 or (even and given.tensor.example.shape[dim] % places != 0):
                raise refused  # NumPy raises an error
        elif type(places) not in (list, tuple) or any(type(place) is not int for place in places):
            raise refused
        sizes = ConstValue(places) if type(places) is int else tr.lift(tuple(places))
        found = tr.emit("call_function", torch.tensor_split, [given.tensor, sizes], {"dim": ConstValue(dim)})
        return ListValue([made(part, of_numbers=False) for part in found.unpack(tr)])

    return split


# --- order ------------------------------------------------------------------------------------------------------------


def _is_stable(tr: Tracer, kind: Value | None, stable: Value | None) -> bool:
    asked = None if kind is None else kind.const(tr)
    return asked in ("stable", "mergesort") or (stable is not None and stable.const(tr) is True)


def _sorted(name: str, part: int) -> Any:
    """``numpy.sort`` and ``argsort``, which torch computes at once."""

    def sort(
        tr: Tracer, array: Value, axis: Value | None = None, kind: Value | None = None, *, stable: Value | None = None
    ) -> Value:
        given = plain_array(array, name)
        if part and not _is_stable(tr, kind, stable):
            raise GraphBreak(C_FUNCTION, f"numpy.{name} without kind='stable': which of equal elements comes first")
        if not given.tensor.example.dim() or not given.tensor.example.is_contiguous():
            raise GraphBreak(C_FUNCTION, f"numpy.{name} of {array.describe()}")
        dim: Value = axis or ConstValue(-1)
        if axis is not None and axis.const(tr) is None:
            given, dim = plain_array(ravel(tr, given), name), ConstValue(0)
        found = tr.emit("call_function", torch.sort, [given.tensor], {"dim": dim, "stable": ConstValue(True)})
        return made(found.unpack(tr)[part], of_numbers=False)

    return sort


def ascontiguous(tr: Tracer, array: Value) -> Value:
    """``numpy.ascontiguousarray``: the array itself, where it is."""
    if isinstance(array, ReversedArrayValue):
        return array.in_graph(tr)
    given = plain_array(array, "ascontiguousarray")
    if not given.tensor.example.dim():
        raise GraphBreak(C_FUNCTION, "numpy.ascontiguousarray of an array without dimensions")
    return given if given.tensor.example.is_contiguous() else METHODS["copy"](tr, given)


_argsort = _sorted("argsort", 1)
METHODS["argsort"] = _argsort
FUNCTIONS.update(
    {
    np.flip: _flipped("flip"), np.flipud: _flipped("flipud", 0), np.fliplr: _flipped("fliplr", 1),
    np.split: _split("split"), np.array_split: _split("array_split", even=False),
    np.hsplit: _split("hsplit", lambda count: int(count > 1)), np.vsplit: _split("vsplit", lambda count: 0),
    np.dsplit: _split("dsplit", lambda count: 2), np.sort: _sorted("sort", 0), np.argsort: _argsort,
    }
)  # fmt: skip
OF_COPIES.update({FUNCTIONS[np.sort], _argsort})
