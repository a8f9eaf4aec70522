"""A call of what was compiled, without the hook: the check in Python, then the code that the hook would run.

The hook takes a microsecond of a call.  It finds the frame of what is called, and the frames that this calls in turn;
where all of the function was captured, there are none.  So a callable with one entry asks that entry itself.  Where its
code runs functions of the program's, what is behind a graph break, say, it runs with the hook on.
"""

from __future__ import annotations

import functools
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
from .thread_state import FIRST_BUCKET, NO_BUCKET, bucket_after, this_thread
from .torch_tracer import ask_again

Ready = Callable[[tuple, dict], "Callable[..., Any] | None"]
"""What to call in the place of the function, with these arguments; None where the hook has to find it."""

_VARARGS, _VARKEYWORDS = 0x4, 0x8
_SKIP = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)  # under another frontend's hook as well
_WITH_CALLEES = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
_is_traced = ti.get_tracing_state
set_eval_frame, set_bucket, questions = ti.set_eval_frame, ti.set_bucket, ti.questions_to_tracer
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
    is_alone = _is_alone(entry)
    ready = _ready(session, entry, function, first, None if module is None else PlainCall(module, function), is_alone)
    return ready if is_alone else _with_hook(session, ready)


def _only_entry(session: Session, function: types.FunctionType) -> Captured | None:
    """The one entry of a function, if its calls are counted by its graph alone, or by none."""
    code = function.__code__
    state = session.states.get(code)
    if state is None or len(state.entries) != 1 or state.vain or state.settled:
        return None
    entry = state.entries[0]
    if entry.guards is None or (entry.graph is None and (entry.in_eager or entry.broke is None)):
        return None
    if entry.parts is None or entry.parts.assumes_branches:
        return None
    if entry.globals_id != id(function.__globals__) or code.co_kwonlyargcount or code.co_flags & GENERATOR_FLAGS:
        return None
    return entry


def _is_alone(entry: Captured) -> bool:
    """Whether an entry runs all of a function, and nothing of the program's."""
    if entry.broke is not None or entry.in_eager or entry.ending is None or entry.parts is None:
        return False
    ends = entry.ending.index is None and entry.ending.cuts is None
    return ends and not any(map(_may_call, entry.parts.namespace.values()))


def _with_hook(session: Session, ready: Ready) -> Ready:
    """What to call, with the hook on for what it calls."""

    @ti.not_captured
    def ready_with_hook(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        if (found := ready(args, kwargs)) is None:
            return None
        return functools.partial(_run_with_hook, session, found)

    return ready_with_hook


@ti.not_captured
def _run_with_hook(session: Session, function: Callable, *args: Any, **kwargs: Any) -> Any:
    if session.questions_seen != questions[0]:
        ask_again(session)
    previous, bucket = None, NO_BUCKET
    doing = this_thread.doing
    outer = doing.bucket
    try:  # an interrupt may arrive after each of these calls
        doing.bucket = session.bucket
        bucket = set_bucket(session.bucket)
        previous = set_eval_frame(session.callback)
        return function(*args, **kwargs)
    finally:
        set_eval_frame(previous)
        set_bucket(bucket if bucket < FIRST_BUCKET else bucket_after(bucket, outer))
        doing.bucket = outer


def _may_call(value: Any) -> bool:
    """Whether it is a function of the program's, which the hook would ask about."""
    if not isinstance(value, (types.FunctionType, types.MethodType)):  # others may compute their attributes
        return False
    code = getattr(value, "__code__", None)
    return isinstance(code, types.CodeType) and not (
        is_own(code.co_filename) or code.co_filename.startswith("<torchmux")
    )


def _ready(
    session: Session,
    entry: Captured,
    function: types.FunctionType,
    first: tuple,
    plain: PlainCall | None,
    is_alone: bool,
) -> Ready:
    code, closure, kept = function.__code__, function.__closure__ or (), entry.kept
    names = code.co_varnames[: code.co_argcount]
    epoch, now = session.epoch, session.epoch[0]
    if (replaces := kept()) is not None:
        ti.set_code_exec_strategy(replaces, _SKIP if is_alone else _WITH_CALLEES)
    make, method, namespace, name = types.FunctionType, types.MethodType, function.__globals__, function.__name__
    width, owner = len(names), first[0] if first else None
    has_rest, has_named = bool(code.co_flags & _VARARGS), bool(code.co_flags & _VARKEYWORDS)
    others = code.co_varnames[code.co_argcount :][: has_rest + has_named]
    form, entry_check, inputs = Form((*names, *others, *code.co_freevars), plain), entry.check(), None
    if isinstance(entry_check, SnapshotCheck):
        form, inputs = entry_check.known(form), entry_check.inputs
        plain = form.plain
    check = _check_of_values(entry, form)
    ti.set_code_exec_strategy(check.__code__, _SKIP)

    # The function is made anew each time: what holds the code for long closes a cycle through it, which never goes.

    @ti.not_captured
    def ready(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or epoch[0] != now:
            return None
        if kwargs or not check(args):  # which says no to others than so many
            return None
        return make(replaces, namespace, name)

    @ti.not_captured
    def ready_with_more(args: tuple, kwargs: dict) -> Callable[..., Any] | None:
        replaces = kept()
        if replaces is None or function.__code__ is not code or epoch[0] != now:
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
            snapshot.uses += 1
        elif (plain is not None and not plain.holds()) or not check(values):
            return None
        made = make(replaces, namespace, name, defaults, closure)
        return method(made, owner) if first else made

    if others or first or closure or function.__defaults__ or inputs is not None:
        return ready_with_more
    if replaces is not None and replaces.co_name == name:
        ready.asks = (kept, function, code, epoch, now, check, namespace)  # for what does the same in C++
    return ready


def _check_of_values(entry: Captured, form: Form) -> Callable[..., bool]:
    """The check of an entry as a function of the values of some locals, a tuple."""
    assert entry.guards is not None
    check = entry.check()
    return check.of_values(form) if isinstance(check, SnapshotCheck) else entry.guards.of_arguments(form.names)
