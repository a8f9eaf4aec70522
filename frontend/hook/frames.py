"""The PEP 523 hook: decides for every frame that runs under a compiled callable whether it is captured."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import logging
import os
import sys
import sysconfig
import threading
import traceback
import types
import warnings
import weakref
from collections.abc import Callable, Hashable
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.config import config
from torchmux.registry import resolve
from torchmux.registry.errors import TorchmuxError, Unsupported

from .. import breaks, logs
from ..breaks import BreakRecord, GraphBreak
from ..bytecode.identity import CodeMap
from ..capture.backend_call import compile_graph_with
from ..capture.capture import Captured, CodeState, capture
from ..guards.snapshot import check_of
from ..marks.function_marks import runs_in_eager
from ..marks.stance import state as stance_state
from ..values.base import Raised
from . import interrupts
from .eager_policy import NotWorthIt
from .recompiles import has_tensors, note_state, reached, refusal, sizes_only
from .thread_state import running

log = logging.getLogger("torchmux")
_lock = threading.RLock()


def _new_lock() -> None:
    """In a forked process: the thread that may have held the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)

_DEFAULT, _SKIP = ti.FrameAction.DEFAULT, ti.FrameAction.SKIP


class _Decision:
    """What the C hook reads from a callback's result."""

    def __init__(self, guarded_code: Any, action: Any, apply_to_code: bool, callees: Any = _DEFAULT) -> None:
        self.guarded_code = guarded_code
        self.frame_exec_strategy = ti.FrameExecStrategy(action, callees)
        self.apply_to_code = apply_to_code
        self.skip_reason = None


_SKIP_FRAME = _Decision(None, _SKIP, False)
_SKIP_CODE = _Decision(None, _SKIP, True)
_SKIP_CALLEES = _Decision(None, _SKIP, True)
_SKIP_CALLEES.frame_exec_strategy = ti.FrameExecStrategy(_SKIP, _SKIP)
_SKIP_CALL = _Decision(None, _SKIP, False, callees=_SKIP)  # the frame and all that it calls


class _GuardManager:
    """Our guard function in the shape that the C hook expects."""

    id_matched_objs: dict = {}
    invalidation_reason = "belongs to torchmux"

    def __init__(self, check: Callable[[dict], bool]) -> None:
        self.root = ti.RootGuardManager()
        self.root.add_lambda_guard(check, ["torchmux guard"], None)
        self.cache_entry = None
        self.extra_state = None
        self.diff_guard_root = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """To torch's own tracer, which walks all entries of a code object, ours pass for retired ones."""
        return ti.retired_guard_class() or _GuardManager

    def collect_diff_guard_sources(self) -> set[str]:
        """Asked by torch's own tracer; none of ours may be checked apart from the others."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        self.diff_guard_root = None


def _never(frame_locals: dict) -> bool:
    return False


_REFUSES = _GuardManager(_never)


class _GuardedCode:
    def __init__(self, captured: Captured, once: bool = False) -> None:
        assert captured.guards is not None
        assert captured.code is not None
        self.code = captured.code
        self.guard_manager = _GuardManager(_never if once else check_of(captured.guards, _running_record))
        self.compile_id = None
        self.trace_annotation = f"torchmux {captured.code.co_name}"


def _folders(*packages: str) -> tuple[str, ...]:
    """Where packages of torchmux lie: in one folder if it is installed, apart from each other if it is so editably."""
    specs = map(importlib.util.find_spec, packages)
    return tuple(
        dict.fromkeys(p + os.sep for spec in specs if spec is not None for p in spec.submodule_search_locations or ())
    )


_OWN = _folders("torchmux", "torchmux.frontend", "torchmux.registry", "torchmux.backends", "torchmux.zoo")
_MACHINERY = (*_OWN, os.path.dirname(torch.__file__) + os.sep)


_GRAPH_MODULE = "<eval_with_key>"  # code of a torch.fx.GraphModule: a backend's, unless it is what was compiled


def _library_prefixes() -> tuple[str, ...]:
    """Folders whose code is never a user's: the standard library, torchmux itself, torch's machinery."""
    return (
        *_MACHINERY,
        sysconfig.get_paths()["stdlib"] + os.sep,
        "<torchmux",
        "<frozen",
        _GRAPH_MODULE,
        "<fx-generated",
    )


_LIBRARY = _library_prefixes()
_SITE_PACKAGES = tuple({sysconfig.get_paths()["purelib"] + os.sep, sysconfig.get_paths()["platlib"] + os.sep})
# torch.nn layers, optimizers and the like are as good as a user's; the call machinery of Module is shared by every
# module there is.
_TORCH_CAPTURED = tuple(
    os.path.join(os.path.dirname(torch.__file__), *p) + (os.sep if not p[-1].endswith(".py") else "")
    for p in (("nn", "modules"), ("nn", "functional.py"), ("ao", "nn"), ("optim",))
)
# The cases of the conformance suite are programs, wherever they are installed.
_PROGRAMS = _folders("torchmux.conformance")
_TORCH_SKIPPED = (os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "module.py"),)
# These lie between what was compiled and whoever called it.
_CALLS_THROUGH = (
    *_TORCH_SKIPPED, os.path.join(os.path.dirname(torch.__file__), "fx", "graph_module.py"), _GRAPH_MODULE, __file__
)  # fmt: skip


def is_library(filename: str) -> bool:
    """Whether frames of this file run as they are."""
    if filename.startswith(_TORCH_CAPTURED):
        return filename in _TORCH_SKIPPED
    if filename.startswith(_PROGRAMS):
        return False
    if filename.startswith(_LIBRARY):
        return not filename.startswith(_SITE_PACKAGES) or filename.startswith(_MACHINERY)
    return False


_asked_for: CodeMap = CodeMap()  # functions of a library that were themselves given to compile()


def ask_for(function: Any) -> None:
    """Capture ``function``, which is compiled by itself, although it may be a library's."""
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and is_library(code.co_filename) and not code.co_filename.startswith(_OWN):
        _asked_for.set(code, True)
        ti.set_code_exec_strategy(code, ti.FrameExecStrategy(_DEFAULT, _DEFAULT))  # it may have been met before


def _is_root() -> bool:
    """Whether the frame that the C hook asks about is what was compiled, rather than called by it."""
    caller: types.FrameType | None = sys._getframe(1)  # of ours: the frame itself is not on the stack yet
    while caller is not None and caller.f_code.co_filename.startswith(_CALLS_THROUGH):
        caller = caller.f_back
    if caller is None:
        return True
    file = caller.f_code.co_filename
    return file.startswith(_OWN) and not file.startswith(_PROGRAMS)


# What these call is no part of the program's own work: handlers of logs, hooks of warnings.
_QUIET = tuple(
    module.__file__.removesuffix("__init__.py") for module in (logging, warnings, traceback) if module.__file__
)

_GENERATOR_LIKE = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_FUNCTION = 0x1 | 0x2  # CO_OPTIMIZED, CO_NEWLOCALS: not the body of a class or module


_regions = itertools.count(1 << 40)


class Session:
    """Everything that equal ``compile()`` calls share: the backend, its settings and the code compiled for them."""

    def __init__(
        self,
        compile_graph: Callable,
        *,
        fullgraph: bool,
        dynamic: bool | None,
        guard_filter: Callable | None = None,
        asked: str = "fullgraph=True",
    ) -> None:
        self.compile_graph = compile_graph
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.guard_filter = guard_filter
        self.asked = asked  # how the user said "fullgraph", for messages
        self.frozen = False  # what is compiled is all there will be
        self.states = CodeMap()
        self._managers: list[_GuardManager] = []  # of the entries in the C hook
        weakref.finalize(self, _drop, self._managers)
        # a bucket of its own for this session's entries: torch's own tracer never sees them, nor we its
        self.region = next(_regions)
        self.callback = _Callback(self)
        self._forced: dict[Hashable, Session] = {}

    def state(self, code: types.CodeType) -> CodeState:
        found = self.states.get(code)
        if found is None:
            found = CodeState()
            self.states.set(code, found)
            note_state(code, found)
        return found

    def with_backend(self, backend: Any) -> Session:
        """The session that takes this one's place while ``set_stance`` forces a backend."""
        resolved = resolve(backend, dynamic=self.dynamic)
        with _lock:
            if resolved.key not in self._forced:
                self._forced[resolved.key] = Session(
                    compile_graph_with(resolved),
                    fullgraph=self.fullgraph,
                    dynamic=self.dynamic,
                    guard_filter=self.guard_filter,
                )
            return self._forced[resolved.key]

    def decide(self, captured: Captured, once: bool = False) -> _Decision:
        """What tells the C hook to keep and run captured code."""
        guarded = _GuardedCode(captured, once)
        captured.code = None
        self._managers.append(guarded.guard_manager)
        return _Decision(guarded, _DEFAULT, False)

    def forget(self) -> None:
        """Use none of the compiled code any more."""
        self.states.clear()
        self.callback.renew()
        if running.only_thread() and not running.converting:
            # Elsewhere another thread may be on its way into an entry; those go with the session then.
            _drop(self._managers)
        for session in self._forced.values():
            session.forget()


def _drop(managers: list[_GuardManager]) -> None:
    """Free what the C hook holds of a session: its entries are the code object's, which may live for longer."""
    while managers:
        ti.drop_entry(managers.pop(), _REFUSES)


_sessions = CodeMap()  # what was compiled -> {settings: session}; it goes with what was compiled


def session_for(owner: Any, key: Hashable, make: Callable[[], Session]) -> Session:
    """The session of an equal earlier ``compile()`` call for ``owner``, or a new one."""
    with _lock:
        sessions = _sessions.get(owner)
        if sessions is None:
            sessions = {}
            try:
                _sessions.set(owner, sessions)
            except TypeError:
                return make()  # an object that cannot be referred to weakly shares with nobody
        if key not in sessions:
            sessions[key] = make()
        return sessions[key]


def reset() -> None:
    """Forget all compiled code."""
    # Compiled code may ask for it; then what runs meanwhile, a callback of the garbage collector, say, is not its.
    callback = ti.set_eval_frame(None)
    try:
        with _lock:
            for sessions in _sessions.values():
                for session in sessions.values():
                    session.forget()
    finally:
        ti.set_eval_frame(callback)


class Record(dict[Any, None]):
    """What ran under one compiled callable: its captures, in order, its breaks and recompilations."""

    def __init__(self, compiled: Any = None) -> None:
        super().__init__()
        self.root = compiled if isinstance(compiled, torch.nn.Module) else None  # the module that the callable owns
        self.snapshots: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # check -> its snapshot
        self.breaks: dict[BreakRecord, None] = {}
        self.recompiles: list[str] = []
        self.left_to_eager: dict[str, None] = {}
        self.must_raise: BaseException | None = None  # at the end of the call, or earlier


def _running_record() -> Record | None:
    return running.owner if isinstance(running.owner, Record) else None


class _Token:
    __slots__ = ()


class _Callback:
    """Called by the C hook for frames that have no compiled code whose guards hold."""

    def __init__(self, session: Session) -> None:
        self._session = weakref.ref(session)
        self._tokens: list[_Token] = []  # all of them: the C hook works with one that it does not own
        self.renew()

    def renew(self) -> None:
        """Find none of the entries made before.

        The C hook compares this object with that of an entry.  It is not the session, which entries must not keep
        alive: they belong to code that the session may hold.
        """
        self._tokens.append(_Token())
        self._torchdynamo_orig_backend = self._tokens[-1]

    def __call__(self, frame: Any, cache_entry: Any, frame_state: dict) -> Any:
        code = frame.f_code
        if code.co_filename.startswith(_GRAPH_MODULE):
            if not _is_root():
                return _SKIP_FRAME
        elif is_library(code.co_filename) and _asked_for.get(code) is None:
            return _SKIP_CALLEES if code.co_filename.startswith(_QUIET) else _SKIP_CODE
        if code.co_flags & _GENERATOR_LIKE or runs_in_eager(code):
            return _SKIP_FRAME
        if any(getattr(callback, "__code__", None) is code for callback in gc.callbacks):
            return _SKIP_CALLEES  # called by the garbage collector, wherever the program happens to be
        session = self._session()
        if session is None or code.co_flags & _FUNCTION != _FUNCTION:
            return _SKIP_FRAME
        interrupts.raise_kept()
        with _lock:
            outer, running.converting = running.converting, True
            grad_mode = torch.is_grad_enabled()
            try:
                return _convert(session, frame, running.owner)
            finally:
                running.converting = outer
                ti.set_grad_enabled(grad_mode)  # an interrupt may have come between switching it and the way back


def _convert(session: Session, frame: Any, record: Any) -> _Decision:
    code = frame.f_code
    state = session.state(code)
    if state.runs_eager or config.disable:
        return _SKIP_FRAME
    stance = stance_state.current.name
    if stance in ("force_eager", "eager_on_recompile"):
        return _SKIP_FRAME
    reason = ""
    if state.entries:
        reason = _recompile_reason(state, frame)
        if isinstance(record, Record):
            record.recompiles.append(f"{code.co_qualname}: {reason}")
        logs.emit("recompiles", logs.place(code), reason)
        if session.frozen:
            raise Unsupported(f"The exported graph of {logs.place(code)} does not stand for this call: {reason}.")
    if stance == "fail_on_recompile" and has_tensors(frame.f_locals):
        raise refusal(code, reason)
    if (limit := reached(state, code)) is not None:
        return _limit_reached(session, state, code, limit, reason)
    if stance.endswith("eager_then_compile") and not state.called and not state.entries:
        state.called = True
        if stance == "eager_then_compile":
            sizes_only(session, state, frame)
            return _SKIP_CALL
        return _first_with_aot_eager(session, state, frame, record)
    captured = _captured(session, state, frame, record, session.compile_graph)
    if isinstance(captured, _Decision):
        return captured
    state.entries.append(captured)
    return session.decide(captured)


def _captured(session: Session, state: CodeState, frame: Any, record: Any, compile_graph: Callable) -> Any:
    """The capture of a frame, or the decision to run it in eager."""
    code = frame.f_code
    try:
        with ti.without_saved_tensor_hooks():
            captured = capture(
                frame,
                state,
                compile_graph,
                dynamic=session.dynamic,
                automatic=config.automatic_dynamic_shapes and config.assume_static_by_default,
                fullgraph=session.fullgraph,
                guard_filter=session.guard_filter,
                asked_for=session.fullgraph or _is_root(),
            )
    except NotWorthIt as little:
        state.failures += 1
        state.runs_eager = little.always or state.failures >= _MAX_FAILURES
        logs.emit("graph_breaks", f"{logs.place(code)} runs in eager", str(little))
        if isinstance(record, Record):
            record.left_to_eager.setdefault(f"{logs.place(code)}: {little}")
        return _SKIP_FRAME
    except GraphBreak as stop:
        return _whole_frame_break(session, state, code, stop, record)
    except TorchmuxError:
        raise
    except Exception as error:
        return _internal_error(session, state, code, error, record)
    if captured.broke is not None and isinstance(record, Record):
        record.breaks.setdefault(captured.broke)
    if captured.graph is None and captured.broke is None and not session.fullgraph:
        return _SKIP_CALL  # no operator in it or in what it calls: nothing to gain
    if isinstance(record, Record) and captured.graph is not None:
        record.setdefault(captured)
    return captured


def _first_with_aot_eager(session: Session, state: CodeState, frame: Any, record: Any) -> _Decision:
    captured = _captured(session, state, frame, record, compile_graph_with(resolve("aot_eager")))
    return captured if isinstance(captured, _Decision) else session.decide(captured, once=True)


def _recompile_reason(state: CodeState, frame: Any) -> str:
    locals_ = frame.f_locals
    reasons = [entry.guards.why_not(locals_) for entry in reversed(state.entries) if entry.guards is not None]
    return reasons[0] if reasons else "?"


def _limit_reached(session: Session, state: CodeState, code: types.CodeType, limit: str, reason: str) -> _Decision:
    failed = f"the guard that failed last: {reason}" if reason else "here under another compile() call"
    message = (
        f"{logs.place(code)} was compiled {getattr(config, limit)} times, which is torchmux.config.{limit}; {failed}. "
        f"Its new calls run in eager. Make what changes a tensor or mark it with torchmux.mark_dynamic, or raise the "
        f"limit."
    )
    if session.fullgraph or config.fail_on_recompile_limit_hit:
        raise Unsupported(message.replace(" Its new calls run in eager.", ""))
    state.runs_eager = True
    if not state.entries or any(entry.graph is not None for entry in state.entries):  # else nothing is lost
        log.warning(message)
    return _SKIP_FRAME


_MAX_FAILURES = 4  # attempts, with other arguments perhaps, before a code object is left alone
_USER_ERRORS = (breaks.EXCEPTION, breaks.OPERATOR_FAILED)


def _whole_frame_break(
    session: Session, state: CodeState, code: types.CodeType, stop: GraphBreak, record: Any
) -> _Decision:
    """Nothing of the frame was captured: it runs as it is, the functions it calls are captured on their own."""
    entry = breaks.record(stop, whole_frame=True)
    if stop.kind not in _USER_ERRORS:
        state.failures += 1
        state.runs_eager = stop.kind == breaks.INTERNAL or state.failures >= _MAX_FAILURES
    logs.emit("graph_breaks", f"{code.co_qualname} runs in eager", entry.message())
    if isinstance(record, Record):
        record.breaks.setdefault(entry)
    if stop.only_now:
        return _SKIP_CALL
    if session.fullgraph or stop.is_error:
        asked = session.asked if session.fullgraph else "error_on_graph_break(True)"
        error = Unsupported(f"{asked}, but the graph breaks. {entry.message()}")
        if stop.kind in _USER_ERRORS and isinstance(record, Record):
            record.must_raise = error  # eager raises the program's own exception; if it does not, this one is raised
            return _SKIP_FRAME
        raise error from stop.cause
    return _SKIP_FRAME


def _internal_error(
    session: Session, state: CodeState, code: types.CodeType, error: Exception, record: Any
) -> _Decision:
    stop = GraphBreak(breaks.INTERNAL, f"{type(error).__name__}: {error}", error)
    stop.frames.append((code.co_filename, code.co_firstlineno, code.co_name))
    if isinstance(error, Raised):
        stop.reason = f"an exception of the program got lost: {error.value.describe()}"
    if session.fullgraph:
        raise Unsupported(f"{session.asked}, but {breaks.record(stop).message()}") from error
    log.warning("%s runs in eager: %s", code.co_qualname, breaks.record(stop).message(), exc_info=error)
    return _whole_frame_break(session, state, code, stop, record)
