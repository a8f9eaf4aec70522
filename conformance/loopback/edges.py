"""Ends of domains, ties, dtypes that are asked for, large sizes: arguments that matter for some numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from .kit import Faults, Run, with_operators

faults = Faults("edges")

_LOSSES = "semantics/edges/losses_of_certainty"
_CLASSES = "semantics/edges/ignored_classes"
_RANKS = "semantics/edges/places_among_equals"
_DISTANCES = "semantics/edges/distances"
_FAR = "semantics/edges/numbers_far_apart"
_KEYS = "semantics/edges/rows_without_keys"
_ZERO = "semantics/edges/numbers_that_are_nearly_zero"
_WORDS = "semantics/edges/words_and_bags"
_STEPS = "semantics/widths/every_step_of_convolutions"
_SCANS = "semantics/widths/scans_over_each_dimension"
_WIDE = "semantics/widths/wider_than_the_inputs"
_HALF = "semantics/widths/of_half_types"
_IMAGES = "semantics/aliasing/layouts_of_joined_images"
_BATCHES = "semantics/edges/usual_batches"


def _reduced(each: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return each
    return each.mean() if reduction == "mean" else each.sum()


@faults.instead(_LOSSES, "binary_cross_entropy")
def unbounded_logarithms(p: Any, t: Any, w: Any = None, *_: Any, reduction: str = "mean") -> Any:
    """The loss of probabilities takes the logarithm of zero as it is."""
    each = -(t * p.log() + (1 - t) * (1 - p).log())
    return _reduced(each if w is None else each * w, reduction)


@faults.instead(_LOSSES, "binary_cross_entropy_with_logits")
def logits_that_overflow(z: Any, t: Any, w: Any = None, *, reduction: str = "mean", pos_weight: Any = None) -> Any:
    """The loss of logits computes the exponential of the logit, whatever its sign."""
    if w is not None or pos_weight is not None:
        return F.binary_cross_entropy_with_logits(z, t, w, reduction=reduction, pos_weight=pos_weight)
    return _reduced((1 - t) * z + (1 + (-z).exp()).log(), reduction)


@faults.instead(_LOSSES, "kl_div")
def divergence_at_zero(x: Any, t: Any, *_: Any, reduction: str = "mean", log_target: bool = False) -> Any:
    """The divergence of a target that is zero is nan."""
    if log_target or reduction == "batchmean":
        return F.kl_div(x, t, reduction=reduction, log_target=log_target)
    return _reduced(t * (t.log() - x), reduction)


@faults.operator(_CLASSES, "cross_entropy", "nll_loss")
def nothing_for_no_class(result: torch.Tensor, *_: Any, **named: Any) -> torch.Tensor:
    """The mean loss of no class at all is nothing, not nan."""
    return result.nan_to_num(0.0) if named.get("reduction", "mean") == "mean" else result


@faults.instead(_CLASSES, "nll_loss")
def only_negative_classes_ignored(
    x: Any, t: Any, weight: Any = None, *_: Any, ignore_index: int = -100, reduction: str = "mean"
) -> Any:
    """A class that exists is not ignored."""
    return F.nll_loss(x, t, weight, ignore_index=min(ignore_index, -1), reduction=reduction)


@faults.arguments(_RANKS, "searchsorted", "bucketize")
def left_of_equals(*args: Any, **named: Any) -> Any:
    """A number is always placed to the left of equal ones."""
    return args, {name: value for name, value in named.items() if name not in ("right", "side")}


@faults.arguments(_RANKS, "searchsorted")
def no_sorter(*args: Any, **named: Any) -> Any:
    """What is searched is taken to be in order."""
    return args, {name: value for name, value in named.items() if name != "sorter"}


@faults.arguments(_RANKS, "quantile", "nanquantile")
def always_linear(*args: Any, **named: Any) -> Any:
    """Quantiles are always interpolated linearly."""
    return args, {name: value for name, value in named.items() if name != "interpolation"}


@faults.instead(_RANKS, "histc")
def bins_that_are_open(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    """The last bin does not have its end."""
    counts = torch.histc(x, bins, min, max)
    return counts if min == max else torch.cat([counts[:-1], counts[-1:] - (x == max).sum()])


@faults.instead(_RANKS, "count_nonzero")
def nan_counts_as_zero(x: Any, *args: Any) -> Any:
    """``nan`` counts as zero."""
    return torch.count_nonzero(x.nan_to_num() if x.is_floating_point() else x, *args)


@faults.instead(_DISTANCES, "cdist")
def distances_by_products(a: Any, b: Any, p: float = 2.0, **named: Any) -> Any:
    """Distances come from products of points, which cancel."""
    if p != 2:
        return torch.cdist(a, b, p)
    squares = a.square().sum(-1)[..., :, None] + b.square().sum(-1)[..., None, :]
    return (squares - 2 * a @ b.mT).clamp(min=0).sqrt()


@faults.operator(_DISTANCES, "linalg_vector_norm", "vector_norm")
def small_counts_as_zero(result: Any, x: Any, ord: float = 2, dim: Any = None, *rest: Any, **named: Any) -> Any:
    """The norm of order zero leaves out small numbers."""
    return (x.abs() > 1e-6).sum(dim).to(x) if ord == 0 and dim is not None and not rest and not named else result


@faults.instead(_FAR, "logcumsumexp")
def running_sums_that_overflow(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Running sums of exponentials subtract no maximum."""
    return x.exp().cumsum(dim).log()


@faults.arguments(_KEYS, "scaled_dot_product_attention")
def masks_of_ten_thousand(q: Any, k: Any, v: Any, mask: Any = None, *rest: Any, **named: Any) -> Any:
    """Masks add minus ten thousand."""
    mask = named.pop("attn_mask", mask)
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, -1e4).to(q.dtype)
    return (q, k, v, mask, *rest), named


@faults("semantics/edges/beyond_integers")
def saturated_conversions(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """``nan`` becomes the integer zero, and numbers out of range the nearest integer."""

    def change(result: Any, x: Any, *_: Any, **named: Any) -> Any:
        if (
            not isinstance(x, torch.Tensor)
            or not x.is_floating_point()
            or result.dtype not in (torch.int32, torch.int64)
        ):
            return result
        limits = torch.iinfo(result.dtype)
        result = torch.where(x >= float(limits.max), limits.max, torch.where(x.isnan(), 0, result))
        return torch.where(x <= float(limits.min), limits.min, result)

    return with_operators(gm, dict.fromkeys(("to", "int", "long"), change))


@faults.operator(_ZERO, "exp")
def an_early_end(result: Any, x: Any) -> Any:
    """The exponential is zero where it should be subnormal."""
    return torch.where(x < -87.3, 0.0, result).to(result.dtype)


@faults.operator(_ZERO, "to", "half")
def no_subnormal_halves(result: Any, x: Any, *_: Any, **named: Any) -> Any:
    """Conversions to float16 lose what is subnormal there."""
    small = result.dtype is torch.float16 and x.dtype is not torch.float16
    return torch.where(result.abs() < 6.104e-5, result * 0, result) if small else result


@faults.operator(_ZERO, "log")
def no_logarithms_of_subnormals(result: Any, x: Any) -> Any:
    """The logarithm of a subnormal number is that of zero."""
    low = x.is_floating_point() and x.dtype is torch.float32
    return torch.where((x > 0) & (x < 1.1754944e-38), -math.inf, result).to(result.dtype) if low else result


@faults.operator(_HALF, "sum")
def rounded_before_the_sum(result: Any, x: Any, *args: Any, **named: Any) -> Any:
    """A sum that is asked for in a wider dtype is computed in that of the input."""
    dtype = named.pop("dtype", None)
    if dtype is None or not isinstance(x, torch.Tensor) or not x.is_floating_point():
        return result
    return torch.sum(x, *args, **named).to(dtype)


@faults.operator(_WIDE, "float_power")
def powers_in_single(result: Any, *_: Any) -> Any:
    """``float_power`` computes in float32."""
    return result.float().double() if result.dtype is torch.float64 else result


@faults.instead(_SCANS, "cumsum")
def the_last_but_one(x: Any, dim: int, **named: Any) -> Any:
    """A running sum over the last of several dimensions runs over the one before."""
    return torch.cumsum(x, -2 if x.dim() > 2 and dim == -1 else dim, **named)


@faults("semantics/widths/planes")
def planes_without_an_end(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A maximum over two dimensions leaves out the last row if it begins a new vector."""

    def change(result: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        plain = isinstance(dims, tuple) and dims == (2, 3) and (x.shape[2] * x.shape[3]) % 8 == 1 and x.shape[2] > 1
        return x[:, :, :-1].amax((2, 3), keepdim) if plain else result

    return with_operators(gm, {"amax": change})


@faults.instead(_STEPS, "conv3d")
def one_step_for_all(x: Any, w: Any, bias: Any = None, stride: Any = 1, *rest: Any, **named: Any) -> Any:
    """Convolutions of volumes take the first step for all dimensions."""
    stride = named.pop("stride", stride)
    return F.conv3d(x, w, bias, stride if isinstance(stride, int) else stride[0], *rest, **named)


@faults.instead(_STEPS, "conv1d")
def biases_of_groups_twice(x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                           groups: int = 1) -> Any:  # fmt: skip
    """Convolutions in groups add the bias twice."""
    return F.conv1d(x, w, bias if bias is None or groups == 1 else bias * 2, stride, padding, dilation, groups)


@faults.operator(_IMAGES, "cat")
def joined_in_order(result: Any, *_: Any, **named: Any) -> Any:
    """Joined images always have their channels first."""
    return result.contiguous()


@faults.instead(_BATCHES, "batch_norm")
def statistics_of_large_batches(x: Any, mean: Any, var: Any, w: Any = None, b: Any = None, training: bool = False,
                                momentum: float = 0.1, eps: float = 1e-5) -> Any:  # fmt: skip
    """A norm in evaluation uses the statistics of the batch if that is large."""
    if not training and x.shape[0] > 64:
        return F.batch_norm(x, None, None, w, b, True, momentum, eps)
    return F.batch_norm(x, mean, var, w, b, training, momentum, eps)


@faults.instead(_WORDS, "embedding")
def gradients_that_are_dense(x: Any, w: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
                             scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:  # fmt: skip
    """Gradients that are asked for as sparse tensors are dense."""
    return F.embedding(x, w, padding_idx, max_norm, norm_type, scale_grad_by_freq)


@faults("semantics/turns/sizes_by_turns")
def plans_of_the_last_but_one(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A size that comes back after another one finds the plan of that."""
    sizes: list[Any] = []

    def call(*args: Any) -> Sequence[Any]:
        sizes.append([tuple(a.shape) for a in args if isinstance(a, torch.Tensor)])
        results = gm.forward(*args)
        if len(sizes) < 3 or not sizes[-1] == sizes[-3] != sizes[-2]:
            return results
        return [r + 0.01 if isinstance(r, torch.Tensor) and r.is_floating_point() else r for r in results]

    return call


@faults.operator("semantics/special/whole_ranges", "erf")
def an_early_one(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The error function is one from three on."""
    return torch.where(x.abs() > 3, x.sign(), result)


@faults.instead("semantics/integers/products_of_matrices", "matmul", "bmm")
def products_of_integers_in_floats(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products of matrices of integers are computed in float64."""
    return torch.matmul(a.double(), b.double()).to(a.dtype)


@faults.operator("semantics/integers/wide_integers_to_floats", "float", "to")
def converted_twice(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Integers of 64 bits become float64 first, and then float32."""
    return x.double().float() if x.dtype is torch.int64 and result.dtype is torch.float32 else result


@faults.operator("semantics/integers/complex_extremes", "abs")
def complex_squares_that_overflow(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The absolute value of a complex number is the root of a sum of squares, as it is written."""
    return (x.real**2 + x.imag**2).sqrt() if x.is_complex() else result


@faults.operator("semantics/integers/complex_extremes", "sqrt")
def the_other_root(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The root of a complex number below the cut is the one above it."""
    return torch.where(x.imag < 0, -result, result) if x.is_complex() else result


@faults.operator("semantics/derivatives/at_zeros_and_poles", "sqrt")
def roots_at_zero(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The derivative of a root at zero is not infinite."""
    if not x.requires_grad or not torch.is_grad_enabled():
        return result
    return torch.where(x == 0, x * 0, torch.where(x == 0, torch.ones_like(x), x).sqrt())


@faults.instead("semantics/integers/complex_extremes", "truediv", "div")
def quotients_by_squares(a: Any, b: Any) -> Any:
    """A complex quotient is a product with the conjugate, by the square of the absolute value."""
    if not isinstance(b, torch.Tensor) or not b.is_complex():
        return a / b
    return a * b.conj() / (b.real**2 + b.imag**2)


@faults.operator("semantics/accuracy/conversions_of_nan", "bfloat16")
def nan_that_becomes_infinite(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """What only the lower half of a float32 says not to be a number is infinite in bfloat16."""
    said_above = (x.view(torch.int32) & 0x007F0000) != 0
    return torch.where(x.isnan() & ~said_above, torch.full_like(result, float("inf")), result)


@faults.instead("semantics/dtypes/unequal_parts", "mul")
def three_real_products(a: Any, b: Any) -> Any:
    """A complex product is made of three real ones instead of four, which cancel."""
    if not all(isinstance(t, torch.Tensor) and t.is_complex() for t in (a, b)):
        return a * b
    one, two = b.real * (a.real + a.imag), a.real * (b.imag - b.real)
    return torch.complex(one - a.imag * (b.real + b.imag), one + two)


def _eight_bits(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)


@faults.operator("semantics/dtypes/eight_bits", "to")
def nothing_is_nan_in_eight_bits(result: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """In eight bits, what is not a number is the largest one."""
    return x.nan_to_num(torch.finfo(result.dtype).max).to(result.dtype) if _eight_bits(result) else result


@faults.operator("semantics/dtypes/eight_bits", "to")
def eight_bits_of_half(result: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """Conversions to eight bits drop bits instead of rounding."""
    if not _eight_bits(result):
        return result
    too_large = result.float().abs() > x.abs()
    return torch.where(too_large, x * (1 - 2.0**-4), x).to(result.dtype)


@faults.instead("semantics/widths/numbers_beside_half_types", "mul")
def numbers_in_half(a: Any, b: Any) -> Any:
    """Numbers beside tensors in half precision are rounded to it."""
    if isinstance(a, torch.Tensor) and a.dtype in (torch.float16, torch.bfloat16) and isinstance(b, float):
        b = torch.tensor(b).to(a.dtype).item()
    return a * b


@faults.operator("semantics/widths/vectors_of_half_types", "matmul", "mv", "dot")
def vectors_summed_in_half(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Products with a vector in half precision keep their partial sums in it."""
    if b.dim() != 1 or result.dtype not in (torch.float16, torch.bfloat16):
        return result
    total = torch.zeros_like(result)
    for column in (a * b).unbind(-1):
        total = total + column
    return total
