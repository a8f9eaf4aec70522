"""A call of what was compiled, without the hook: the check in Python, then the code that the hook would run.

The hook takes a microsecond of a call.  It finds the frame of what is called, and the frames that this calls in turn;
where all of the function was captured, there are none.  So a callable with one entry, whose code runs no function of
the program's, asks that entry itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from torchmux import torch_internals as ti

from ..bytecode.resume import GENERATOR_FLAGS
from ..capture.captured import Captured
from ..guards.snapshot import SnapshotCheck
from .library import is_own
from .session import Session

Ready = Callable[[tuple, dict], "Callable[..., Any] | None"]
"""What to call in the place of the function, with these arguments; None where the hook has to find it."""

_VARARGS, _VARKEYWORDS = 0x4, 0x8
_SKIP = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)  # under another frontend's hook as well
_CALL, _CALL_IMPL = torch.nn.Module.__call__, torch.nn.Module._call_impl


def direct(session: Session, called: Any) -> Ready | None:
    """How to call a function, a method or a module directly; None where that is not possible by now."""
    module = called if isinstance(called, torch.nn.Module) else None
    target: Any = getattr(called, "forward", None) if module is not None else called
    is_method = isinstance(target, types.MethodType)
    function, first = (target.__func__, (target.__self__,)) if is_method else (target, ())
    if type(function) is not types.FunctionType or (module is not None and first != (module,)):
        return None
    entry = _only_entry(session, function)
    if entry is None:
        return None
    ready = _ready(session, entry, function, first)
    return ready if module is None else _ready_for_module(module, function, ready)


def _only_entry(session: Session, function: types.FunctionType) -> Captured | None:
    """The one entry of a function, if it runs all of it, and nothing of the program's."""
    code = function.__code__
    state = session.states.get(code)
    if state is None or len(state.entries) != 1 or state.vain or state.settled:
        return None
    entry = state.entries[0]
    if entry.graph is None or entry.broke is not None or entry.in_eager:
        return None
    if entry.ending is None or entry.ending.index is not None or entry.ending.cuts is not None:
        return None
    if entry.parts is None or entry.parts.assumes_branches or any(map(_may_call, entry.parts.namespace.values())):
        return None
    if entry.globals_id != id(function.__globals__) or code.co_kwonlyargcount or code.co_flags & GENERATOR_FLAGS:
        return None
    return entry


def _may_call(value: Any) -> bool:
    """Whether it is a function of the program's, which the hook would ask about."""
    if not isinstance(value, (types.FunctionType, types.MethodType)):  # others may compute their attributes
        return False
    code = getattr(value, "__code__", None)
    return isinstance(code, types.CodeType) and not (
        is_own(code.co_filename) or code.co_filename.startswith("<torchmux")
    )


def _ready(session: Session, entry: Captured, function: types.FunctionType, first: tuple) -> Ready:
    code, closure, kept = function.__code__, function.__closure__ or (), entry.kept
    names = code.co_varnames[: code.co_argcount]
    generation = session.generation
    if (replaces := kept()) is not None:
        ti.set_code_exec_strategy(replaces, _SKIP)
    make, method, namespace, name = types.FunctionType, types.MethodType, function.__globals__, function.__name__
    count, owner = len(names) - len(first), first[0] if first else None
    has_rest, has_named = bool(code.co_flags & _VARARGS), bool(code.co_flags & _VARKEYWORDS)
    others = code.co_varnames[code.co_argcount :][: has_rest + has_named]
    holds = _check_of_values(entry, (*names, *others, *code.co_freevars))
    ti.set_code_exec_strategy(holds.__code__, _SKIP)

    # The function is made anew each time: what holds the code for long closes a cycle through it, which never goes.

    @ti.not_captured
    def ready(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or session.generation != generation:
            return None
        if kwargs or len(args) != count or not holds(*args):
            return None
        return make(replaces, namespace, name)

    @ti.not_captured
    def ready_with_more(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or session.generation != generation:
            return None
        defaults = function.__defaults__
        lacking = count - len(args)
        if lacking:
            if defaults is None or not 0 < lacking <= len(defaults):
                return None
            given = args + defaults[-lacking:]
        else:
            given = args
        try:
            if kwargs or not holds(*first, *given, *[cell.cell_contents for cell in closure]):
                return None
        except ValueError:  # nothing is in a cell
            return None
        made = make(replaces, namespace, name, defaults, closure)
        return method(made, owner) if first else made

    @ti.not_captured
    def ready_with_rest(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or session.generation != generation:
            return None
        given = first + args  # the owner may be one of the rest
        if len(given) < len(names) or (len(given) > len(names) and not has_rest):
            return None
        if kwargs and not (has_named and kwargs.keys().isdisjoint(names)):
            return None
        rest = given[len(names) :]
        more = ((rest, kwargs) if has_named else (rest,)) if has_rest else (kwargs,)
        try:
            if not holds(*given[: len(names)], *more, *[cell.cell_contents for cell in closure]):
                return None
        except ValueError:
            return None
        made = make(replaces, namespace, name, None, closure)
        return method(made, owner) if first else made

    if others:
        return ready_with_rest
    return ready_with_more if first or closure or function.__defaults__ else ready


def _check_of_values(entry: Captured, names: tuple[str, ...]) -> Callable[..., bool]:
    """The check of an entry as a function of the values of these locals."""
    assert entry.guards is not None
    check = entry.check()
    return check.of_arguments(names) if isinstance(check, SnapshotCheck) else entry.guards.of_arguments(names)


def _ready_for_module(module: torch.nn.Module, function: types.FunctionType, ready: Ready) -> Ready:
    """As ``ready``, where a call of the module comes to nothing else than ``function``."""
    hooks_of_all = torch.nn.modules.module
    before, after = hooks_of_all._global_forward_pre_hooks, hooks_of_all._global_forward_hooks
    backward, backward_before = hooks_of_all._global_backward_hooks, hooks_of_all._global_backward_pre_hooks
    is_traced = ti.get_tracing_state

    @ti.not_captured
    def ready_for_module(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        cls, own = type(module), module.__dict__
        if (
            cls.__call__ is not _CALL
            or cls._call_impl is not _CALL_IMPL
            or cls.forward is not function
            or "forward" in own
            or "_call_impl" in own
            or own.get("_compiled_call_impl") is not None
            or own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or before
            or after
            or backward
            or backward_before
            or is_traced() is not None
        ):
            return None
        return ready(args, kwargs)

    return ready_for_module
