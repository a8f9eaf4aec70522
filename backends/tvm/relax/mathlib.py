"""Elementary functions of float32 as arithmetic, so that loops over them can be vectorized.

TVM calls the C library for ``exp`` and similar functions, one element at a time.  Here each becomes a polynomial or a
quotient of polynomials on a reduced argument, with errors of a few units in the last place and torch's results for nan,
infinities, overflow and underflow.  float64 keeps the C library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from .. import compat

_F32 = "float32"


def _f(value: float) -> Any:
    return tirx.const(value, _F32)


def _named(value: Any, body: Callable[[Any], Any]) -> Any:
    """``body`` of a variable that holds ``value``, so that it is computed once."""
    variable = tirx.Var("t", _F32)
    return tirx.Let(variable, value, body(variable))


def _horner(x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial; the coefficient of the highest power comes first."""
    result = _f(coefficients[0])
    for c in coefficients[1:]:
        result = result * x + _f(c)
    return result


def _power_of_two(n: Any) -> Any:
    """2**n for a float32 that holds an integer from -126 to 127, through the exponent's bits."""
    return tirx.reinterpret(_F32, (n.astype("int32") + tirx.const(127, "int32")) << tirx.const(23, "int32"))


def _between(x: Any, low: float, high: float) -> Any:
    """``x`` within limits, nan if it is nan: what is compared second is what stays if neither is larger.

    A ``Select`` would have TVM 0.26 reason about all that its condition is computed from, for minutes.
    """
    return tirx.min(_f(high), tirx.max(_f(low), x))


def exp(x: Any) -> Any:
    """e**x: x = n ln 2 + r, and a polynomial in r; 2**n in two factors, since it may be out of range by itself."""

    def whole(c: Any, n: Any) -> Any:
        reduced = (c - n * _f(0.693359375)) - n * _f(-2.12194440e-4)
        half = tirx.floor(n * _f(0.5))
        return _named(reduced, lambda r: _named(half, lambda h: scaled(r, n, h)))

    def scaled(r: Any, n: Any, h: Any) -> Any:
        near = _horner(
            r, (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
        )
        return (near * (r * r) + r + _f(1.0)) * _power_of_two(h) * _power_of_two(n - h)

    def of(c: Any) -> Any:
        return _named(tirx.floor(c * _f(1.44269504088896341) + _f(0.5)), lambda n: whole(c, n))

    return _named(_between(x, -104.0, 89.0), of)


def sigmoid(x: Any) -> Any:
    return _f(1.0) / (_f(1.0) + exp(-x))


def tanh(x: Any) -> Any:
    """An odd quotient of polynomials where tanh is not 1, which it is from 9 on."""

    def of(x: Any) -> Any:
        return _named(_between(x, -7.90531110763549805, 7.90531110763549805), quotient)

    def quotient(c: Any) -> Any:
        return _named(c * c, lambda s: c * _horner(s, _TANH_UP) / _horner(s, _TANH_DOWN))

    def far(x: Any) -> Any:
        return tirx.Select(x > _f(9.0), _f(1.0), tirx.Select(x < _f(-9.0), _f(-1.0), of(x)))

    return _named(x, lambda x: tirx.Select(tirx.abs(x) < _f(4e-4), x, far(x)))


_TANH_UP = (
    -2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08, 1.48572235717979e-05,
    6.37261928875436e-04, 4.89352455891786e-03,
)  # fmt: skip
_TANH_DOWN = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)


def erf(x: Any) -> Any:
    """Near zero an odd polynomial, further out one minus an exponential of a polynomial."""

    def of(x: Any) -> Any:
        return _named(tirx.abs(x), lambda a: tirx.Select(a > _f(0.927734375), outer(x, a), inner(x)))

    def inner(x: Any) -> Any:
        return _named(x * x, lambda s: x + x * _horner(s, _ERF_NEAR))

    def outer(x: Any, a: Any) -> Any:
        # Beyond 4 nothing of float32 is left of 1 - erf.
        rest = _named(tirx.min(a, _f(4.0)), lambda c: exp(_horner(c, _ERF_FAR) * c - c))
        return _named(_f(1.0) - rest, lambda m: tirx.Select(x < _f(0.0), -m, m))

    return _named(x, of)


_ERF_NEAR = (-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1)
_ERF_FAR = (
    -1.72853470e-5, 3.83197126e-4, -3.88396438e-3, 2.42546219e-2, -1.06777877e-1, -6.34846687e-1, -1.28717512e-1,
)  # fmt: skip

_FUNCTIONS = {"exp": exp, "sigmoid": sigmoid, "tanh": tanh, "erf": erf}


def rewrite(function: Any) -> Any:
    """``function`` with its calls of elementary functions on float32 written out."""

    def replace(call: Any) -> Any:
        made = _FUNCTIONS.get(getattr(call.op, "name", "").rpartition(".")[2])
        if made is None or compat.dtype_of_scalar(call) != _F32:
            return call
        return made(call.args[0])

    body = compat.with_replaced(function.body, replace, compat.Call)
    return function if body.same_as(function.body) else function.with_body(body)
