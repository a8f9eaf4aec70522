"""What is remembered of captures that came to nothing, so that calls do not try again in vain.

Whether a frame can be captured depends on what its trace reads, and the guards of the trace say what that was.  An
attempt that comes to nothing therefore leaves an entry like any other, whose code is the program's own: calls for which
its guards hold run in eager at the cost of a check, and all others are tried.  Where there are ``MOST`` of these, or an
attempt has no guards, the next attempt is made after 64 more calls for which no entry holds, then after 128, and so
on up to 65,536, until one succeeds.  Only code on which the tracer itself fails is given up for good.

The hook in C saves and restores the state of Python's random numbers around each question that it asks, which takes
longer than many a function.  Calls that nobody decides about any more are therefore answered by an entry as well, which
:func:`settle` makes, and generators, which have no entries, are asked about no more after ``COUNTED`` steps.  The same
goes for functions of no tensors that break the graph at once: an entry's check would take longer than most of them.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from torchmux import torch_internals as ti

from .. import logs
from ..bytecode import alone_trampoline
from ..bytecode.identity import CodeMap
from ..capture.captured import Captured, CodeState
from ..capture.tracebacks import stands_for
from ..guards.check import CompiledGuards
from ..guards.refusals import refusal
from .calls import frame_of
from .interrupts import from_its_first_instruction, keep

MOST = 8  # entries of one code object that run in eager
FIRST_WAIT, LONGEST_WAIT = 64, 1 << 16  # calls
COUNTED = 1000  # frames of one code object that is never captured, under the callables that there are

_SKIP = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP)


def remember(
    state: CodeState,
    code: types.CodeType,
    guards: CompiledGuards | None,
    reason: str,
    operators: int | None = None,
    *,
    alone: bool = False,
) -> Captured | None:
    """The entry that runs ``code`` as it stands while ``guards`` hold; None if no more are kept: calls wait instead.

    ``reason`` and ``operators`` go into the report with each call that it runs, if there is a reason.  ``alone`` says
    that the functions that it calls have nothing to capture either.
    """
    if guards is None or len(state.vain) >= MOST:
        state.next_wait = min(2 * state.next_wait, LONGEST_WAIT) if state.next_wait else FIRST_WAIT
        state.wait = state.next_wait
        logs.emit("graph_breaks", f"{logs.place(code)} runs in eager", f"and is tried again after {state.wait} calls")
        return None
    if alone:
        replaces, body = alone_trampoline(code)
        ti.set_code_exec_strategy(body, _SKIP)
    else:
        replaces = code.replace()
    stands_for(replaces, code)
    entry = Captured(replaces, qualname=code.co_qualname, guards=guards, frame=frame_of(code), in_eager=reason)
    entry.eager_operators = operators
    state.vain.append(entry)
    return entry


class _Otherwise:
    """The check of an entry for the calls that no other entry holds for, while there are no attempts."""

    conditions = ()

    def __init__(self, state: CodeState) -> None:
        self._state = weakref.ref(state)  # an entry must not keep it: its code would never go
        self._reason = state.eager_reason  # under which it counts
        self._refuses: Callable[[dict], bool] | None = None  # whether none of these holds, at once
        self._entries = 0

    @from_its_first_instruction
    def check(self, frame_locals: dict) -> bool:
        try:
            state = self._state()
            if state is None or not (state.runs_eager or state.wait) or state.eager_reason != self._reason:
                return False
            entries = [*state.entries, *state.vain]
            if len(entries) != self._entries:
                self._entries = len(entries)
                self._refuses = refusal([entry.guards for entry in entries if entry.guards is not None])
            if self._refuses is None or not self._refuses(frame_locals):
                for entry in entries:  # the hook moves what holds to the front of its own list
                    if entry.guards is not None and entry.guards.check(frame_locals):
                        return False
            if not state.runs_eager:
                state.wait -= 1
            return True
        except BaseException as error:
            return keep(error)


def settle(state: CodeState, code: types.CodeType) -> Captured | None:
    """The entry that runs calls in eager that no other holds for, unless there is one already."""
    if state.eager_reason in state.settled:
        return None
    state.settled.add(state.eager_reason)
    replaces = code.replace()
    stands_for(replaces, code)
    guards: Any = _Otherwise(state)
    entry = Captured(
        replaces, qualname=code.co_qualname, guards=guards, frame=frame_of(code), in_eager=state.eager_reason
    )
    entry.eager_operators = state.eager_operators
    return entry


_asked = CodeMap()  # code that is never captured -> how often the hook has asked about it


def counts(code: types.CodeType) -> bool:
    """Whether the hook goes on asking about code that is never captured, so that its frames are counted."""
    count = _asked.get(code)
    if count is None:
        _asked.set(code, count := [0])
    count[0] += 1
    if count[0] < COUNTED:
        return True
    skip(code)
    return False


def skip(code: types.CodeType) -> None:
    """Have the hook ask no more about a code object; unlike a decision for all of its frames, this can be undone."""
    ti.set_code_exec_strategy(code, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT))


def count_anew() -> None:
    """Count frames of code that is never captured under a new callable as well."""
    for code in _asked.keys():  # noqa: SIM118 - no dictionary
        if _asked.get(code)[0] >= COUNTED:
            ti.set_code_exec_strategy(code, ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT))
    _asked.clear()


def succeeded(state: CodeState) -> None:
    """A capture came to something: the next failure waits no longer than the first."""
    state.wait = state.next_wait = 0
