"""The results of ``compile()``: callables and modules that run under the frame hook."""

from __future__ import annotations

import copy
import functools
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch

from torchmux import program_calls, torch_internals as ti
from torchmux.sooner import wait_for

from .callee import with_frame
from .capture.tracebacks import tidy
from .hook.calls import FORCED, Frame, frame_of
from .hook.direct import direct
from .hook.session import Record, Session
from .hook.thread_state import FIRST_BUCKET, NO_BUCKET, bucket_after, this_thread
from .hook.torch_tracer import ask_again
from .marks.stance import DEFAULT, state as stance_state

_AS_IT_IS = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
set_eval_frame, set_bucket = ti.set_eval_frame, ti.set_bucket
_calls_made, questions = program_calls.made, ti.questions_to_tracer


def _not_for_torchs_tracer(fn: Any) -> Any:
    """Mark ``fn``: torch's own tracer neither captures its frame nor traces into it, and runs it as it stands."""
    fn._torchdynamo_disable = True
    ti.set_code_exec_strategy(fn.__code__, _AS_IT_IS)
    return fn


def _under_stance(session: Session) -> Session | None:
    """The session to use under the stance of the process; None to run in eager."""
    stance = stance_state.current
    if stance.name == "force_eager":
        return None
    return session if stance.force_backend is None else session.with_backend(stance.force_backend)


def _eager(fn: Callable, args: tuple, kwargs: dict) -> Any:
    previous = set_eval_frame(None)
    try:
        return fn(*args, **kwargs)
    finally:
        set_eval_frame(previous)


def _frame_of(fn: Any) -> Frame:
    """The function that a callable runs first."""
    called = fn.forward if isinstance(fn, torch.nn.Module) else fn
    code = getattr(called, "__code__", None)
    return frame_of(code) if isinstance(code, types.CodeType) else Frame(type(fn).__qualname__, "")


@_not_for_torchs_tracer
def call(session: Session, record: Record, fn: Callable, args: tuple, kwargs: dict) -> Any:
    """Run ``fn`` with the hook enabled; ``report`` shows the record."""
    if stance_state.current is not DEFAULT:
        chosen = _under_stance(session)
        if chosen is None:
            record.calls[0] += 1
            record.note_calls(_frame_of(fn), FORCED)
            return _eager(fn, args, kwargs)
        session = chosen
    doing = this_thread.doing
    outer, outer_bucket = doing.owner, doing.bucket
    try:  # an interrupt may arrive after each of these calls
        if outer is None:
            _calls_made[0] += 1
        doing.owner, doing.bucket = record, session.bucket
        record.calls[0] += 1
        if session.questions_seen != questions[0]:
            ask_again(session)
        previous, bucket = None, NO_BUCKET
        try:
            bucket = set_bucket(session.bucket)
            previous = set_eval_frame(session.callback)
            return fn(*args, **kwargs)
        finally:
            set_eval_frame(previous)
            set_bucket(bucket if bucket < FIRST_BUCKET else bucket_after(bucket, outer_bucket))
    except BaseException as error:
        record.must_raise = None
        tidy(error)
        raise
    finally:
        doing.owner, doing.bucket = outer, outer_bucket
        if record.must_raise is not None:
            _raise_pending(record)


def _caller(session: Session, record: Record, called: Callable) -> Callable[..., Any]:
    """A function that calls ``called`` with all but its first argument: directly, once that is possible."""
    calls, calls_made = record.calls, _calls_made

    @_not_for_torchs_tracer
    def compiled(owner: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            if (ready := record.direct) is not None and stance_state.current is DEFAULT:
                doing = this_thread.doing
                outer = doing.owner
                try:  # as in call()
                    doing.owner = record
                    if (found := ready(args, kwargs)) is not None:
                        if outer is None:
                            calls_made[0] += 1
                        calls[0] += 1
                        return found(*args, **kwargs) if kwargs else found(*args)
                except BaseException:
                    record.must_raise = None
                    raise
                finally:
                    doing.owner = outer
                    if record.must_raise is not None:
                        _raise_pending(record)
                record.direct = None
                _called_by(record, compiled)
            try:
                return call(session, record, called, args, kwargs)
            finally:
                if (count := calls[0]) & (count - 1) == 0:
                    record.direct = direct(session, called)
                    if (asks := getattr(record.direct, "asks", None)) is not None:
                        _call_sooner(record, compiled, asks)
        except BaseException as error:
            tidy(error)
            raise  # a bare raise adds no entry for this frame

    return compiled


def _call_sooner(record: Record, compiled: Callable[..., Any], asks: tuple) -> None:
    """Let an object in C++ stand for ``compiled``, now or once there is a class of them."""
    known, by = weakref.ref(record), weakref.ref(compiled)

    def make(caller: Any) -> None:
        record, compiled = known(), by()
        if record is None or compiled is None or getattr(record.direct, "asks", None) is not asks:
            return
        made = record.calls, _calls_made, tidy, _raise_pending, *asks
        _called_by(record, caller(compiled, record, record.direct, stance_state, DEFAULT, this_thread, *made))

    wait_for("caller", record.direct, make)


def _called_by(record: Record, function: Callable[..., Any]) -> None:
    """Let the partial that the user calls call ``function``."""
    if (holder := record.holder()) is not None and holder.func is not function:
        holder.__setstate__((function, holder.args, holder.keywords, vars(holder)))


def _raise_pending(record: Record) -> None:
    """Raise an exception that could not be raised where it occurred.

    With fullgraph, this is an operator that fails during tracing: correct if eager failed too, an error if it did not.
    """
    error, record.must_raise = record.must_raise, None
    if error is not None:
        raise error


class CompiledFunction(functools.partial):
    """The result of ``compile()`` for a function: callable, a method when it is in a class, and picklable.

    Pickling stores the function and the arguments of ``compile()``; unpickling compiles it again.  The class derives
    from ``partial`` because calls of a class written in Python are slower.
    """

    _torchmux_arguments: Mapping[str, Any]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> Any:
        original = self._torchmux_original  # type: ignore[attr-defined]
        name = getattr(original, "__qualname__", "")
        found: Any = sys.modules.get(getattr(original, "__module__", None) or "")
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name  # a decorator replaced the function by this
        return _compiled_again, (original, dict(self._torchmux_arguments))

    def __copy__(self) -> CompiledFunction:
        return self

    def __deepcopy__(self, memo: dict) -> CompiledFunction:
        return self

    def __repr__(self) -> str:
        return f"<compiled {self._torchmux_original!r}>"  # type: ignore[attr-defined]


def _compiled_again(fn: Callable, arguments: Mapping[str, Any]) -> Any:
    from .api import compile

    return compile(fn, **arguments)


def compiled_function(fn: Callable, session: Session, arguments: Mapping[str, Any]) -> CompiledFunction:
    """A function that runs captured code of ``fn``; ``arguments`` are those of ``compile()``."""
    owner = getattr(fn, "__self__", None)
    record = Record(owner if isinstance(owner, torch.nn.Module) else None, arguments["name"])
    compiled = functools.wraps(fn)(_caller(session, record, with_frame(fn)))
    made = CompiledFunction(compiled, None)
    record.holder = weakref.ref(made)
    functools.update_wrapper(made, fn)
    vars(made).update(
        _torchmux_original=fn,
        _torchmux_wrapper_id=id(made),
        _torchmux_record=record,
        _torchmux_session=session,
        _torchmux_arguments=arguments,
        _torchdynamo_disable=True,
    )
    return made


class CompiledModule(torch.nn.Module):
    """Mixin for the class of a compiled module.

    A compiled module shares its ``__dict__`` with the original and derives from the original's class.  It has the same
    parameters under the same names and the same hooks, and attributes are read and written in one place.  Only calls
    differ, of itself and of the steps that a trainer calls.
    """

    _torchmux_original: torch.nn.Module
    _torchmux_called: Any
    _torchmux_record: Record
    _torchmux_session: Session

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Prevents class-creation hooks of the original's class from running for the derived class."""

    @property
    def _orig_mod(self) -> torch.nn.Module:
        return type(self)._torchmux_original

    def __deepcopy__(self, memo: dict) -> torch.nn.Module:
        cls = type(self)
        return compiled_module(
            copy.deepcopy(cls._torchmux_original, memo), cls._torchmux_session, cls._torchmux_record.name
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain_module, (type(self)._torchmux_original,)


# What a trainer calls in the place of the module itself, as Lightning's does; each is compiled like ``forward``.
_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def _compiled_step(cls: type, name: str) -> Callable:
    @functools.wraps(getattr(cls, name))
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = type(self)
        try:
            method = getattr(own._torchmux_original, name)
            return call(own._torchmux_session, own._torchmux_record, method, args, kwargs)
        except BaseException as error:
            tidy(error)
            raise

    return _not_for_torchs_tracer(step)


def _plain_module(module: torch.nn.Module) -> torch.nn.Module:
    """Rebuilds a pickled compiled module: compiled code belongs to the process that compiled it."""
    return module


def compiled_module(module: torch.nn.Module, session: Session, name: str | None = None) -> torch.nn.Module:
    """A module that runs captured code of ``module``."""
    cls, called, record = type(module), with_frame(module), Record(module, name)
    namespace = {
        "__call__": _caller(session, record, called),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "_torchmux_original": module,
        "_torchmux_called": staticmethod(called),
        "_torchmux_record": record,
        "_torchmux_session": session,
        **{name: _compiled_step(cls, name) for name in _STEPS if isinstance(getattr(cls, name, None), FunctionType)},
    }
    derived = types.new_class(cls.__name__, (CompiledModule, cls), exec_body=lambda ns: ns.update(namespace))
    made: torch.nn.Module = object.__new__(derived)
    object.__setattr__(made, "__dict__", module.__dict__)
    return made
