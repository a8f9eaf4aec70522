"""Arithmetic on symbolic numbers that torch has no operator for, or none that its text keeps."""

from __future__ import annotations

import operator

from ..trace.tracer import Tracer
from ..values.base import Value
from ..values.constants import ConstValue

_ONE, _TWO = ConstValue(1), ConstValue(2)


def power_of_negative(tr: Tracer, base: int | float, exponent: Value) -> Value:
    """``base ** exponent`` without a negative base, because torch.fx writes ``(-2) ** n`` as ``-2 ** n``."""
    if exponent.pytype() is not int:  # the result may be complex
        return tr.fold(operator.pow, [base, exponent.const(tr)], {})
    power = tr.binary("**", ConstValue(-base), exponent)
    twice_odd = tr.binary("*", _TWO, tr.binary("%", exponent, _TWO))
    return tr.binary("*", power, tr.binary("-", _ONE, twice_odd))


def inverse(tr: Tracer, number: Value) -> Value:
    """``~number``; symbolic integers have no bits."""
    if number.pytype() is not int:
        return tr.fold(operator.invert, [number.const(tr)], {})
    return tr.binary("-", tr.unary("-", number), _ONE)
