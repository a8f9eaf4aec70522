"""Graphs of ATen operators as JSON, which torch runs in another process."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from torchmux import torch_internals as internals

# What a graph computes of sizes.
_NUMBERS = {
    f"operator.{name}": getattr(operator, name)
    for name in (
        "add",
        "sub",
        "mul",
        "floordiv",
        "truediv",
        "mod",
        "neg",
        "pow",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "and_",
        "or_",
    )
} | {f"sym.{name}": getattr(torch, f"sym_{name}") for name in ("max", "min", "float", "int", "not", "sqrt", "ite")}
_NAME_OF_NUMBERS = {function: name for name, function in _NUMBERS.items()}

ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


class Unknown(Exception):
    """Something that a listing cannot describe; the message says what."""


def to_json(gm: GraphModule) -> dict[str, Any]:
    """All of ``gm`` except the tensors that it holds, which appear by name.

    Raises:
        Unknown: it calls something else than ATen operators, or with arguments of another kind than numbers and nodes.
    """
    number: dict[Node, int] = {}
    steps: list[Any] = []
    for node in gm.graph.nodes:
        number[node] = len(number)
        if node.op == "placeholder":
            steps.append("input")
        elif node.op == "get_attr":
            steps.append(["held", str(node.target)])
        elif node.op == "call_function":
            steps.append([called(node.target), packed(node.args, number), packed(node.kwargs, number)])
    output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
    return {"steps": steps, "outputs": packed(output.args[0], number)}


def from_json(told: Mapping[str, Any], held: Mapping[str, torch.Tensor]) -> GraphModule:
    """The graph of :func:`to_json`; nodes have no ``meta``."""
    graph = Graph()
    values: list[Node] = []
    names = []
    for step in told["steps"]:
        if step == "input":
            values.append(graph.placeholder(f"input_{len(values)}"))
        elif step[0] == "held":
            names.append(step[1])
            values.append(graph.create_node("get_attr", step[1]))
        else:
            name, args, kwargs = step
            values.append(graph.call_function(operator_named(name), unpacked(args, values), unpacked(kwargs, values)))
    graph.output(unpacked(told["outputs"], values))
    return GraphModule({name: held[name] for name in names}, graph)


def called(target: Any) -> str:
    """The name of an operator, of arithmetic with sizes, or of taking an element."""
    if target is operator.getitem:
        return "getitem"
    if (name := _NAME_OF_NUMBERS.get(target)) is not None:
        return name
    if not isinstance(target, internals.OpOverload):
        raise Unknown(f"torch runs {target}")
    return operator_of_torch(target)


def operator_of_torch(op: Any) -> str:
    """The name of an operator that every process has."""
    if op.namespace not in ("aten", "prims"):
        raise Unknown(f"the graph calls {op}")
    return str(op)


def operator_named(name: str) -> Any:
    """What :func:`called` named."""
    if name == "getitem":
        return operator.getitem
    if name in _NUMBERS:
        return _NUMBERS[name]
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def packed(value: Any, number: Mapping[Node, int]) -> Any:
    """An argument as JSON: numbers and strings unchanged, everything else as a list that starts with its kind."""
    if isinstance(value, Node):
        return ["node", number[value]]
    if isinstance(value, dict):
        return ["dict", [[k, packed(v, number)] for k, v in value.items()]]
    if isinstance(value, (tuple, list)):
        return ["tuple" if isinstance(value, tuple) else "list", [packed(v, number) for v in value]]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is complex:
        return ["complex", [value.real, value.imag]]
    if isinstance(value, ATOMS):
        return [type(value).__name__, str(value)]
    raise Unknown(f"an argument of an operator that torch runs is a {type(value).__name__}")


def unpacked(value: Any, values: Sequence[Node]) -> Any:
    """What :func:`packed` packed."""
    if not isinstance(value, list):
        return value
    kind, content = value
    if kind == "node":
        return values[content]
    if kind == "dict":
        return {k: unpacked(v, values) for k, v in content}
    if kind in ("tuple", "list"):
        return (tuple if kind == "tuple" else list)(unpacked(v, values) for v in content)
    if kind == "complex":
        return complex(*content)
    return torch.device(content) if kind == "device" else getattr(torch, content.removeprefix("torch."))
