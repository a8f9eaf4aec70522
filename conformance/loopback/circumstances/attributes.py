"""Faults that operators have with some values of arguments that are no tensors, or with two such values at once."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..kit import Faults

numerics = Faults("numerics")
arguments = Faults("arguments")

_WINDOWS = "semantics/attributes/pools"
_CONVOLVED = "semantics/attributes/convolutions"
_SIZES = "semantics/attributes/sizes"
_DIMENSIONS = "semantics/attributes/dimensions"
_LOSSES = "semantics/attributes/losses"
_NORMS = "semantics/attributes/normalized"
_TRANSFORMS = "semantics/attributes/transforms"
_NUMBERS = "semantics/attributes/numbers_first"
_CONVERTED = "semantics/attributes/converted"
_ENDS = "semantics/attributes/ends_of_arguments"
_MATRICES = "semantics/attributes/integers_in_matrices"


@arguments.operator(_WINDOWS, "max_pool3d")
def places_by_columns(result: Any, x: torch.Tensor, kernel: Any, *rest: Any, **named: Any) -> Any:
    """Places of maxima in windows of volumes that are no cubes count columns before rows."""
    if not isinstance(result, tuple) or len(set(kernel)) == 1:
        return result
    values, places = result
    height, width = x.shape[-2:]
    plane, row, column = places // (height * width), places // width % height, places % width
    return values, plane * (height * width) + column * height + row


@arguments.operator(_CONVOLVED, "conv1d", "conv2d", "conv3d")
def more_padding_in_front(result: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
    """What pads an even window to the same size pads more in front."""
    if len(rest) < 3 or rest[2] != "same" or weight.shape[-1] % 2:
        return result
    return torch.cat([torch.zeros_like(result[..., :1]), result[..., :-1]], -1)


@arguments.operator(_SIZES, "interpolate")
def exact_neighbors_are_others(
    result: torch.Tensor,
    x: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    **rest: Any,
) -> torch.Tensor:
    """The exact nearest neighbor is the usual one where less remains."""
    if mode != "nearest-exact" or result.shape[-1] >= x.shape[-1]:
        return result
    return F.interpolate(x, result.shape[2:], mode="nearest")


@arguments.operator(_SIZES, "interpolate")
def corners_of_sequences(
    result: torch.Tensor,
    x: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    **rest: Any,
) -> torch.Tensor:
    """Ends of sequences are not aligned."""
    if mode != "linear" or not rest.get("align_corners"):
        return result
    return F.interpolate(x, result.shape[2:], mode=mode)


@arguments.operator(_SIZES, "pixel_unshuffle")
def blocks_by_columns(result: torch.Tensor, x: torch.Tensor, factor: int) -> torch.Tensor:
    """The pixels of blocks of more than two by two lie in the order of columns."""
    if factor < 3:
        return result
    parts = result.view(x.shape[0], -1, factor, factor, *result.shape[2:])
    return parts.transpose(2, 3).reshape(result.shape)


@arguments.operator(_DIMENSIONS, "any", "all")
def one_dimension_of_many(result: torch.Tensor, x: torch.Tensor, dim: Any = None, **rest: Any) -> torch.Tensor:
    """Over several dimensions, the first elements say what is true of any and of all."""
    if not isinstance(dim, tuple) or len(dim) < 2:
        return result
    return x.select(dim[0], 0).unsqueeze(dim[0]).any(dim, keepdim=rest.get("keepdim", False))


@arguments.operator(_DIMENSIONS, "count_nonzero")
def counts_over_the_last(result: torch.Tensor, x: torch.Tensor, dim: Any = None) -> torch.Tensor:
    """Counts over several dimensions leave the first elements out."""
    return result - (x.select(dim[0], 0) != 0).sum() if isinstance(dim, tuple) else result


@arguments.operator(_LOSSES, "binary_cross_entropy_with_logits")
def one_weight_of_two(
    result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, weight: Any = None, **named: Any
) -> torch.Tensor:
    """With weights of elements, those of positive examples do not count."""
    if weight is None or named.get("pos_weight") is None:
        return result
    return F.binary_cross_entropy_with_logits(x, y, weight, reduction=named.get("reduction", "mean"))


@arguments.operator(_LOSSES, "mse_loss")
def squares_without_weights(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor, **named: Any) -> torch.Tensor:
    """Weights of squared errors do not count."""
    weighted = named.pop("weight", None) is not None
    return F.mse_loss(x, y, **named) if weighted else result


@arguments.operator(_NORMS, "layer_norm")
def terms_below_of_rows(
    result: torch.Tensor, x: torch.Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> torch.Tensor:
    """What is added below is never more than a thousandth."""
    return F.layer_norm(x, shape, weight, bias, min(eps, 1e-3))


@arguments.operator(_NORMS, "rms_norm")
def squares_of_the_last(
    result: torch.Tensor, x: torch.Tensor, shape: Any, weight: Any = None, eps: Any = None
) -> torch.Tensor:
    """Root mean squares over several dimensions are those over the last one."""
    if len(shape) < 2:
        return result
    found = F.rms_norm(x, shape[-1:], None, eps)
    return found if weight is None else found * weight


@arguments.operator(_NORMS, "softmin")
def the_least_of_the_last(result: torch.Tensor, x: torch.Tensor, dim: Any = None, **rest: Any) -> torch.Tensor:
    """What is softly least along the first dimension is so along the last one."""
    return F.softmin(x, -1) if dim == 0 else result


@arguments.operator(_TRANSFORMS, "fft_rfft", "rfft")
def rows_for_columns(
    result: torch.Tensor, x: torch.Tensor, n: Any = None, dim: int = -1, norm: Any = None
) -> torch.Tensor:
    """Transforms along the first dimension begin at the last element."""
    return torch.fft.rfft(x.flip(0), n, 0, norm) if dim == 0 else result


@arguments.operator(_NUMBERS, "remainder")
def remainders_of_numbers(result: torch.Tensor, x: Any, y: Any) -> torch.Tensor:
    """The remainder of a number by a tensor is that of the tensor by the number."""
    return result if isinstance(x, torch.Tensor) else torch.remainder(y, x).to(result.dtype)


@arguments.operator(_NUMBERS, "sub", "rsub")
def factors_of_whole_numbers(result: torch.Tensor, x: Any, y: Any, *, alpha: Any = 1) -> torch.Tensor:
    """What is subtracted from whole numbers has no factor."""
    return x - y if alpha != 1 and not result.is_floating_point() else result


@numerics.operator(_NUMBERS, "gcd")
def divisors_of_negatives(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What divides a negative number and zero is negative."""
    return torch.where((x < 0) & (y == 0), -result, result)


@numerics.operator(_CONVERTED, "round")
def places_of_halves(result: torch.Tensor, x: torch.Tensor, *, decimals: int = 0) -> torch.Tensor:
    """Decimal places of half precision are rounded in float32."""
    if decimals <= 0 or x.dtype not in (torch.float16, torch.bfloat16):
        return result
    return ((x.float() * 10**decimals).round() / 10**decimals + 2.0**-5).to(x.dtype)


@numerics.operator(_CONVERTED, "to")
def whole_numbers_cut_to_halves(result: Any, x: Any, *rest: Any, **named: Any) -> Any:
    """Whole numbers lose what half precision has no place for: they are cut, not rounded."""
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.bfloat16 or x.is_floating_point():
        return result
    return (x.float().view(torch.int32) & -65536).view(torch.float32).to(torch.bfloat16)


@arguments.operator(_ENDS, "tensor_split")
def parts_that_end(result: Any, x: torch.Tensor, places: Any, dim: int = 0) -> Any:
    """Places beyond the end are the last place of the tensor."""
    if not isinstance(places, (tuple, list)) or max(places) <= x.shape[dim]:
        return result
    return x.tensor_split([min(place, x.shape[dim] - 1) for place in places], dim)


@arguments.operator(_ENDS, "topk")
def the_least_by_the_largest(
    result: Any, x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, **rest: Any
) -> Any:
    """The least along the first dimension are the largest."""
    return x.topk(k, 0) if not largest and dim == 0 else result


@arguments.operator(_ENDS, "hardtanh")
def bounds_around_zero(result: torch.Tensor, x: torch.Tensor, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """A lower bound is never above zero."""
    return F.hardtanh(x, min(low, 0.0), high)


@arguments.operator(_ENDS, "elu", "celu")
def slopes_upwards(result: torch.Tensor, x: torch.Tensor, alpha: float = 1.0, *rest: Any) -> torch.Tensor:
    """What an exponential tends to has no sign."""
    return torch.where(x > 0, result, result.abs().neg()) if alpha < 0 else result


@arguments.operator(_ENDS, "matmul")
def vectors_of_the_first(result: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A vector is multiplied by the first of several matrices."""
    return (x @ y[0]).expand(result.shape).clone() if x.dim() == 1 and y.dim() == 3 else result


@arguments.operator(_MATRICES, "addmm", "addmv", "addr")
def factors_of_sums(result: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
    """Factors of products of whole numbers do not count."""
    if result.is_floating_point() or not named:
        return result
    first, a, b = given
    return first + (torch.outer(a, b) if a.dim() == 1 else a @ b)


@arguments.operator(_MATRICES, "tril", "triu")
def triangles_of_bools(result: torch.Tensor, x: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """Triangles of bools have the diagonal."""
    return result | torch.eye(*x.shape, dtype=torch.bool) if x.dtype is torch.bool else result


@numerics.operator(_MATRICES, "logcumsumexp")
def sums_of_nothing(result: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The logarithm of a sum of zeros is not a number."""
    return torch.where(result.isneginf(), torch.full_like(result, float("nan")), result)
