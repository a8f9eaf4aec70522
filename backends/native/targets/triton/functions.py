"""What generated Triton kernels call beside Triton's own language and the functions of ``mathematics``.

All are made of what Triton's interpreter runs as well.  Blocks have one axis, or two, of which the second one is
reduced over; ``axis`` says which, and ``keep`` whether the result keeps it.
"""
# Triton compiles what follows a return, too, but only one of two branches.
# ruff: noqa: RET505

import triton
import triton.language as tl

from .mathematics import INTERPRETED, library as m

# --- arithmetic -------------------------------------------------------------------------------------------------------


@triton.jit
def div(a, b):
    """Triton compiles ``/`` of float32 to an approximation."""
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
def _density(x):
    """e**(-x**2 / 2) in float32, as a power of two; what is subnormal becomes zero."""
    power = x * x * -0.7213475204444817
    if INTERPRETED:
        return tl.exp2(power)
    else:
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [power], tl.float32, is_pure=True, pack=1
        )


@triton.jit
def normal_cdf(x):
    """The distribution function of a normal variable.

    Of a negative float32 it is the density times a polynomial in 1 / (1 + c |x|), which was fitted to float64 values:
    it takes half as many instructions as erf, and nothing cancels where it is small.
    """
    if x.dtype == tl.float32:
        t = 1.0 + 0.3 * tl.abs(x)
        if INTERPRETED:
            t = 1.0 / t
        else:
            t = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [t], tl.float32, is_pure=True, pack=1)
        p = 0.03575442403 * t - 0.1217409448
        p = p * t + 0.08505351493
        p = p * t + 0.03101645603
        p = p * t + 0.1597401475
        p = p * t + 0.2596112099
        p = p * t + 0.3803710316
        p = p * (t - 1) + 0.5  # a half at 0
        below = p * t * _density(x)
        return tl.where(x < 0, below, 1 - below)
    else:
        return m.erfc(x * -0.7071067811865476) * 0.5


@triton.jit
def normal_pdf(x):
    if x.dtype == tl.float32:
        return _density(x) * 0.3989422804
    else:
        return m.exp(x * x * -0.5) * 0.3989422804014327


@triton.jit
def pow(x, y):
    """In float64 for float32: libdevice's own is off by two units, and gives 99.99999 for the square of ten."""
    if x.dtype == tl.float32:
        return m.pow(x.to(tl.float64), y.to(tl.float64)).to(tl.float32)
    else:
        return m.pow(x, y)


@triton.jit
def erfc(x):
    """In float64 for float32: libdevice's own has zeros for results that are subnormal."""
    if x.dtype == tl.float32:
        return m.erfc(x.to(tl.float64)).to(tl.float32)
    else:
        return m.erfc(x)


@triton.jit
def f64_to_i32(x):
    """As the instruction of GPUs does: nan is the smallest integer.  LLVM leaves out a float64 that was a float32."""
    return tl.where(x != x, -2147483648, x.to(tl.int32))


@triton.jit
def floor_div(a, b):
    """Integers divided, rounding down; Triton's ``//`` rounds to zero."""
    return a // b - ((a % b != 0) & ((a < 0) != (b < 0))).to(a.dtype)


@triton.jit
def floor_rem(a, b):
    """The remainder of :func:`floor_div`, which has the sign of the divisor."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def neg(x):
    """Triton subtracts from zero, which gives zero for zero, and not -0."""
    if x.dtype.is_floating():
        return x * -1.0
    else:
        return -x


@triton.jit
def bf16(x):
    """To bfloat16, of a tie the even one; the interpreter's own conversion cuts off."""
    if INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
        return tl.where(x == x, rounded.to(tl.float32, bitcast=True), float("nan")).to(tl.bfloat16)
    else:
        return x.to(tl.bfloat16)


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


# --- pairs of lanes ---------------------------------------------------------------------------------------------------


@triton.jit
def multiplied(a, b):
    return a * b


@triton.jit
def greater(x, y):
    """The greater one; a nan is greater than anything."""
    return tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def smaller(x, y):
    return tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def better(x, i, y, j, most: tl.constexpr):
    """Of two values and where they are the better one: a nan is better than anything, and else the first."""
    greater = y > x if most else y < x
    wins = (greater & (x == x)) | ((y != y) & (x == x)) | (((x == y) | ((x != x) & (y != y))) & (j < i))
    return tl.where(wins, y, x), tl.where(wins, j, i)


@triton.jit
def add_product(total, a, b):
    """Of two blocks of half precision; the interpreter cannot multiply bfloat16."""
    if INTERPRETED:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), total)
    else:
        return tl.dot(a, b, total)


# --- reductions of a block --------------------------------------------------------------------------------------------


@triton.jit
def any_of(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.max(x.to(tl.int32), axis=axis, keep_dims=keep) != 0


@triton.jit
def all_of(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.min(x.to(tl.int32), axis=axis, keep_dims=keep) != 0


@triton.jit
def total(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.sum(x, axis=axis, keep_dims=keep)


@triton.jit
def times(x, axis: tl.constexpr, keep: tl.constexpr):
    return tl.reduce(x, axis, multiplied, keep_dims=keep)


@triton.jit
def extremum(x, most: tl.constexpr, axis: tl.constexpr, keep: tl.constexpr):
    """The greatest or the smallest; a nan is what comes out if there is one."""
    if x.dtype.is_floating():
        if INTERPRETED:  # which takes a function for each pair of lanes, one by one
            numbers = tl.where(x == x, x, -float("inf") if most else float("inf"))
            found = tl.max(numbers, axis, keep_dims=keep) if most else tl.min(numbers, axis, keep_dims=keep)
            return tl.where(any_of(x != x, axis, keep), float("nan"), found)
        else:
            return tl.reduce(x, axis, greater if most else smaller, keep_dims=keep)
    else:
        return tl.max(x, axis=axis, keep_dims=keep) if most else tl.min(x, axis=axis, keep_dims=keep)


@triton.jit
def best(x, at, most: tl.constexpr, axis: tl.constexpr, keep: tl.constexpr):
    """The first place where the extremum is."""
    found = extremum(x, most, axis, keep)
    here = (x == found) | ((x != x) & flag(found != found))
    return tl.min(tl.where(here, at, 0x7FFFFFFFFFFFFFFF), axis=axis, keep_dims=keep)


@triton.jit
def log_add_exp(x, y):
    """The logarithm of the sum of two exponentials, as torch has it."""
    least, most = smaller(x, y), greater(x, y)
    both = most + m.log1p(m.exp(least - most))
    return tl.where((least == most) & (tl.abs(least) == float("inf")), least, both)


@triton.jit
def so_far(x, op: tl.constexpr, axis: tl.constexpr):
    """What each element and those before it come to."""
    if op == "sum":
        return tl.cumsum(x, axis)
    elif op == "prod":
        return tl.cumprod(x, axis)
    elif op == "max":
        return tl.associative_scan(x, axis, greater)
    elif op == "min":
        return tl.associative_scan(x, axis, smaller)
    else:
        return tl.associative_scan(x, axis, log_add_exp)


@triton.jit
def joined(x, y, op: tl.constexpr):
    """What two elements come to."""
    if op == "sum":
        return x + y
    elif op == "prod":
        return x * y
    elif op == "max":
        return greater(x, y)
    elif op == "min":
        return smaller(x, y)
    else:
        return log_add_exp(x, y)


@triton.jit
def last(x, lane, count: tl.constexpr, axis: tl.constexpr, keep: tl.constexpr):
    """What is in the last lane."""
    return tl.sum(tl.where(lane == count - 1, x, tl.zeros_like(x)), axis=axis, keep_dims=keep).to(x.dtype)


@triton.jit
def moments(mean, spread, count, axis: tl.constexpr, keep: tl.constexpr):
    """The sum of squared distances from the mean of all, and their mean, from those of each lane."""
    whole = tl.sum(count, axis=axis, keep_dims=keep)
    center = div(tl.sum(mean * count, axis=axis, keep_dims=keep), whole)
    apart = mean - center
    return center * whole, tl.sum(spread + apart * apart * count, axis=axis, keep_dims=keep)
