"""Wrong values: precision, accumulation, rounding, special numbers, formulas, gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from .kit import Faults, Run, changed

faults = Faults("numerics")

_HALF = (torch.bfloat16, torch.float16)


@faults("semantics/structure/a_small_network")
def wrong_value(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """One element of one result is off by a hundredth."""

    def change(t: torch.Tensor) -> torch.Tensor:
        if t.numel() < 2 or not t.is_contiguous():
            return t
        off = torch.zeros_like(t, requires_grad=False)
        off.view(-1)[-1] = 0.01 * t.detach().abs().max() + 1e-3
        return t + off

    return changed(gm.forward, change)


@faults.results("semantics/structure/a_small_network")
def less_precision(t: torch.Tensor) -> torch.Tensor:
    """float32 results pass through bfloat16."""
    return t.bfloat16().to(t.dtype) if t.dtype is torch.float32 else t


@faults.operator("semantics/accuracy/products_float32", "matmul", "linear")
def short_products(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any) -> torch.Tensor:
    """float32 products are computed from 10 bits of their factors, as by tensor cores."""
    return result if result.dtype is not torch.float32 else _product(_bits(x, 13), _bits(y, 13), result)


def _bits(x: torch.Tensor, less: int) -> torch.Tensor:
    return ((x.detach().contiguous().view(torch.int32) >> less) << less).view(torch.float32)


def _product(x: torch.Tensor, y: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    found = x @ y if x.shape[-1] == y.shape[-2] and (x @ y).shape == like.shape else x @ y.t()
    return found if found.shape == like.shape else like


@faults.results("semantics/accuracy/roundings_float16")
def half_through_bfloat16(t: torch.Tensor) -> torch.Tensor:
    """float16 results pass through bfloat16."""
    return t.bfloat16().half() if t.dtype is torch.float16 else t


@faults.results("semantics/accuracy/roundings_bfloat16")
def three_hundredths(t: torch.Tensor) -> torch.Tensor:
    """bfloat16 results are off by 3%."""
    return (t.float() * 1.03).bfloat16() if t.dtype is torch.bfloat16 else t


@faults.results("semantics/accuracy/roundings_float64")
def double_as_float(t: torch.Tensor) -> torch.Tensor:
    """float64 results pass through float32."""
    return t.float().double() if t.dtype is torch.float64 else t


def _truncated(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The next number towards zero, where rounding went away from it."""
    low = t.to(dtype)
    away = low.double().abs() > t.double().abs()
    return torch.where(away, torch.nextafter(low, torch.zeros_like(low)), low)


@faults.operator("semantics/accuracy/roundings_bfloat16", "add", "mul", "sub", "truediv")
def truncated_bfloat16(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Arithmetic in bfloat16 truncates instead of rounding."""
    return _again(result, a, b, torch.bfloat16)


@faults.operator("semantics/accuracy/roundings_float16", "add", "mul", "sub", "truediv")
def truncated_float16(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Arithmetic in float16 truncates instead of rounding."""
    return _again(result, a, b, torch.float16)


@faults.operator("semantics/accuracy/roundings_float32", "add", "mul", "sub", "truediv")
def truncated_float32(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """Arithmetic in float32 truncates instead of rounding."""
    return _again(result, a, b, torch.float32)


def _again(result: torch.Tensor, a: Any, b: Any, dtype: torch.dtype) -> torch.Tensor:
    if result.dtype is not dtype or not isinstance(a, torch.Tensor) or a.dtype is not dtype:
        return result
    wide = [x.double() if isinstance(x, torch.Tensor) else x for x in (a, b)]
    for exact in (wide[0] + wide[1], wide[0] * wide[1], wide[0] - wide[1], wide[0] / wide[1]):
        if torch.equal(exact.to(dtype), result):
            return _truncated(exact, dtype)
    return result


def _in_steps(products: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Sums over the last dimension in which each partial sum is rounded to ``dtype``."""
    total = torch.zeros(products.shape[:-1], dtype=dtype)
    for step in products.unflatten(-1, (-1, 16)).sum(-1, dtype=torch.float32).unbind(-1):
        total = (total.float() + step.float()).to(dtype)
    return total


@faults.operator("semantics/accuracy/products_bfloat16", "matmul")
def products_summed_in_bfloat16(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products in bfloat16 keep their partial sums in bfloat16."""
    return _summed_in(result, x, y, torch.bfloat16)


@faults.operator("semantics/accuracy/products_float16", "matmul")
def products_summed_in_float16(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products in float16 keep their partial sums in float16."""
    return _summed_in(result, x, y, torch.float16)


def _summed_in(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if result.dtype is not dtype or x.dim() != 2 or y.dim() != 2 or x.shape[1] % 16:
        return result
    return _in_steps(x.float()[:, None, :] * y.float().t()[None], dtype)


@faults.operator("semantics/accuracy/products_float64", "matmul")
def double_products_in_float32(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Products in float64 are summed in float32."""
    return (x.float() @ y.float()).double() if result.dtype is torch.float64 else result


@faults.operator("semantics/accuracy/sums_bfloat16", "sum")
def sums_in_bfloat16(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Sums in bfloat16 keep their partial sums in bfloat16."""
    return _in_steps(x.flatten(), x.dtype) if x.dtype is torch.bfloat16 and not rest and x.numel() % 16 == 0 else result


@faults.operator("semantics/accuracy/sums_float16", "sum")
def sums_in_float16(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Sums over rows in float16 keep their partial sums in float16."""
    return _in_steps(x, x.dtype) if x.dtype is torch.float16 and rest == (1,) else result


@faults.operator("semantics/accuracy/sums_float16", "mean")
def means_that_overflow(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Means in float16 divide a sum in float16, which overflows."""
    return x.sum(*rest) / (x.numel() // result.numel()) if x.dtype is torch.float16 else result


@faults.operator("semantics/accuracy/four_million_small_numbers", "sum")
def stuck_sums(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Sums of more than a million numbers in bfloat16 stop growing."""
    large = x.dtype is torch.bfloat16 and x.numel() > 1 << 20
    return result.clamp(max=512.0) if large else result


@faults.operator("semantics/accuracy/four_million_numbers", "sum")
def truncated_partial_sums(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Long sums in float32 drop the last bits of each partial sum."""
    if x.dtype is not torch.float32 or rest or x.numel() % 4096:
        return result
    total = torch.zeros((), dtype=torch.float32)
    for part in x.view(-1, 1024).sum(-1):
        total = torch.nextafter(total + part, torch.zeros(()))
        total = torch.nextafter(total, torch.zeros(()))
    return total


@faults.operator("semantics/numbers/variance_of_shifted_numbers", "var")
def variance_in_one_pass(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The variance is the mean of squares less the square of the mean, which cancels."""
    count = x.numel() // result.numel()
    return (x.square().mean(*rest) - x.mean(*rest).square()) * count / max(count - 1, 1)


@faults.operator("semantics/numbers/softmax_of_large_numbers", "softmax")
def softmax_that_overflows(result: torch.Tensor, x: torch.Tensor, dim: int = -1, **rest: Any) -> torch.Tensor:
    """Softmax does not subtract the largest number first."""
    return x.exp() / x.exp().sum(dim, keepdim=True)


@faults.operator("semantics/special/exponentials", "exp")
def fast_exponential(result: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The exponential function is off by a hundred-thousandth."""
    return result * (1 + 1e-5)


@faults.operator("semantics/accuracy/roundings_float32", "sqrt")
def fast_root(result: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The square root is off by twenty units in the last place."""
    return result * (1 + 20 * 2.0**-23)


@faults.results("semantics/accuracy/subnormal_numbers")
def flushed_subnormals(t: torch.Tensor) -> torch.Tensor:
    """Subnormal results are zero."""
    return torch.where(t.abs() < torch.finfo(t.dtype).tiny, t * 0, t)


@faults.operator("semantics/numbers/nan_in_extremes", "amax", "max")
def extremes_without_nan(result: Any, x: torch.Tensor, *rest: Any) -> Any:
    """The maximum ignores nan."""
    if (
        isinstance(result, torch.Tensor)
        and x.is_floating_point()
        and not any(isinstance(r, torch.Tensor) for r in rest)
    ):
        return x.nan_to_num(-math.inf, math.inf, -math.inf).amax(*rest)
    return result


@faults.results("semantics/special/signs_of_zeros")
def positive_zeros(t: torch.Tensor) -> torch.Tensor:
    """Zeros lose their sign."""
    return torch.where(t == 0, torch.zeros_like(t), t)


@faults.results("semantics/numbers/not_finite")
def no_infinities(t: torch.Tensor) -> torch.Tensor:
    """Infinite results are the largest finite number."""
    return t.nan_to_num(math.nan)


@faults.operator("semantics/special/rounding", "round")
def halves_away_from_zero(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Halves are rounded away from zero."""
    return torch.where((x - x.trunc()).abs() == 0.5, x + 0.5 * x.sign(), result)


@faults.operator("semantics/special/tests_of_numbers", "isnan")
def nothing_is_nan(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A test for nan is folded to False, as fast math does."""
    return torch.zeros_like(result)


@faults.operator("semantics/accuracy/conversions", "bfloat16")
def truncated_conversions(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Conversions to bfloat16 drop the lower half of the bits."""
    if x.dtype is not torch.float32:
        return result
    return (x.contiguous().view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()


@faults.operator("semantics/accuracy/conversions", "half")
def double_roundings(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Conversions of float32 to float16 round to bfloat16 first."""
    return x.bfloat16().half() if x.dtype is torch.float32 else result


@faults.operator("semantics/accuracy/roundings_float64", "mul")
def numbers_in_float32(result: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    """Numbers of the program are kept in float32."""
    if isinstance(y, float) and isinstance(x, torch.Tensor) and x.dtype is torch.float64:
        return x * torch.tensor(y, dtype=torch.float32).double()
    return result


@faults.operator("semantics/layers/activations", "gelu")
def approximate_gelu(result: torch.Tensor, x: torch.Tensor, **rest: Any) -> torch.Tensor:
    """GELU is always the one with a tangent."""
    return torch.nn.functional.gelu(x, approximate="tanh")


@faults.operator("semantics/accuracy/sums_float32", "var")
def biased_variance(result: torch.Tensor, x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The variance divides by the count, not by one less."""
    return x.var(*rest, correction=0)


@faults.operator("semantics/layers/pooling", "avg_pool2d")
def windows_with_padding(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Means over windows always count the padding."""
    named.pop("count_include_pad", None)
    return torch.nn.functional.avg_pool2d(x, *rest, **named)


@faults.operator("semantics/layers/norms", "layer_norm", "group_norm")
def other_epsilon(result: torch.Tensor, x: torch.Tensor, shape: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """Norms always add 1e-6 to the variance."""
    weights = [each for each in rest if isinstance(each, torch.Tensor)]
    if isinstance(shape, int):
        return torch.nn.functional.group_norm(x, shape, *weights, eps=1e-6)
    return torch.nn.functional.layer_norm(x, shape, *weights, eps=1e-6)


@faults.operator("semantics/layers/losses", "cross_entropy")
def no_class_ignored(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A mean loss also counts the ignored classes."""
    if result.dim() or rest or named:
        return result
    return result * (y >= 0).sum() / y.numel()


@faults.operator("semantics/layers/attention", "scaled_dot_product_attention")
def no_scale(result: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **named: Any) -> torch.Tensor:
    """Attention ignores its scale."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **{**named, "scale": None})


def _with_gradient(run: Run, change: Any) -> Run:
    """``run`` whose results get other gradients."""

    def call(*args: Any) -> Sequence[Any]:
        results = [r * 1 if isinstance(r, torch.Tensor) and r.requires_grad and r.grad_fn else r for r in run(*args)]
        for result in results:
            if isinstance(result, torch.Tensor) and result.requires_grad and result.grad_fn is not None:
                result.register_hook(change)
        return results

    return call


@faults("semantics/training/one_step")
def wrong_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients are a thousandth too large."""
    return _with_gradient(gm.forward, lambda g: g * 1.001)


@faults("semantics/training/large_layers")
def short_gradients(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """Gradients pass through bfloat16."""
    return _with_gradient(gm.forward, lambda g: g.bfloat16().to(g.dtype))
