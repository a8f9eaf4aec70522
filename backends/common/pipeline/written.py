"""Which writes to inputs compiled code makes itself, and which torch makes after all else has run.

A functional graph ends with ``copy_(input, value)`` for each input that the program changes.  A backend that writes to
inputs gets those nodes in the part that runs last, if it is the last to see the old content.  It may then compute the
value where the input lies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch.fx import Graph, Node

from . import aliasing
from .partition import Part, Partition


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
        if root[node.args[1]] in seen:  # type: ignore[index]
            return  # in the graph's own order, it reads what was written before
        seen.add(node.args[0])  # type: ignore[arg-type]
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
    if any(root[node.args[1]] in targets for node in last if node not in moved):  # type: ignore[index]
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
