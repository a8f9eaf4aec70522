"""Where a graph runs."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

_CPU = torch.device("cpu")


def device_of(gm: GraphModule) -> torch.device:
    """The device of the tensors in an ATen graph; numbers as tensors on the CPU may be among those of another one."""
    return device_of_graph(gm.graph)


_known: weakref.WeakKeyDictionary[Graph, tuple[int, torch.device]] = weakref.WeakKeyDictionary()


def device_of_graph(graph: Graph) -> torch.device:
    """See :func:`device_of`; it is asked for each node."""
    size = len(graph.nodes)
    known = _known.get(graph)
    if known is None or known[0] != size:
        found = (t.device for node in graph.nodes for t in tensors_in(node.meta.get("val")))
        known = _known[graph] = size, next((device for device in found if device.type != "cpu"), _CPU)
    return known[1]


def elsewhere(node: Node) -> str | None:
    """Why a node is not for the code of its graph, which runs on one device; None if it is.

    Tensors on the CPU that a graph on a GPU makes are few and small: torch makes them.
    """
    found = {t.device for t in tensors_in(node.meta.get("val"))}
    if not found or found == {device_of_graph(node.graph)}:
        return None
    return f"it makes a tensor on {next(iter(found))}, but the graph runs on {device_of_graph(node.graph)}"


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """The tensors in what a node computes."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
