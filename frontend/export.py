"""``export``: one full graph of a function, with the guards it assumes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from torchmux import torch_internals as ti
from torchmux.registry.errors import Unsupported
from torchmux.registry.names import class_with_article

from .callee import with_frame
from .capture.captured import Captured
from .capture.tracebacks import tidy
from .compiled import call
from .exported_program import Program, exported_program
from .hook.frames import open_session
from .hook.session import Record, Session
from .marks.function_marks import asked
from .unwrap import original_of


@dataclass(frozen=True)
class GraphInput:
    """An input of an exported graph: the name of its placeholder, and a description of the value's source."""

    name: str
    source: str
    is_parameter: bool


class Exported:
    """The result of ``export``: a graph on flat inputs, which is called like the function it came from.

    * ``graph_module``: the graph; its inputs are ``inputs``, and its result is a flat tuple.
    * ``inputs``: a :class:`GraphInput` for each placeholder.
    * ``guards``: in words, what must hold for the graph to replace the function; ``guard_code`` is the check.
    * ``code``: the function that loads the inputs, runs the graph, repeats side effects and rebuilds the result.
    * ``in_spec`` and ``out_spec``: the structure of ``(args, kwargs)`` and of the result, as torch's pytrees.
    * ``run``: calls the graph with the function's arguments, without a check of the guards.
    * ``to_exported_program`` and ``save``: the graph as a ``torch.export.ExportedProgram``, and that in a file.

    A call checks the guards, then runs the graph.  If a guard fails, it raises :class:`~torchmux.Unsupported` with that
    guard.

    Examples:
        >>> exported = torchmux.export(lambda x, scale: x * scale)(torch.ones(3), 2.0)
        >>> exported(torch.ones(3), 2.0)
        tensor([2., 2., 2.])
        >>> [str(node.target) for node in exported.graph_module.graph.nodes if node.op == "call_function"]
        ['<built-in function mul>']
    """

    def __init__(
        self, function: Any, session: Session, captured: Captured, call: tuple[tuple, dict], outputs: Any, result: Any
    ) -> None:
        assert captured.guards is not None
        self._captured, self._call, self._outputs, self._result = captured, call, outputs, result
        self._function, self._session, self._record = function, session, Record()
        self.graph_module: torch.fx.GraphModule = captured.graph
        self.inputs = [GraphInput(name, source.words(), static) for name, source, static in captured.inputs]
        self.guards = captured.guards.words()
        self.guard_code = captured.guards.text
        self.code = captured.text
        self.in_spec = ti.pytree.tree_flatten(call)[1]
        self.out_spec = ti.pytree.tree_flatten(result)[1]

    @property
    def graph(self) -> torch.fx.Graph:
        return self.graph_module.graph

    @functools.cached_property
    def run(self) -> Program:
        """The graph as a module that takes the function's arguments and returns its result; it checks no guard.

        Raises:
            Unsupported: the function does more than compute its result.
        """
        return Program(self._function, self._captured, *self._call, self._outputs, self._result)

    def to_exported_program(self) -> torch.export.ExportedProgram:
        """The graph as a ``torch.export.ExportedProgram``, whose dynamic sizes are the symbolic ones of the graph.

        Raises:
            Unsupported: the function does more than compute its result.
        """
        return exported_program(self.run, self._captured, *self._call)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write :meth:`to_exported_program` to a file, which ``torch.export.load`` reads without torchmux."""
        torch.export.save(self.to_exported_program(), path)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return call(self._session, self._record, self._function, args, kwargs)
        except BaseException as error:
            tidy(error)
            raise

    def __str__(self) -> str:
        lines = [self.graph_module.code.strip(), "", "inputs:"]
        lines += [f"  {each.name}: {each.source}" for each in self.inputs]
        return "\n".join([*lines, "guards:", *(f"  {guard}" for guard in self.guards)])


def _as_captured(outputs: list) -> Callable[..., Callable]:
    """A backend that runs the graph as it is, and notes its latest outputs."""

    def compile_graph(gm: Any, inputs: list, training: bool, static: tuple[int, ...]) -> Callable:
        def run(*values: Any) -> Any:
            outputs[:] = found = gm.forward(*values)
            return found

        return run

    return compile_graph


def export(fn: Any, *, dynamic: bool | None = None) -> Callable[..., Exported]:
    """Capture ``fn`` in one graph: ``export(fn)(*args, **kwargs)`` runs it once and returns an :class:`Exported`.

    ``dynamic`` works as in :func:`torchmux.compile`, and dimensions can be marked.  Exceptions of the function
    propagate.

    Raises:
        Unsupported: the function cannot be one graph; the message names the line, the reason and the usual fix.

    Examples:
        >>> exported = torchmux.export(lambda x: torch.relu(x) + 1)(torch.ones(3))
        >>> exported(torch.zeros(3))
        tensor([1., 1., 1.])
        >>> exported(torch.zeros(4))  # the size is guarded
        Traceback (most recent call last):
        torchmux.registry.errors.Unsupported: ...
    """
    original = original_of(fn)
    if not callable(original):
        raise TypeError(f"export() takes a function, a method or an nn.Module, not {class_with_article(fn)}")

    called = with_frame(original)

    def run(*args: Any, **kwargs: Any) -> Exported:
        outputs: list[Any] = []
        session = open_session(
            _as_captured(outputs), fullgraph=True, dynamic=dynamic, asked="export() requires one graph"
        )
        record = Record()
        outer, asked.exporting = asked.exporting, True
        try:
            result = call(session, record, called, args, kwargs)
        except BaseException as error:
            tidy(error)
            raise
        finally:
            asked.exporting = outer
        name = getattr(original, "__qualname__", type(original).__qualname__)
        graphs = list(record)
        if len(graphs) != 1:
            found = f"it became {len(graphs)} ({', '.join(c.qualname for c in graphs)})" if graphs else "it has none"
            raise Unsupported(
                f"export() requires one graph of {name}, but {found}. The code of libraries and generators is not "
                f"captured, only the functions that it calls: export the function that contains the operators."
            )
        session.frozen = True
        returned = list(outputs)
        outputs.clear()
        return Exported(called, session, graphs[0], (args, kwargs), returned, result)

    return run
