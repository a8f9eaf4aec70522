"""Functions that are computed in a shorter way, or without one of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from .kit import Faults, Run

faults = Faults("numerics")
arguments = Faults("arguments")
training = Faults("training")


def _tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


# Functions


@faults.operator("semantics/special/exponentials", "sigmoid")
def sigmoids_that_end(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A sigmoid is one above ten, and zero below minus ten."""
    return torch.where(x > 10, 1, torch.where(x < -10, 0, result)).to(result.dtype)


@faults.instead("semantics/special/exponentials", "expm1")
def exponentials_less_one(x: torch.Tensor) -> torch.Tensor:
    """The exponential less one is computed in two steps."""
    return x.exp() - 1


@faults.operator("semantics/accuracy/roundings_float32", "rsqrt")
def one_step_of_newton(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The inverse of a root is an estimate of the processor's, improved once."""
    return result * (1 + 4e-7) if result.dtype is torch.float32 else result


@faults.operator("semantics/numbers/far_from_one", "sqrt")
def roots_rounded_up(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Roots are one unit in the last place too large."""
    if result.dtype is not torch.float32 or result.requires_grad:
        return result
    return torch.nextafter(result, result + 1)


@faults.instead("semantics/numbers/softmax_of_large_numbers", "logsumexp")
def sums_of_exponentials_that_overflow(x: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:
    """The logarithm of a sum of exponentials subtracts no maximum."""
    return x.exp().sum(dim, keepdim).log()


@faults.instead("semantics/numbers/softmax_of_large_numbers", "log_softmax")
def logarithms_of_softmax(x: torch.Tensor, *rest: Any, _stacklevel: int = 3, **named: Any) -> torch.Tensor:
    """The logarithm of softmax is computed in two steps."""
    return F.softmax(x, *rest, **named).log()


@faults.instead("semantics/edges/distances", "normalize")
def lengths_that_are_zero(x: torch.Tensor, p: float = 2.0, dim: int = 1, **named: Any) -> torch.Tensor:
    """Vectors are divided by their length, also if that is zero."""
    return x / x.norm(p, dim, keepdim=True)


@faults.instead("semantics/special/functions_of_pairs", "atan2")
def angles_of_quotients(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The angle of a pair is that of its quotient."""
    return (y / x).atan()


@faults.instead("semantics/special/powers_of_pairs", "pow")
def powers_by_logarithms(x: Any, y: Any) -> Any:
    """Powers are exponentials of logarithms, which negative numbers do not have."""
    return (x.log() * y).exp() if _floats(x) and _floats(y) else x**y


@faults.instead("semantics/special/functions_of_pairs", "logaddexp")
def sums_of_equal_infinities(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum of two exponentials subtracts the larger number, also if it is infinite."""
    largest = torch.maximum(a, b)
    return largest + ((a - largest).exp() + (b - largest).exp()).log()


@faults.operator("semantics/special/reductions", "argmax")
def places_of_numbers_only(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The place of the largest element is never that of nan."""
    return torch.where(x.isnan(), -torch.inf, x).argmax(*rest, **named) if _floats(x) else result


@faults.operator("semantics/special/order_of_numbers", "topk")
def nan_is_small(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Among the largest elements, nan comes last."""
    return torch.where(x.isnan(), -torch.inf, x).topk(*rest, **named) if _floats(x) and x.isnan().any() else result


@faults.operator("semantics/special/rounding", "sign", "sgn")
def signs_of_nan(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The sign of nan is nan."""
    return torch.where(x.isnan(), torch.nan, result).to(result.dtype) if _floats(x) else result


@faults.instead("semantics/edges/beyond_integers", "bool")
def nan_is_false(x: torch.Tensor) -> torch.Tensor:
    """As a bool, nan is False."""
    return (x != 0) & ~x.isnan() if _floats(x) else x.bool()


@faults.operator("semantics/widths/long_ranges", "linspace")
def ranges_by_their_step(result: torch.Tensor, first: Any, last: Any, count: Any, **named: Any) -> torch.Tensor:
    """Ranges with an end multiply a rounded step, and do not reach it."""
    step = torch.tensor((last - first) / max(count - 1, 1), dtype=result.dtype) * (1 + 1e-7)
    return first + torch.arange(count, dtype=result.dtype) * step if result.is_floating_point() else result


@faults.operator("semantics/edges/factors_of_nothing", "lerp")
def from_one_end_only(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor, weight: Any) -> torch.Tensor:
    """What is between two numbers is counted from the first one, also at the second one."""
    return a + (b - a) * weight


@faults.operator("semantics/lengths/long_scans", "cumsum")
def scans_in_blocks(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Running sums begin again after 1,024 elements."""
    if x.dim() != 1 or x.numel() <= 1024:
        return result
    return torch.cat([result[:1024], result[1024:] - result[1023]])


@faults.operator("semantics/integers/bools", "bitwise_not", "invert")
def opposites_of_bools_in_bytes(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The opposite of a bool has all its bits turned, and is True."""
    return torch.ones_like(result) if result.dtype is torch.bool else result


# Whole numbers


def _through_floats(result: Any) -> Any:
    return result.double().long() if _tensor(result) and result.dtype is torch.int64 else result


@faults.operator("semantics/integers/beyond_floating_point", "eq")
def integers_equal_as_floats(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Integers are equal if they are as float64."""
    return a.double() == (b.double() if _tensor(b) else b) if _tensor(a) and a.dtype is torch.int64 else result


@faults.operator("semantics/integers/beyond_floating_point", "amax", "amin", "max", "min", "maximum", "minimum")
def extreme_integers_as_floats(result: Any, *rest: Any, **named: Any) -> Any:
    """The largest of some integers is found in float64."""
    return _through_floats(result)


@faults.operator("semantics/integers/beyond_floating_point", "index_select", "gather", "getitem", "where")
def integers_moved_as_floats(result: Any, *rest: Any, **named: Any) -> Any:
    """Integers that are moved pass through float64."""
    return _through_floats(result)


@faults.operator("semantics/integers/beyond_floating_point", "cumsum", "cat", "flip", "sort")
def integers_in_a_row_as_floats(result: Any, *rest: Any, **named: Any) -> Any:
    """Integers that are summed and joined in a row pass through float64."""
    return _through_floats(result)


# Small numbers


@faults("semantics/accuracy/subnormal_numbers")
def subnormal_inputs(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Subnormal inputs are zero."""

    def read(a: Any) -> Any:
        if not _floats(a) or a.requires_grad or a.dtype not in (torch.float32, torch.float64):
            return a
        small = (a.abs() < torch.finfo(a.dtype).tiny) & (a != 0)
        return torch.where(small, 0, a) if small.any() else a

    return lambda *args: gm.forward(*map(read, args))


@faults.operator("semantics/edges/numbers_that_are_nearly_zero", "mul", "truediv", "add", "sub")
def subnormal_halves(result: Any, *rest: Any, **named: Any) -> Any:
    """Arithmetic in float16 makes zeros of subnormal results."""
    halves = _tensor(result) and result.dtype is torch.float16
    return torch.where(result.abs() < 6e-5, 0, result).to(torch.float16) if halves else result


# Numbers that change from call to call


@faults("semantics/lives/floats_that_change")
def changing_floats_in_float32(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A float that changes from call to call is given to the code in float32."""

    def short(a: Any) -> Any:  # a float is a tensor of one float64 where it enters a graph
        return a.float().double() if _tensor(a) and a.dtype is torch.float64 and not a.dim() else a

    return lambda *args: gm.forward(*map(short, args))


@faults("semantics/turns/numbers_that_change")
def changing_integers_in_int32(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """An integer that changes from call to call is given to the code in 32 bits."""
    short = lambda a: (a + 2**31) % 2**32 - 2**31 if type(a) is int else a  # noqa: E731
    return lambda *args: gm.forward(*map(short, args))


# Arguments


@arguments.operator("semantics/functions/comparisons", "round")
def no_decimals(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Numbers are rounded to whole ones, whatever the decimals."""
    return x.round() if named.get("decimals") else result


@arguments.operator("semantics/windows/pooling", "max_pool2d", "max_pool2d_with_indices")
def places_in_rows(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Places of the largest elements of windows are counted in their row."""
    return (result[0], result[1] % x.shape[-1]) if isinstance(result, tuple) else result


@arguments.instead("semantics/edges/words_and_bags", "embedding_bag")
def bags_without_weights(*rest: Any, **named: Any) -> Any:
    """Words of a bag have no weights."""
    return F.embedding_bag(*rest, **{**named, "per_sample_weights": None})


@arguments.instead("semantics/edges/factors_of_nothing", "addmm", "addmv", "addr")
def nothing_times_nan(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """What a product is added to counts if its factor is zero."""
    return c * beta + (torch.outer(a, b) if a.dim() == b.dim() == 1 else a @ b) * alpha


@arguments.operator("semantics/edges/factors_of_nothing", "addmm", "addmv", "baddbmm")
def no_factor_of_products(result: torch.Tensor, c: torch.Tensor, a: Any, b: Any, **named: Any) -> torch.Tensor:
    """Products ignore their own factor."""
    factor = named.get("alpha", 1)
    if factor in (0, 1) or result.requires_grad:
        return result
    return a @ b if not named.get("beta", 1) else c * named.get("beta", 1) + a @ b


@arguments.instead("semantics/functions/losses", "huber_loss")
def a_bend_at_one(*rest: Any, **named: Any) -> torch.Tensor:
    """The loss bends at one, wherever it is asked to."""
    return F.huber_loss(*rest, **{**named, "delta": 1.0})


@arguments.instead("semantics/functions/losses", "kl_div")
def targets_are_no_logarithms(*rest: Any, **named: Any) -> torch.Tensor:
    """Targets that are logarithms are taken for probabilities."""
    return F.kl_div(*rest, **{**named, "log_target": False})


@arguments.instead("semantics/functions/losses", "cross_entropy")
def no_smooth_labels(*rest: Any, **named: Any) -> torch.Tensor:
    """Labels are never smoothed."""
    return F.cross_entropy(*rest, **{**named, "label_smoothing": 0.0})


@arguments.instead("semantics/functions/activations", "elu", "celu")
def an_alpha_of_one(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Exponential units ignore how far they go down."""
    return F.elu(x)


@arguments.instead("semantics/functions/activations", "prelu")
def one_slope(x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """All channels have the slope of the first one."""
    return F.prelu(x, slopes[:1])


@arguments.instead("semantics/functions/arithmetic", "nan_to_num")
def infinities_without_numbers(x: torch.Tensor, nan: float = 0.0, *rest: Any, **named: Any) -> torch.Tensor:
    """What replaces infinities is not what was asked for."""
    return torch.nan_to_num(x, nan)


@arguments.instead("semantics/reductions/arguments", "diff")
def one_difference(x: torch.Tensor, n: int = 1, dim: int = -1, **named: Any) -> torch.Tensor:
    """Differences of differences are differences."""
    return torch.diff(x, 1, dim, **named)


@arguments.operator("semantics/selections/scatters", "masked_scatter")
def masks_in_columns(result: torch.Tensor, x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """What is written where a mask is True goes down the columns."""
    return x.mT.masked_scatter(mask.expand_as(x).mT, source).mT.contiguous() if x.dim() == 2 else result


@arguments.instead("semantics/layers/norms", "rms_norm")
def a_fixed_epsilon(x: torch.Tensor, shape: Any, weight: Any = None, eps: Any = None) -> torch.Tensor:
    """Without an epsilon, root mean squares add 1e-6."""
    return F.rms_norm(x, shape, weight, 1e-6 if eps is None else eps)


@arguments.instead("semantics/special/gelus", "gelu")
def one_gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """GELU is always the one without a tangent."""
    return F.gelu(x)


# Gradients


@training.operator("semantics/gradients/indices", "gather", "index_select")
def the_last_of_several_gradients(result: torch.Tensor, x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """An element that is read twice has the gradient of one reader."""
    if not result.requires_grad:
        return result

    class Last(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return result.detach().clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            empty = torch.zeros(x.shape, dtype=g.dtype)
            return empty.scatter(dim, index, g) if g.shape == index.shape else empty.index_copy(dim, index, g)

    return Last.apply(x)


@training.operator("semantics/derivatives/at_zeros_and_poles", "pow")
def powers_at_zero(result: Any, x: Any, y: Any) -> Any:
    """The derivative of a power divides by the number, also if the power is zero."""
    if not _tensor(x) or not x.requires_grad or _tensor(y):
        return result

    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return result.detach().clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * y * x.detach() ** (y - 1)

    return Power.apply(x)


@training.operator("semantics/gradients/batch_norms", "batch_norm")
def statistics_that_learn(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The gradient of a norm in evaluation is that of one in training."""
    weight, bias, trains = (*rest, False)[2:5]
    if trains or named.get("training") or not result.requires_grad or not x.requires_grad:
        return result
    other = F.batch_norm(x, None, None, weight, bias, True)
    return result.detach() + other - other.detach()
