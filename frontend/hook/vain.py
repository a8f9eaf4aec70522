"""What is remembered of captures that came to nothing, so that calls do not try again in vain.

Whether a frame can be captured depends on what its trace reads, and the guards of the trace say what that was.  An
attempt that comes to nothing therefore leaves an entry like any other, whose code is the program's own: calls for which
its guards hold run in eager at the cost of a check, and all others are tried.  Where there are ``MOST`` of these, or an
attempt has no guards, the next attempt is made after 64 more calls for which no entry holds, then after 128, and so
on up to 65,536, until one succeeds.  Only code on which the tracer itself fails is given up for good.
"""

from __future__ import annotations

import types

from torchmux import torch_internals as ti

from .. import logs
from ..bytecode import alone_trampoline
from ..capture.captured import Captured, CodeState
from ..capture.tracebacks import stands_for
from ..guards.check import CompiledGuards
from .calls import frame_of

MOST = 8  # entries of one code object that run in eager
FIRST_WAIT, LONGEST_WAIT = 64, 1 << 16  # calls

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


def waits(state: CodeState) -> bool:
    """Whether this call, for which no entry holds, is one of those between two attempts."""
    if not state.wait:
        return False
    state.wait -= 1
    return True


def succeeded(state: CodeState) -> None:
    """A capture came to something: the next failure waits no longer than the first."""
    state.wait = state.next_wait = 0
