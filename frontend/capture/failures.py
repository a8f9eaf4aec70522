"""Graphs that fail where the program could tell: inside of its own try statement, or after a side effect.

The compiled code runs its graph ahead of the frame's side effects, and outside of its ``try`` and ``with`` statements.
If an operator raises, for values that it refuses, the call starts again in eager, where the program's own handlers and
effects come in their order.  That is so only for an error of the program's own, which the graph raises uncompiled as
well; a compiler's error leaves the call.

What the call has done until then must not show.  A graph that writes to its inputs starts again only where the program
itself catches errors of its operators, and if the inputs are small: their contents are kept in each call.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti
from torchmux.registry.errors import TorchmuxError

from .. import logs
from ..bytecode import parameters
from ..guards.sources import Cell, Local
from ..values.tensors import TensorValue
from .assumed_branches import Before, arguments_in_order, is_small, only_writes
from .random_operators import may_draw
from .tracebacks import starts_again

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


def would_show(tr: Tracer) -> bool:
    """Whether it shows if the recorded graph fails, and starting again hides it."""
    if not (tr.tried or tr.effects) or tr.expectations or tr.draws or tr.calls_first:
        return False
    return only_writes(tr) and (not tr.put_back or (tr.catches and is_small(tr, tr.put_back)))


def keep_tried(tr: Tracer, out: FrameWriter) -> None:
    """Have the graph return what nothing uses, where the program only tries whether it can be computed."""
    for value in tr.tried:
        if isinstance(value, TensorValue) and value.node.graph is tr.main and value.node not in tr.hooked:
            if not value.node.users and value.node.op in ("call_function", "call_method"):
                out.graph_output(value)


class FailureCheck:
    """The lines of a frame function that run a graph, and the frame in eager if it fails.

    If the frame continues after the graph (``ends`` is false), the function returns whether it does, and the values.
    """

    def __init__(self, tr: Tracer, out: FrameWriter, ends: bool = True) -> None:
        self.ends = ends
        code = tr.code
        self.eagerly = Eagerly(code, tr.root.namespace)
        self.arguments = [out.load(Local(name)) for name in parameters(code)]
        self.cells = [out.load(Cell(name)) for name in code.co_freevars]
        self.is_random = any(map(may_draw, tr.main.nodes))

    def lines(self, out: FrameWriter, call: str, inputs: str) -> list[str]:
        """``call`` runs the graph on ``inputs``, a tuple, and stores its results."""
        arguments, cells = ("".join(f"{name}, " for name in names) for names in (self.arguments, self.cells))
        eagerly = out.names.const(self.eagerly)
        written = [out.load(source) for node, source in out.tr.inputs if node in out.tr.put_back]
        kept = f"{out.names.const(Before)}(False, {', '.join(written)})" if written else "None"
        state = f"state = {out.names.const(torch.default_generator.get_state)}()" if self.is_random else "state = None"
        result = f"{eagerly}(({arguments}), ({cells}))"
        return [
            state,
            f"kept = {kept}",
            "failed = False",
            "try:",
            f"    {call}",
            "except Exception as error:",
            f"    if not {eagerly}.raises_too(error, state, kept, {inputs}):",
            "        raise",
            "    failed = True",
            "if failed:",
            f"    return {result if self.ends else f'True, {result}'}",
        ]


class Eagerly:
    """Runs a call in eager from its beginning, after its graph has failed; ``plain`` runs the graph uncompiled."""

    def __init__(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        self.code = code
        self.namespace = namespace
        self.plain: Callable[[tuple], Any] | None = None

    def raises_too(self, error: Exception, state: torch.Tensor | None, kept: Before | None, inputs: tuple) -> bool:
        """Whether the program itself raises such an error, as the graph uncompiled.

        ``state`` and ``kept`` are put back: the random state ahead of the graph, and the inputs that it writes to, or
        None if there are none.
        """
        if isinstance(error, TorchmuxError) or self.plain is None:
            return False
        if kept is not None:
            kept.restore()
        previous = ti.set_eval_frame(None)
        try:
            if state is not None:
                torch.default_generator.set_state(state)
            self.plain(inputs)
        except Exception as own:
            return type(own) is type(error)
        else:
            return False
        finally:
            ti.set_eval_frame(previous)
            if state is not None:
                torch.default_generator.set_state(state)
            if kept is not None:
                kept.restore()

    def __call__(self, arguments: tuple, cells: tuple) -> Any:
        code = self.code
        logs.emit("graph_breaks", f"{code.co_qualname} runs in eager", "an operator of its graph raised an exception")
        function = types.FunctionType(code, self.namespace, code.co_name, None, cells)
        positional, named = arguments_in_order(code, arguments)
        previous = ti.set_eval_frame(None)
        try:
            return function(*positional, **named)
        finally:
            ti.set_eval_frame(previous)


starts_again(Eagerly.__call__)
