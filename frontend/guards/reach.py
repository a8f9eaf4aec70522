"""Whether parts of an object can be kept alive without keeping the object itself.

A snapshot of a model that nobody compiled holds the model weakly and its parts strongly.  A part that leads back to the
model would make it live for as long as the compiled code.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Any, NamedTuple

import torch

_MOST = 300_000  # objects that are looked at
_ATOMS = (str, bytes, int, float, complex, types.NoneType, types.CodeType, types.ModuleType, torch.dtype, torch.device)


class Reach(NamedTuple):
    """What an object leads to."""

    modules: set[int]  # the ids of all modules
    closed: bool  # whether its parts do not lead back to it


def reach_of(root: Any) -> Reach | None:
    """What ``root`` leads to; None if that cannot be seen."""
    found: set[int] = set()
    closed = True
    seen: set[int] = set()
    pending = _referents(root)
    while pending:
        obj = pending.pop()
        if obj is root:
            closed = False
        if obj is root or id(obj) in seen or isinstance(obj, _ATOMS) or _is_importable(obj):
            continue
        seen.add(id(obj))
        if len(seen) > _MOST or (isinstance(obj, torch.Tensor) and obj.grad_fn is not None):
            return None  # what a graph of autograd has saved cannot be seen
        if isinstance(obj, torch.nn.Module):
            found.add(id(obj))
        pending.extend(_referents(obj))
    return Reach(found, closed)


def _referents(obj: Any) -> list[Any]:
    referents = gc.get_referents(obj)
    if type(obj) is types.FunctionType:
        return [each for each in referents if each is not obj.__globals__]
    return referents


def _is_importable(obj: Any) -> bool:
    """Whether an imported module keeps a class or function alive, whatever else does."""
    if not isinstance(obj, type | types.FunctionType | types.BuiltinFunctionType):
        return False
    found: Any = sys.modules.get(getattr(obj, "__module__", None) or "")
    for part in obj.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(part)
    return found is obj
