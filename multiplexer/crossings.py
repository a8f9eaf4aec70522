"""What passes between the parts of a split graph: each value that another backend, another part or torch reads.

Every member runs where its tensors are, so a chain adds no copies from device to device; what it may add is a copy of a
value that is not contiguous, for a runtime that wants it so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from torchmux.backends.common.pipeline.aliasing import is_view
from torchmux.backends.common.pipeline.partition import Part, Partition, takes_element
from torchmux.backends.common.pipeline.parts import is_glue
from torchmux.registry.report import Crossing

TORCH = "eager"


def crossings_of(split: Partition, names: Sequence[str]) -> list[Crossing]:
    """The values that cross, by who makes and who reads them; ``names`` are those of the takers, from 1."""
    owner: dict[Node, tuple[int, str]] = {}
    loose: set[Node] = set()  # what computes nothing where it stands: whoever reads it reads what it shows
    for number, step in enumerate(split.steps):
        if isinstance(step, Part):
            owner.update((node, (number, names[step.taker - 1])) for node in step.nodes)
        else:
            owner[step] = (-1, TORCH)
            if is_view(step) or is_glue(step) or takes_element(step) is not None:
                loose.add(step)

    def readers_of(node: Node) -> set[tuple[int, str]]:
        found = set()
        for user in node.users:
            if user in loose:
                found |= readers_of(user)
            elif user in owner:
                found.add(owner[user])
        return found

    found: dict[tuple[str, str], list[Node]] = {}
    for node, made in owner.items():
        if node in loose:
            continue
        for _, reader in sorted(readers_of(node) - {made}):
            found.setdefault((made[1], reader), []).append(node)
    return [_crossing(made_by, read_by, values) for (made_by, read_by), values in found.items()]


def _crossing(made_by: str, read_by: str, nodes: Sequence[Node]) -> Crossing:
    tensors = [value for node in nodes if isinstance(value := node.meta.get("val"), torch.Tensor)]
    sizes = [value.numel() * value.element_size() for value in tensors if type(value.numel()) is int]
    scattered = [value for value in tensors if not _has_symbols(value) and not value.is_contiguous()]
    return Crossing(made_by, read_by, len(nodes), sum(sizes), len(scattered))


def _has_symbols(value: torch.Tensor) -> bool:
    return any(type(size) is not int for size in (*value.shape, *value.stride()))
