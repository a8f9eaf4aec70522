"""Rules for compiling a code object again: limits, refusals, and calls that only record their sizes."""

from __future__ import annotations

import types
import weakref
from typing import Any

from torchmux.config import config
from torchmux.registry.errors import Unsupported

from .. import logs
from ..bytecode.identity import CodeMap
from ..capture.capture import capture
from ..capture.captured import CodeState

_states = CodeMap()  # code -> what is remembered of it under each compile() call


def note_state(code: types.CodeType, state: CodeState) -> None:
    """Count the compilations of ``state`` as long as it exists."""
    known = _states.get(code)
    if known is None:
        known = weakref.WeakSet()
        _states.set(code, known)
    known.add(state)


def states_alike(code: types.CodeType, state: CodeState) -> list[CodeState]:
    """What is remembered of this code under other compile() calls with equal settings."""
    if state.alike is None:
        return []
    return [each for each in _states.get(code) or () if each is not state and each.alike == state.alike]


def forget_states() -> None:
    """Let nobody take anything over from what is remembered now.

    The garbage collector may not have come to a session whose function or module is gone.
    """
    for known in _states.values():
        for state in known:
            state.alike = None


def reached(state: CodeState, code: types.CodeType, own: int | None) -> str | None:
    """The name of the limit that forbids to compile this code once more; ``own`` is that of the compile() call."""
    if len(state.entries) >= (own or config.recompile_limit):
        return "recompile_limit"
    if sum(len(each.entries) for each in _states.get(code) or ()) >= config.accumulated_recompile_limit:
        return "accumulated_recompile_limit"
    return None


def refusal(code: types.CodeType, reason: str) -> Unsupported:
    """The error of ``set_stance("fail_on_recompile")``."""
    why = f"no compiled code matches: {reason}" if reason else "it has not been compiled before"
    return Unsupported(
        f"set_stance('fail_on_recompile'), but {logs.place(code)} needs compiling: {why}. Call it with such "
        f"arguments under the stance 'default' first, or use 'eager_on_recompile'."
    )


def sizes_only(session: Any, state: CodeState, frame: Any) -> None:
    """Trace a frame for the sizes that it is called with, and throw away the graph."""

    def compile_nothing(*_: Any) -> Any:
        return lambda *args: ()

    try:
        capture(
            frame, state, compile_nothing, dynamic=session.dynamic, automatic=config.automatic_dynamic_shapes,
            fullgraph=session.fullgraph, guard_filter=None,
        )  # fmt: skip
    except Exception:  # whatever ends this attempt also ends the next one, and is reported there
        return
