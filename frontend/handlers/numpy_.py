"""Calls of NumPy's scalar classes, and of what makes arrays."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..breaks import C_FUNCTION, GraphBreak
from ..values import arrays
from ..values.arrays import known_array, made_of_constants
from ..values.base import Value
from ..values.constants import ConstValue, SymValue
from ..values.containers.array_views import ascontiguous  # with the module that fills the tables
from ..values.tensors import TensorValue
from .table import constructs, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


@constructs(np.float64, np.float32, np.int64, np.int32, np.bool_)
def number(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return arrays.NumpyFunctionValue(cls).call(tr, args, kwargs)


@handles(torch.from_numpy)
def from_numpy(tr: Tracer, array: Value) -> Value:
    if isinstance(array, arrays.AnyArray):
        array = array.for_writing(tr)
    if not isinstance(array, arrays.ArrayValue) or array.is_number:
        raise GraphBreak(C_FUNCTION, f"torch.from_numpy of {array.describe()}")
    return arrays.tensor_of(tr, array, copy=False)


@handles(np.zeros)
def zeros(tr: Tracer, shape: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.zeros, shape, dtype)


@handles(np.ones)
def ones(tr: Tracer, shape: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.ones, shape, dtype)


@handles(np.empty)
def empty(tr: Tracer, shape: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.empty, shape, dtype)


@handles(np.array)
def array(tr: Tracer, value: Value) -> Value:
    return known_array(tr, value)


@handles(np.asarray)
def asarray(tr: Tracer, value: Value) -> Value:
    """An array stays what it is, and a tensor tells its array as ``numpy()`` does."""
    if isinstance(value, arrays.AnyArray):
        return value
    return value.call_method(tr, "numpy", [], {}) if isinstance(value, TensorValue) else known_array(tr, value)


@handles(np.ascontiguousarray)
def ascontiguousarray(tr: Tracer, array: Value) -> Value:
    return ascontiguous(tr, array)


@handles(np.arange)
def arange(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
    if kwargs or not any(isinstance(value, SymValue) for value in args):
        return made_of_constants(tr, np.arange, list(args), kwargs)
    if any(value.pytype() is not int for value in args):
        raise GraphBreak(C_FUNCTION, "numpy.arange of floats")
    named: dict[str, Value] = {"dtype": ConstValue(torch.int64), "device": ConstValue(torch.device("cpu"))}
    return arrays.made(tr.emit("call_function", torch.arange, list(args), named), of_numbers=False)


@handles(np.full)
def full(tr: Tracer, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.full, shape, dtype, fill_value)


def _makes(function: Any) -> None:
    handles(function)(lambda tr, *args, **kwargs: made_of_constants(tr, function, list(args), kwargs))


for _function in arrays.MAKERS:
    if isinstance(_function, types.FunctionType):
        _makes(_function)
