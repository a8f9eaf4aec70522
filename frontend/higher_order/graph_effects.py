"""The side effects of a graph: whether it draws random numbers, and which operators write to their arguments."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from torchmux import torch_internals as ti

# Writes to its running statistics, which its schema does not say.
_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_TRAINING = 5


class Watch(ti.TorchDispatchMode):
    """Active inside a fake mode while a graph runs on fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.random = False
        self.writes = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.random |= torch.Tag.nondeterministic_seeded in func.tags
        if func is _BATCH_NORM and args[3] is not None and args[_TRAINING]:
            self.writes = str(func)
        return func(*args, **(kwargs or {}))


def writes_through_data(graph: torch.fx.Graph) -> bool:
    """Whether a graph writes to what ``.data`` returned, which has a version of its own that counts from zero."""
    return any(
        node.target is getattr and node.args[1] == "data" and not node.meta["example_value"].is_inference()
        and node.meta["example_value"]._version
        for node in graph.nodes
    )  # fmt: skip
