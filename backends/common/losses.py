"""Losses by smaller operators, where torch's formulas are not those of eager's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

_MEAN, _SUM = 1, 2  # of ATen's reductions


def formulas(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """A decomposition of each loss that differs from the one in torch's ``table``.

    The formula of the Huber loss promotes its arguments, which the kernel does not; that of the binary cross entropy
    computes something for numbers that are no probabilities, which the kernel refuses; and that of the likelihood of
    images keeps their layout.  There is none of the soft margin's loss.
    """
    aten = torch.ops.aten
    huber, entropy, images = (
        table[op]
        for op in (aten.huber_loss.default, aten.binary_cross_entropy.default, aten.nll_loss2d_forward.default)
    )

    def huber_loss(x: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        return huber(x, target, *args, **kwargs) if x.dtype is target.dtype else NotImplemented

    def binary_cross_entropy(x: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.device.type == "cpu":  # a failed assertion stops other devices
            for name, each in (("input", x), ("target", target)):
                words = f"all elements of {name} should be between 0 and 1"
                aten._assert_async.msg(((each >= 0) & (each <= 1)).all(), words)
        return entropy(x, target, *args, **kwargs)

    def nll_loss2d_forward(*args: Any) -> Any:
        result, weight = images(*args)
        return result.contiguous(), weight

    return {
        aten.huber_loss.default: huber_loss,
        aten.binary_cross_entropy.default: binary_cross_entropy,
        aten.nll_loss2d_forward.default: nll_loss2d_forward,
        aten.soft_margin_loss.default: _soft_margin_loss,
        aten.nll_loss_backward.default: _nll_loss_backward,
        aten.nll_loss2d_backward.default: _nll_loss_backward,
    }


def _soft_margin_loss(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Any:
    """The kernel's steps; it changes a copy of ``x`` in place, which has the layout and the type of ``x``."""
    if target.shape != x.shape or target.dtype is not x.dtype or reduction not in (_MEAN, _SUM):
        return NotImplemented
    each = (-x * target).exp().log1p()
    return each.mean() if reduction == _MEAN else each.sum()


def _nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    """The gradient of the class of each sample; of all other classes it is zero.

    torch's formula multiplies the gradient by zero there, which is negative for a negative one, and nan for infinity.
    """
    classes = 0 if x.dim() < 2 else 1
    shape = [-1 if d == classes else 1 for d in range(x.dim())]
    if reduction == _MEAN:
        gradient = gradient / total
    if gradient.dim() == target.dim() > 0:
        gradient = gradient.unsqueeze(classes)
    gradient = -gradient
    if weight is not None:
        gradient = gradient * weight.view(shape)
    target = target.unsqueeze(classes) if x.dim() > 1 or target.dim() == 0 else target
    chosen = (torch.arange(x.shape[classes], device=x.device).view(shape) == target) & (target != ignored)
    return torch.where(chosen, gradient, 0.0)
