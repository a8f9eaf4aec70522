"""Operators that take functions or graphs."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.while_loop import while_loop as while_loop


def tag_checkpoint() -> Any:
    """The operator that runs a checkpointed graph while a compiler traces it."""
    return torch.ops.higher_order.tag_activation_checkpoint


def random_wrappers() -> tuple[Any, ...]:
    """The operators that run a random one of forward, and run it again in backward with the same numbers."""
    higher_order = torch.ops.higher_order
    return higher_order.run_and_save_rng_state, higher_order.run_with_rng_state
