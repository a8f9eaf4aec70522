"""Where a graph runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import GraphModule

_CPU = torch.device("cpu")


def device_of(gm: GraphModule) -> torch.device:
    """The device of the tensors in an ATen graph; numbers as tensors on the CPU may be among those of another one."""
    found = {t.device: None for node in gm.graph.nodes for t in _tensors(node.meta.get("val"))}
    return next((device for device in found if device.type != "cpu"), _CPU)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)
