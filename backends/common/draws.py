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


NAMED: Mapping[Any, Callable[..., Any]] = {
    getattr(torch.ops.aten.random, "from"): _between,
    getattr(torch.ops.aten.random_, "from"): _written_between,
}
"""The code that torch generates of a graph names operators, and a word of Python's is no name there."""


def _rrelu(x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool = False, generator: Any = None) -> Any:
    """The kernel's result has no gaps."""
    return NotImplemented if training else (torch.ops.aten.leaky_relu(x.contiguous(), (lower + upper) / 2), noise)


UNLESS_TRAINED: Mapping[Any, Callable[..., Any]] = {torch.ops.aten.rrelu_with_noise_functional.default: _rrelu}
"""Without training there is nothing random."""
