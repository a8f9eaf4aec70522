"""Where a graph is split, so that ``DistributedDataParallel`` communicates while the backward pass computes.

The wrapper sums gradients by buckets, and starts with a bucket as soon as autograd has all of its gradients.  One
compiled backward pass hands out all gradients at its end, and nothing is left that could hide the communication.  A
graph that consists of several pieces has as many backward passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch.multiprocessing.reductions import StorageWeakRef

from torchmux import torch_internals as ti

from ..trace.recorder import MODULES

# A piece may be larger than a bucket by this factor if a better place to split follows.  The best one lies between two
# equal layers: their pieces are then equal as well, and are compiled once.
_STRETCH = 1.5
_enter_autocast = torch.amp.autocast_mode._enter_autocast
_exit_autocast = torch.amp.autocast_mode._exit_autocast


def cuts(gm: torch.fx.GraphModule, inputs: Sequence[Any], buckets: ti.Buckets) -> list[int]:
    """The positions of the nodes of ``gm`` that begin a new piece, ascending; empty if it stays whole."""
    nodes = list(gm.graph.nodes)
    weights = _bytes_by_first_use(nodes, inputs, buckets.parameters)
    if sum(weights) <= buckets.first:
        return []
    places = _Places(nodes)
    found: list[int] = []
    limit, filled = buckets.first, 0
    best: tuple[tuple[int, int], int] | None = None  # the costs of the best place so far, and where it is
    for position in range(len(nodes) - 1, 0, -1):
        if best is not None and filled + weights[position] > limit * _STRETCH:
            found.append(best[1])
            filled = sum(weights[position + 1 : best[1]])
            limit, best = buckets.limit, None
        filled += weights[position]
        if filled < limit:
            continue
        costs = places.costs(position)
        if costs is not None and (best is None or costs < best[0]):
            best = costs, position
    if best is not None and any(weights[: best[1]]):
        found.append(best[1])
    return sorted(found)


def _bytes_by_first_use(nodes: Sequence[torch.fx.Node], inputs: Sequence[Any], parameters: frozenset[int]) -> list[int]:
    """For each node, the bytes of the parameters that it uses before all others: backward is then done with them."""
    position = {node: at for at, node in enumerate(nodes)}
    weights = [0] * len(nodes)
    placeholders = [node for node in nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        users = [position[user] for user in node.users if user.op != "output"]
        if id(value) in parameters and users:
            weights[min(users)] += value.numel() * value.element_size()
    return weights


@dataclass
class _Places:
    """Where pieces may begin, and what it costs."""

    nodes: Sequence[torch.fx.Node]

    def __post_init__(self) -> None:
        position = {node: at for at, node in enumerate(self.nodes)}
        self.last_use = [
            max((position[user] for user in node.users if user.op != "output"), default=-1) for node in self.nodes
        ]
        self.first = next((at for at, node in enumerate(self.nodes) if node.op != "placeholder"), len(self.nodes))
        self.closed = [False] * (len(self.nodes) + 1)
        self._close_settings()
        self._close_writes()
        for at, node in enumerate(self.nodes):
            if node.op not in ("placeholder", "get_attr") and not _is_tensor(node):
                self._close(at + 1, self.last_use[at])

    def costs(self, at: int) -> tuple[int, int] | None:
        """How many tensors the pieces before pass on, and how deep in the modules the place is; None if it is closed.

        There is something to compute on both sides of a place that is not closed.
        """
        if at <= self.first or self.closed[at] or self.nodes[at].op == "output":
            return None
        passed = [
            node.meta["example_value"]
            for node, last in zip(self.nodes[:at], self.last_use[:at], strict=True)
            if node.op not in ("placeholder", "get_attr") and last >= at
        ]
        inputs = [
            node.meta["example_value"]
            for node, last in zip(self.nodes[: self.first], self.last_use[: self.first], strict=True)
            if last >= at and _is_tensor(node)
        ]
        if any(value.requires_grad and value._base is not None for value in passed):
            return None  # autograd then cannot be asked which results of a piece have a gradient
        storages = {_storage(value) for value in passed}
        if len(storages) < len(passed) or not storages.isdisjoint(map(_storage, inputs)):
            return None  # a piece would be compiled for inputs that share memory
        return len(passed), len(_common(_modules(self.nodes[at - 1]), _modules(self.nodes[at])))

    def _close(self, first: int, last: int) -> None:
        for at in range(first, last + 1):
            self.closed[at] = True

    def _close_settings(self) -> None:
        """Where grad mode, autocast or another switch of the process is not as the graph found it: pieces set none."""
        grad, depth, begin, other = True, 0, None, False
        for at, node in enumerate(self.nodes):
            if node.op != "call_function":
                continue
            if node.target is ti.set_grad_enabled:
                grad = node.args[0] is True
            elif node.target is _enter_autocast:
                depth += 1
            elif node.target is _exit_autocast:
                depth -= 1
            elif not node.users and not any(map(_is_tensor, (node, *node.all_input_nodes))):
                other = True  # it returns nothing and takes no tensor, so it sets something
            else:
                continue
            is_changed = not grad or depth > 0 or other
            if is_changed and begin is None:
                begin = at + 1
            elif not is_changed and begin is not None:
                self._close(begin, at)
                begin = None
        if begin is not None:
            self._close(begin, len(self.nodes))

    def _close_writes(self) -> None:
        """Where a tensor is written to that autograd sees: all that is done with its memory stays in one piece."""
        for first, last, written in self._lives().values():
            if written:
                self._close(first + 1, last)

    def _lives(self) -> dict[Any, tuple[int, int, bool]]:
        """By memory: the first and the last node that returns it, and whether it is written to."""
        lives: dict[Any, tuple[int, int, bool]] = {}
        # running statistics, say, which autograd does not see
        states = {
            _storage(node.meta["example_value"])
            for node in self.nodes[: self.first]
            if _is_tensor(node) and not node.meta["example_value"].requires_grad
        }
        for at, node in enumerate(self.nodes):
            for value in self._touched(node):
                storage = _storage(value)
                first, _, written = lives.get(storage, (at, at, False))
                lives[storage] = first, at, written or (value._version > 0 and storage not in states)
        return lives

    def _touched(self, node: torch.fx.Node) -> Iterator[torch.Tensor]:
        if _is_tensor(node):
            yield node.meta["example_value"]
        elif node.op.startswith("call_") and node.meta.get("example_value") is None:
            # an assignment to a part of a tensor returns nothing
            yield from (each.meta["example_value"] for each in node.all_input_nodes if _is_tensor(each))


def _is_tensor(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def _storage(value: torch.Tensor) -> int:
    return StorageWeakRef(value.untyped_storage()).cdata


def _modules(node: torch.fx.Node) -> tuple[str, ...]:
    return tuple(node.meta.get(MODULES, ()))


def _common(left: Sequence[str], right: Sequence[str]) -> list[str]:
    """The modules in whose calls both are."""
    both: list[str] = []
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        both.append(one)
    return both
