"""Elementwise arithmetic, comparisons and functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from .. import faults
from ..ir import operations as ops, ranges
from ..ir.expressions import Node, compute_type
from ..ir.operations import Unsupported, binary, compare, const, unary, where
from ..ir.values import Value, scalar
from .registry import Context, as_stored, aten, elementwise, lowers


def _like(node: Node, value: Any) -> Node:
    return const(value, node.dtype)


def reciprocal(x: Node) -> Node:
    return binary("div", _like(x, 1), x)


def rsqrt(x: Node) -> Node:
    return reciprocal(unary("sqrt", x))


def sigmoid(x: Node) -> Node:
    return reciprocal(binary("add", unary("exp", unary("neg", x)), _like(x, 1)))


def sign(x: Node) -> Node:
    zero, one = _like(x, 0), _like(x, 1)
    if x.dtype is torch.bool:
        return x
    up = where(compare("gt", x, zero), one, zero)
    return up if x.dtype is torch.uint8 else where(compare("lt", x, zero), _like(x, -1), up)


def _sgn(x: Node) -> Node:
    return where(compare("ne", x, x), _like(x, 0), sign(x)) if ops.is_float(x.dtype) else sign(x)


def _identity_for_integers(op: str) -> Callable[[Node], Node]:
    return lambda x: unary(op, x) if ops.is_float(x.dtype) else x


def _abs(x: Node) -> Node:
    if x.dtype is torch.bool:
        raise Unsupported("the absolute value of bools, which torch refuses")
    return x if x.dtype is torch.uint8 else unary("abs", x)


def _far_out(x: Node, near: Node) -> Node:
    """``near``, an inverse hyperbolic function of positive numbers, and where its squares overflow a logarithm."""
    far = binary("add", unary("log", x), _like(x, math.log(2)))
    return where(compare("gt", x, _like(x, 2.0**30)), far, near)


def _asinh(x: Node) -> Node:
    return where(
        compare("gt", unary("abs", x), _like(x, 2.0**30)),
        binary("copysign", _far_out(unary("abs", x), x), x),
        unary("asinh", x),
    )


def _is(test: str) -> Callable[[Node], Node]:
    def element(x: Node) -> Node:
        if not ops.is_float(x.dtype):
            return const(False, torch.bool)
        if test == "nan":
            return compare("ne", x, x)
        return compare(
            "eq", unary("abs", x) if test == "inf" else x, _like(x, -math.inf if test == "-inf" else math.inf)
        )

    return element


_PLAIN = (
    "exp", "expm1", "exp2", "log", "log1p", "log2", "log10", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "atanh", "erf", "erfc", "lgamma",
)  # fmt: skip

_FUNCTIONS: dict[str, Callable[[Node], Node]] = {
    **{name: functools.partial(unary, name) for name in _PLAIN},
    "neg": functools.partial(unary, "neg"),
    "asinh": _asinh,
    "acosh": lambda x: _far_out(x, unary("acosh", x)),
    "abs": _abs,
    "reciprocal": reciprocal,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "sign": sign,
    "sgn": _sgn,
    "floor": _identity_for_integers("floor"),
    "ceil": _identity_for_integers("ceil"),
    "trunc": _identity_for_integers("trunc"),
    "round": _identity_for_integers("rint"),
    "frac": lambda x: binary("sub", x, unary("trunc", x)),
    "square": lambda x: binary("mul", x, x),
    "bitwise_not": lambda x: unary("not" if x.dtype is torch.bool else "bitwise_not", x),
}


def _register_functions() -> None:
    for name, function in _FUNCTIONS.items():
        op = getattr(aten, name).default

        @lowers(op)
        def lower(ctx: Context, x: Value, *, _function: Any = function) -> Value:
            return elementwise(ctx, _function, x)

    for name, test in (("isnan", "nan"), ("isinf", "inf"), ("isposinf", "+inf"), ("isneginf", "-inf")):
        function = _is(test)

        @lowers(getattr(aten, name).default)
        def lower_test(ctx: Context, x: Value, *, _function: Any = function) -> Value:
            return elementwise(ctx, _function, x, compute=x.dtype)


_register_functions()


@lowers(aten.logical_not.default)
def _logical_not(ctx: Context, x: Value) -> Value:
    return elementwise(ctx, lambda a: unary("not", a), x, compute=torch.bool)


@lowers(aten.signbit.default)
def _signbit(ctx: Context, x: Value) -> Value:
    def element(a: Node) -> Node:
        if a.dtype is torch.bool:
            return const(False, torch.bool)
        if ops.is_float(a.dtype):  # zeros and NaN have signs too
            a = binary("copysign", _like(a, 1), a)
        return compare("lt", a, _like(a, 0))

    return elementwise(ctx, element, x, compute=x.dtype)


# --- two operands -----------------------------------------------------------------------------------------------------


def _both(name: str, overloads: str) -> list[Any]:
    packet = getattr(aten, name)
    return [getattr(packet, o) for o in overloads.split() if hasattr(packet, o)]


def _refuse_bools(*operands: Any) -> None:
    if any(isinstance(o, bool) or (isinstance(o, Value) and o.dtype is torch.bool) for o in operands):
        raise Unsupported("subtraction of bools, which torch refuses")


def _number(ctx: Context, given: Any, dtype: torch.dtype) -> Any:
    """What stands beside half precision, a number or a tensor of one, in that precision, as sums, comparisons and
    bounds take it on a CPU."""
    return _rounded(given, dtype) if ctx.val.device.type == "cpu" else given


def _add(op: str) -> Callable[..., Value]:
    def lower(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
        if op == "sub":
            _refuse_bools(a, b)

        def element(x: Node, y: Node) -> Node:
            if x.dtype is torch.bool:
                return binary("or", x, y)
            return binary(op, x, y if alpha == 1 else binary("mul", _like(y, alpha), y))

        return elementwise(ctx, element, _number(ctx, a, ctx.dtype), _number(ctx, b, ctx.dtype))

    return lower


lowers(*_both("add", "Tensor Scalar"))(_add("add"))
lowers(*_both("sub", "Tensor Scalar"))(_add("sub"))


@lowers(*_both("rsub", "Tensor Scalar"))
def _rsub(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
    _refuse_bools(a, b)
    given = [_number(ctx, v, ctx.dtype) for v in (a, b)]
    return elementwise(ctx, lambda x, y: binary("sub", y, binary("mul", _like(x, alpha), x)), *given)


@lowers(*_both("mul", "Tensor Scalar"))
def _mul(ctx: Context, a: Any, b: Any) -> Value:
    return elementwise(ctx, lambda x, y: binary("and" if x.dtype is torch.bool else "mul", x, y), a, b)


@lowers(*_both("div", "Tensor Scalar"))
def _div(ctx: Context, a: Any, b: Any) -> Value:
    """Eager on a GPU multiplies by the reciprocal of a number, which may be infinite, or one unit off."""
    if ctx.program.device.type != "cpu" and isinstance(b, (int, float)) and not ctx.dtype.is_complex:
        wide = torch.tensor(1.0, dtype=compute_type(ctx.dtype))
        return elementwise(ctx, lambda x, y: binary("mul", x, y), a, float(wide / b))
    return elementwise(ctx, lambda x, y: binary("div", x, y), a, b)


def _by_integers(op: str, x: Node, y: Node) -> Node:
    """Integer division by numbers of which none may be 0, which is verified as indices are where it can be."""
    if y.op == "const" or _is_never_zero(y):
        return binary(op, x, y)
    is_zero = compare("eq", y, _like(y, 0))
    wide = functools.partial(const, dtype=torch.int64)
    verified = ops.check(where(is_zero, wide(1), wide(0)), 1, wrap=False, fault=faults.number("division", 0))
    return binary("add", binary(op, x, where(is_zero, _like(y, 1), y)), ops.cast(verified, x.dtype))


def _is_never_zero(divisor: Node) -> bool:
    low, high = ranges.of(divisor)
    return low > 0 or high < 0


def _divisible(ctx: Context, divisor: Any) -> None:
    """Refuse to divide integers by what may be 0 on other devices, where torch raises nothing for it."""
    if ctx.val.device.type == "cpu" or ctx.dtype.is_floating_point or not isinstance(divisor, Value):
        return
    element = divisor.at(divisor.variables())
    if element.op != "const" and not _is_never_zero(element):
        raise Unsupported("integer division by what may be 0 on a GPU, which gives whatever it gives for 0")


def floor_divide(x: Node, y: Node) -> Node:
    """As Python's ``//`` does, with torch's rounding for floating point."""
    if not ops.is_float(x.dtype):
        return _by_integers("floor_div", x, y)
    zero = _like(x, 0)
    rest = binary("fmod", x, y)
    quotient = binary("div", binary("sub", x, rest), y)
    wrong = binary("and", compare("ne", rest, zero), binary("xor", compare("lt", y, zero), compare("lt", rest, zero)))
    quotient = where(wrong, binary("sub", quotient, _like(x, 1)), quotient)
    floor = unary("floor", quotient)
    floor = where(
        compare("gt", binary("sub", quotient, floor), _like(x, 0.5)), binary("add", floor, _like(x, 1)), floor
    )
    plain = binary("div", x, y)
    floor = where(compare("ne", quotient, zero), floor, binary("copysign", zero, plain))
    # The remainder is not a number where the quotient is too large for it.
    large = binary("and", compare("ne", rest, rest), compare("lt", unary("abs", x), _like(x, math.inf)))
    return where(binary("or", compare("eq", y, zero), large), plain, floor)


def _remainder(x: Node, y: Node) -> Node:
    if not ops.is_float(x.dtype):
        return _by_integers("floor_rem", x, y)
    zero = _like(x, 0)
    rest = binary("fmod", x, y)
    wrong = binary("and", compare("ne", rest, zero), binary("xor", compare("lt", y, zero), compare("lt", rest, zero)))
    return where(wrong, binary("add", rest, y), rest)


@lowers(*_both("div", "Tensor_mode Scalar_mode"))
def _div_mode(ctx: Context, a: Any, b: Any, rounding_mode: str | None = None) -> Value:
    def element(x: Node, y: Node) -> Node:
        if rounding_mode is None:
            return binary("div", x, y)
        if rounding_mode == "floor":
            return floor_divide(x, y)
        if not ops.is_float(x.dtype):
            down = _by_integers("floor_div", x, y)
            inexact = compare("ne", _by_integers("floor_rem", x, y), _like(x, 0))
            below = binary("xor", compare("lt", x, _like(x, 0)), compare("lt", y, _like(x, 0)))
            up = binary("and", inexact, below)
            return binary("add", down, where(up, _like(x, 1), _like(x, 0)))
        return unary("trunc", binary("div", x, y))

    _divisible(ctx, b)
    return elementwise(ctx, element, a, b)


def _rounded(given: Any, dtype: torch.dtype) -> Any:
    """An operand in the type of the operation, as torch's kernels take it that know no wider number beside half types.

    Elements that it has in that type are what they are.
    """
    if compute_type(dtype) is dtype:
        return given
    if not isinstance(given, Value):
        return scalar(given, dtype) if isinstance(given, (int, float)) else given
    if given.dtype is dtype:
        return given
    return Value(given.sizes, dtype, lambda at: ops.round_to(ops.cast(given.at(at), torch.float32), dtype))


def _whole(element: Callable[[Node, Node], Node]) -> Callable[..., Value]:
    def lower(ctx: Context, a: Any, b: Any) -> Value:
        _divisible(ctx, b)
        return elementwise(ctx, element, a, b)

    return lower


lowers(*_both("floor_divide", "default Scalar"))(_whole(floor_divide))


@lowers(*_both("remainder", "Tensor Scalar"))
def _remainders(ctx: Context, a: Any, b: Any) -> Value:
    _divisible(ctx, b)
    return elementwise(ctx, _remainder, _rounded(a, ctx.dtype), _rounded(b, ctx.dtype))


@lowers(*_both("fmod", "Tensor Scalar"))
def _fmod(ctx: Context, a: Any, b: Any) -> Value:
    if not ctx.dtype.is_floating_point:
        raise Unsupported("the remainder of integers with the sign of the dividend")
    return elementwise(ctx, lambda x, y: binary("fmod", x, y), _rounded(a, ctx.dtype), _rounded(b, ctx.dtype))


def _plain(name: str) -> Callable[..., Value]:
    return lambda ctx, a, b: elementwise(ctx, functools.partial(binary, name), a, b)


def _extremum(name: str) -> Callable[..., Value]:
    def element(x: Node, y: Node) -> Node:
        if x.dtype is torch.bool:
            return binary("or" if name == "maximum" else "and", x, y)
        return binary(name, x, y)

    return lambda ctx, a, b: elementwise(ctx, element, _rounded(a, ctx.dtype), _rounded(b, ctx.dtype))


lowers(aten.maximum.default)(_extremum("maximum"))
lowers(aten.minimum.default)(_extremum("minimum"))
for _name in ("atan2", "hypot"):
    lowers(getattr(aten, _name).default)(_plain(_name))


@lowers(aten.nextafter.default)
def _nextafter(ctx: Context, a: Value, b: Value) -> Value:
    if ctx.dtype not in (torch.float32, torch.float64):
        raise Unsupported("the next number in half precision, which is computed in float32")
    return elementwise(ctx, functools.partial(binary, "nextafter"), a, b)


lowers(*_both("copysign", "Tensor Scalar"))(_plain("copysign"))


def _ignoring_nan(name: str) -> Callable[..., Value]:
    def lower(ctx: Context, a: Any, b: Any) -> Value:
        def element(x: Node, y: Node) -> Node:
            if not ops.is_float(x.dtype):
                return (
                    binary("or" if name == "maximum" else "and", x, y) if x.dtype is torch.bool else binary(name, x, y)
                )
            # Of two zeros eager takes the first, and in bfloat16 the second.
            best = binary(name, x, y) if ctx.dtype is torch.bfloat16 else binary(name, y, x)
            return where(compare("ne", y, y), x, where(compare("ne", x, x), y, best))

        return elementwise(ctx, element, _rounded(a, ctx.dtype), _rounded(b, ctx.dtype))

    return lower


lowers(aten.fmax.default)(_ignoring_nan("maximum"))
lowers(aten.fmin.default)(_ignoring_nan("minimum"))


_MOST_POWER = 63


def power(x: Node, exponent: Any) -> Node:
    """``x ** exponent`` for a number, by products where that is as exact."""
    if exponent == 0:
        return _like(x, 1)
    if exponent in (1, 2, 3, 4):
        square = binary("mul", x, x)
        return {1: x, 2: square, 3: binary("mul", square, x), 4: binary("mul", square, square)}[int(exponent)]
    if ops.is_float(x.dtype):
        if exponent == 0.5:
            return unary("sqrt", x)
        if exponent == -0.5:
            return rsqrt(x)
        if exponent == -1:
            return reciprocal(x)
        if exponent == -2:
            return reciprocal(binary("mul", x, x))
    elif type(exponent) is int and 0 < exponent <= _MOST_POWER:
        rest = power(binary("mul", x, x), exponent // 2)
        return binary("mul", rest, x) if exponent % 2 else rest
    return binary("pow", x, _like(x, exponent))


@lowers(aten.pow.Tensor_Scalar)
def _pow_scalar(ctx: Context, a: Value, exponent: Any) -> Value:
    if not isinstance(exponent, (int, float)):
        raise Unsupported("a symbolic exponent")
    if a.dtype is torch.float16 and abs(exponent) == 0.5:  # in float16 alone torch takes no root
        return elementwise(ctx, lambda x: binary("pow", x, _like(x, exponent)), a)
    return elementwise(ctx, lambda x: power(x, exponent), a)


def _power(x: Node, exponent: Node) -> Node:
    """Powers of integers are products for each bit of an exponent that is known to be small and not negative."""
    if ops.is_float(x.dtype):
        return binary("pow", x, exponent)
    least, greatest = ranges.of(exponent)
    if x.dtype is torch.bool or least < 0 or greatest > _MOST_POWER:
        raise Unsupported("powers of integers with exponents that may be negative or large")
    result, factor = _like(x, 1), x
    for bit in range(int(greatest).bit_length()):
        held = compare("ne", binary("and", exponent, _like(x, 1 << bit)), _like(x, 0))
        result = where(held, binary("mul", result, factor), result)
        factor = binary("mul", factor, factor)
    return result


@lowers(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _pow(ctx: Context, a: Any, exponent: Value) -> Value:
    return elementwise(ctx, _power, a, exponent)


def _compare(name: str) -> Callable[..., Value]:
    def lower(ctx: Context, a: Any, b: Any) -> Value:
        dtype = ctx.promoted()
        given = [_number(ctx, v, dtype) for v in (a, b)]
        return elementwise(ctx, functools.partial(compare, name), *given, compute=compute_type(dtype))

    return lower


for _name in sorted(ops.COMPARE):
    lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(_compare(_name))


def _logical(name: str) -> Callable[..., Value]:
    return lambda ctx, a, b: elementwise(ctx, functools.partial(binary, name), a, b, compute=torch.bool)


for _name in ("and", "or", "xor"):
    lowers(getattr(aten, f"logical_{_name}").default)(_logical(_name))
    lowers(*_both(f"bitwise_{_name}", "Tensor Scalar"))(_plain(_name))


def _shift(op: str, ctx: Context, a: Any, b: Any) -> Value:
    """A shift as torch does it, which says what shifts by less than nothing and by all bits or more give."""

    def element(x: Node, y: Node) -> Node:
        if ops.is_float(x.dtype) or x.dtype is torch.bool:
            raise Unsupported(f"a shift of {x.dtype}")
        kind = torch.iinfo(x.dtype)
        inside = binary("and", compare("ge", y, _like(y, 0)), compare("lt", y, _like(y, kind.bits)))
        least, most = ranges.of(y)
        if least >= 0 and most < kind.bits:
            return binary(op, x, y)
        shifted = binary(op, x, where(inside, y, _like(y, 0)))
        fill = binary("shr", x, _like(x, kind.bits - 1)) if op == "shr" and kind.min < 0 else _like(x, 0)
        return where(inside, shifted, fill)

    return elementwise(ctx, element, a, b)


for _name, _op in (("left", "shl"), ("right", "shr")):
    _overloads = [*_both(f"bitwise_{_name}_shift", "Tensor Tensor_Scalar Scalar_Tensor")]
    _overloads += _both(f"__{_name[0]}shift__", "Tensor Scalar")
    lowers(*_overloads)(functools.partial(_shift, _op))


# --- choices ----------------------------------------------------------------------------------------------------------


@lowers(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def _where(ctx: Context, condition: Value, a: Any, b: Any) -> Value:
    dtype = compute_type(ctx.dtype)
    a, b = _rounded(a, ctx.dtype), _rounded(b, ctx.dtype)
    return elementwise(ctx, lambda c, x, y: where(ops.cast(c, torch.bool), x, y), _Bool(condition), a, b, compute=dtype)


class _Bool(Value):
    """A condition among operands that are cast to the type of the result."""

    def __init__(self, value: Value) -> None:
        super().__init__(value.sizes, torch.bool, value.at)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(ctx: Context, a: Value, condition: Value, value: Any) -> Value:
    chosen = _rounded(value, ctx.dtype)
    return elementwise(ctx, lambda c, x, y: where(ops.cast(c, torch.bool), y, x), _Bool(condition), a, chosen)


@lowers(aten.clamp.default, aten.clamp.Tensor)
def _clamp(ctx: Context, a: Value, low: Any = None, high: Any = None) -> Value:
    bounds = [_number(ctx, b, ctx.dtype) for b in (low, high) if b is not None]

    def element(x: Node, *nodes: Node) -> Node:
        rest = list(nodes)
        if low is not None:
            x = bounded("maximum", x, rest.pop(0), low)
        return bounded("minimum", x, rest.pop(0), high) if high is not None else x

    return elementwise(ctx, element, a, *bounds)


def bounded(op: str, x: Node, bound: Node, given: Any = None) -> Node:
    """``x`` and a bound of it: of two zeros eager takes ``x`` if the bound is a number, and else the bound."""
    return binary(op, x, bound) if isinstance(given, Value) else binary(op, bound, x)


@lowers(*_both("clamp_min", "default Tensor"))
def _clamp_min(ctx: Context, a: Value, low: Any) -> Value:
    return elementwise(ctx, lambda x, y: bounded("maximum", x, y, low), a, _number(ctx, low, ctx.dtype))


@lowers(*_both("clamp_max", "default Tensor"))
def _clamp_max(ctx: Context, a: Value, high: Any) -> Value:
    return elementwise(ctx, lambda x, y: bounded("minimum", x, y, high), a, _number(ctx, high, ctx.dtype))


@lowers(aten.addcmul.default)
def _addcmul(ctx: Context, a: Value, b: Value, c: Value, value: Any = 1) -> Value:
    return elementwise(
        ctx, lambda x, y, z: binary("add", x, binary("mul", binary("mul", _like(x, value), y), z)), a, b, c
    )


@lowers(aten.addcdiv.default)
def _addcdiv(ctx: Context, a: Value, b: Value, c: Value, value: Any = 1) -> Value:
    return elementwise(
        ctx, lambda x, y, z: binary("add", x, binary("div", binary("mul", _like(x, value), y), z)), a, b, c
    )


@lowers(aten.lerp.Tensor, aten.lerp.Scalar)
def _lerp(ctx: Context, a: Value, b: Value, weight: Any) -> Value:
    def element(x: Node, y: Node, w: Node) -> Node:
        apart = binary("sub", y, x)
        near = binary("add", x, binary("mul", w, apart))
        far = binary("sub", y, binary("mul", apart, binary("sub", _like(w, 1), w)))
        return where(compare("lt", unary("abs", w), _like(w, 0.5)), near, far)

    return elementwise(ctx, element, a, b, weight)


# --- conversion -------------------------------------------------------------------------------------------------------


@lowers(aten._to_copy.default)
def _to_copy(ctx: Context, a: Value | float, **options: Any) -> Value:
    return converted(a, ctx.dtype) if isinstance(a, Value) else scalar(a, ctx.dtype)  # vmap converts numbers


@lowers(aten.to.dtype, torch.ops.prims.convert_element_type.default)
def _to(ctx: Context, a: Value, *args: Any, **options: Any) -> Value:
    return converted(a, ctx.dtype)


def converted(a: Value, dtype: torch.dtype) -> Value:
    """``a`` as ``dtype``, computed in the precision of that type.

    What was computed in half precision has no more digits than that, nor larger numbers, once the program converts it.
    """
    if a.dtype is dtype:
        return Value(a.sizes, dtype, a.at)
    stored = as_stored(a)
    return Value(a.sizes, dtype, lambda at: ops.round_to(stored.at(at), dtype))
