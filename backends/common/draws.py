"""Random operators that become others which draw the same numbers, or need not draw any."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def _between(x: Tensor, low: int, high: int | None, *, generator: Any = None) -> Any:
    """The same draws, in the order of ``x`` in memory."""
    if high is None or generator is not None:
        return NotImplemented
    return torch.ops.aten.randint_like.low_dtype(x, low, high, dtype=x.dtype)


def _written_between(x: Tensor, low: int, high: int | None, *, generator: Any = None) -> Any:
    drawn = _between(x, low, high, generator=generator)
    return drawn if drawn is NotImplemented else x.copy_(drawn)


def _bernoulli_(x: Tensor, p: float = 0.5, *, generator: Any = None) -> Any:
    """The same draws, in the order of ``x`` in memory: the operator that functionalization takes, which others call
    for a result in the usual order, draws in that order."""
    strides = x.stride()
    if x.is_contiguous():
        return NotImplemented
    order = sorted(range(x.dim()), key=lambda d: strides[d], reverse=True)
    drawn = torch.ops.aten.bernoulli.p(x.detach().permute(order), p, generator=generator)
    return x.copy_(drawn.permute([order.index(d) for d in range(x.dim())]))


def _in_usual_order(op: Any) -> Callable[..., Any]:
    """The operator, of which fake tensors say that its result lies as its operands do."""

    def drawn(*args: Any, **named: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        if all(a.is_contiguous() for a in tensors):
            return NotImplemented
        return op(*(a.contiguous() if isinstance(a, Tensor) else a for a in args), **named)

    return drawn


_USUAL_ORDER = (
    torch.ops.aten.poisson.default, torch.ops.aten._standard_gamma.default, torch.ops.aten.normal.Tensor_Tensor,
)  # fmt: skip

IN_ORDER: Mapping[Any, Callable[..., Any]] = {
    torch.ops.aten.bernoulli_.float: _bernoulli_,
    **{op: _in_usual_order(op) for op in _USUAL_ORDER},
}
"""What draws, or lays its result out, in another order than its trace."""

AS_KERNELS: Mapping[Any, Callable[..., Any]] = {
    getattr(torch.ops.aten.random, "from"): _between,
    getattr(torch.ops.aten.random_, "from"): _written_between,
    **IN_ORDER,
}
"""What is traced otherwise than it should be.

The code that torch generates of a graph names operators, and a word of Python's, as ``from``, is no name there.
"""


def _rrelu(x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool = False, generator: Any = None) -> Any:
    """The kernel's result has no gaps."""
    return NotImplemented if training else (torch.ops.aten.leaky_relu(x.contiguous(), (lower + upper) / 2), noise)


UNLESS_TRAINED: Mapping[Any, Callable[..., Any]] = {torch.ops.aten.rrelu_with_noise_functional.default: _rrelu}
"""Without training there is nothing random."""
