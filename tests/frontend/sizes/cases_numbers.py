"""Integers, floats, bools and texts that change from call to call, wherever they come from."""

import dataclasses
import functools
import math

import numpy as np
import torch

from .corpus import case, filled, numbers

SCALE = [2]
STEP = 2


@case(numbers(2, 3, 5, 4))
def integer_argument(x, n):
    return x * n + n // 2, n, n + 1


@case(numbers(2, 3, 5, 4), compiles=1)
def integer_argument_unused(x, n):
    return x * 2


@case(lambda: [(filled(4), n / 8, n / 4) for n in (2, 3, 5, 4, 9)], compiles=2)
def divided_by_what_the_larger_of_two_is_in(x, rate, total):
    weight = max(0.001, rate) ** 2 + min(total, 9)
    return x * (weight / (total + weight)), total + weight


@case(numbers(2, 3, 5, 4, 9), compiles=2)
def decay_of_so_many_steps(x, n):
    return x * math.sqrt(1 - math.pow(0.9, n)), math.pow(1, n + 1), math.pow(0.5, n / 2)


@case(numbers(2, 3, -5, 4), compiles=4)
def power_that_is_no_decay(x, n):
    return x * math.pow(2.0, n), math.pow(0.5, n), math.pow(n, 3)


@case(lambda: [(filled(4), [n, 7]) for n in (2, 3, 5, 4)])
def integer_in_list(x, numbers):
    return x * numbers[0] + numbers[1]


@case(lambda: [(filled(4), {"a": {"b": (n,)}}) for n in (2, 3, 5, 4)])
def integer_deep_in_containers(x, tree):
    return x * tree["a"]["b"][0]


class Shown:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Shown({self.n})"


@case(numbers(2, 3, 5, 4, 9))
def texts_of_containers(x, n):
    made = repr([n, (n + 1,), "a"]), f"{[n, {'of': n}]}", str([Shown(n), int]), "%s %d" % ([n], n)  # noqa: UP031
    return x * n, made, "%(n)s" % {"n": n}, "{1} {0:>4}".format(n, (n, None)), f"{x.shape}"  # noqa: UP030, UP031, UP032


@case(numbers(12, 13, 15, 14, 19))
def length_and_parts_of_texts(x, n):
    return x * len(f"step {n}"), str(n)[-1], str([n])[1:3], x + 1 if "1" in str(n) else x


@case(lambda: [(filled(4), np.float64(n / 4), np.int64(n)) for n in (2, 3, 5, 4, 9)], compiles=1)
def numbers_of_numpy_as_those_of_python(x, number, count):
    return x * number.item() + float(number), x.new_zeros(int(count)), count.tolist() + 1, number, count


@case(numbers(2.5, 3.5, 4.25, 9.0))
def branches_on_functions_of_floats(x, v):
    y = x / (v + max(0.01, v * 2)) + math.sqrt(v * 2 - 1)
    return y + 1 if round(v * 1.5, 1) > 2.3 and math.floor(v * 1.5) > 1 and math.sqrt(v * 3) < 9 else y


@functools.lru_cache(64)
def steps_of_a_recipe(recipe, shape, more):
    sizes = list(shape)
    for name, size in more:
        sizes[recipe.places[name]] = size
    return [*sizes[:-1], recipe.heads, sizes[-1] // recipe.heads], {0: sizes[0]}, None


class Recipe:
    def __init__(self):
        self.heads, self.places = 2, {"n": 0}


RECIPE = Recipe()


@case(lambda: [(filled(n, 4),) for n in (2, 3, 5, 4, 9)])
def cached_functions_of_shapes(x):
    shape, added, _ = steps_of_a_recipe(RECIPE, x.shape, (("n", x.shape[0]),))
    y = torch.nn.functional.pad(x, (0, 4 - x.shape[0] % 2))  # whose size is read in the graph
    wide, _, _ = steps_of_a_recipe(RECIPE, y.shape, ())
    again, _, _ = steps_of_a_recipe(RECIPE, x.shape, (("n", x.shape[0]),))
    return x.reshape(shape) * added[0], shape, wide, math.gcd(y.shape[1], 6), shape is again


@case(numbers(2, 3, 5, 4, 9))
def texts_of_integers(x, n):
    made = {"name": f"step {n:03d}", "both": "%d of %s" % (n, n + 1)}  # noqa: UP031
    return x * n, made, "{:>{}}".format(n, 4), ",".join([str(n), repr(n)]).upper()


@case(numbers(2.5, 3.5, 4.25, -1.5))
def texts_of_floats(x, v):
    return x * v, f"{v:.2f}", f"{v * 2!r:>6}", str(v), f"{v:5.1e}" + ":", v.hex()


@case(numbers(2, 3, 5, 4, 9))
def integers_that_python_computes(x, n):
    left, right = math.gcd(n, 12), abs(n - 6)
    return x * left + x[:right].sum(), math.comb(n, 2) * x, math.factorial(n), n.bit_length(), n.to_bytes(2, "big")


@case(numbers(2.5, 3.5, 4.25, 1.5))
def floats_that_python_computes(x, v):
    fraction, whole = math.modf(v)
    return x * math.log(v * v + 1) + abs(v * 2 - 1), fraction, x * whole, math.frexp(v), v.as_integer_ratio()


@case(numbers(3, 4, 5, 9, 6))
def rates_that_end_at_zero(x, step):
    return x * max(0.0, (10 - step) / 7), x * min((step - 10) / 7, -0.0), max([0.0, math.cos(step / 10), step / 4])


@case(numbers(2.5, 3.5, 4.25, 3.0), compiles=3)
def answers_of_floats(x, v):
    return x * v if v.is_integer() else x + v


@dataclasses.dataclass
class Settings:
    count: int
    ratio: float = 0.5


@case(lambda: [(filled(4), Settings(n)) for n in (2, 3, 5, 4)])
def integer_attribute(x, settings):
    return x * settings.count


@case(lambda: [(filled(4), Settings(2, r)) for r in (0.25, 0.5, 0.75, 1.5, 2.5)])
def float_attribute(x, settings):
    return x * settings.ratio


@case(lambda: [(filled(4), n, m) for n, m in ((2, 3), (3, 4), (5, 9))])
def two_integers(x, n, m):
    return x * n - m, n * m, n < m


@case(lambda: [(filled(4), n, n) for n in (2, 3, 5)])
def equal_integers(x, n, m):
    return x * n - m


@case(lambda: [(filled(n, 2), n) for n in (2, 3, 5, 4)])
def integer_equal_to_size(x, n):
    return x.view(n, 2) * x.shape[0]


@case(numbers(0, 1, 2, 3, 0, 1), compiles=2)
def from_zero(x, n):
    return x * n


@case(numbers(3, 4, 0, 1, 5), compiles=2)
def down_to_zero(x, n):
    return x + n


@case(numbers(3, -4, 5, -6), compiles=2)
def of_both_signs(x, n):
    return x + n


@case(numbers(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), compiles=2)
def position(x, n):
    return x * n


@case(numbers(0.5, 0.25, 0.75, 1.5, 0.125), compiles=2)
def float_argument(x, scale):
    return x * scale, x + scale


@case(numbers(0.5, 0.25, 0.75, 1.5, 0.125), compiles=2)
def float_arithmetic(x, scale):
    return x * (scale * 2 + 1) / (1 - scale / 4)


@case(numbers(0.5, 0.25, 0.75, 1.5, 0.125), compiles=2)
def float_returned(x, scale):
    return x * scale, scale, scale * 2


@case(numbers(0.5, 0.25, 0.75, 1.5, 0.125), compiles=5)
def float_in_math(x, scale):
    return x * math.sqrt(scale), x * math.exp(-scale)


@case(numbers(0.5, 0.25, 0.75, 1.5))
def float_as_an_angle(x, scale):
    return x * math.degrees(scale), x * math.radians(-scale), math.isfinite(scale), math.isnan(scale), math.isinf(scale)


@case(numbers(0.5, 0.25, 0.75, math.inf, math.nan, 1.5), compiles=4)
def float_that_may_be_infinite(x, scale):
    return x * 2 if math.isfinite(scale) else x, math.isinf(scale), math.isnan(scale)


@case(numbers(0.5, 0.25, 0.75, 1.5), compiles=3)
def float_compared(x, scale):
    return x * 2 if scale > 0.6 else x + 1


@case(numbers(0.5, 0.25, 0.75, 1.5, 0.125, 2.5), compiles=3)
def computed_float_compared(x, scale):
    return x * 2 if scale * 0.99 + 1 < 2.0 / scale else x + 1


@functools.lru_cache
def half(n, *, more=1):
    return clamped(n // 2 + more), math.ceil(n / 3)


def clamped(n):
    return max(n, 1)


@case(numbers(4, 5, 6, 9, 12, 13), compiles=2)
def cached_arithmetic(x, n):
    return x * half(n)[0] + half(n, more=2)[1]


# (0.1 + 0.2) + 0.3 is another number than 0.1 + (0.2 + 0.3)
@case(numbers(0.5, 0.1, 0.7), compiles=3)
def floats_are_compared_as_python_adds_them(x, scale):
    return x * 2 if scale + 0.2 + 0.3 == 0.6 else x + 1, x * 2 if 0.3 / (scale - 0.1 + 1e-9) > 1 else x - 1


@case(numbers(1e-3, 1e-4, 1e-5, 1e-6, 1e-7), compiles=2)
def learning_rate(x, rate):
    return x - rate * x.sum(0), torch.full((3,), rate)


@case(numbers(0.5, 0.25, 0.75, 1.5), compiles=4)
def float_as_alpha(x, scale):
    return torch.add(x, x, alpha=scale), x.clamp(-scale, scale), torch.nn.functional.dropout(x, scale / 4, False)


# A nan is known by its identity, so another one is another number.
@case(numbers(float("nan"), float("nan"), 1.0, float("inf"), 2.0), compiles=4)
def float_not_a_number(x, scale):
    return x * scale


@case(numbers(True, False, True), compiles=2)
def boolean_argument(x, flag):
    return x + 1 if flag else x - 1


@case(numbers("sum", "mean", "sum"), compiles=2)
def text_argument(x, how):
    return getattr(x, how)(0)


@case(numbers(None, 2, 3, 4, None), compiles=3)
def optional_argument(x, n):
    return x + 1 if n is None else x * n


@case(numbers(2, 2.5, 3, 3.5, 4), compiles=3)
def integer_or_float(x, n):
    return x * n


@case(numbers(2, 4, 6, 5))
def default_and_keyword(x, n, by=3):
    return x.new_zeros(n, by), x * by


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)
        self.calls = 0
        self.width = 2


def _layer(calls):
    torch.manual_seed(0)
    layer = Layer()
    steps = []
    for number in range(calls):
        steps.append((filled(2, 6), layer, number + 2))
    return steps


@case(lambda: _layer(4))
def integer_set_on_module(x, layer, n):
    layer.width = n
    return layer.linear(x) * layer.width


@case(lambda: _layer(4))
def counter_of_module(x, layer, n):
    layer.calls += n
    return layer.linear(x) * layer.calls


@case(lambda: [(filled(4), [0]) for _ in range(4)], compiles=1)
def counter_in_list(x, state):
    state[0] += 1
    return x + state[0]


@case(lambda: [(filled(4), state) for state in [[0]] * 5], compiles=2)
def counter_in_shared_list(x, state):
    state[0] += 1
    return x + state[0]


@case(numbers(2, 4, 6, 5))
def integer_in_closure(x, n):
    def inner(y):
        return y * n

    return inner(x) + n


@case(numbers(2, 4, 6, 5))
def integer_bound_in_partial(x, n):
    import functools

    return functools.partial(torch.mul, other=n)(x), functools.reduce(lambda a, b: a * b, [n, n, 2])


@case(numbers(range(2), range(3), range(4)), compiles=3)
def range_argument(x, r):
    return [x * i for i in r]


@case(numbers(slice(0, 2), slice(1, 4), slice(0, 5)))
def slice_argument(x, s):
    return x[s]


@case(numbers((2, 3), (3, 2), (1, 6), (6, 1)))
def shape_argument(x, shape):
    return x.reshape(6, 6)[: shape[0], : shape[1]], torch.zeros(shape)


@case(numbers(torch.Size((2, 3)), torch.Size((4, 3)), torch.Size((5, 3))))
def size_argument(x, shape):
    return torch.zeros(shape), shape[0] * 2


@case(numbers(2, 4, 6, 5))
def integer_as_dimension(x, n):
    return x.unsqueeze(0).expand(n, -1, -1), x.repeat(n, 1)


@case(lambda: [(filled(4, 5, 6), d) for d in (0, 1, 2)], compiles=3)
def integer_as_axis(x, d):
    return x.sum(d)


@case(numbers(2**31, 2**40, 2**50, 5))
def large_integers(x, n):
    return x * n, n - 1


@case(numbers(2**70, 2**71, 2**72), compiles=3)
def beyond_64_bits(x, n):
    return x * 2, n + 1


@case(numbers(1j, 2j, 3j), compiles=3)
def complex_argument(x, n):
    return x * n


def floats(*values):
    """Calls with a tensor and each float."""
    return lambda: [(filled(4), value) for value in values]


@case(floats(0.25, 0.5, 0.75, 1.5))
def float_as_a_tensor(x, k):
    return x * torch.tensor(k), torch.tensor([k, 2 * k, 3], dtype=torch.float64)


@case(floats(0.25, 0.5, 0.75, 7000.7, 1e6))
def float_as_a_tensor_of_half_precision(x, k):
    return x.half() * torch.tensor(k, dtype=torch.float16), torch.tensor(k * 9, dtype=torch.int64)


@case(floats(0.25, 0.5, 0.75, 1.5))
def float_in_a_distribution(x, k):
    return torch.distributions.Normal(x, k).log_prob(x + 1)


@case(floats(0.25, 0.5, 0.75, 1.5))
def float_asked_for_attributes(x, k):
    return x * k, hasattr(k, "shape"), hasattr(k, "is_integer"), hasattr(k, "mro"), getattr(k, "nothing", 3)


@case(floats(0.25, 0.5), compiles=2)
def float_without_a_numerator(x, k):
    try:
        return x * k, k.numerator
    except AttributeError as error:
        return x, str(error)


@case(numbers(0.5, 3, 0.25, 4, 0.75, -5), compiles=5)
def parts_of_a_number(x, k):
    return x * k.real + k.imag, k.conjugate() * 2, k.real, k.imag


@case(numbers(2, 3, 5, -4))
def ratio_of_a_whole_number(x, n):
    return x * n.numerator, n.denominator, x.new_tensor(n), x.new_tensor([n, n + 1], dtype=torch.int64)


@case(floats(0.25, 0.5, 0.75, 1.5))
def float_as_a_tensor_like_another(x, k):
    return x.double().new_tensor([k, 1]), x.new_tensor(k * 9, dtype=torch.int64), x.new_tensor(k)


@case(floats(0.5, 0.25, 0.75, 0.3, 0.30000001, 0.9, 0.1), compiles=5)
def float_nearly_another(x, k):
    return x * 2 if math.isclose(k, 0.3, rel_tol=1e-6) else x + 1, math.isclose(k, -5.0, abs_tol=1e-3)


@case(lambda: [(filled(n, 6),) for n in (3, 4, 5, 1)], compiles=3)
def comparison_as_a_number(x):
    full = x.shape[0] > 2
    return x + 1, full.real, full.numerator


@case(numbers(2, 3, 5), compiles=3)
def times_a_text_is_repeated(x, n):
    return x * n, "ab" * n, n * b"c"


@case(numbers(2, 3, 5), compiles=3)
def integer_within_vmap(x, n):
    return torch.func.vmap(lambda row: row * 2.0 + n)(x)


@case(numbers(2, 3, 5))
def integer_in_tuples_that_are_compared(x, n):
    return x * n, (n, 1) < (n, 2), [n] >= [n], (n, "a") == (n, "a")
