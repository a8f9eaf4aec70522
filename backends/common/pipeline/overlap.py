"""Writes to tensors whose elements overlap in memory, as in ``x.expand(4).fill_(1)``.

Eager allows some of these writes, and their result depends on how the elements overlap.  Functionalization treats each
element as separate memory: it adds up the copies, or chooses one.  A graph that writes to such a tensor therefore runs
in torch, which also raises eager's error if eager refuses the write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

from . import aliasing

REASON = "the graph writes to a tensor of which several elements lie in one place"


def is_overlapping(value: Any) -> bool:
    """Whether elements of this tensor may overlap; symbolic sizes have the values of this call."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    sizes, strides = [_now(n) for n in value.shape], [_now(n) for n in value.stride()]
    if None in sizes or None in strides or 0 in sizes:
        return False  # an unbacked size belongs to a new tensor, which does not overlap itself
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def _now(number: Any) -> Any:
    return number if type(number) is int else number.node.hint


def is_written_to(traced: GraphModule) -> bool:
    """Whether an operator of an ATen graph writes to a tensor that overlaps itself, or to a part of one."""
    return any(_shows_overlap(n) for node in traced.graph.nodes if aliasing.writes(node) for n in _written(node))


def _written(node: Node) -> list[Node]:
    found: list[Node] = []
    for position, argument in enumerate(internals.operator_schema(node.target).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            found += [v for v in (value if isinstance(value, (list, tuple)) else [value]) if isinstance(v, Node)]
    return found


def _shows_overlap(node: Node) -> bool:
    at: Node | None = node
    while at is not None:
        if is_overlapping(at.meta.get("val")):
            return True
        at = _shown(at)
    return False


def _shown(node: Node) -> Node | None:
    """The base of the view ``node``; an operator that writes returns its target."""
    if (base := aliasing.viewed(node)) is not None:
        return base
    return next(iter(_written(node)), None) if aliasing.writes(node) else None


def may_be_written_to(gm: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a tensor of a captured graph that overlaps itself has been written to."""
    values = [n.meta.get("example_value") for n in gm.graph.nodes if n.op != "output"]
    return any(is_overlapping(v) and _version(v) > 0 for v in [*inputs, *values])


def _version(tensor: torch.Tensor) -> int:
    return 1 if tensor.is_inference() else tensor._version
