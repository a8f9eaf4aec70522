"""Sizes in Python arithmetic, conversions and comparisons."""

import math
import operator

import torch

from .corpus import ANY_BATCH, batches, case, filled, numbers


@case(ANY_BATCH)
def floor_division(x):
    return x.reshape(-1, x.shape[1] // 2)[: x.shape[0] // 2 + 1], x.shape[0] // 3


@case(ANY_BATCH)
def remainder(x):
    return x * (x.shape[0] % 5), x.shape[0] % 7, -x.shape[0] % 4, x.shape[0] % -4


@case(ANY_BATCH)
def power(x):
    n = x.shape[0]
    return x / n**0.5, n**2, x.new_zeros(n**2)


@case(ANY_BATCH)
def power_of_a_negative_number(x):
    n = x.shape[0]
    return x * (-2) ** n, (-2) ** n, (-0.5) ** n, (-1) ** -n, (-2.5) ** (n % 3)


@case(ANY_BATCH)
def inverted(x):
    return x * ~x.shape[0], ~x.shape[0]


@case(ANY_BATCH)
def true_division(x):
    return x * (x.shape[0] / x.shape[1]), 1 / x.shape[0]


@case(ANY_BATCH)
def round_half_to_even(x):
    n = x.shape[0]
    return x * round(n / 4), round(n / 3, 1), round(n)


@case(ANY_BATCH)
def minimum_and_maximum(x):
    return x[: min(x.shape[0], 8)], max(x.shape), min(x.shape[0], 5, 7), max(3, x.shape[0])


@case(ANY_BATCH, compiles=3)
def minimum_with_key(x):
    return x.sum(min(range(2), key=lambda d: x.shape[d]))


@case(ANY_BATCH)
def square_root(x):
    n = x.shape[0]
    return x / math.sqrt(n), math.sqrt(n)


@case(batches(4, 5, 8, 9, 15, 16, 17))
def whole_square_root(x):
    return x[: math.isqrt(x.shape[0])], math.isqrt(x.shape[0]), math.isqrt(x.shape[1])


@case(ANY_BATCH)
def floor_and_ceiling(x):
    n = x.shape[0]
    return x[: math.floor(n / 2)], math.ceil(n / 4), math.trunc(n / 3), x.new_ones(math.ceil(n / 2))


@case(ANY_BATCH, compiles=5)
def logarithms(x):
    n = x.shape[0]
    return x * math.log2(n), math.log(n), x + math.exp(-n)


@case(ANY_BATCH)
def trigonometry(x):
    return x * math.sin(x.shape[0]) + math.cos(x.shape[0]) * math.tanh(x.shape[0])


@case(ANY_BATCH)
def products(x):
    return x.reshape(math.prod(x.shape)), math.prod((x.shape[0], 2, 3)), sum(x.shape), sum([x.shape[0]] * 2)


@case(ANY_BATCH)
def quotient_and_remainder(x):
    q, r = divmod(x.shape[0], 4)
    return x * q + r, q, r


@case(ANY_BATCH, compiles=5)
def greatest_common_divisor(x):
    return x * math.gcd(x.shape[0], 6)


@case(ANY_BATCH)
def absolute_value(x):
    return x[: abs(x.shape[0] - 5)], abs(-x.shape[0]), -x.shape[0], +x.shape[0]


@case(ANY_BATCH)
def floats_of_sizes(x):
    n = float(x.shape[0])
    return x * n, n, n + 0.5


@case(ANY_BATCH)
def ints_of_sizes(x):
    return x[: int(x.shape[0] / 2)], int(x.shape[0] * 0.75), int(x.shape[0]), operator.index(x.shape[0])


@case(ANY_BATCH)
def truth_of_sizes(x):
    if x.shape[0]:
        return x + 1, bool(x.shape[0]), not x.shape[0]
    return x - 1


@case(batches(4, 6, 9, 7))
def chained_comparison(x):
    if 2 <= x.shape[0] < 100:
        return x + 1
    return x - 1


@case(batches(4, 6, 40, 50, 5), compiles=3)
def branch(x):
    if x.shape[0] > 30:
        return x + 1
    return x - 1


@case(batches(4, 8, 5, 7, 16), compiles=3)
def even_and_odd(x):
    if x.shape[0] % 2 == 0:
        return x.view(2, -1)
    return x.view(-1)


@case(batches(4, 5, 6), compiles=3)
def equality_specializes(x):
    if x.shape[0] == 5:
        return x * 2
    return x + 1


@case(batches(4, 5, 6), compiles=3)
def text_of_sizes(x):
    return x * 2, f"{x.shape[0]} rows"


@case(batches(4, 5, 6), compiles=3)
def percent_format(x):
    return x * 2, "%d rows" % x.shape[0], str(x.shape[0])  # noqa: UP031


@case(ANY_BATCH)
def text_of_a_size_that_is_dropped(x):
    assert x.shape[0] > 1, f"{x.shape[0]} rows are too few"
    return x * 2


@case(ANY_BATCH)
def comparison_kept(x):
    return x * 2, x.shape[0] > 5, x.shape[0] == x.shape[1], x.shape[0] != 3


@case(ANY_BATCH)
def comparisons_that_always_hold(x):
    n = x.shape[0]
    if n >= 0 and n + 2 > n and n == len(x) and not n < 1 and n / 2 < n:
        return x * n
    return x


@case(ANY_BATCH)
def conditional_expression(x):
    return x * (2 if x.shape[0] >= 2 else 3)


@case(numbers(4, 6, 9, 3))
def shifts(x, n):
    return x * (n << 1), n >> 1


@case(numbers(4, 6, 9, 3), compiles=4)
def bits(x, n):
    return x * (n & 3), n | 8, n ^ 5, ~n


@case(numbers(4, 6, 9, 3))
def bits_of_comparisons(x, n):
    if (n > 2) & (n < 100):
        return x * n
    return x


@case(ANY_BATCH)
def augmented(x):
    n = x.shape[0]
    n += 2
    n *= 3
    n -= 1
    n //= 2
    return x * n, n


@case(ANY_BATCH)
def size_of_result(x):
    y = torch.cat([x, x, x[:2]])
    return y.view(y.shape[0] // 2, -1), y.shape[0], len(y), y.numel(), y.size()


@case(lambda: [(filled(n, m),) for n, m in ((4, 6), (6, 8), (5, 9), (9, 5))])
def two_dimensions(x):
    n, m = x.shape
    return x.view(n * m), x.t().reshape(m, n) * (n - m), (n + m) // 2


@case(ANY_BATCH)
def rounding_up(x):
    n = x.shape[0]
    padded = (n + 7) // 8 * 8
    return torch.nn.functional.pad(x, (0, 0, 0, padded - n)), padded


@case(ANY_BATCH)
def counting_bits(x):
    return x * x.shape[0].bit_length()


@case(ANY_BATCH)
def isinstance_of_sizes(x):
    n = x.shape[0]
    assert isinstance(n, int) and not isinstance(n, float)
    return x * n, type(n), isinstance(n, (int, str)), isinstance(n / 2, float), type(n / 2) is float


@case(ANY_BATCH)
def ratio_in_steps(x):
    scale = x.shape[0] / 8.0
    size = math.floor(float(x.shape[1]) * scale)
    return x.new_zeros(size + 1), scale
