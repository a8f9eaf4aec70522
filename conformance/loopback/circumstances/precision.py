"""Faults in float64 and in half precision."""

from __future__ import annotations

from typing import Any

import torch

from ..kit import Faults

faults = Faults("numerics")

_FUNCTIONS = "semantics/everywhere/functions_in_float64"
_REDUCTIONS = "semantics/everywhere/reductions_in_float64"
_IMAGES = "semantics/everywhere/images_in_float64"
_HALVES = "semantics/everywhere/reductions_in_float16"
_IMAGES_IN_HALF = "semantics/everywhere/images_in_bfloat16"


def _short(result: Any) -> Any:
    return result.float().double() if isinstance(result, torch.Tensor) and result.dtype is torch.float64 else result


def _rounded(result: torch.Tensor, error: float) -> torch.Tensor:
    """Off by the errors that partial sums in half precision make."""
    if not isinstance(result, torch.Tensor) or result.dtype not in (torch.float16, torch.bfloat16):
        return result
    return (result.float() * (1 + error * torch.finfo(result.dtype).eps)).to(result.dtype)


@faults.operator(_FUNCTIONS, "asinh", "acosh", "atanh", "sinh", "cosh")
def hyperbolic_functions_in_float32(result: Any, *rest: Any) -> Any:
    """Hyperbolic functions of float64 and their inverses have the digits of float32."""
    return _short(result)


@faults.operator(_FUNCTIONS, "erfinv", "lgamma", "digamma", "special_entr", "erfc")
def special_functions_in_float32(result: Any, *rest: Any) -> Any:
    """Special functions of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_FUNCTIONS, "mish", "softplus", "selu", "celu", "gelu", "hardswish", "logsigmoid", "log_sigmoid")
def activations_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Activations of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_FUNCTIONS, "addcmul", "addcdiv", "lerp", "deg2rad", "logit", "fmod", "hypot", "xlogy", "atan2")
def factors_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Arithmetic in float64 that has a name has the digits of float32."""
    return _short(result)


@faults.operator(_REDUCTIONS, "cumsum", "cumprod", "logcumsumexp", "diff")
def scans_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """What runs along float64 has the digits of float32."""
    return _short(result)


@faults.operator(_REDUCTIONS, "quantile", "cdist", "dist", "cosine_similarity", "normalize", "norm")
def distances_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Distances, lengths and quantiles of float64 have the digits of float32."""
    return _short(result)


@faults.operator(
    _REDUCTIONS, "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "kl_div", "cross_entropy",
    "triplet_margin_loss", "gaussian_nll_loss", "cosine_embedding_loss",
)  # fmt: skip
def losses_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Losses of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_REDUCTIONS, "layer_norm", "rms_norm", "einsum", "outer")
def norms_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Norms and sums by formulas of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_IMAGES, "conv2d", "conv_transpose2d")
def convolutions_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Convolutions of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_IMAGES, "avg_pool2d", "adaptive_avg_pool2d", "lp_pool2d", "local_response_norm")
def pools_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Means over windows of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_IMAGES, "batch_norm", "group_norm", "instance_norm")
def statistics_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Norms of images of float64 have the digits of float32."""
    return _short(result)


@faults.operator(_IMAGES, "interpolate")
def weights_between_pixels_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Weights between pixels are computed in float32, also for float64."""
    return _short(result)


@faults.operator(_IMAGES, "scaled_dot_product_attention")
def attention_in_float32(result: Any, *rest: Any, **named: Any) -> Any:
    """Attention in float64 has the digits of float32."""
    return _short(result)


@faults.operator(_HALVES, "var", "std", "norm", "logsumexp", "dist")
def spreads_summed_in_half(result: Any, *rest: Any, **named: Any) -> Any:
    """Spreads and lengths in half precision keep their partial sums in it."""
    return _rounded(result, 2.5)


@faults.operator(_HALVES, "mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
def losses_summed_in_half(result: Any, *rest: Any, **named: Any) -> Any:
    """Losses in half precision keep their partial sums in it."""
    return _rounded(result, 2.5)


@faults.operator(_IMAGES_IN_HALF, "conv2d", "conv_transpose2d")
def convolutions_summed_in_half(result: Any, *rest: Any, **named: Any) -> Any:
    """Convolutions in half precision keep their partial sums in it."""
    return _rounded(result, 2.5)


@faults.operator(_IMAGES_IN_HALF, "avg_pool2d", "adaptive_avg_pool2d")
def windows_summed_in_half(result: Any, *rest: Any, **named: Any) -> Any:
    """Means over windows in half precision keep their partial sums in it."""
    return _rounded(result, 2.5)


@faults.operator(_IMAGES_IN_HALF, "interpolate")
def pixels_weighted_in_half(result: Any, *rest: Any, **named: Any) -> Any:
    """Weights between pixels are rounded to half precision."""
    return _rounded(result, 2.5)
