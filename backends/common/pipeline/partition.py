"""Splits a graph into parts that a backend, or one of several, compiles, in linear time.

Every node has a *taker*: 0 is torch, which runs nodes one by one, and the others compile.  Every node gets a *level*:
the largest number of steps from a higher taker to a lower one on a path to it.  All nodes of one taker and one level
form one part.  A path from such a part through another taker's nodes and back would go down at least once, which would
raise the level.  Collapsing a part therefore creates no cycle, and running level by level, the takers of each in order,
respects every dependency.  For a single backend no split has fewer parts, because the longest alternation of supported
and unsupported nodes needs that many.

A functional graph ends with ``copy_(input, value)`` for each input that the program changes.  A backend that writes to
inputs gets these nodes in the part that runs last, if that is the last to see the old content.  It may then compute the
value where the input lies.

Nodes are first placed as early as possible.  A second sweep, from the end, moves a node to the later part that uses it
if fewer values then cross between parts.

Between the start of a collective and the node that waits for it, there is one more step.  Products of matrices that the
collective does not need, and which nobody needs before, move to the part there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from operator import getitem

import torch
from torch.fx import Graph, Node

from .. import collectives
from . import aliasing


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
    copied: Callable[[Node], bool] | None = None,
    ordered: Callable[[Node], bool],
    last: Callable[[Node], bool] = lambda n: False,
) -> Partition:
    """Group the nodes of ``graph`` that have a taker into few parts; into as few as possible if there is one taker.

    Args:
        taker: who compiles a node, from 1; 0 (or False) leaves it to torch.
        trivial: nodes that compute nothing (views); they are not worth a compiler by themselves.
        copied: those of them that a compiler could only copy at the end of a part; all if it is not given.
        ordered: nodes that must keep their order among each other (random numbers, effects).
        last: unsupported nodes without users that must run after everything else (writing back to inputs).

    An element taken from a tuple goes where the tuple is made, whatever ``taker`` says of it.
    """
    nodes = [n for n in graph.nodes if n.op.startswith("call_") and not last(n)]
    takers = _takers(nodes, taker)
    level = _levels(nodes, takers, ordered, {})
    _fill_waits(nodes, takers, level)
    _sink(nodes, takers, level, ordered)
    _loosen(nodes, takers, level, trivial, trivial if copied is None else copied)
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
        level[node] = max((level[u] + (takers.get(u, 0) > own or collectives.starts(u)) for u in before), default=0)
        level[node] = max(level[node], least.get(node, 0))
    return level


def _fill_waits(nodes: list[Node], takers: dict[Node, int], level: dict[Node, int]) -> None:
    """Move products from the part before a collective to the one behind its start, with the views of them."""
    behind = {level[node] for node in nodes if node not in takers and collectives.starts(node)}
    movable: set[Node] = set()
    for node in reversed(nodes):
        if node not in takers or level[node] + 1 not in behind or takes_element(node) is not None:
            continue
        is_view = aliasing.is_view(node)
        if not is_view and not collectives.is_heavy(node):
            continue
        above = level[node] + 1
        users = [u for u in node.users if u in level]
        if all(u in movable or level[u] >= above + (takers.get(u, 0) < takers[node]) for u in users):
            movable.add(node)
    moved: set[Node] = set()
    for node in nodes:
        if node in movable and (not aliasing.is_view(node) or aliasing.viewed(node) in moved):
            moved.add(node)
    for node in moved:
        level[node] += 1


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
    nodes: list[Node],
    takers: dict[Node, int],
    level: dict[Node, int],
    trivial: Callable[[Node], bool],
    copied: Callable[[Node], bool],
) -> None:
    """Leave trivial nodes to torch: at the end of a part if they are copied there, or alone in a part.

    What torch runs after a part has a higher level than the part; that is for the caller to find.
    """
    for node in reversed(nodes):
        if node not in takers or takes_element(node) is not None or not copied(node):
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


# --- writes to inputs -------------------------------------------------------------------------------------------------


def writes_back(node: Node) -> bool:
    """Whether ``node`` copies a value to an input of the graph."""
    return node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder"


def give_to_last_part(split: Partition, graph: Graph, takes: Callable[[Node], bool], but: Collection[Node]) -> None:
    """Move the writes that the backend ``takes``, except ``but``, from the end of ``split`` into its last part.

    Inputs must not share memory.
    """
    last = [step for step in split.steps if isinstance(step, Node) and writes_back(step)]
    if not last or not split.parts:
        return
    root = aliasing.roots(graph)
    moved = [node for node in last if node not in but and takes(node)]
    seen: set[Node] = set()
    for node in last:
        if root[node.args[1]] in seen:
            return  # in the graph's own order, it reads what was written before
        seen.add(node.args[0])
    at = max(n for n, step in enumerate(split.steps) if isinstance(step, Part))
    part = split.steps[at]
    assert isinstance(part, Part)
    after = [step for step in split.steps[at + 1 :] if isinstance(step, Node) and step not in last]
    views = _views_written(moved, after)
    late = set(after) - views.keys()
    reads_later = {root[n] for step in late for n in step.all_input_nodes}
    shown = {root[n] for n in part.inputs if n.op != "placeholder"}
    moved = [node for node in moved if node.args[1] not in late and node.args[0] not in reads_later | shown]
    targets = {node.args[0] for node in moved}
    if any(root[node.args[1]] in targets for node in last if node not in moved):
        return  # torch would read what was written already
    gone = {*moved, *views}
    split.steps = [step for step in split.steps if isinstance(step, Part) or step not in gone]
    part.nodes += [*views, *moved]
    own = set(part.nodes)
    part.inputs = list(dict.fromkeys(n for node in part.nodes for n in node.all_input_nodes if n not in own))
    part.outputs = [n for n in part.nodes if any(user not in own for user in n.users)]


def _views_written(moved: Collection[Node], after: Collection[Node]) -> dict[Node, None]:
    """The views among the steps ``after`` that nothing needs but what writes them to inputs, in order."""
    found: set[Node] = set()
    for step in reversed(list(after)):
        if aliasing.is_view(step) and step.users and all(user in moved or user in found for user in step.users):
            found.add(step)
    taken: dict[Node, None] = {}
    late = set(after) - found  # a view of what torch makes is made by torch
    for step in after:
        if step in found and not any(n in late for n in step.all_input_nodes):
            taken[step] = None
        else:
            late.add(step)
    return taken
