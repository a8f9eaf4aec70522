"""What generated Triton kernels call beside Triton's own language, as ``kernels.h`` is for C++.

Triton compiles division, square roots and exponentials of float32 to approximations that are off by several units, or
that take subnormals for zero.  These are as exact as what eager computes.  A function takes float32 or float64, and is
made of what Triton's interpreter runs as well, so that the tests run the code that a GPU runs.
"""
# Triton compiles what follows a return, too, but only one of two branches.
# ruff: noqa: RET505

import triton
import triton.language as tl

# --- arithmetic -------------------------------------------------------------------------------------------------------


@triton.jit
def div(a, b):
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def sqrt(x):
    if x.dtype == tl.float32:
        return tl.sqrt_rn(x)
    else:
        return tl.sqrt(x)


@triton.jit
def floor_div(a, b):
    """Integers divided, rounding down; Triton's ``//`` rounds to zero."""
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(a.dtype)


@triton.jit
def floor_rem(a, b):
    """The remainder of :func:`floor_div`, which has the sign of the divisor."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


# --- exponentials -----------------------------------------------------------------------------------------------------


@triton.jit
def _scaled(p, n):
    """``p * 2**n`` for an n from -160 to 160, in two steps, so that the smallest results are subnormals."""
    whole = n.to(tl.int32)
    half = whole >> 1
    low = ((half + 127) << 23).to(tl.float32, bitcast=True)
    return p * low * ((whole - half + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _power(r):
    """e**r for an r from -0.35 to 0.35."""
    p = tl.fma(r, 1.9875691500e-4, 1.3981999507e-3)
    p = tl.fma(p, r, 8.3334519073e-3)
    p = tl.fma(p, r, 4.1665795894e-2)
    p = tl.fma(p, r, 1.6666665459e-1)
    p = tl.fma(p, r, 5.0000001201e-1)
    return tl.fma(p * r, r, r) + 1.0


@triton.jit
def exp(x):
    if x.dtype == tl.float64:
        return tl.exp(x)
    else:
        clamped = tl.where(x < -104.0, -104.0, tl.where(x > 89.0, 89.0, x))
        n = tl.fma(clamped, 1.44269504, 12582912.0) - 12582912.0
        r = tl.fma(n, 2.12194440e-4, tl.fma(n, -0.693359375, clamped))
        return tl.where(x == x, _scaled(_power(r), n), x)


@triton.jit
def exp2(x):
    if x.dtype == tl.float64:
        return tl.exp2(x)
    else:
        clamped = tl.where(x < -151.0, -151.0, tl.where(x > 129.0, 129.0, x))
        n = (clamped + 12582912.0) - 12582912.0
        return tl.where(x == x, _scaled(_power((clamped - n) * 0.693147180559945), n), x)


@triton.jit
def expm1(x):
    """By a rounded power u of e: (u - 1) * x / log(u), where the errors of both factors cancel."""
    u = exp(x)
    small = div((u - 1.0) * x, tl.log(u))
    plain = (u == float("inf")) | (x < -20.0) | (x != x)
    return tl.where(u == 1.0, x, tl.where(plain, u - 1.0, small))


@triton.jit
def log1p(x):
    """By the rounded sum u of 1 and x: log(u) * x / (u - 1), where the errors of both factors cancel."""
    u = x + 1.0
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, div(tl.log(u) * x, u - 1.0)))


@triton.jit
def log10(x):
    return tl.log(x) * 0.43429448190325182765


@triton.jit
def tanh(x):
    """By expm1 of twice the absolute value, which loses no digits of small ones."""
    t = tl.abs(x)
    e = expm1(-2.0 * t)
    return copysign(tl.where(x == x, div(-e, e + 2.0), x), x)


@triton.jit
def tan(x):
    return div(tl.sin(x), tl.cos(x))


# --- rounding and signs -----------------------------------------------------------------------------------------------


@triton.jit
def copysign(x, y):
    if x.dtype == tl.float32:
        magnitude = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        sign = y.to(tl.int32, bitcast=True) & -0x80000000
        return (magnitude | sign).to(tl.float32, bitcast=True)
    else:
        magnitude = x.to(tl.int64, bitcast=True) & 0x7FFFFFFFFFFFFFFF
        sign = y.to(tl.int64, bitcast=True) & -0x8000000000000000
        return (magnitude | sign).to(tl.float64, bitcast=True)


@triton.jit
def trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def rint(x):
    """To the nearest integer, halves to the even one: by adding and subtracting where integers are one apart."""
    if x.dtype == tl.float32:
        far = 8388608.0
    else:
        far = 4503599627370496.0
    t = tl.abs(x)
    return copysign(tl.where(t < far, (t + far) - far, t), x)


@triton.jit
def bf16(x):
    """To bfloat16, of a tie the even one; the interpreter's own conversion cuts off."""
    bits = x.to(tl.int32, bitcast=True)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
    return tl.where(x == x, rounded.to(tl.float32, bitcast=True), float("nan")).to(tl.bfloat16)


@triton.jit
def flag(condition):
    """One condition for all lanes; the interpreter takes a comparison of two numbers for a number otherwise."""
    return tl.where(condition, True, False)


# --- memory -----------------------------------------------------------------------------------------------------------


@triton.jit
def check(at, size, wrap: tl.constexpr, bad, inside):
    """An index that is verified: a bad one is reported, and 0 is used instead."""
    if wrap:
        at = tl.where(at < 0, at + size, at)
    wrong = (at < 0) | (at >= size)
    tl.store(bad + tl.zeros_like(at), 1, mask=wrong & inside)
    tl.device_assert((wrong & inside) == 0, "torchmux: an index is out of range")  # where checks stop the device
    return tl.where(wrong | (inside == 0), 0, at)


@triton.jit
def multiplied(a, b):
    return a * b


# --- reductions of a block, of which the lanes that are inside count --------------------------------------------------


@triton.jit
def any_of(x, inside):
    return tl.max((x & inside).to(tl.int32), axis=0) != 0


@triton.jit
def all_of(x, inside):
    return tl.max(((x == 0) & inside).to(tl.int32), axis=0) == 0


@triton.jit
def total(x, inside):
    return tl.sum(tl.where(inside, x, 0), axis=0)


@triton.jit
def times(x, inside):
    return tl.reduce(tl.where(inside, x, 1), 0, multiplied)


@triton.jit
def extremum(x, inside, worst, most: tl.constexpr):
    """The greatest or the smallest; a nan is what comes out if there is one."""
    counts = inside & (x == x)
    chosen = tl.where(counts, x, worst)
    found = tl.max(chosen, axis=0) if most else tl.min(chosen, axis=0)
    if x.dtype.is_floating():
        return tl.where(any_of(x != x, inside), float("nan"), found)
    else:
        return found


@triton.jit
def best(x, at, inside, worst, most: tl.constexpr):
    """The extremum and the first place where it is."""
    found = extremum(x, inside, worst, most)
    here = inside & ((x == found) | ((x != x) & flag(found != found)))
    return found, tl.min(tl.where(here, at, 0x7FFFFFFFFFFFFFFF), axis=0)


@triton.jit
def better(x, i, y, j, most: tl.constexpr):
    """Of two values and where they are the better one: a nan is better than anything, and else the first."""
    greater = y > x if most else y < x
    wins = (greater & (x == x)) | ((y != y) & (x == x)) | (((x == y) | ((x != x) & (y != y))) & (j < i))
    return tl.where(wins, y, x), tl.where(wins, j, i)


@triton.jit
def joined(x, y, most: tl.constexpr):
    if most:
        return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    else:
        return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)
