"""Calls of NumPy's scalar classes, and of what makes arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from ..breaks import C_FUNCTION, GraphBreak
from ..values import arrays
from ..values.base import Value
from .table import constructs, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


@constructs(np.float64, np.float32, np.int64, np.int32, np.bool_)
def number(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return arrays.NumpyFunctionValue(cls).call(tr, args, kwargs)


@handles(torch.from_numpy)
def from_numpy(tr: Tracer, array: Value) -> Value:
    if not isinstance(array, arrays.ArrayValue) or array.is_number:
        raise GraphBreak(C_FUNCTION, f"torch.from_numpy of {array.describe()}")
    return arrays.tensor_of(tr, array, copy=False)


@handles(np.zeros)
def zeros(tr: Tracer, shape: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.zeros, shape, dtype)


@handles(np.ones)
def ones(tr: Tracer, shape: Value, dtype: Value | None = None) -> Value:
    return arrays.filled(tr, torch.ones, shape, dtype)


@handles(np.array)
def array(tr: Tracer, value: Value) -> Value:
    return arrays.known_array(tr, value)
