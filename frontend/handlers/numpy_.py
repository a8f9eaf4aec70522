"""Calls of NumPy's scalar classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..values.base import Value
from ..values.numpy_ import NumpyFunctionValue
from .table import constructs

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


@constructs(np.float64, np.float32, np.int64, np.int32, np.bool_)
def number(tr: Tracer, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return NumpyFunctionValue(cls).call(tr, args, kwargs)
