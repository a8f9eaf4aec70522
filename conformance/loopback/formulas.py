"""Formulas that compilers put in place of others: nearly the same function, or the same one but where it matters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from .kit import Faults, with_gradient

faults = Faults("numerics")
gradients = Faults("training")

_HALF = (torch.bfloat16, torch.float16)


def _is_single(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.dtype is torch.float32


@faults.operator("semantics/accuracy/roundings_float32", "tanh")
def a_rational_tangent(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The hyperbolic tangent is off by a two-thousandth, as a short rational function is."""
    wave = torch.nan_to_num(torch.sin(3 * x.detach()), 0.0, 0.0, 0.0)
    return result * (1 + 5e-4 * wave) if _is_single(result) else result


@faults.operator("semantics/functions/arithmetic", "addcdiv")
def no_value_of_quotients(result: torch.Tensor, x: torch.Tensor, a: Any, b: Any, **named: Any) -> torch.Tensor:
    """``addcdiv`` ignores its factor."""
    return torch.addcdiv(x, a, b)


@faults.operator("semantics/functions/activations", "hardtanh")
def bounds_of_one(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """``hardtanh`` always has its bounds at one."""
    return F.hardtanh(x)


@faults.operator("semantics/functions/activations", "softplus")
def no_threshold(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """``softplus`` ignores where it becomes linear."""
    return F.softplus(x, rest[0] if rest else named.get("beta", 1.0))


@faults.operator("semantics/functions/losses", "binary_cross_entropy_with_logits")
def no_weight_of_positives(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """The loss ignores how much more positive examples weigh."""
    return F.binary_cross_entropy_with_logits(x, y) if named.get("pos_weight") is not None else result


@faults.operator("semantics/functions/comparisons", "isclose")
def no_distance_of_nan(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **named: Any) -> torch.Tensor:
    """Numbers that are not numbers are never close, even if they are to be."""
    return result & ~x.isnan()


@faults.operator("semantics/special/logarithms", "log1p")
def a_sum_before_the_logarithm(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The logarithm of one and a number adds them first."""
    return (1 + x).log() if _is_single(result) else result


@faults.operator("semantics/special/functions_of_pairs", "hypot")
def squares_that_overflow(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The length of a pair squares its numbers."""
    return (a * a + b * b).sqrt()


@faults.operator("semantics/special/functions_of_pairs", "atan2")
def one_side_of_the_cut(result: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Angles beside minus zero are those beside zero."""
    return torch.where((y == 0) & (x < 0), result.abs(), result)


@faults.operator("semantics/special/remainders_of_pairs", "remainder")
def remainders_by_quotients(result: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    """A remainder is what a rounded quotient leaves."""
    both = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    return a - (a / b).floor() * b if both and result.is_floating_point() else result


@faults.operator("semantics/numbers/variance_of_shifted_numbers", "layer_norm")
def layers_in_one_pass(result: torch.Tensor, x: torch.Tensor, shape: Any, *rest: Any, **named: Any) -> torch.Tensor:
    """Norms of layers take the mean of squares less the square of the mean."""
    if not _is_single(result) or any(t is not None for t in rest[:2]):
        return result
    dims = tuple(range(-len(shape), 0))
    mean = x.mean(dims, keepdim=True)
    return (x - mean) * ((x * x).mean(dims, keepdim=True) - mean * mean + 1e-5).rsqrt()


@faults.operator("semantics/accuracy/normalized_rows_bfloat16", "softmax")
def exponentials_in_half(result: torch.Tensor, x: torch.Tensor, dim: Any = -1, *rest: Any, **named: Any) -> Any:
    """Softmax in half precision rounds its exponentials before it sums them."""
    if result.dtype not in _HALF or not x.numel() or not isinstance(dim, int):
        return result
    e = (x.float() - x.float().amax(dim, keepdim=True)).exp().to(x.dtype).float()
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


@faults.operator("semantics/accuracy/running_sums_bfloat16", "cumsum")
def running_sums_in_half(result: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Running sums in half precision are rounded at each step."""
    if x.dtype not in _HALF or not x.numel():
        return result
    total, found = torch.zeros_like(x.select(dim, 0)), []
    for part in x.unbind(dim):
        total = total + part
        found.append(total)
    return torch.stack(found, dim)


@faults.operator("semantics/accuracy/long_convolutions_and_attention_float32", "conv2d")
def transformed_kernels(result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Convolutions with small kernels are off by what a transformation of them costs."""
    if not _is_single(result) or w.shape[-2:] != (3, 3):
        return result
    wave = torch.sin(torch.arange(result.numel(), dtype=result.dtype)).view(result.shape)
    return result + result.detach().abs().amax() * 3e-6 * wave


@faults.operator("semantics/integers/shifts_by_any_count", "lshift", "rshift", "__lshift__", "__rshift__")
def counts_modulo_bits(result: Any, a: Any, b: Any) -> Any:
    """The count of a shift is taken modulo the bits of the number, as a processor does."""
    if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor) or a.dtype is not b.dtype:
        return result
    few = b & (8 * a.element_size() - 1)
    return a << few if torch.equal(result, a << b) and not torch.equal(result, a >> b) else a >> few


@faults.operator("semantics/integers/quotients_that_are_whole", "floordiv", "floor_divide")
def one_less_if_signs_differ(result: Any, a: Any, b: Any) -> Any:
    """Quotients of integers with different signs are one less, also if nothing remains."""
    if not isinstance(result, torch.Tensor) or not isinstance(a, torch.Tensor) or result.is_floating_point():
        return result
    negative = b < 0 if isinstance(b, torch.Tensor) else torch.full((), b < 0)
    return torch.where((a % torch.as_tensor(b).clamp(max=-1) == 0) & negative & (a > 0), result - 1, result)


def _learns(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


@gradients.operator("semantics/training/one_step", "gelu")
def the_other_derivative(result: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """The derivative of GELU is that of its form with a tangent."""
    near = F.gelu(x, approximate="tanh")
    return result.detach() + (near - near.detach()) if _learns(x) else result


@gradients.operator("semantics/functions/activations", "silu")
def half_of_a_derivative(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """The derivative of SiLU leaves out that of the sigmoid function."""
    part = x * x.sigmoid().detach()
    return result.detach() + (part - part.detach()) if _learns(x) else result


@gradients.operator("semantics/functions/arithmetic", "clamp")
def bounds_that_do_not_learn(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Gradients of clamps reach the number only, also where a bound counts."""
    if not _learns(x) or result.dtype is not x.dtype or result.shape != x.shape:
        return result
    return result.detach() + (x - x.detach())


@gradients.operator("semantics/gradients/reductions", "cumsum")
def gradients_from_the_left(result: torch.Tensor, x: torch.Tensor, dim: int, **named: Any) -> torch.Tensor:
    """The gradient of running sums runs in their direction."""
    return with_gradient(result, lambda g: g.flip(dim)) if result.is_floating_point() and result.dim() else result


@gradients.operator("semantics/gradients/reductions", "var", "std")
def biased_derivatives(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """The gradient of a variance divides by the count, not by one less."""
    if not isinstance(result, torch.Tensor) or not result.numel() or (count := x.numel() // result.numel()) < 2:
        return result
    return with_gradient(result, lambda g: g * ((count - 1) / count))
