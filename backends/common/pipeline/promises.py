"""What a traced graph says of the results of torch's operators, held against what the operators return.

Fake tensors say dtypes and sizes that generated code believes.  Where torch's kernel returns something else, that code
would read memory as what it is not; so whatever goes from an operator to a compiled part is looked at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from torchmux.registry.errors import CompilationFailed

log = logging.getLogger("torchmux.fallback")

Promise = list[Any]
"""A dtype's name and the sizes, None for a symbolic one: what JSON can hold."""


def promise_of(value: Any) -> Promise | None:
    """What ``value``, a fake tensor, says of the real one; None for anything else."""
    if not isinstance(value, torch.Tensor):
        return None
    return [str(value.dtype).removeprefix("torch."), [s if type(s) is int else None for s in value.shape]]


def keeper(promise: Promise, name: str) -> Any:
    """A function that returns the tensor that it gets, in the promised form."""
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
    """``value`` converted to ``dtype``, which is logged.

    Raises:
        CompilationFailed: it has other sizes.
    """
    if tuple(value.shape) != tuple(sizes):
        raise CompilationFailed(
            f"torch's {name} returned a tensor of sizes {tuple(value.shape)} where the trace says {tuple(sizes)}; code "
            "that was compiled for the one cannot take the other."
        )
    if value.dtype is not dtype:
        log.warning("torch's %s returned %s where the trace says %s: converted", name, value.dtype, dtype)
        return value.to(dtype)
    return value
