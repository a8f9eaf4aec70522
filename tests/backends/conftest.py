"""Graphs for the backends' tests, in the frontend's convention but without the frontend.

``Capture`` traces simple functions and modules by torch.fx; ``compile_model`` takes whole models through torch.compile
as nothing but a source of graphs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Tracer
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from torchmux.registry import GraphReport, resolve

_TORCH = os.path.dirname(torch.__file__)


class _InliningTracer(Tracer):
    """Follows calls of submodules, and notes the line that each node comes from."""

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        node = super().create_node(*args, **kwargs)
        frame = sys._getframe()
        while frame is not None and (_TORCH in frame.f_code.co_filename or frame.f_code.co_filename == __file__):
            frame = frame.f_back
        if frame is not None:
            node.meta["source_line"] = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        return node

    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return False


class Capture:
    """A captured graph: ``gm``, the ``inputs`` of the first call, and which of them are parameters or buffers."""

    def __init__(self, function: Any, *args: Any, dynamic: dict[int, Sequence[int]] | None = None) -> None:
        tracer = _InliningTracer()
        graph = tracer.trace(function)
        self.parameters: list[torch.Tensor] = []
        self._lift(graph, tracer.root)
        self.gm = GraphModule({}, graph)
        self.args = args
        self.inputs = [*self.parameters, *args]
        self.static_inputs = tuple(range(len(self.parameters)))
        self._propagate(dynamic or {})

    def _lift(self, graph: Graph, root: torch.nn.Module) -> None:
        lifted: dict[str, Any] = {}
        first = next(iter(graph.nodes))
        for node in [n for n in graph.nodes if n.op == "get_attr"]:
            if node.target not in lifted:
                with graph.inserting_before(first):
                    lifted[node.target] = graph.placeholder("p_" + node.target.replace(".", "_"))
                value: Any = root
                for name in node.target.split("."):
                    value = getattr(value, name)
                self.parameters.append(value)
            node.replace_all_uses_with(lifted[node.target])
            graph.erase_node(node)
        output = next(n for n in graph.nodes if n.op == "output")
        result = output.args[0]
        self.single = not isinstance(result, (tuple, list))
        output.args = ((result,) if self.single else tuple(result),)

    def _propagate(self, dynamic: dict[int, Sequence[int]]) -> None:
        mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
        fakes = []
        for position, value in enumerate(self.inputs):
            context = None
            if dynamic:
                dims = dynamic.get(position - len(self.parameters), ())
                context = StatelessSymbolicContext(
                    [DimDynamic.DYNAMIC if d in dims else DimDynamic.STATIC for d in range(value.dim())]
                )
            fakes.append(mode.from_tensor(value, symbolic_context=context) if context else mode.from_tensor(value))

        class Propagate(Interpreter):
            def run_node(self, n: Any) -> Any:
                n.meta["example_value"] = result = super().run_node(n)
                return result

        before = torch.is_grad_enabled()
        with mode:
            Propagate(self.gm).run(*fakes)
        torch.set_grad_enabled(before)
        # In-place operators have changed the fakes' versions by now, never their sizes in these graphs.
        for node, fake in zip(self.gm.graph.find_nodes(op="placeholder"), fakes, strict=True):
            node.meta["example_value"] = fake

    def compile(self, backend: Any, *, training: bool = False, strict: bool = False, options: Any = None) -> Any:
        """Resolve ``backend`` and compile; returns the compiled graph, which takes ``[*parameters, *args]``."""
        resolved = resolve(backend, strict=strict, options=options)
        with torch.set_grad_enabled(training):
            return resolved.compile(self.gm, self.inputs, training=training, static_inputs=self.static_inputs)

    def run(self, compiled: Any, *args: Any) -> Any:
        """Call ``compiled`` on the parameters and ``args``; one result comes alone."""
        results = compiled(*self.parameters, *args)
        return results[0] if self.single else tuple(results)


@pytest.fixture
def capture() -> type[Capture]:
    return Capture


CompileModel = Callable[..., tuple[Callable[..., Any], list[GraphReport]]]


@pytest.fixture
def compile_model() -> CompileModel:
    """``compile_model(model, backend, dynamic=..., options=..., strict=...)`` -> the compiled model and its reports."""

    def compile_model(
        model: Any, backend: Any, *, dynamic: bool | None = None, options: Any = None, strict: bool = False
    ) -> tuple[Callable[..., Any], list[GraphReport]]:
        resolved = resolve(backend, strict=strict, options=options)
        reports: list[GraphReport] = []

        def source(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
            training = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
            static = tuple(i for i, x in enumerate(inputs) if isinstance(x, torch.nn.Parameter))
            compiled = resolved.compile(gm, inputs, training=training, static_inputs=static)
            reports.append(compiled.report)
            return compiled

        torch.compiler.reset()
        compiled = torch.compile(model, backend=source, dynamic=dynamic)

        def call(*args: Any, **kwargs: Any) -> Any:
            # Floats as inputs are a peculiarity of torch's own frontend with dynamic shapes.
            with torch._dynamo.config.patch(specialize_float=True):
                return compiled(*args, **kwargs)

        return call, reports

    return compile_model
