"""What a program says about its own code: keep out, take as it is, break here.

torch's own markers mean the same where a program carries them: see :func:`torch_marker`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..bytecode.identity import CodeMap
from ..handlers import classify
from ..handlers.table import constructs, handles
from ..polyfills import contexts
from ..unwrap import original_of
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.contexts import ContextValue

# --- functions that stay out --------------------------------------------------------------------------------------

_eager_code = CodeMap()  # code whose own frames run in eager; what they call is captured


def runs_in_eager(code: Any) -> bool:
    """Whether ``disable(recursive=False)`` was asked for this code."""
    return _eager_code.get(code) is not None


def disable(fn: Any = None, *, reason: str = "", recursive: bool = True) -> Any:
    """Keep a function out of every graph: calling it is a graph break, and it and what it calls run in eager.

    As a function or a decorator, for a function, a module or a class.  With ``recursive=False`` only the function's
    own statements run in eager; what it calls is captured.  ``reason`` is told with the graph break.
    """
    if fn is None:
        return lambda inner: disable(inner, reason=reason, recursive=recursive)
    fn = original_of(fn)
    if isinstance(fn, torch.nn.Module):
        made = copy.copy(fn)
        made.forward = disable(fn.forward, reason=reason, recursive=recursive)
        return made
    if isinstance(fn, type):
        name = "forward" if issubclass(fn, torch.nn.Module) else "__call__"
        setattr(fn, name, disable(getattr(fn, name), reason=reason, recursive=recursive))
        return fn
    check_callable(fn, "disable")

    if recursive:

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            previous = ti.set_eval_frame(None)
            try:
                return fn(*args, **kwargs)
            finally:
                ti.set_eval_frame(previous)

    else:
        code = getattr(inspect.unwrap(fn), "__code__", None)
        if code is None:
            raise TypeError(f"disable(recursive=False) takes a Python function, not a {type(fn).__name__}")
        _eager_code.set(code, True)

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    disabled._torchmux_disable = True  # type: ignore[attr-defined]
    disabled._torchmux_disable_reason = reason  # type: ignore[attr-defined]
    return disabled


def graph_break(reason: str = "") -> None:
    """End the graph here; does nothing in eager mode."""


def skip_frame(reason: str = "") -> None:
    """Run the function that calls this in eager, as a whole; what it calls is captured.  Does nothing in eager."""


# --- questions ----------------------------------------------------------------------------------------------------


def is_compiling() -> bool:
    """True where the code is being captured, False in eager mode."""
    return False


def is_exporting() -> bool:
    """True where the code is being captured for :func:`torchmux.export`, False otherwise."""
    return False


# --- functions that are taken otherwise than by tracing them ------------------------------------------------------


def check_callable(fn: Any, name: str) -> None:
    if not callable(fn):
        raise TypeError(f"{name}() takes a callable, not a {type(fn).__name__}")


def _each(fn: Any, name: str, mark: Callable[[Any], None]) -> Any:
    for each in fn if isinstance(fn, (list, tuple)) else [fn]:
        check_callable(each, name)
        mark(each)
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Take ``fn`` (or each of a list) into graphs as one operator, without looking inside; returns it."""
    return _each(fn, "allow_in_graph", classify.allow_in_graph)


def disallow_in_graph(fn: Any) -> Any:
    """Break the graph wherever ``fn`` (or each of a list) is called; returns it."""
    return _each(fn, "disallow_in_graph", classify.disallow_in_graph)


def forbid_in_graph(fn: Any) -> Any:
    """Make it an error that ``fn`` (or each of a list) is called in compiled code; returns it."""
    return _each(fn, "forbid_in_graph", classify.forbid_in_graph)


def assume_constant_result(fn: Any) -> Any:
    """Call ``fn`` while compiling and take its result for a constant; returns it."""
    return _each(fn, "assume_constant_result", classify.assume_constant)


def substitute_in_graph(
    original: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable], Callable]:
    """Trace the decorated Python function wherever compiled code calls ``original``, usually a C function.

    In eager the original is called.  With ``can_constant_fold_through`` it is called while tracing, too, if all its
    arguments are constants.  Code that is compiled already stays as it is.

    Raises:
        TypeError: ``original`` is no function, or its parameters are not those of the decorated function.
    """
    check_callable(original, "substitute_in_graph")
    if isinstance(original, type):
        raise TypeError(f"substitute_in_graph() takes a function, not the class {original.__qualname__}")

    def register(polyfill: Callable) -> Callable:
        check_callable(polyfill, "substitute_in_graph")
        if not skip_signature_check:
            _check_signatures(original, polyfill)
        classify.substitute(original, polyfill, can_constant_fold_through)
        return polyfill

    return register


def _check_signatures(original: Any, polyfill: Callable) -> None:
    try:
        wanted = inspect.signature(original)
    except ValueError:
        return  # a C function that does not tell
    found = inspect.signature(polyfill)
    names = [(p.name, p.kind) for p in wanted.parameters.values()]
    if names != [(p.name, p.kind) for p in found.parameters.values()]:
        raise TypeError(
            f"substitute_in_graph: {original.__name__}{wanted} is to be replaced by {polyfill.__name__}{found}, whose "
            "parameters are others. Give them the same names, or pass skip_signature_check=True."
        )


# --- breaks as errors ---------------------------------------------------------------------------------------------


class _Asked(threading.local):
    """What is asked of every capture in this thread."""

    breaks_are_errors = False
    exporting = False


asked = _Asked()


class error_on_graph_break:
    """Make graph breaks errors inside a block, or in a function, or allow them again with ``False``.

    As a context manager, in compiled code or around it, or as a decorator.  Unlike ``fullgraph=True`` it does not ask
    for one graph: other parts of the program may break.  Under ``fullgraph=True`` it changes nothing.
    """

    def __init__(self, error: bool = True) -> None:
        self.error = error
        self._outer: list[bool] = []

    def __enter__(self) -> None:
        self._outer.append(asked.breaks_are_errors)
        asked.breaks_are_errors = self.error

    def __exit__(self, *_: object) -> None:
        asked.breaks_are_errors = self._outer.pop()

    def __call__(self, fn: Callable) -> Callable:
        check_callable(fn, "error_on_graph_break")
        return functools.wraps(fn)(contexts.inside(functools.partial(error_on_graph_break, self.error), fn))


class _StrictnessValue(ContextValue):
    """An ``error_on_graph_break`` that the program makes and enters."""

    __slots__ = ("error", "outer")

    def __init__(self, error: bool) -> None:
        self.error = error
        self.outer: list[bool] = []
        self.source = None

    def pytype(self) -> type:
        return error_on_graph_break

    def enter(self, tr: Any) -> Value:
        self.outer.append(tr.breaks_are_errors)
        tr.breaks_are_errors = self.error
        return ConstValue(None)

    def leave(self, tr: Any) -> None:
        tr.breaks_are_errors = self.outer.pop()

    def rebuild(self, out: Any) -> str:
        return out.shell(self, f"{out.names.const(error_on_graph_break)}({self.error})")


@constructs(error_on_graph_break)
def _make_strictness(tr: Any, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _StrictnessValue(all(value.truth(tr) for value in (*args, *kwargs.values())))


# --- in traced code -----------------------------------------------------------------------------------------------


def _ask_for_break(name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> GraphBreak:
    told = [value.value for value in (*args, *kwargs.values()) if isinstance(value, ConstValue)]
    return GraphBreak(breaks.ASKED_FOR, f"{name}()" + "".join(f": {reason}" for reason in told if reason))


@handles(graph_break)
def trace_graph_break(tr: Any, *args: Value, **kwargs: Value) -> Value:
    if tr.frame.namespace.get("__name__") == "torch.optim.optimizer":
        # It asks torch's own tracer, so that a step begins a graph without gradients; ours does by itself.
        return ConstValue(None)
    raise _ask_for_break("torchmux.graph_break", args, kwargs)


@handles(skip_frame)
def trace_skip_frame(tr: Any, *args: Value, **kwargs: Value) -> NoReturn:
    error = _ask_for_break("torchmux.skip_frame", args, kwargs)
    error.whole_frame = True
    raise error


@handles(is_compiling)
def trace_is_compiling(tr: Any) -> Value:
    return ConstValue(True)


@handles(is_exporting, torch.compiler.is_exporting)
def trace_is_exporting(tr: Any) -> Value:
    return ConstValue(tr.exporting)


# What torch's own markers, called by the program, mean here.  They are named, not imported: importing them would bring
# torch's tracer along.
_TORCH_FUNCTIONS: dict[tuple[str, str], Callable] = {
    ("torch._dynamo.decorators", "graph_break"): trace_graph_break,
    ("torch._dynamo.decorators", "step_unsupported"): trace_graph_break,
    ("torch._dynamo.decorators", "skip_frame"): trace_skip_frame,
    ("torch._dynamo.external_utils", "is_compiling"): trace_is_compiling,
}
classify.TORCH_MARKERS.update(_TORCH_FUNCTIONS)
