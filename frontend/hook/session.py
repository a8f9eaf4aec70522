"""What equal ``compile()`` calls share, and the record of what ran under one compiled callable."""

from __future__ import annotations

import functools
import itertools
import sys
import types
import weakref
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import torch

from torchmux import torch_internals as ti
from torchmux.registry import resolve
from torchmux.registry.report import Strict

from ..breaks import BreakRecord
from ..bytecode.identity import CodeMap
from ..capture.backend_call import compile_graph_with
from ..capture.captured import Captured, CodeState
from ..marks.shapes_spec import Shapes
from . import entries
from .calls import EagerCalls, Frame, frame_of
from .links import link_to
from .recompiles import forget_states, note_state, states_alike
from .thread_state import FIRST_BUCKET, shared, this_thread
from .vain import count_anew

Decide = Callable[["Session | None", Any], entries.Decision]
"""Answers the C hook about a frame that runs under a session, if that is still there."""


class Record(dict[Any, list[int]]):
    """What ran under one compiled callable: how often its captures ran, in order, its breaks and recompilations.

    ``calls`` counts the calls of the callable itself, ``eager`` those of frames that ran in eager, by frame and reason.
    What is counted in each call is a list of one number, whose item is changed in a third of the time of an attribute.
    """

    def __init__(self, compiled: Any = None, name: str | None = None) -> None:
        super().__init__()
        count_anew()
        self.name = name  # that the user gave it
        self.root = compiled if isinstance(compiled, torch.nn.Module) else None  # the module that the callable owns
        self.snapshots: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # check -> its own
        self.breaks: dict[BreakRecord, None] = {}
        self.recompiles: list[tuple[Frame, str]] = []  # and why
        self.left_to_eager: dict[str, None] = {}
        self.calls = [0]
        self.direct: Callable[[tuple, dict], Any] | None = None  # see hook/direct.py
        self.holder: Callable[[], Any] = lambda: None  # the partial that the user calls, if it is one
        self.eager: dict[tuple[Frame, str], EagerCalls] = {}
        self.must_raise: BaseException | None = None  # at the end of the call, or earlier

    def __missing__(self, captured: Any) -> list[int]:
        return self.setdefault(captured, [0])

    def note_eager(self, code: types.CodeType, reason: str, operators: int | None = None) -> EagerCalls:
        """Count a call of ``code`` that runs in eager."""
        found = self.note_calls(frame_of(code), reason)
        found.operators = operators
        return found

    def note_calls(self, frame: Frame, reason: str) -> EagerCalls:
        """As :meth:`note_eager`, for a frame whose operators nobody has counted."""
        found = self.eager.setdefault((frame, reason), EagerCalls())
        found.calls += 1
        return found


def running_record() -> Record | None:
    return this_thread.doing.owner if isinstance(this_thread.doing.owner, Record) else None


class _Token:
    __slots__ = ()
    if sys.version_info < (3, 13):
        # The C hook asks for this in each call, and an AttributeError would be written in words.  A method of nothing
        # says no at once.
        _torchdynamo_orig_backend = staticmethod.__new__(staticmethod)


class Callback:
    """Called by the C hook for frames that have no compiled code whose guards hold."""

    __slots__ = ("_decide", "_session", "_tokens", "_torchdynamo_orig_backend")  # the first place that is looked in

    def __init__(self, session: Session, decide: Decide) -> None:
        self._session = weakref.ref(session)
        self._decide = decide
        self._tokens: list[_Token] = []  # all of them: the C hook works with one that it does not own
        self.renew()

    def renew(self) -> None:
        """Find none of the entries made before.

        The C hook compares this object with that of an entry.  It is not the session, which entries must not keep
        alive: they belong to code that the session may hold.
        """
        self._tokens.append(_Token())
        self._torchdynamo_orig_backend = self._tokens[-1]

    def __call__(self, frame: Any, cache_entry: Any, frame_state: dict) -> entries.Decision:
        return self._decide(self._session(), frame)


_buckets = itertools.count(FIRST_BUCKET)


class Session:
    """Everything that equal ``compile()`` calls share: the backend, its settings and the code compiled for them."""

    def __init__(
        self,
        compile_graph: Callable,
        decide: Decide,
        *,
        fullgraph: bool,
        dynamic: bool | None,
        guard_filter: Callable | None = None,
        strict: Strict = False,
        placement: Callable[[], Mapping[int, str]] = dict,
        asked: str = "fullgraph=True",
        recompile_limit: int | None = None,
        shapes: Shapes | None = None,
        alike: Hashable = None,
    ) -> None:
        self.compile_graph = compile_graph
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.guard_filter = guard_filter
        self.placement = placement  # the backends that modules are pinned to, by id
        self.strict = strict  # whether a call must not run in eager for a limit
        self.recompile_limit = recompile_limit  # None for that of the configuration
        self.shapes = shapes  # what is said about the sizes of the arguments
        self.alike = alike  # equal for sessions that may run each other's code; None: there are none
        self.asked = asked  # how the user said "fullgraph", for messages
        self.frozen = False  # what is compiled is all there will be
        self.states = CodeMap()
        self.epoch = [0]  # how often it has forgotten what was compiled
        self.questions_seen = -1  # how many torch's own tracer was asked until the latest call (torch_tracer.py)
        self.asked_again = CodeMap()  # how often it was asked about code that this session has not met
        self._used = False  # since the last `forget`
        self._managers: list[entries.GuardManager] = []  # of the entries in the C hook
        weakref.finalize(self, entries.drop, self._managers)
        # a separate bucket for this session's entries: torch's own tracer never sees them, nor does torchmux see its
        # entries
        self.bucket = next(_buckets)
        self._decide = decide
        self.callback = Callback(self, decide)
        self._forced: dict[Hashable, Session] = {}

    def state(self, code: types.CodeType) -> CodeState:
        self._used = True
        found = self.states.get(code)
        if found is None:
            found = CodeState(
                strict=self.strict, alike=self.alike, link_to=functools.partial(link_to, weakref.ref(self))
            )
            for other in states_alike(code, found):
                found.seen = other.seen
            self.states.set(code, found)
            note_state(code, found)
        return found

    def with_backend(self, backend: Any) -> Session:
        """The session that takes this one's place while ``set_stance`` forces a backend."""
        resolved = resolve(backend, dynamic=self.dynamic, strict=self.strict)
        with shared.lock:
            if resolved.key not in self._forced:
                self._forced[resolved.key] = Session(
                    compile_graph_with(resolved),
                    self._decide,
                    fullgraph=self.fullgraph,
                    dynamic=self.dynamic,
                    guard_filter=self.guard_filter,
                    placement=self.placement,
                    strict=self.strict,
                    asked=self.asked,
                    recompile_limit=self.recompile_limit,
                    shapes=self.shapes,
                )
            return self._forced[resolved.key]

    def keep(self, captured: Captured, once: bool = False) -> entries.Decision:
        """The object that makes the C hook keep and run captured code."""
        decision, manager = entries.keep(captured, running_record, once)
        self._managers.append(manager)
        return decision

    def run_once(self, captured: Captured) -> entries.Decision | None:
        """The object that makes the C hook run, in this call, captured code that it keeps; None if it does not."""
        if (found := entries.run_once(captured, running_record)) is None:
            return None
        self._managers.append(found[1])
        return found[0]

    def forget(self) -> None:
        """Use none of the compiled code any more."""
        if self._used:  # a long process has many sessions, and few of them were used since
            self._used = False
            self.epoch[0] += 1
            self.states.clear()
            self.callback.renew()
            if not this_thread.others() and not this_thread.doing.converting:
                # Elsewhere another thread may be on its way into an entry; those go with the session then.
                entries.drop(self._managers)
        for session in self._forced.values():
            session.forget()


_sessions = CodeMap()  # what was compiled -> {settings: session}; it goes with what was compiled


def session_for(owner: Any, key: Hashable, make: Callable[[], Session]) -> Session:
    """The session of an equal earlier ``compile()`` call for ``owner``, or a new one."""
    with shared.lock:
        sessions = _sessions.get(owner)
        if sessions is None:
            sessions = {}
            try:
                _sessions.set(owner, sessions)
            except TypeError:
                return make()  # an object without weak references shares with no other
        if key not in sessions:
            sessions[key] = make()
        return sessions[key]


def reset() -> None:
    """Forget all compiled code."""
    # Compiled code may ask for it; then what runs meanwhile, a callback of the garbage collector, say, is not its.
    callback = ti.set_eval_frame(None)
    try:
        with shared.lock:
            for sessions in _sessions.values():
                for session in sessions.values():
                    session.forget()
            forget_states()
    finally:
        ti.set_eval_frame(callback)
