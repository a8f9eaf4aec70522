"""A program in float64, whatever types it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchmux import torch_internals as internals

_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class Wide(TorchFunctionMode):
    """Computes in float64: what the program says of narrower types is replaced, and what it holds is widened."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16):
            return args[0].double()
        if func in (torch.Tensor.requires_grad_, torch.Tensor.backward, torch.autograd.backward):
            return func(*args, **(kwargs or {}))
        args, kwargs = internals.pytree.tree_map(_wide, (args, dict(kwargs or {})))
        return func(*args, **kwargs)


def _wide(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return torch.float64 if value in _NARROW else value
    return value.double() if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value
