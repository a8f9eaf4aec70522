"""NumPy's functions on plain numbers: models compute constants with ``np.log`` and ``np.sqrt``.

Their results are NumPy scalars, which are constants like any number.  What they do with arrays is in ``arrays``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..breaks import C_FUNCTION, GraphBreak
from ..guards.sources import Source
from . import arrays
from .base import Value
from .classes import RealValue, refused_call
from .constants import CONST_TYPES

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_DISPATCHED: type = type(np.prod)  # functions of NumPy's that let other arrays take over
_PURE = frozenset({np.prod, np.sum, np.mean, np.max, np.min, np.round})  # of those, what makes numbers of numbers


class NumpyFunctionValue(RealValue):
    """A function of numbers that NumPy computes; called for real where all its arguments are constants."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(map(arrays.holds_array, (*args, *kwargs.values()))):
            return arrays.call(tr, self.obj, args, kwargs)
        if not isinstance(self.obj, (np.ufunc, type)) and self.obj not in _PURE:
            raise refused_call(self.obj)
        plain = [_number(tr, value) for value in args]
        named = {name: _number(tr, value) for name, value in kwargs.items()}
        found = tr.fold(self.obj, plain, named)
        if not found.is_const():
            raise GraphBreak(C_FUNCTION, f"numpy.{self.obj.__name__} returns more than a number")
        return found


def _number(tr: Tracer, value: Value) -> Any:
    plain = value.const(tr)
    parts = plain if type(plain) in (list, tuple) else [plain]
    if not all(type(part) in CONST_TYPES for part in parts):
        raise GraphBreak(C_FUNCTION, f"a NumPy function on {value.describe()}")
    return plain


def wrap_numpy(tr: Tracer, obj: Any, source: Source | None) -> Value | None:
    """The value of an array, or of a function of NumPy's; None for what is neither or does more than compute."""
    if isinstance(obj, np.ndarray):
        return arrays.wrap_array(tr, obj, source)
    if isinstance(obj, np.ufunc) or (type(obj) is _DISPATCHED and (obj in _PURE or obj in arrays.FUNCTIONS)):
        if source is not None:
            tr.guards.is_object(source, obj)
        return NumpyFunctionValue(obj, source)
    return None
