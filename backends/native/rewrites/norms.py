"""Batch norms of training, whose results follow from the input and the statistics, element by element.

Autograd saves the input of a norm, and an activation such as SiLU its own, which is the result of the norm.  Where a
formula gives that result, the partitioner of the joint graph saves the input alone, and backward computes the result
again where it reads it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NORM = torch.ops.aten._native_batch_norm_legit_functional.default


def by_formula(
    images: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_variance: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The operator without weight and bias, for the statistics, and the formula for the rest.

    Statistics of a narrower type than the arithmetic, as half precision has on a CPU, would be rounded on the way.
    """
    is_half = images.dtype.itemsize < 4
    if not training or (weight is None and bias is None) or (is_half and images.device.type == "cpu"):
        return NotImplemented
    is_last = images.dim() == 4 and images.is_contiguous(memory_format=torch.channels_last)
    if not is_last and not images.is_contiguous():
        return NotImplemented  # the operator's result lies otherwise
    _, mean, scale, *running = NORM(images, None, None, running_mean, running_variance, training, momentum, eps)

    def each(vector: Tensor) -> Tensor:
        return vector.view(1, -1, *[1] * (images.dim() - 2))

    result = (images - each(mean)) * each(scale)
    if weight is not None:
        result = result * each(weight)
    if bias is not None:
        result = result + each(bias)
    return result.to(images.dtype), mean, scale, *running
