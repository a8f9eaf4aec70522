"""Autocast regions of a graph, which are exited if the graph fails inside one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx

_enter_autocast = torch.amp.autocast_mode._enter_autocast


def restoring(run: Callable[..., Any], graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """``run``, or a function that calls it and restores autocast if it raises."""
    devices = sorted({str(node.args[0]) for node in graph.graph.nodes if node.target is _enter_autocast})
    if not devices:
        return run

    def run_and_restore(*inputs: Any) -> Any:
        before = _autocast_state(devices)
        try:
            return run(*inputs)
        except BaseException:
            _restore_autocast(devices, before)
            raise

    return run_and_restore


def _autocast_state(devices: list[str]) -> tuple[int, bool, list[tuple[bool, torch.dtype]]]:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    each = [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in devices]
    return depth, torch.is_autocast_cache_enabled(), each


def _restore_autocast(devices: list[str], before: tuple[int, bool, list[tuple[bool, torch.dtype]]]) -> None:
    depth, cache, each = before
    now = _autocast_state(devices)[0]
    for _ in range(now - depth):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
    for device, (enabled, dtype) in zip(devices, each, strict=True):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(cache)
