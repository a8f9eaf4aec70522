"""Marks on functions: keep them out of graphs, put them into graphs as one operator, break here.

torch's own markers have the same effect: see :func:`torch_marker`.
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
from torchmux.registry.names import class_with_article

from .. import breaks
from ..breaks import GraphBreak
from ..bytecode.identity import CodeMap
from ..guards.sources import Attr
from ..handlers import classify
from ..handlers.table import constructs, handles
from ..hook.calls import DISABLED, Frame
from ..hook.thread_state import this_thread
from ..polyfills import contexts
from ..unwrap import original_of
from ..values import contexts as contexts_
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.contexts import ContextValue

# --- functions that stay out of graphs ----------------------------------------------------------------------------

_eager_code = CodeMap()  # code whose own frames run in eager; the functions they call are captured


def runs_in_eager(code: Any) -> bool:
    """Whether ``disable(recursive=False)`` was applied to this code."""
    return _eager_code.get(code) is not None


def disable(fn: Any = None, *, reason: str = "", recursive: bool = True) -> Any:
    """Keep a function out of every graph: a call breaks the graph, and the function and everything it calls run in
    eager.

    Works as a function or a decorator, for a function, a module or a class.  With ``recursive=False`` only the
    function's own statements run in eager, and the functions it calls are captured.  The graph break shows ``reason``.

    Examples:
        >>> @torchmux.disable(reason="it writes a file")
        ... def log(x):
        ...     return x
        >>> found = torchmux.explain(lambda x: log(x + 1) * 2)(torch.ones(2))
        >>> found.graph_count, found.graph_break_count
        (2, 1)
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
            if previous is not None and this_thread.doing.owner is not None:
                this_thread.doing.owner.note_calls(
                    Frame(getattr(fn, "__qualname__", type(fn).__qualname__), ""), DISABLED
                )
            try:
                return fn(*args, **kwargs)
            finally:
                ti.set_eval_frame(previous)

    else:
        code = getattr(inspect.unwrap(fn), "__code__", None)
        if code is None:
            raise TypeError(f"disable(recursive=False) takes a Python function, not {class_with_article(fn)}")
        _eager_code.set(code, True)

        @functools.wraps(fn)
        def disabled(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

    disabled._torchmux_disable = True  # type: ignore[attr-defined]
    disabled._torchmux_disable_reason = reason  # type: ignore[attr-defined]
    return disabled


def graph_break(reason: str = "") -> None:
    """End the graph here; does nothing in eager mode.

    Examples:
        >>> def in_two(x):
        ...     x = x + 1
        ...     torchmux.graph_break()
        ...     return x * 2
        >>> torchmux.explain(in_two)(torch.ones(2)).graph_count
        2
    """


def skip_frame(reason: str = "") -> None:
    """Run the whole calling function in eager; the functions it calls are captured.  Does nothing in eager mode.

    Examples:
        >>> def whole_in_eager(x):
        ...     torchmux.skip_frame("its loop is short")
        ...     return x + 1
        >>> torchmux.compile(whole_in_eager, backend="eager")(torch.ones(2))
        tensor([2., 2.])
    """


# --- queries ------------------------------------------------------------------------------------------------------


def is_compiling() -> bool:
    """True while the code is being captured, False in eager mode.

    Examples:
        >>> compiled = torchmux.compile(lambda x: x + 1 if torchmux.is_compiling() else x, backend="eager")
        >>> torchmux.is_compiling(), compiled(torch.ones(2))
        (False, tensor([2., 2.]))
    """
    return False


def is_exporting() -> bool:
    """True while the code is being captured for :func:`torchmux.export`, False otherwise.

    Examples:
        >>> torchmux.is_exporting()
        False
        >>> torchmux.export(lambda x: x + 1 if torchmux.is_exporting() else x)(torch.ones(2))(torch.ones(2))
        tensor([2., 2.])
    """
    return False


# --- functions that are not traced --------------------------------------------------------------------------------


def check_callable(fn: Any, name: str) -> None:
    if not callable(fn):
        raise TypeError(f"{name}() takes a callable, not {class_with_article(fn)}")


def _each(fn: Any, name: str, mark: Callable[[Any], None]) -> Any:
    for each in fn if isinstance(fn, (list, tuple)) else [fn]:
        check_callable(each, name)
        mark(each)
    return fn


def allow_in_graph(fn: Any) -> Any:
    """Put ``fn`` (or each function of a list) into graphs as one operator, without tracing it; returns it.

    Examples:
        >>> @torchmux.allow_in_graph
        ... def scaled(x):
        ...     return x * 2
        >>> compiled = torchmux.compile(lambda x: scaled(x) + 1, backend="eager", fullgraph=True)
        >>> compiled(torch.ones(2))
        tensor([3., 3.])
    """
    return _each(fn, "allow_in_graph", classify.allow_in_graph)


def disallow_in_graph(fn: Any) -> Any:
    """Break the graph wherever ``fn`` (or each function of a list) is called; returns it.

    Examples:
        >>> @torchmux.disallow_in_graph
        ... def outside(x):
        ...     return x.sort().values
        >>> torchmux.explain(lambda x: outside(x) + 1)(torch.ones(2)).graph_break_count
        1
    """
    return _each(fn, "disallow_in_graph", classify.disallow_in_graph)


def forbid_in_graph(fn: Any) -> Any:
    """Raise an error if compiled code calls ``fn`` (or each function of a list); returns it.

    Examples:
        >>> @torchmux.forbid_in_graph
        ... def only_in_eager(x):
        ...     return x + 1
        >>> only_in_eager(torch.ones(1))
        tensor([2.])
    """
    return _each(fn, "forbid_in_graph", classify.forbid_in_graph)


def assume_constant_result(fn: Any) -> Any:
    """Call ``fn`` during compilation and treat its result as a constant; returns it.

    Examples:
        >>> @torchmux.assume_constant_result
        ... def size_of_the_vocabulary():
        ...     return 100
        >>> compiled = torchmux.compile(lambda x: x * size_of_the_vocabulary(), backend="eager", fullgraph=True)
        >>> compiled(torch.ones(2))
        tensor([100., 100.])
    """
    return _each(fn, "assume_constant_result", classify.assume_constant)


def substitute_in_graph(
    original: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Callable[[Callable], Callable]:
    """Trace the decorated Python function wherever compiled code calls ``original``, usually a C function.

    Eager calls the original.  With ``can_constant_fold_through``, tracing also calls it if all its arguments are
    constants.  Code that is already compiled does not change.

    Raises:
        TypeError: ``original`` is not a function, or its parameters differ from those of the decorated function.

    Examples:
        >>> import bisect
        >>> @torchmux.substitute_in_graph(bisect.insort_right, skip_signature_check=True)
        ... def insort_right(a, x):
        ...     a.append(x)
        ...     a.sort()
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
        return  # a C function without a signature
    found = inspect.signature(polyfill)
    names = [(p.name, p.kind) for p in wanted.parameters.values()]
    if names != [(p.name, p.kind) for p in found.parameters.values()]:
        raise TypeError(
            f"substitute_in_graph: {original.__name__}{wanted} cannot be replaced by {polyfill.__name__}{found}, whose "
            "parameters differ. Give them the same names, or pass skip_signature_check=True."
        )


# --- breaks as errors ---------------------------------------------------------------------------------------------


class _Asked(threading.local):
    """What every capture in this thread must do."""

    breaks_are_errors = False
    exporting = False


asked = _Asked()


class error_on_graph_break:
    """Turn graph breaks into errors in a block or a function, or allow them again with ``False``.

    Works as a context manager, in compiled code or around it, or as a decorator.  Unlike ``fullgraph=True`` it does not
    require one graph: other parts of the program may break.  Under ``fullgraph=True`` it changes nothing.

    Examples:
        >>> @torchmux.compile(backend="eager")
        ... @torchmux.error_on_graph_break()
        ... def branches(x):
        ...     return x + 1 if x.sum() > 0 else x
        >>> try:
        ...     branches(torch.ones(2))
        ... except torchmux.Unsupported as error:
        ...     print("TM001" in str(error))
        True
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
    """An ``error_on_graph_break`` that the program creates and enters."""

    __slots__ = ("error", "outer")

    def __init__(self, error: bool, source: Any = None) -> None:
        self.error = error
        self.outer: list[bool] = []
        self.source = source

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


@handles(error_on_graph_break.__enter__, error_on_graph_break.__exit__)
def _called_as_a_method(tr: Any, *args: Value) -> Value:
    """After a graph break, the ``with`` statement calls the method of the real object, which sets the real switch."""
    stop = GraphBreak(breaks.TORCH_STATE, "a method of an error_on_graph_break that exists outside")
    stop.is_allowed = True
    raise stop


@constructs(error_on_graph_break)
def _make_strictness(tr: Any, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _StrictnessValue(all(value.truth(tr) for value in (*args, *kwargs.values())))


def trace_error_on_graph_break(tr: Any, error: Value) -> Value:
    """torch's own: where the program enters it in compiled code it means the same."""
    return _StrictnessValue(error.truth(tr))


def wrap_strictness(tr: Any, obj: Any, source: Any) -> Value | None:
    """The value of an existing ``error_on_graph_break``, ours or torch's; None for any other object."""
    cls = type(obj)
    if cls is not error_on_graph_break and (cls.__module__, cls.__name__) != _TORCHS_STRICTNESS:
        return None
    name = "error" if cls is error_on_graph_break else "error_on_graph_break"
    tr.guards_type(source, cls)
    tr.guards_equal(source and Attr(source, name), getattr(obj, name))
    # in the place of torch's, one of ours is entered after a graph break
    return _StrictnessValue(getattr(obj, name), source if cls is error_on_graph_break else None)


_TORCHS_STRICTNESS = ("torch._dynamo.decorators", "ErrorOnGraphBreakDecoratorContextManager")
contexts_.OTHERS.append(wrap_strictness)


# --- in traced code -----------------------------------------------------------------------------------------------


def _ask_for_break(name: str, args: tuple[Value, ...], kwargs: dict[str, Value]) -> GraphBreak:
    told = [value.value for value in (*args, *kwargs.values()) if isinstance(value, ConstValue)]
    return GraphBreak(breaks.ASKED_FOR, f"{name}()" + "".join(f": {reason}" for reason in told if reason))


@handles(graph_break)
def trace_graph_break(tr: Any, *args: Value, **kwargs: Value) -> Value:
    if tr.frame.namespace.get("__name__") == "torch.optim.optimizer":
        # It makes torch's own tracer start a graph without gradients at a step; this tracer does that by itself.
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


# The meaning of torch's own markers when the program calls them.  They are named, not imported, because importing them
# would import torch's tracer.
_TORCH_FUNCTIONS: dict[tuple[str, str], Callable] = {
    ("torch._dynamo.decorators", "graph_break"): trace_graph_break,
    ("torch._dynamo.decorators", "step_unsupported"): trace_graph_break,
    ("torch._dynamo.decorators", "skip_frame"): trace_skip_frame,
    ("torch._dynamo.decorators", "error_on_graph_break"): trace_error_on_graph_break,
    ("torch._dynamo.external_utils", "is_compiling"): trace_is_compiling,
}
classify.TORCH_MARKERS.update(_TORCH_FUNCTIONS)
