"""Splits a graph into parts that a backend, or one of several, compiles, in linear time.

Every node has a *taker*: 0 is torch, which runs nodes one by one, and the others compile.  Every node gets a *level*:
the largest number of steps from a higher taker to a lower one on a path to it.  All nodes of one taker and one level
form one part.  A path from such a part through another taker's nodes and back would go down at least once, which would
raise the level.  Collapsing a part therefore creates no cycle, and running level by level, the takers of each in order,
respects every dependency.  For a single backend no split has fewer parts, because the longest alternation of supported
and unsupported nodes needs that many.

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
    taker: int = 1


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
    taker: Callable[[Node], int],
    *,
    trivial: Callable[[Node], bool],
    ordered: Callable[[Node], bool],
    last: Callable[[Node], bool] = lambda n: False,
) -> Partition:
    """Group the nodes of ``graph`` that have a taker into few parts; into as few as possible if there is one taker.

    Args:
        taker: who compiles a node, from 1; 0 (or False) leaves it to torch.
        trivial: nodes that compute nothing (views); they are not worth a compiler by themselves.
        ordered: nodes that must keep their order among each other (random numbers, effects).
        last: unsupported nodes without users that must run after everything else (writing back to inputs).

    An element taken from a tuple goes where the tuple is made, whatever ``taker`` says of it.
    """
    nodes = [n for n in graph.nodes if n.op.startswith("call_") and not last(n)]
    takers = _takers(nodes, taker)
    level = _levels(nodes, takers, ordered, {})
    _sink(nodes, takers, level, ordered)
    _loosen(nodes, takers, level, trivial)
    level = _levels(nodes, takers, ordered, level)
    result = _collect(nodes, takers, level)
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


def _takers(nodes: Iterable[Node], taker: Callable[[Node], int]) -> dict[Node, int]:
    """The taker of each node that has one."""
    takers: dict[Node, int] = {}
    for node in nodes:
        source = takes_element(node)
        made_here = source is not None and source.op.startswith("call_")
        found = takers.get(source, 0) if made_here else int(taker(node))
        if found:
            takers[node] = found
    return takers


def _levels(
    nodes: list[Node], takers: dict[Node, int], ordered: Callable[[Node], bool], least: dict[Node, int]
) -> dict[Node, int]:
    """The lowest possible level of each node, but not below ``least``."""
    level: dict[Node, int] = {}
    previous: Node | None = None
    for node in nodes:
        before = [u for u in node.all_input_nodes if u in level]
        if ordered(node):
            if previous is not None:
                before.append(previous)
            previous = node
        own = takers.get(node, 0)
        level[node] = max((level[u] + (takers.get(u, 0) > own) for u in before), default=0)
        level[node] = max(level[node], least.get(node, 0))
    return level


def _sink(nodes: list[Node], takers: dict[Node, int], level: dict[Node, int], ordered: Callable[[Node], bool]) -> None:
    """Move nodes to a later part while that makes fewer values cross."""
    for node in reversed(nodes):
        if node not in takers or takes_element(node) is not None or ordered(node):
            continue
        own = takers[node]
        unit = [node, *(u for u in node.users if takes_element(u) is node)]
        users = [u for n in unit for u in n.users if u not in unit]
        if not users or any(takers.get(u) != own or level[u] == level[node] for u in users):
            continue
        target = min(level[u] for u in users)
        if any(level[u] != target for u in users):
            continue
        # Moving spares this node's crossings; an input made in the part it leaves crosses instead.
        spared = sum(1 for n in unit if any(u not in unit for u in n.users))
        added = sum(1 for i in node.all_input_nodes if i in takers and not _crosses(i, level, takers))
        if added <= spared:
            for n in unit:
                level[n] = target


def _crosses(node: Node, level: dict[Node, int], takers: dict[Node, int]) -> bool:
    return any(takers.get(u) != takers[node] or level[u] != level[node] for u in node.users)


def _loosen(
    nodes: list[Node], takers: dict[Node, int], level: dict[Node, int], trivial: Callable[[Node], bool]
) -> None:
    """Leave trivial nodes to torch where a compiler could only copy: at the end of a part, or alone in a part.

    What torch runs after a part has a higher level than the part; that is for the caller to find.
    """
    for node in reversed(nodes):
        if node not in takers or takes_element(node) is not None or not trivial(node):
            continue
        unit = [node, *(u for u in node.users if takes_element(u) is node)]
        if not any(u in takers and u not in unit for n in unit for u in n.users):
            for n in unit:
                takers.pop(n, None)
    worthwhile = {(level[n], takers[n]) for n in nodes if n in takers and not trivial(n)}
    for node in nodes:
        if node in takers and (level[node], takers[node]) not in worthwhile:
            del takers[node]


def _collect(nodes: list[Node], takers: dict[Node, int], level: dict[Node, int]) -> Partition:
    parts: dict[tuple[int, int], Part] = {}
    for node in nodes:
        if node in takers:
            at = level[node], takers[node]
            parts.setdefault(at, Part(at[0], taker=at[1])).nodes.append(node)
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

    loose: dict[tuple[int, int], list[Node]] = {}
    for node in nodes:
        if node not in takers:
            loose.setdefault((level[node], 0), []).append(node)
    steps: list[Node | Part] = []
    for at in sorted({*parts, *loose}):
        steps += loose.get(at, ())
        if at in parts:
            steps.append(parts[at])
    return Partition(steps, [s for s in steps if isinstance(s, Part)], crossings)
