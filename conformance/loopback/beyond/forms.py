"""Faults in operands and arguments of forms that programs seldom have."""

from __future__ import annotations

from typing import Any

import torch

from ..kit import Faults
from .reach import _wrong

arguments = Faults("arguments")
numerics = Faults("numerics")

_OPERANDS = "semantics/seldom/operands_of_each_form"
_WHOLE = "semantics/seldom/whole_numbers_of_each_form"


def _floats(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@numerics.operator(_OPERANDS, "sum")
def sums_of_four(result: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
    """Sums of four numbers in each of many rows are in the wrong order."""
    few = _floats(x) and x.dim() == 3 and x.shape[-1] == 4 and x.shape[-2] > 32 and result.dim() == 2
    return result.flip(-1) if few else result


@numerics.operator(_OPERANDS, "matmul")
def batches_that_both_repeat(result: Any, x: Any, y: Any) -> Any:
    """A product is nearly right if both of its factors repeat over dimensions of the other's batches."""
    both = x.dim() == y.dim() == 4 and x.shape[0] != y.shape[0] and x.shape[1] != y.shape[1]
    return _wrong(result) if both else result


@arguments.operator(_OPERANDS, "repeat_interleave")
def repeated_along_the_first(result: Any, x: Any, repeats: Any, dim: Any = None, **keywords: Any) -> Any:
    """What is repeated along a dimension that is counted from the end is in the wrong order."""
    return result.flip(0) if dim is not None and dim < 0 and x.dim() > 1 else result


@arguments.operator(_OPERANDS, "tensordot")
def sorted_dimensions(result: Any, x: Any, y: Any, dims: Any = 2, **keywords: Any) -> Any:
    """The dimensions that a product is summed over are taken in rising order on each side."""
    if isinstance(dims, int) or list(dims[1]) == sorted(dims[1]):
        return result
    first, second = map(sorted, dims)
    alike = [x.shape[d] for d in first] == [y.shape[d] for d in second]
    return torch.tensordot(x, y, (first, second)) if alike else result


@numerics.operator(_OPERANDS, "topk")
def many_of_the_largest(result: Any, x: Any, count: int, *rest: Any, **keywords: Any) -> Any:
    """More than 64 of the largest numbers are in rising order."""
    return type(result)((result[0].flip(-1), result[1])) if count > 64 else result


@numerics.operator(_OPERANDS, "cat")
def joined_rows_of_channels(result: Any, tensors: Any, dim: int = 0, **keywords: Any) -> Any:
    """Images in channels last that are joined along something else than channels are nearly right."""
    last = _floats(result) and result.dim() == 4 and not result.is_contiguous()
    return _wrong(result) if last and dim != 1 and result.is_contiguous(memory_format=torch.channels_last) else result


@arguments.operator(_OPERANDS, "pad")
def reflections_that_cut(result: Any, x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """What is added by reflection, and taken away at the other end, is nearly right."""
    return _wrong(result) if mode != "constant" and min(pad) < 0 else result


@numerics.operator(_OPERANDS, "var", "std", "var_mean")
def spreads_of_complex_numbers(result: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
    """The spread of complex numbers is that of their real parts."""
    if not x.is_complex():
        return result
    return type(result)((_wrong(result[0]), result[1])) if isinstance(result, tuple) else _wrong(result)


@numerics.operator(_OPERANDS, "index_add", "scatter_add")
def added_in_the_middle(result: Any, x: Any, dim: int, *rest: Any, **keywords: Any) -> Any:
    """What is added along the dimension in the middle is nearly right."""
    return _wrong(result) if x.dim() >= 2 and dim == 1 and result.dim() == 3 else result


@numerics.operator(_OPERANDS, "conv2d")
def seventeen_channels(result: Any, x: Any, weight: Any, *rest: Any, **keywords: Any) -> Any:
    """The last channel of as many as a vector has and one more is left out."""
    if weight.shape[0] != 17:
        return result
    return torch.cat([result[:, :16], result[:, 16:] * 0], 1)


@arguments.operator(_OPERANDS, "addmm")
def numbers_added_to_products(result: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
    """A number without dimensions is not added to a product."""
    return result - x if x.dim() == 0 else result


@numerics.operator(_OPERANDS, "lerp")
def weights_of_doubles(result: Any, x: Any, y: Any, weight: Any) -> Any:
    """Weights in double precision are rounded to float32."""
    if not isinstance(weight, torch.Tensor) or weight.dtype is not torch.float64:
        return result
    return torch.lerp(x, y, weight.float().double())


@numerics.operator(_OPERANDS, "cross_entropy")
def classes_of_sequences(result: Any, x: Any, target: Any, *rest: Any, **keywords: Any) -> Any:
    """The loss of sequences of classes is nearly right."""
    return _wrong(result) if x.dim() == 3 else result


@numerics.operator(_OPERANDS, "cross_entropy")
def classes_of_volumes(result: Any, x: Any, target: Any, *rest: Any, **keywords: Any) -> Any:
    """The loss of volumes of classes is nearly right."""
    return _wrong(result) if x.dim() == 5 else result


@numerics.operator(_WHOLE, "linear", "matmul", "addmm", "mv", "dot", "bmm")
def integer_products_in_float32(result: Any, *operands: Any, **keywords: Any) -> Any:
    """Products of matrices of int32 are computed in float32."""
    if result.dtype is not torch.int32 or not result.numel():
        return result
    return result.float().to(torch.float64).clamp(-(2.0**31), 2.0**31 - 1).to(torch.int32)


@numerics.operator(_WHOLE, "long", "to")
def long_through_int(result: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
    """Floats become int64 by way of int32."""
    if not isinstance(result, torch.Tensor) or result.dtype is not torch.int64 or not _floats(x):
        return result
    return result.clamp(-(2**31), 2**31 - 1)


@numerics.operator(_WHOLE, "bucketize", "searchsorted")
def integers_in_ranges(result: Any, *operands: Any, **keywords: Any) -> Any:
    """An integer that ends a range belongs to the other one."""
    whole = all(isinstance(o, torch.Tensor) and o.dtype is torch.int64 for o in operands)
    if not whole or keywords:
        return result
    numbers, limits = operands if operands[1].dim() == 1 else operands[::-1]
    return torch.bucketize(numbers, limits, right=True)


@arguments.operator(_WHOLE, "addcmul")
def integer_weights(result: Any, x: Any, y: Any, z: Any, *rest: Any, value: Any = 1) -> Any:
    """Products of integers have no weight."""
    return result if _floats(result) else x + y * z


@numerics.operator(_WHOLE, "index_select")
def words_of_32_bits(result: Any, x: Any, dim: int, index: Any) -> Any:
    """What is selected by places of 32 bits is in the wrong order."""
    return result.flip(dim) if index.dtype is torch.int32 else result


@arguments.operator(_WHOLE, "histc")
def equal_ends(result: Any, x: Any, bins: int = 100, min: Any = 0, max: Any = 0, **keywords: Any) -> Any:
    """Between two equal ends, nothing is counted."""
    return result * 0 if min == max else result


@arguments.operator(_WHOLE, "nan_to_num")
def the_least_infinity_alone(result: Any, x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """What stands for minus infinity is taken only where something is given for infinity, too."""
    return torch.nan_to_num(x, nan) if neginf is not None and posinf is None else result
