"""The PEP 523 hook: decides for every frame that runs under a compiled callable whether it is captured."""

from __future__ import annotations

import dataclasses
import gc
import logging
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchmux import support, torch_internals as ti
from torchmux.config import config
from torchmux.garbage import full_collections_wait
from torchmux.registry import resolve
from torchmux.registry.errors import CompilationFailed, FallbackRefused, TorchmuxError, Unsupported

from .. import breaks, logs
from ..breaks import GraphBreak
from ..bytecode import only_returns, resume_origin
from ..capture.attempts import let_go
from ..capture.backend_call import compile_graph_with
from ..capture.capture import capture
from ..capture.captured import Captured, CodeState
from ..guards import ways_out
from ..marks.function_marks import runs_in_eager
from ..marks.stance import state as stance_state
from ..values.base import Raised
from . import interrupts, library, vain
from .calls import DISABLED, FIRST_CALL, GENERATOR, JIT_TRACE, LEFT_TO_EAGER, UNREADABLE_NAME
from .eager_policy import LeftToEager, has_tensors
from .entries import SKIP_CALL, SKIP_CALLEES, SKIP_CODE, SKIP_FRAME, Decision
from .recompiles import reached, refusal, sizes_only, states_alike
from .session import Record, Session
from .thread_state import shared, this_thread

log = logging.getLogger("torchmux")

_GENERATOR_LIKE = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_FUNCTION = 0x1 | 0x2  # CO_OPTIMIZED, CO_NEWLOCALS: not the body of a class or module


def open_session(compile_graph: Callable, **settings: Any) -> Session:
    """A session whose frames are decided about here; ``settings`` are those of :class:`Session`."""
    support.check()
    return Session(compile_graph, decide, **settings)


def decide(session: Session | None, frame: Any) -> Decision:
    """The answer to the C hook, which asks about each frame that has no compiled code whose guards hold."""
    code = frame.f_code
    if library.is_graph_module(code.co_filename):
        if not library.is_root():
            return SKIP_FRAME
    elif library.is_library(code.co_filename) and not library.was_asked_for(code):
        return SKIP_CALLEES if library.is_quiet(code.co_filename) else SKIP_CODE
    if library.is_generated(code, frame.f_globals):
        return SKIP_CODE
    if code.co_flags & _GENERATOR_LIKE or runs_in_eager(code) or not _has_readable_name(code):
        _note_uncaptured(frame, more=not vain.counts(code))
        return SKIP_FRAME
    if any(getattr(callback, "__code__", None) is code for callback in gc.callbacks):
        return SKIP_CALLEES  # called by the garbage collector, wherever the program happens to be
    if code.co_name == "__torch_dispatch__" and not library.was_asked_for(code):
        return SKIP_CALLEES  # called by the dispatcher, with what lies above it switched off
    if session is None or code.co_flags & _FUNCTION != _FUNCTION:
        return SKIP_FRAME
    if resume_origin(code) is not None and only_returns(code):
        vain.skip(code)
        return SKIP_FRAME
    interrupts.raise_kept()
    with shared.lock:
        outer, this_thread.doing.converting = this_thread.doing.converting, True
        grad_mode = torch.is_grad_enabled()
        try:
            return _convert(session, frame, this_thread.doing.owner)
        finally:
            this_thread.doing.converting = outer
            if torch.is_grad_enabled() != grad_mode:  # an interrupt came between switching it and the way back
                ti.set_grad_enabled(grad_mode)


def _convert(session: Session, frame: Any, record: Any) -> Decision:
    code = frame.f_code
    state = session.state(code)
    if torch.jit.is_tracing():  # its sizes are tensors, and its trace shall have the program's own operators
        if isinstance(record, Record):
            record.note_eager(code, JIT_TRACE)
        return SKIP_CALL
    if (held := _held_by_now(session, state, frame, record)) is not None:
        return held
    stance = stance_state.current.name
    if (reason := _eager_reason(state, stance)) is not None:
        if isinstance(record, Record):
            record.note_eager(code, reason, state.eager_operators)
        return _settled(session, state, code) if state.runs_eager else SKIP_FRAME
    if stance == "default" and not session.frozen and (adopted := _adopted(session, state, frame, record)) is not None:
        return adopted
    reason = ""
    if state.entries:
        reason = _recompile_reason(state, frame)
        logs.emit("recompiles", logs.place(code), reason)
        if session.frozen:
            raise Unsupported(
                f"The exported graph of {logs.place(code)} does not apply to this call: {reason}. Export it "
                "again with such inputs."
            )
    if stance == "fail_on_recompile" and has_tensors(frame.f_locals):
        raise refusal(code, reason)
    if (limit := reached(state, code, session.recompile_limit)) is not None:
        return _limit_reached(session, state, frame, limit, record)
    if stance.endswith("eager_then_compile") and not state.called and not state.entries:
        state.called = True
        if stance == "eager_then_compile":
            if isinstance(record, Record):
                record.note_eager(code, FIRST_CALL)
            sizes_only(session, state, frame)
            return SKIP_CALL
        return _first_with_aot_eager(session, state, frame, record)
    captured = _captured(session, state, frame, record, session.compile_graph)
    if isinstance(captured, Decision):
        return captured
    captured.reason = reason
    if state.entries:
        logs.recompiled(code, captured.number, reason)
    if state.entries and isinstance(record, Record):
        record.recompiles.append((captured.frame, reason))
    state.entries.append(captured)
    vain.succeeded(state)
    return session.keep(captured)


def _held_by_now(session: Session, state: CodeState, frame: Any, record: Any) -> Decision | None:
    """What the hook has not found, but holds: it was compiled by another thread, or moved by one while the hook looked.

    The hook walks a code object's entries with the lock of the interpreter released at each guard, and a walk that
    finds an entry moves it to the front. Another walk, which is past the front, never comes to that entry. From the
    first such call on, entries stay where they are: each of these calls leaves an entry that nothing removes.
    """
    for entry in (*state.entries, *state.vain):
        if entry.guards is None or not entry.guards.check(frame.f_locals):
            continue
        if (decision := session.run_once(entry)) is not None:
            ti.keep_order_of_entries()
            _note_call_in_eager(record, entry)
            return decision
    return None


def _adopted(session: Session, state: CodeState, frame: Any, record: Any) -> Decision | None:
    """What an equal compile() call for another object has made of the same code, and holds: of a copy of a module."""
    code = frame.f_code
    for other in states_alike(code, state):
        for entry in other.entries:
            if entry.guards is None or entry.globals_id not in (0, id(frame.f_globals)):
                continue
            if entry.parts is not None and entry.parts.assumes_branches:  # the other session counts how it fares
                continue
            if not entry.guards.check(frame.f_locals) or (kept := entry.kept()) is None:
                continue
            twin = dataclasses.replace(entry, code=kept)
            state.entries.append(twin)
            state.resumes.update(other.resumes)
            if isinstance(record, Record):
                if entry.graph is not None:
                    record.setdefault(entry, [0])  # as which its code counts
                if entry.broke is not None:
                    record.breaks.setdefault(entry.broke)
            _note_call_in_eager(record, entry)
            return session.keep(twin)
    return None


def _note_call_in_eager(record: Any, captured: Captured) -> None:
    """Count a call of what has no graph; the hook's check counts those that follow."""
    if isinstance(record, Record) and captured.in_eager and captured.graph is None:
        record.note_calls(captured.frame, captured.in_eager).operators = captured.eager_operators


def _captured(session: Session, state: CodeState, frame: Any, record: Any, compile_graph: Callable) -> Any:
    """The capture of a frame, or the decision to run it in eager."""
    code, handled = frame.f_code, sys.exception()
    try:
        with ti.without_saved_tensor_hooks(), full_collections_wait():
            captured = capture(
                frame,
                state,
                compile_graph,
                dynamic=session.dynamic,
                automatic=config.automatic_dynamic_shapes and config.assume_static_by_default,
                fullgraph=session.fullgraph,
                guard_filter=session.guard_filter,
                placement=session.placement(),
                asked_for=session.fullgraph or library.is_root(),
                shapes=session.shapes if session.shapes is not None and session.shapes.code is code else None,
            )
    except LeftToEager as little:
        state.runs_eager = little.always
        state.eager_reason, state.eager_operators = LEFT_TO_EAGER, little.operators
        logs.emit("graph_breaks", f"{logs.place(code)} runs in eager", str(little))
        if isinstance(record, Record):
            record.note_eager(code, LEFT_TO_EAGER, little.operators)
            record.left_to_eager.setdefault(f"{logs.place(code)}: {little}")
        if little.always:
            return _settled(session, state, code)
        return _in_vain(session, state, code, little.guards, without_tensors=little.without_tensors)
    except GraphBreak as stop:
        decision = _whole_frame_break(session, state, code, stop, record)
        let_go(stop, handled)
        return decision
    except TorchmuxError:
        raise
    except Exception as error:
        return _internal_error(session, state, code, error, record)
    if captured.broke is not None and isinstance(record, Record):
        record.breaks.setdefault(captured.broke)
    if captured.broke is not None and session.strict and code.co_filename == breaks.NO_LINE:
        raise FallbackRefused(
            f"strict={session.strict!r}, but {code.co_name} would run in eager: {captured.broke.message()}"
        )
    whole = captured.ending is not None and captured.ending.cuts is None
    if captured.graph is None and captured.broke is None and whole and not session.fullgraph:
        # no operator in it or in what it calls: nothing to gain
        return _in_vain(session, state, code, captured.guards, SKIP_CALL)
    _note_call_in_eager(record, captured)
    if isinstance(record, Record) and captured.graph is not None:
        record.setdefault(captured, [0])
    return captured


def _in_vain(
    session: Session,
    state: CodeState,
    code: types.CodeType,
    guards: Any,
    now: Decision = SKIP_FRAME,
    without_tensors: bool = False,
) -> Decision:
    """Run this call as ``now`` says, and those for which ``guards`` hold without another attempt.

    ``without_tensors`` says that after many calls of the code all others run in eager as well, and are not counted.
    """
    alone = now is SKIP_CALL
    reason = "" if alone else state.eager_reason
    entry = vain.remember(state, code, guards, reason, None if alone else state.eager_operators, alone=alone)
    if entry is not None:
        entry.of_no_tensors = weakref.ref(code) if without_tensors else None
        return session.keep(entry)
    return _settled(session, state, code, now)


def _settled(session: Session, state: CodeState, code: types.CodeType, now: Decision = SKIP_FRAME) -> Decision:
    """Run this call in eager, as ``now`` says, and calls about which nobody decides without asking again."""
    entry = vain.settle(state, code)
    return now if entry is None else session.keep(entry)


def _first_with_aot_eager(session: Session, state: CodeState, frame: Any, record: Any) -> Decision:
    captured = _captured(session, state, frame, record, compile_graph_with(resolve("aot_eager", strict=session.strict)))
    return captured if isinstance(captured, Decision) else session.keep(captured, once=True)


_STANCE = "the stance {!r}"


def _eager_reason(state: CodeState, stance: str) -> str | None:
    """Why a call that no compiled code fits runs in eager without another attempt, if so."""
    if state.runs_eager:
        return state.eager_reason
    if config.disable:
        return "torchmux.config.disable"
    return _STANCE.format(stance) if stance in ("force_eager", "eager_on_recompile") else None


def _note_uncaptured(frame: Any, more: bool) -> None:
    """Count a frame that is never captured, if it has tensors to compute with; ``more``: others are not counted."""
    record, code = this_thread.doing.owner, frame.f_code
    if isinstance(record, Record) and not this_thread.doing.converting and has_tensors(frame.f_locals):
        if not _has_readable_name(code):
            reason = UNREADABLE_NAME
        else:
            reason = DISABLED if runs_in_eager(code) else GENERATOR
        record.note_eager(code, reason).more |= more


def _has_readable_name(code: types.CodeType) -> bool:
    """Whether the name is UTF-8; of compiled code without such a name, the hook in C ends the process."""
    return code.co_name.isascii() or not any("\ud800" <= c <= "\udfff" for c in code.co_name)


_COMPARED = 4  # codes: every guard of a large model takes a while to read


def _recompile_reason(state: CodeState, frame: Any) -> str:
    """Why that of the latest codes that comes closest does not take this call."""
    checks = [entry.guards for entry in reversed(state.entries) if entry.guards is not None]
    failures = [each.why_not(frame.f_locals) for each in checks[:_COMPARED]]
    # not by max(), which may be the program's own by now
    return sorted(failures, key=lambda failure: -failure.held)[0].words if failures else "?"


def _limit_reached(session: Session, state: CodeState, frame: Any, limit: str, record: Any) -> Decision:
    code = frame.f_code
    own = session.recompile_limit if limit == "recompile_limit" else None
    whose = "the recompile_limit of compile()" if own else f"torchmux.config.{limit}"
    message = (
        f"{logs.place(code)} was compiled {own or getattr(config, limit)} times, which reaches {whose}; "
        f"{ways_out.told(state.entries, frame.f_locals)} Otherwise, raise the limit."
    )
    if session.fullgraph or config.fail_on_recompile_limit_hit:
        raise Unsupported(message.replace(" New calls run in eager.", ""))
    if session.strict:
        raise FallbackRefused(
            f"strict={session.strict!r}, but this call would run in eager: "
            + message.replace(" New calls run in eager.", "")
        )
    state.runs_eager, state.eager_reason = True, f"{limit} reached"
    if isinstance(record, Record):
        record.note_eager(code, state.eager_reason)
    if not state.entries or any(entry.graph is not None for entry in state.entries):  # else nothing is lost
        log.warning(message)
    return _settled(session, state, code)


_USER_ERRORS = (breaks.EXCEPTION, breaks.OPERATOR_FAILED)


def _whole_frame_break(
    session: Session, state: CodeState, code: types.CodeType, stop: GraphBreak, record: Any
) -> Decision:
    """Nothing of the frame was captured: it runs in eager, and the functions it calls are captured separately."""
    entry = breaks.record(stop, whole_frame=True)
    logs.broke(entry)
    state.eager_reason, state.eager_operators = f"nothing of it could be captured ({stop.kind})", None
    state.runs_eager = stop.kind == breaks.INTERNAL
    logs.emit("graph_breaks", f"{code.co_qualname} runs in eager", entry.message())
    if isinstance(record, Record):
        record.breaks.setdefault(entry)
        record.note_eager(code, state.eager_reason)
    if stop.only_now:
        return SKIP_CALL
    if session.fullgraph or stop.is_error:
        asked = session.asked if session.fullgraph else "error_on_graph_break(True)"
        error = Unsupported(f"{asked}, but the graph breaks. {entry.message()}")
        if stop.kind in _USER_ERRORS and isinstance(record, Record):
            record.must_raise = error  # eager raises the program's own exception; if it does not, this one is raised
            return SKIP_FRAME
        raise error from stop.cause
    return _settled(session, state, code) if state.runs_eager else _in_vain(session, state, code, stop.guards)


def _internal_error(
    session: Session, state: CodeState, code: types.CodeType, error: Exception, record: Any
) -> Decision:
    stop = GraphBreak(breaks.INTERNAL, f"{type(error).__name__}: {error}", error)
    stop.frames.append((code.co_filename, code.co_firstlineno, code.co_name))
    if isinstance(error, Raised):
        stop.reason = f"an exception of the program was lost: {error.value.describe()}"
    if session.fullgraph:
        raise Unsupported(f"{session.asked}, but {breaks.record(stop).message()}") from error
    if config.fail_on_compiler_errors:
        raise CompilationFailed(
            f"The frontend failed to capture {logs.place(code)}. {breaks.record(stop).message()}\n"
            "torchmux.config.fail_on_compiler_errors is set; without it, the function runs in eager and the report "
            "says so."
        ) from error
    log.warning("%s runs in eager: %s", code.co_qualname, breaks.record(stop).message(), exc_info=error)
    return _whole_frame_break(session, state, code, stop, record)
