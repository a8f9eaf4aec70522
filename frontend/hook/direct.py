"""A call of what was compiled, without the hook: the check in Python, then the code that the hook would run.

The hook takes a microsecond of a call.  It finds the frame of what is called, and the frames that this calls in turn;
where all of the function was captured, there are none.  So a callable with one entry, whose code runs no function of
the program's, asks that entry itself.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from torchmux import torch_internals as ti

from ..bytecode.resume import GENERATOR_FLAGS
from ..capture.captured import Captured
from ..guards.plain_call import PlainCall
from ..guards.snapshot import Form, SnapshotCheck
from .library import is_own
from .session import Session

Ready = Callable[[tuple, dict], "Callable[..., Any] | None"]
"""What to call in the place of the function, with these arguments; None where the hook has to find it."""

_VARARGS, _VARKEYWORDS = 0x4, 0x8
_SKIP = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)  # under another frontend's hook as well
_is_traced = ti.get_tracing_state
_contents = operator.attrgetter("cell_contents")


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
    return _ready(session, entry, function, first, None if module is None else PlainCall(module, function))


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


def _ready(
    session: Session, entry: Captured, function: types.FunctionType, first: tuple, plain: PlainCall | None
) -> Ready:
    code, closure, kept = function.__code__, function.__closure__ or (), entry.kept
    names = code.co_varnames[: code.co_argcount]
    generation = session.generation
    if (replaces := kept()) is not None:
        ti.set_code_exec_strategy(replaces, _SKIP)
    make, method, namespace, name = types.FunctionType, types.MethodType, function.__globals__, function.__name__
    width, owner = len(names), first[0] if first else None
    has_rest, has_named = bool(code.co_flags & _VARARGS), bool(code.co_flags & _VARKEYWORDS)
    others = code.co_varnames[code.co_argcount :][: has_rest + has_named]
    form, entry_check, inputs, uses = Form((*names, *others, *code.co_freevars), plain), entry.check(), None, [0]
    if isinstance(entry_check, SnapshotCheck):
        form, inputs, uses = entry_check.known(form), entry_check.inputs, entry_check.uses
        plain = form.plain
    check = _check_of_values(entry, form)
    ti.set_code_exec_strategy(check.__code__, _SKIP)

    # The function is made anew each time: what holds the code for long closes a cycle through it, which never goes.

    @ti.not_captured
    def ready(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or session.generation != generation:
            return None
        if kwargs or not check(args):  # which says no to others than so many
            return None
        return make(replaces, namespace, name)

    @ti.not_captured
    def ready_with_more(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or session.generation != generation:
            return None
        values = first + args  # the owner may be one of the rest
        defaults = function.__defaults__
        if (missing := width - len(values)) > 0:
            if defaults is None or missing > len(defaults):
                return None
            values += defaults[-missing:]
        if others:
            if kwargs and not (has_named and kwargs.keys().isdisjoint(names)):
                return None
            if has_rest:
                values = values[:width] + ((values[width:], kwargs) if has_named else (values[width:],))
            elif len(values) == width:
                values += (kwargs,)
            else:
                return None
        elif kwargs or len(values) != width:
            return None
        if closure:
            try:
                values += tuple(map(_contents, closure))
            except ValueError:  # nothing is in one of them
                return None
        if (
            inputs is not None
            and (snapshot := inputs.latest()) is not None
            and snapshot.form is form
            and (plain is None or _is_traced() is None)
            and snapshot.check(snapshot.values, values) is True
        ):
            uses[0] += 1
        elif (plain is not None and not plain.holds()) or not check(values):
            return None
        made = make(replaces, namespace, name, defaults, closure)
        return method(made, owner) if first else made

    is_simple = not (others or first or closure or function.__defaults__ or inputs is not None)
    return ready if is_simple else ready_with_more


def _check_of_values(entry: Captured, form: Form) -> Callable[..., bool]:
    """The check of an entry as a function of the values of some locals, a tuple."""
    assert entry.guards is not None
    check = entry.check()
    return check.of_values(form) if isinstance(check, SnapshotCheck) else entry.guards.of_arguments(form.names)
