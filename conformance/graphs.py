"""Captured graphs with the inputs of their calls: recorded, reduced, written as programs."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from . import literals


@dataclass(frozen=True)
class Sample:
    """A graph and inputs for it.  ``random`` has the positions of inputs whose values do not matter."""

    graph: GraphModule
    inputs: tuple[Any, ...]
    random: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """How many nodes compute something."""
        return len(computing(self.graph))

    def body(self) -> str:
        """The text of a ``case``, in the form that :mod:`reproducer` expects.

        Raises:
            NotWritable: an input or a constant cannot be written as text.
        """
        module, imports = _module(self.graph, "Graph")
        text = literals.Text()
        given = self._given(text)
        imports |= {"from torchmux.conformance.reproducer import gradients_and_results"}
        if text.unpacks:
            imports.add("from torchmux.conformance.literals import unpack")
        ordered = sorted(imports | {"import torch"}, key=lambda line: ("torchmux" in line, line.split()[1], line))
        first = next(place for place, line in enumerate(ordered) if "torchmux" in line)
        ordered.insert(first, "")
        names = "".join(f"        {line},\n" for line in given[1:])
        inputs = given[0] if given[0] else f"[\n{names}    ]"
        return (
            "\n".join(ordered)
            + f"\n\n\n{module}\n\n\ndef case(trial):\n    inputs = trial.given({inputs})\n"
            + "    return gradients_and_results(trial, Graph(), inputs)\n"
        )

    def _given(self, text: literals.Text) -> list[str]:
        """The inputs, one by one after an empty text, or all at once if they share memory."""
        tensors = [value for value in self.inputs if isinstance(value, torch.Tensor)]
        if len({t.untyped_storage().data_ptr() for t in tensors if t.numel()}) < sum(t.numel() > 0 for t in tensors):
            text.unpacks = True
            return [f"unpack({literals.pack(list(self.inputs))})"]
        return ["", *(self._input(place, text) for place in range(len(self.inputs)))]

    def _input(self, place: int, text: literals.Text) -> str:
        value = self.inputs[place]
        if place not in self.random:
            return text.of(value)
        words = [*map(str, value.shape)]
        if value.dtype is not torch.float32:
            words.append(f"dtype={value.dtype}")
        if value.requires_grad:
            words.append("requires_grad=True")
        return f"trial.tensor({', '.join(words)})"


def computing(graph: GraphModule) -> list[Node]:
    """The nodes that compute something, in order."""
    return [node for node in graph.graph.nodes if node.op not in ("placeholder", "output")]


def record(run: Callable[[Any], Any]) -> list[Sample]:
    """The graphs that ``run`` captures with the given backend, each with the inputs of its first call.

    Raises:
        Exception: ``run`` failed before it captured anything.
    """
    found: list[Sample] = []

    def recorder(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        graph, seen = _without_constants(gm), False

        def call(*args: Any) -> Any:
            nonlocal seen
            if not seen:
                seen = True
                found.append(Sample(graph[0], snapshot([*args, *graph[1]], keep_grad=torch.is_grad_enabled())))
            return gm.forward(*args)

        return call

    try:
        run(recorder)
    except Exception:
        if not found:
            raise
    return found


def snapshot(values: Iterable[Any], *, keep_grad: bool = True) -> tuple[Any, ...]:
    """Copies that share memory with each other as the originals do."""
    values = list(values)
    bare = [value.detach() if isinstance(value, torch.Tensor) else value for value in values]
    copies = copy.deepcopy(bare)
    for value, made in zip(values, copies, strict=True):
        if keep_grad and isinstance(value, torch.Tensor) and value.requires_grad:
            made.requires_grad_()
    return tuple(copies)


def _without_constants(gm: GraphModule) -> tuple[GraphModule, list[torch.Tensor]]:
    """``gm`` with its tensors as additional inputs, and these inputs."""
    graph, environment = Graph(), dict[Node, Node]()
    constants: list[tuple[Node, torch.Tensor]] = []
    last = None
    for node in gm.graph.nodes:
        if node.op == "placeholder":
            last = environment[node] = graph.node_copy(node)
        elif node.op == "get_attr" and isinstance(value := _attribute(gm, str(node.target)), torch.Tensor):
            constants.append((node, value))
    with graph.inserting_after(last) if last is not None else graph.inserting_before():
        for node, _ in reversed(constants):
            environment[node] = graph.placeholder(node.name)
    for node in gm.graph.nodes:
        if node not in environment:
            environment[node] = graph.node_copy(node, environment.__getitem__)
    return GraphModule(gm, graph), [value for _, value in constants]


def _attribute(gm: GraphModule, path: str) -> Any:
    found: Any = gm
    for part in path.split("."):
        found = getattr(found, part)
    return found


class _Keeper(Interpreter):
    """Runs a graph in eager and keeps a copy of each value at the time it is computed."""

    def __init__(self, graph: GraphModule) -> None:
        super().__init__(graph, garbage_collect_values=False)
        self.kept: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op != "output" and isinstance(value, torch.Tensor | int | float):
            self.kept[n.name] = value if not isinstance(value, torch.Tensor) else snapshot([value])[0]
        return value


def values_of(sample: Sample) -> dict[str, Any]:
    """The value of each node in eager, by name, except values that an input cannot replace.

    Raises:
        Exception: eager does not run the graph.
    """
    keeper = _Keeper(sample.graph)
    keeper.run(*snapshot(sample.inputs))
    return keeper.kept


def part(sample: Sample, kept: Sequence[Node], values: dict[str, Any], outputs: Sequence[Node] = ()) -> Sample | None:
    """The sample with only the nodes ``kept``; what they use of other nodes becomes an input.

    ``outputs`` are by default the values that no kept node uses.  None if a value cannot be an input.
    """
    inside = set(kept)
    graph, environment, inputs = Graph(), dict[Node, Node](), []
    for node in sample.graph.graph.nodes:
        if node not in inside and any(user in inside for user in node.users):
            if node.op == "get_attr":
                inside.add(node)  # the body of a branch or a loop
            elif node.name not in values:
                return None
            else:
                environment[node] = graph.placeholder(node.name)
                inputs.append(values[node.name])
    for node in sample.graph.graph.nodes:
        if node in inside:
            environment[node] = graph.node_copy(node, environment.__getitem__)
    ends = list(outputs) or [n for n in kept if not any(user in inside for user in n.users) and n.name in values]
    if not ends:
        return None
    graph.output(tuple(environment[node] for node in ends))
    originals = [node for node in sample.graph.graph.nodes if node in environment and node not in inside]
    names = [node.name for node in sample.graph.graph.nodes if node.op == "placeholder"]
    random = {p for p, node in enumerate(originals) if node.name in names and names.index(node.name) in sample.random}
    return Sample(GraphModule(sample.graph, graph), tuple(inputs), frozenset(random))


def with_inputs(sample: Sample, inputs: Sequence[Any], random: Iterable[int] = ()) -> Sample:
    """The same graph with other inputs."""
    return dataclasses.replace(sample, inputs=tuple(inputs), random=frozenset(random))


def without_gradients(sample: Sample) -> Sample:
    """The same graph in inference."""
    return with_inputs(sample, snapshot(sample.inputs, keep_grad=False), sample.random)


def with_number(sample: Sample, old: int, new: int) -> Sample:
    """The sample with another integer wherever ``old`` is an argument of a node."""
    graph, environment = Graph(), dict[Node, Node]()
    for node in sample.graph.graph.nodes:
        made = environment[node] = graph.node_copy(node, environment.__getitem__)
        if node.op != "output":
            made.args = _replaced(made.args, old, new)
            made.kwargs = _replaced(made.kwargs, old, new)
    return dataclasses.replace(sample, graph=GraphModule(sample.graph, graph))


def _replaced(argument: Any, old: int, new: int) -> Any:
    if isinstance(argument, (tuple, list)):
        return type(argument)([_replaced(element, old, new) for element in argument])
    if isinstance(argument, dict):
        return {key: _replaced(value, old, new) for key, value in argument.items()}
    return new if type(argument) is int and argument == old else argument


def runs_in_eager(sample: Sample) -> bool:
    """Whether eager can run it at all."""
    try:
        sample.graph(*snapshot(sample.inputs))
    except Exception:
        return False
    return True


def _module(gm: GraphModule, name: str) -> tuple[str, set[str]]:
    """The graph as the text of a class, those of the branches in it before it, and the imports that they need.

    Raises:
        NotWritable: it calls what no import reaches.
    """
    code = gm.graph.python_code("self")
    used = {name: value for name, value in code.globals.items() if re.search(rf"\b{re.escape(name)}\b", code.src)}
    imports = {line for each, value in used.items() if (line := _import(each, value))}
    before, members = [], []
    for node in gm.graph.nodes:
        if node.op == "get_attr" and isinstance(inner := _attribute(gm, str(node.target)), GraphModule):
            own = f"{name}_{str(node.target).replace('.', '_')}"
            text, more = _module(inner, own)
            before.append(text)
            imports |= more
            members.append(f"        self.{node.target} = {own}()")
    init = ["    def __init__(self):", "        super().__init__()", *dict.fromkeys(members), ""] if members else []
    forward = [f"    {line}" if line.strip() else "" for line in _tidy(code.src).splitlines()]
    return "\n\n\n".join([*before, "\n".join([f"class {name}(torch.nn.Module):", *init, *forward])]), imports


def _tidy(source: str) -> str:
    """The source without the line ends that only free memory."""
    lines = (line.partition(";  ")[0] if " = None" in line else line for line in source.strip().splitlines())
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _import(name: str, value: Any) -> str:
    if name == "torch":
        return ""
    if isinstance(value, type(torch)):
        return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
    if isinstance(value, float):
        return f"from math import {name}"  # inf and nan
    if value is type(None):
        return f"from types import {name}"
    home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not home or not own or "." in own or "<" in own:
        raise literals.NotWritable(f"the function {name}")
    return f"from {home} import {own}" + (f" as {name}" if own != name else "")
