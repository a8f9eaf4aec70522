"""An exported graph as a module of its own, and from it a ``torch.export.ExportedProgram``.

The module takes the arguments of the function, loads the graph's inputs by their paths, runs the graph and puts its
results where the function returns them.  It has the parameters and buffers of the original under the same names, and
no code of the original.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from torchmux import torch_internals as ti
from torchmux.registry.errors import Unsupported

from .capture.captured import Captured
from .guards.check import read


def frame_locals(called: Any, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The names that the frame of a call begins with: its arguments, and what its cells hold."""
    function: Any = called.forward if isinstance(called, torch.nn.Module) else called
    if isinstance(function, types.MethodType):
        function, args = function.__func__, (function.__self__, *args)
    bound = inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    bound.apply_defaults()
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return {**{name: cell.cell_contents for name, cell in cells.items()}, **bound.arguments}


class Program(torch.nn.Module):
    """Runs an exported graph on the arguments of the function; nobody checks its guards.

    ``outputs`` is what the graph returned in the call that was exported, and ``result`` what the function returned.

    Raises:
        Unsupported: the function does more than compute its result.
    """

    def __init__(self, called: Any, captured: Captured, args: tuple, kwargs: dict, outputs: Sequence, result: Any):
        super().__init__()
        if captured.has_effects:
            raise Unsupported(
                f"{captured.qualname} changes objects besides tensors, which its graph does not. Call the exported "
                "function itself, which repeats that."
            )
        self._called, self._graph = [called], captured.graph
        self._sources = [source for _, source, _ in captured.inputs]
        values = read(self._sources, frame_locals(called, args, kwargs))
        self._paths = self._attach(called, values, args, kwargs)
        leaves, self._spec = ti.pytree.tree_flatten(result)
        self._places = [self._place(captured, leaf, outputs, values) for leaf in leaves]

    def _attach(self, called: Any, values: list, args: tuple, kwargs: dict) -> dict[int, str]:
        """Take over each input that is no argument; the names by the numbers of the inputs."""
        given = {id(leaf) for leaf in ti.pytree.tree_flatten((args, kwargs))[0]}
        model = called if isinstance(called, torch.nn.Module) else torch.nn.Module()
        names = {id(tensor): name for name, tensor in (*model.named_parameters(), *model.named_buffers())}
        paths = {}
        for index, value in enumerate(values):
            if isinstance(value, torch.Tensor) and id(value) not in given:
                paths[index] = names.get(id(value), f"constant_{index}")
                *parents, name = paths[index].split(".")
                holder: torch.nn.Module = self
                for parent in parents:
                    if parent not in holder._modules:
                        holder.add_module(parent, torch.nn.Module())
                    holder = holder.get_submodule(parent)
                if isinstance(value, torch.nn.Parameter):
                    holder.register_parameter(name, value)
                else:
                    holder.register_buffer(name, value)
        return paths

    def _place(self, captured: Captured, leaf: Any, outputs: Sequence, values: list) -> Callable[[Any, list], Any]:
        """Where a part of the result comes from: a function of the graph's outputs and inputs."""
        for index, output in enumerate(outputs):
            if leaf is output and isinstance(leaf, torch.Tensor):
                return lambda found, inputs: found[index]
        for index, value in enumerate(values):
            if leaf is value and isinstance(leaf, torch.Tensor):
                return lambda found, inputs: inputs[index]
        sizes = [s for n in captured.graph.graph.nodes if n.op == "placeholder" for s in _symbols(n)]
        if sizes and type(leaf) in (int, float):
            raise Unsupported(
                f"{captured.qualname} returns the number {leaf}, which may depend on the dynamic sizes. Return a "
                "tensor instead, or export it with dynamic=False."
            )
        return lambda found, inputs: leaf

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs = read(self._sources, frame_locals(self._called[0], args, kwargs))
        for index, path in self._paths.items():
            holder, _, name = path.rpartition(".")
            inputs[index] = getattr(self.get_submodule(holder), name)
        outputs = self._graph(*inputs)
        return ti.pytree.tree_unflatten([place(outputs, inputs) for place in self._places], self._spec)


def _symbols(placeholder: torch.fx.Node) -> list[int]:
    """The dimensions of an input that are symbolic; [0] for a symbolic number."""
    example = placeholder.meta["example_value"]
    if not isinstance(example, torch.Tensor):
        return [0]
    return [index for index, size in enumerate(example.shape) if not isinstance(size, int)]


def exported_program(program: Program, captured: Captured, args: tuple, kwargs: dict) -> torch.export.ExportedProgram:
    """The program in ATen operators; what is symbolic in the graph is dynamic in it."""
    values = read(program._sources, frame_locals(program._called[0], args, kwargs))
    shapes = torch.export.ShapesCollection()
    placeholders = [node for node in captured.graph.graph.nodes if node.op == "placeholder"]
    dynamic = False
    for index, (node, value) in enumerate(zip(placeholders, values, strict=True)):
        if index not in program._paths and isinstance(value, torch.Tensor) and (dims := _symbols(node)):
            shapes[value] = dict.fromkeys(dims, torch.export.Dim.AUTO)
            dynamic = True
    wanted = shapes.dynamic_shapes(program, args, kwargs) if dynamic else None
    return torch.export.export(program, args, kwargs, dynamic_shapes=wanted, strict=False)
