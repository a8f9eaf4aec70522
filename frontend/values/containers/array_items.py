"""Items of NumPy's arrays, read and written, and operators that change an array in place.

A write goes into the memory of the array's tensor, which the array of the program shares.  Whatever NumPy would
convert otherwise than torch, and whatever selects by data, ends the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...breaks import OPERATION, GraphBreak
from .. import arrays
from ..arrays import in_graph, known_array
from ..base import Value
from ..constants import ConstValue, NumpyNumberValue, SymValue
from ..tensors import TensorValue
from .array_views import reversing
from .sequences import ListValue, SliceValue, TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import Tracer
    from ..arrays import ArrayValue


def getitem(array: ArrayValue, tr: Tracer, key: Value) -> Value:
    """``array[key]``: a view, a number, or, for an array of integers, a copy."""
    if (found := reversing(array, key)) is not None:
        return found
    parts = key.unpack(tr) if isinstance(key, TupleValue) else [key]
    if len(parts) == 1 and isinstance(parts[0], ListValue) and all(i.is_const() for i in parts[0].unpack(tr)):
        parts = [known_array(tr, parts[0])]
    if len(parts) == 1 and _is_of_integers(part := in_graph(tr, parts[0])):
        found = array.tensor.getitem(tr, part.tensor)  # type: ignore[attr-defined]
        assert isinstance(found, TensorValue)
        return arrays.ArrayValue(found)
    if not all(map(_is_basic, parts)):
        raise array.not_understood(f"indexing {array.describe()} by other than numbers and slices")
    found = array.tensor.getitem(tr, key)
    assert isinstance(found, TensorValue)
    numbers = sum(p.pytype() is int for p in parts)
    if numbers == array.tensor.example.dim() and numbers == len(parts):
        return arrays.number(tr, found)
    return arrays.ArrayValue(found)


def setitem(array: ArrayValue, tr: Tracer, key: Value, value: Value) -> None:
    """``array[key] = value``."""
    refused = GraphBreak(OPERATION, f"setting an item of {array.describe()}")
    if array.is_number:
        raise refused
    converted = _converted(tr, array, value)
    parts = key.unpack(tr) if isinstance(key, TupleValue) else [key]
    if len(parts) == 1 and isinstance(part := in_graph(tr, parts[0]), arrays.ArrayValue):
        is_one = not isinstance(converted, TensorValue) or converted.example.dim() == 0
        if part.is_number or not (part.dtype.kind == "b" or _is_of_integers(part)) or not is_one:
            raise refused  # how many elements there are, or which comes last, is not known
        key = part.tensor
    elif not all(map(_is_basic, parts)):
        raise refused
    array.tensor.setitem(tr, key, converted)


def inplace(tr: Tracer, symbol: str, owner: Value, value: Value) -> Value:
    """``owner += value`` and the like: NumPy computes as it does otherwise, and converts the results."""
    assert isinstance(owner, arrays.AnyArray)
    array = owner.for_writing(tr)
    found = arrays.binary(tr, symbol[:-1], array, value)
    assert isinstance(found, arrays.ArrayValue)
    here, there = array.tensor.example, found.tensor.example
    if here.dim() != there.dim() or not np.can_cast(found.dtype, array.dtype, "same_kind"):
        raise GraphBreak(OPERATION, f"{symbol} of {array.describe()}, which does not take the result")
    if any(a != b for a, b in zip(here.shape, there.shape, strict=True)):
        raise GraphBreak(OPERATION, f"{symbol} of {array.describe()}, which has another shape than the result")
    tr.emit("call_method", "copy_", [array.tensor, found.tensor], {})
    return owner


def _converted(tr: Tracer, array: ArrayValue, value: Value) -> Value:
    """What is written for ``value``: a tensor, or a number that means the same to torch."""
    refused = GraphBreak(OPERATION, f"writing {value.describe()} to {array.describe()}")
    if isinstance(value, ListValue | TupleValue):
        value = known_array(tr, value)
    value = in_graph(tr, value)
    kind = array.dtype.kind
    if isinstance(value, arrays.ArrayValue):
        if value.dtype.kind == "f" and kind in "iu":
            raise refused  # not all of them fit
        tensor = arrays.to_dtype(tr, value, array.dtype)
        if value.tensor.example.untyped_storage()._cdata == array.tensor.example.untyped_storage()._cdata:
            tensor = tr.emit("call_method", "clone", [tensor], {})  # NumPy reads all before it writes
        return tensor
    if isinstance(value, NumpyNumberValue):
        value = value.symbol()
    if isinstance(value, SymValue):
        if kind == "f" or (value.pytype() is int and array.dtype == np.int64):
            return value
        raise refused
    if not isinstance(value, ConstValue) or not isinstance(value.value, bool | int | float | np.number | np.bool_):
        raise refused
    try:
        with np.errstate(all="raise"):
            stored = np.zeros((), array.dtype)
            stored[()] = value.value
    except (TypeError, ValueError, ArithmeticError):
        raise refused from None
    return ConstValue(stored.item())


def _is_of_integers(value: Value) -> bool:
    return isinstance(value, arrays.ArrayValue) and not value.is_number and value.dtype == np.int64


def _is_basic(part: Value) -> bool:
    """Whether an index selects a view, in torch as in NumPy."""
    if isinstance(part, SliceValue):
        step = part.step
        if not all(_is_number(bound) or _is_none(bound) for bound in (part.start, part.stop)):
            return False
        return _is_none(step) or (isinstance(step, ConstValue) and _is_number(step) and step.value > 0)
    return _is_number(part) or (isinstance(part, ConstValue) and type(part.value) in (type(None), type(Ellipsis)))


def _is_number(part: Value) -> bool:
    return isinstance(part, ConstValue | SymValue) and part.pytype() is int


def _is_none(part: Value) -> bool:
    return isinstance(part, ConstValue) and part.value is None


arrays.ArrayValue.getitem = getitem  # type: ignore[assignment]
arrays.ArrayValue.setitem = setitem  # type: ignore[assignment]
