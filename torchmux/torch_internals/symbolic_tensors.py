"""``torch.tensor`` of symbolic numbers, such as sizes, while a program is traced.

torch would read the numbers: a constant of the graph and a guard for each value, and, where a graph is traced to ATen,
what is left of the number in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class SymbolicTensors(TorchFunctionMode):
    """Makes such a tensor of one operator for each number, which ATen graphs can hold."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.tensor and len(args) == 1 and kwargs.keys() <= {"dtype", "device"}:
            numbers = tree_leaves(args[0])
            inferred = _dtype_of(numbers)
            dtype = kwargs.get("dtype") or inferred
            if dtype is not None and inferred is not None and _shape_of(args[0]) is not None and _holds(dtype, numbers):
                return _stacked(args[0], dtype, kwargs.get("device"))
        if func is torch.unravel_index:  # makes such tensors, where this mode is off
            with self:
                return torch.functional._unravel_index(*args, **kwargs).unbind(-1)
        return func(*args, **kwargs)


# Up to which numbers a float becomes an integer; ``torch.tensor`` refuses some that are a little larger.
_MOST = {torch.int8: 2.0**6, torch.int16: 2.0**14, torch.int32: 2.0**30, torch.int64: 2.0**52}
# Dtypes that take every float: what is too large is infinity there, or true.
_UNLIMITED = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool,
)  # fmt: skip


def _dtype_of(numbers: list[Any]) -> torch.dtype | None:
    """What torch infers, or None if no number is symbolic, or something else than numbers is among them."""
    if not any(isinstance(n, (torch.SymInt, torch.SymFloat)) for n in numbers):
        return None
    if any(type(n) not in (int, bool, float, torch.SymInt, torch.SymFloat) for n in numbers):
        return None
    return torch.get_default_dtype() if any(type(n) in (float, torch.SymFloat) for n in numbers) else torch.int64


def _holds(dtype: torch.dtype, numbers: list[Any]) -> bool:
    """Whether operators make of floats what ``torch.tensor`` does, which refuses what an integer cannot hold.

    Where that depends on the numbers, the graph is guarded to get small ones.
    """
    floats = [n for n in numbers if isinstance(n, torch.SymFloat)]
    if dtype in _UNLIMITED or not floats:
        return True
    most = _MOST.get(dtype)
    return most is not None and all(-most <= n and n <= most for n in floats)


def _shape_of(data: Any) -> tuple[int, ...] | None:
    """The sizes of nested sequences; None if they differ, which torch.tensor does not take."""
    if not isinstance(data, (list, tuple)):
        return ()
    shapes = {_shape_of(part) for part in data}
    (shape,) = shapes if len(shapes) == 1 else (None,)
    return None if shape is None else (len(data), *shape)


def _stacked(data: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(part, dtype, device) for part in data])
    if isinstance(data, torch.SymFloat):  # what is too large for a dtype is an error in torch.full
        return torch.scalar_tensor(data, dtype=torch.float64, device=device).to(dtype)
    return torch.full((), data, dtype=dtype, device=device)
