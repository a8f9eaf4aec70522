"""Splits a graph into parts that a backend compiles, in linear time.

Every node gets a *level*: the largest number of crossings from a supported node to an unsupported one on a path to it.
All supported nodes of one level form one part.  No path between two of them runs through an unsupported node, because
that would raise the level.  Collapsing a part therefore creates no cycle, and running the unsupported nodes of level k,
then part k, then level k + 1, respects every dependency.  No split has fewer parts, because the longest alternation of
supported and unsupported nodes needs that many.

Nodes are first placed as early as possible.  A second sweep, from the end, moves a node to the later part that uses it
if fewer values then cross between parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import getitem

from torch.fx import Graph, Node


@dataclass
class Part:
    """Supported nodes to be compiled together, in graph order.

    ``inputs`` are the values it takes from outside, in order of first use; ``outputs`` are its nodes that are used
    outside, in graph order.
    """

    level: int
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)


@dataclass
class Partition:
    """``steps`` holds every ``call_*`` node exactly once, alone or inside its part, in an order that can be run.

    ``crossings`` counts the values that pass from a part to something that is not the graph's output.
    """

    steps: list[Node | Part]
    parts: list[Part]
    crossings: int


def partition(
    graph: Graph,
    supported: Callable[[Node], bool],
    *,
    trivial: Callable[[Node], bool],
    ordered: Callable[[Node], bool],
    last: Callable[[Node], bool] = lambda n: False,
) -> Partition:
    """Group the nodes of ``graph`` that ``supported`` accepts into as few parts as possible.

    Args:
        trivial: nodes that compute nothing (views); they are not worth a compiler by themselves.
        ordered: nodes that must keep their order among each other (random numbers, effects).
        last: unsupported nodes without users that must run after everything else (writing back to inputs).

    An element taken from a tuple goes where the tuple is made, whatever ``supported`` says of it.
    """
    nodes = [n for n in graph.nodes if n.op.startswith("call_") and not last(n)]
    inside = _inside(nodes, supported)
    level = _levels(nodes, inside, ordered)
    _sink(nodes, inside, level, ordered)
    _loosen(nodes, inside, level, trivial)
    result = _collect(nodes, inside, level)
    result.steps += [n for n in graph.nodes if n.op.startswith("call_") and last(n)]
    return result


def takes_element(node: Node) -> Node | None:
    """The node that makes the tuple which ``node`` takes an element of, if it does."""
    if node.target is getitem and isinstance(node.args[0], Node) and not _is_number(node):
        return node.args[0]
    return None


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return value is not None and not hasattr(value, "shape") and not isinstance(value, (tuple, list))


def _inside(nodes: Iterable[Node], supported: Callable[[Node], bool]) -> set[Node]:
    inside: set[Node] = set()
    for node in nodes:
        source = takes_element(node)
        accepted = source in inside if source is not None and source.op.startswith("call_") else supported(node)
        if accepted:
            inside.add(node)
    return inside


def _levels(nodes: list[Node], inside: set[Node], ordered: Callable[[Node], bool]) -> dict[Node, int]:
    level: dict[Node, int] = {}
    previous: Node | None = None
    for node in nodes:
        before = [u for u in node.all_input_nodes if u in level]
        if ordered(node):
            if previous is not None:
                before.append(previous)
            previous = node
        level[node] = max((level[u] + (u in inside and node not in inside) for u in before), default=0)
    return level


def _sink(nodes: list[Node], inside: set[Node], level: dict[Node, int], ordered: Callable[[Node], bool]) -> None:
    """Move nodes to a later part while that makes fewer values cross."""
    for node in reversed(nodes):
        if node not in inside or takes_element(node) is not None or ordered(node):
            continue
        unit = [node, *(u for u in node.users if takes_element(u) is node)]
        users = [u for n in unit for u in n.users if u not in unit]
        if not users or any(u not in inside or level[u] == level[node] for u in users):
            continue
        target = min(level[u] for u in users)
        if any(level[u] != target for u in users):
            continue
        # Moving spares this node's crossings; an input made in the part it leaves crosses instead.
        spared = sum(1 for n in unit if any(u not in unit for u in n.users))
        added = sum(1 for i in node.all_input_nodes if i in inside and not _crosses(i, level, inside))
        if added <= spared:
            for n in unit:
                level[n] = target


def _crosses(node: Node, level: dict[Node, int], inside: set[Node]) -> bool:
    return any(u not in inside or level[u] != level[node] for u in node.users)


def _loosen(nodes: list[Node], inside: set[Node], level: dict[Node, int], trivial: Callable[[Node], bool]) -> None:
    """Leave trivial nodes to torch where a compiler could only copy: at the end of a part, or alone in a part."""
    for node in reversed(nodes):
        if node not in inside or takes_element(node) is not None or not trivial(node):
            continue
        unit = [node, *(u for u in node.users if takes_element(u) is node)]
        if not any(u in inside and u not in unit for n in unit for u in n.users):
            inside.difference_update(unit)
    worthwhile = {level[n] for n in nodes if n in inside and not trivial(n)}
    for node in nodes:
        if node in inside and level[node] not in worthwhile:
            inside.discard(node)
        if node not in inside:
            # A node that left its part runs after it, and so do those that show what it shows.
            level[node] = max([level[node], *(level[u] + (u in inside) for u in node.all_input_nodes if u in level)])


def _collect(nodes: list[Node], inside: set[Node], level: dict[Node, int]) -> Partition:
    parts: dict[int, Part] = {}
    for node in nodes:
        if node in inside:
            parts.setdefault(level[node], Part(level[node])).nodes.append(node)
    crossings = 0
    for part in parts.values():
        own = set(part.nodes)
        taken: dict[Node, None] = {}
        for node in part.nodes:
            taken.update((value, None) for value in node.all_input_nodes if value not in own)
            if any(u not in own for u in node.users):
                part.outputs.append(node)
                crossings += any(u not in own and u.op != "output" for u in node.users)
        part.inputs = list(taken)

    loose: dict[int, list[Node]] = {}
    for node in nodes:
        if node not in inside:
            loose.setdefault(level[node], []).append(node)
    steps: list[Node | Part] = []
    for at in sorted({*parts, *loose}):
        steps += loose.get(at, ())
        if at in parts:
            steps.append(parts[at])
    return Partition(steps, [s for s in steps if isinstance(s, Part)], crossings)
