"""The results of torch's operators, compared with what the traced graph says about them.

Generated code relies on the dtypes and sizes of fake tensors.  If a kernel of torch returned another dtype or size,
that code would misread memory.  Each tensor that goes from an operator of torch to a compiled part is
therefore checked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from torchmux.registry.errors import CompilationFailed

log = logging.getLogger("torchmux.fallback")

Promise = list[Any]
"""The name of a dtype and the sizes, None for a symbolic one, as JSON can represent them."""


def promise_of(value: Any) -> Promise | None:
    """The dtype and sizes that ``value``, a fake tensor, promises; None for anything but tensors."""
    if not isinstance(value, torch.Tensor):
        return None
    return [str(value.dtype).removeprefix("torch."), [s if type(s) is int else None for s in value.shape]]


def keeper(promise: Promise, name: str) -> Any:
    """A function that returns its argument, a tensor, converted to what was promised."""
    dtype: torch.dtype = getattr(torch, promise[0])
    sizes = promise[1]
    static = None if None in sizes else torch.Size(sizes)

    def kept(value: Any) -> Any:
        if value.dtype is dtype and (value.shape == static if static is not None else _fits(value.shape, sizes)):
            return value
        return brought(value, dtype, value.shape if _fits(value.shape, sizes) else sizes, name)

    kept.__name__ = kept.__qualname__ = "kept"
    return kept


def _fits(found: Sequence[int], promised: Sequence[int | None]) -> bool:
    return len(found) == len(promised) and all(b is None or a == b for a, b in zip(found, promised, strict=True))


def brought(value: torch.Tensor, dtype: torch.dtype, sizes: Sequence[Any], name: str) -> torch.Tensor:
    """``value`` converted to ``dtype``; a conversion is logged.

    Raises:
        CompilationFailed: ``value`` has other sizes than promised.
    """
    if tuple(value.shape) != tuple(sizes):
        raise CompilationFailed(
            f"torch's {name} returned a tensor of sizes {tuple(value.shape)} where the trace says {tuple(sizes)}; code "
            "that was compiled for the latter cannot run on the former."
        )
    if value.dtype is not dtype:
        log.warning("torch's %s returned %s where the trace says %s: converted", name, value.dtype, dtype)
        return value.to(dtype)
    return value
