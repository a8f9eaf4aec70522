"""What torch's Python library keeps to itself: calls of graph modules, checks of distributions, pytrees."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree


def calls_forward_alone(graph_module: torch.fx.GraphModule) -> bool:
    """Whether calling ``graph_module`` is calling ``Module.__call__``, but for what it says of errors."""
    cls = type(graph_module)
    wrapped = vars(cls).get("_wrapped_call")
    return wrapped is not None and wrapped.cls_call is None and cls.__call__.__module__ == "torch.fx.graph_module"


def distribution_checks() -> tuple[Any, ...]:
    """What tells distributions whether all elements of a bool tensor are true, as a bool (torch 2.15 and later)."""
    found = getattr(torch.distributions.distribution, "_all_true_or_runtime_assert", None)
    return () if found is None else (found,)


def broadcast_dims(dims: Any, structure: Any) -> list[Any] | None:
    """``in_dims`` or ``out_dims`` of ``vmap`` for each leaf of a pytree; None if they do not fit it."""
    return pytree._broadcast_to_and_flatten(dims, structure)
