"""A captured graph and its inputs as a file, from which another process makes them again.

A graph that this cannot describe exactly is not measured: symbolic sizes, graphs inside of graphs, functions and
operators that do not come from torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Interpreter, Node

from torchmux import torch_internals as internals
from torchmux.backends.common.cache.listing import Unknown, found as operator_named, operator_of_torch
from torchmux.backends.common.cache.recipes import name_of_function, name_of_method

__all__ = ["Parcel", "Unknown", "pack"]


@dataclass
class _Ref:
    """Stands for a node among arguments."""

    position: int


@dataclass
class Parcel:
    """What a worker needs to compile and run a captured graph."""

    nodes: list[tuple[str, str, Any, Any, str | None]]
    held: Mapping[str, torch.Tensor]
    inputs: list[Any]
    needs_grad: list[bool]
    static_inputs: tuple[int, ...]
    training: bool
    strict: Any
    state: Mapping[str, Any] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        torch.save(vars(self), path, pickle_protocol=4)  # older ones cannot name torch.channels_last

    @classmethod
    def load(cls, path: Path) -> Parcel:
        """The parcel in a file of our own; tensors are mapped, so that several processes share the memory."""
        return cls(**torch.load(path, mmap=True, weights_only=False))

    def real_inputs(self) -> list[Any]:
        """Fresh leaves on the tensors of the file."""
        return [
            value.detach().requires_grad_(needs) if isinstance(value, torch.Tensor) else value
            for value, needs in zip(self.inputs, self.needs_grad, strict=True)
        ]

    def graph(self, inputs: Sequence[Any]) -> GraphModule:
        """The captured graph again, with fake values like those that the capture had."""
        graph, made = Graph(), list[Node]()
        for op, target, args, kwargs, line in self.nodes:
            taken, named = (_unpacked(value, made) for value in (args, kwargs))
            called: Any = target
            if op == "call_function":
                kind, _, name = target.partition(":")
                called = operator_named(name) if kind == "op" else _function(name)
            node = graph.create_node(op, called, taken, named) if op != "output" else graph.output(taken[0])
            if line is not None:
                node.meta["source_line"] = line
            made.append(node)
        gm = GraphModule(dict(self.held), graph)
        mode = internals.fake_tensor_mode(symbolic=False)
        fakes = [mode.from_tensor(v, static_shapes=True) if isinstance(v, torch.Tensor) else v for v in inputs]
        with torch.set_grad_enabled(self.training), mode:
            _Noting(gm, mode).run(*fakes)
        return gm


class _Noting(Interpreter):
    """Runs a graph on fake tensors, and notes on each node what it makes."""

    def __init__(self, gm: GraphModule, mode: Any) -> None:
        super().__init__(gm)
        self.mode = mode

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self.mode.from_tensor(super().get_attr(target, args, kwargs), static_shapes=True)

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        n.meta["example_value"] = result
        return result


def pack(
    gm: GraphModule, inputs: Sequence[Any], *, training: bool, static_inputs: tuple[int, ...], strict: Any
) -> Parcel:
    """A parcel with copies of nothing: inputs are written when it is saved.

    Raises:
        Unknown: the graph cannot be described; the message says why.
    """
    number: dict[Node, int] = {}
    nodes = []
    held: dict[str, torch.Tensor] = {}
    for node in gm.graph.nodes:
        number[node] = len(number)
        target = str(node.target)
        if node.op == "placeholder":
            fake = node.meta.get("example_value")
            if isinstance(fake, torch.SymInt | torch.SymFloat | torch.SymBool) or getattr(
                getattr(fake, "fake_mode", None), "shape_env", None
            ):
                raise Unknown("its sizes are symbolic")
        elif node.op == "call_function":
            is_operator = isinstance(node.target, internals.OpOverload)
            target = f"op:{operator_of_torch(node.target)}" if is_operator else f"fn:{name_of_function(node.target)}"
        elif node.op == "call_method":
            target = name_of_method(node.target)
        elif node.op == "get_attr":
            held[target] = getattr(gm, target, None)
            if not isinstance(held[target], torch.Tensor):
                raise Unknown("it has graphs inside")
        elif node.op != "output":
            raise Unknown(f"a node of kind {node.op}")
        args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: _Ref(number[n]))
        nodes.append((node.op, target, args, kwargs, node.meta.get("source_line")))
    for value in inputs:
        if isinstance(value, torch.Tensor) and type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Unknown(f"an input is a {type(value).__name__}")
    detached = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    needs = [isinstance(value, torch.Tensor) and value.requires_grad for value in inputs]
    return Parcel(nodes, held, detached, needs, tuple(static_inputs), training, strict, _state())


def _state() -> dict[str, Any]:
    """The settings of this process that decide what is computed, and how fast."""
    if internals.is_any_autocast_enabled():
        raise Unknown("autocast is active around it")
    return {
        "threads": torch.get_num_threads(),
        "default_dtype": torch.get_default_dtype(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def restore(state: Mapping[str, Any]) -> None:
    """Make the settings of this process those of the one that packed."""
    torch.set_num_threads(state["threads"])
    torch.set_default_dtype(state["default_dtype"])
    torch.set_float32_matmul_precision(state["matmul_precision"])
    torch.use_deterministic_algorithms(state["deterministic"])


def _unpacked(value: Any, made: Sequence[Node]) -> Any:
    if isinstance(value, _Ref):
        return made[value.position]
    if isinstance(value, dict):
        return {key: _unpacked(each, made) for key, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_unpacked(each, made) for each in (value.start, value.stop, value.step)))
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return (tuple if isinstance(value, tuple) else list)(_unpacked(each, made) for each in value)
    return value


def _function(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
