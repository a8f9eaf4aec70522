"""Small changes to ATen graphs that adapters for other runtimes need."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals


def outputs(gm: GraphModule) -> list[Node]:
    """The nodes that the graph returns, in order."""
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    return list(output.args[0])


def copy_graph(gm: GraphModule) -> GraphModule:
    """A copy of the graph, for a consumer that changes its argument.  Its code is written when it is first called."""
    graph = Graph()
    copied: dict[Node, Node] = {}
    for node in gm.graph.nodes:
        copied[node] = graph.node_copy(node, copied.__getitem__)
    return internals.module_without_code(gm, graph)


def alone(*nodes: Node) -> GraphModule:
    """A graph of nodes that read nothing of each other: a placeholder for each input of each, an output for each tensor
    of it that is used.
    """
    graph = Graph()
    copied = [
        {value: graph.placeholder(f"{value.name}_of_{at}" if at else value.name) for value in node.all_input_nodes}
        for at, node in enumerate(nodes)  # several may read one
    ]
    results = []
    for node, inputs in zip(nodes, copied, strict=True):
        for value, placeholder in inputs.items():
            placeholder.meta = {"val": value.meta["val"]}
        only, value = graph.node_copy(node, inputs.__getitem__), node.meta["val"]
        if not isinstance(value, (tuple, list)):
            results.append(only)
            continue
        for position in elements_in_use(node):
            taken = graph.call_function(operator.getitem, (only, position))
            taken.meta = {"val": value[position]}
            results.append(taken)
    graph.output(tuple(results))
    return GraphModule({}, graph)


def lift_constants(gm: GraphModule) -> list[torch.Tensor]:
    """Make the tensors that the graph holds placeholders after the others; returns them in order."""
    constants = []
    for node in gm.graph.find_nodes(op="get_attr"):
        last = gm.graph.find_nodes(op="placeholder")
        tensor = getattr(gm, node.target)
        with gm.graph.inserting_before(node) if not last else gm.graph.inserting_after(last[-1]):
            lifted = gm.graph.placeholder(node.name)
        lifted.meta = {"val": node.meta.get("val", tensor)}
        node.replace_all_uses_with(lifted)
        gm.graph.erase_node(node)
        constants.append(tensor.detach())
    return constants


def held_names(gm: GraphModule) -> list[str]:
    """The names of the tensors that the graph holds, in the order in which :func:`lift_constants` makes them inputs."""
    return [str(node.target) for node in gm.graph.find_nodes(op="get_attr")]


def freeze(gm: GraphModule, constants: Mapping[int, torch.Tensor]) -> None:
    """Replace the placeholders at these positions by tensors that ``gm`` holds, in place."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    for position, tensor in constants.items():
        node, name = placeholders[position], f"_frozen_{position}"
        setattr(gm, name, tensor)
        last = next(n for n in gm.graph.nodes if n.op != "placeholder")
        with gm.graph.inserting_before(last):
            held = gm.graph.create_node("get_attr", name)
        held.meta = dict(node.meta)
        node.replace_all_uses_with(held)
        gm.graph.erase_node(node)
    gm.recompile()


def elements_in_use(node: Node) -> list[int]:
    """The positions of the tensors that are taken from the tuple which ``node`` makes."""
    value = node.meta["val"]
    positions = {int(user.args[1]) for user in node.users if user.target is operator.getitem}
    return sorted(p for p in positions if isinstance(value[p], torch.Tensor))


def values_in_use(node: Node) -> list[Any]:
    """What goes into ``node``, and what comes out and is used, as far as it is known: fake tensors and numbers."""
    out = node.meta.get("val")
    if isinstance(out, (tuple, list)):
        results = [u.meta.get("val") for u in node.users if u.target is operator.getitem]
    else:
        results = [out]
    return [n.meta.get("val") for n in node.all_input_nodes] + results
