"""The PEP 523 hook in C: what it asks, what it takes for an answer, the entries that it keeps, and guards in C++."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch._C._dynamo.guards import (
    GlobalStateGuard as GlobalStateGuard,
    RootGuardManager as RootGuardManager,
    TensorGuards as TensorGuards,
)

FrameAction = eval_frame._FrameAction
FrameExecStrategy = eval_frame._FrameExecStrategy
set_eval_frame = eval_frame.set_eval_frame
set_code_exec_strategy = eval_frame.set_code_exec_strategy


def not_captured(function: Any) -> Any:
    """``function``, of which the hook leaves alone all that it calls."""
    set_code_exec_strategy(function.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    return function


def drop_entry(guard_manager: Any, replacement: Any) -> None:
    """Empty the hook's entry that ``guard_manager`` guards, if it is still there; ``replacement`` refuses all calls."""
    if guard_manager.extra_state is not None and guard_manager.cache_entry is not None:
        guard_manager.extra_state.invalidate(guard_manager.cache_entry, replacement)


def keep_order_of_entries() -> None:
    """Make the hook leave a code object's entries in their order; it moves one that it finds to the front.

    A walk lets other threads run at each guard. What they move to the front, behind the walk's back, it passes over.
    """
    hook: Any = eval_frame  # torch's stub does not have the name
    hook._set_lru_cache(False)


def _one_bucket(bucket: int) -> int:
    return -1


# Which bucket of a code object's entries the hook reads and fills (torch 2.13 and later; before that all share one).
set_bucket = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", _one_bucket)
has_buckets = set_bucket is not _one_bucket


def retired_guard_class() -> type | None:
    """How torch's own tracer, where it is loaded, marks entries that it must pass over.

    It may meet some of another bucket as well: all threads of a process read and fill the same one at a time.
    """
    guards = sys.modules.get("torch._dynamo.guards")
    return None if guards is None else guards.DeletedGuardManagerWrapper


def dispatch_keys(tensor: Any) -> int:
    """The dispatch keys of a tensor's own, as the bits in which torch keeps them."""
    return torch._C._dispatch_keys(tensor).raw_repr()
