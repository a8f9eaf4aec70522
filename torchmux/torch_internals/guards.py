"""Guards that torch checks in C++: on tensors, and on the global state that operators depend on."""

from __future__ import annotations

from typing import Any

import torch
from torch._C._dynamo.guards import GlobalStateGuard as GlobalStateGuard, TensorGuards as TensorGuards


def dispatch_keys(tensor: Any) -> int:
    """The dispatch keys of a tensor's own, as the bits in which torch keeps them."""
    return torch._C._dispatch_keys(tensor).raw_repr()
