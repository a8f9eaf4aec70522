"""What torch's own tracer told the hook, which all share: it never captures some code, such as that of ``nn.GRU``.

Once the hook has kept code of ours for a code object, that counts no more for the session (where each has a bucket of
its own).  Before that, the hook would run such code in eager and ask nobody.  So whatever that tracer was asked about
since a session's latest call is asked about again.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torchmux import torch_internals as ti

from .library import is_library, was_asked_for

if TYPE_CHECKING:
    from .session import Session

_ASKS = ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT)
_OFTEN = 8


@ti.not_captured
def ask_again(session: Session) -> None:
    """Have the hook ask about all code of programs, whatever torch's own tracer has said since the latest call."""
    if not ti.listen_to_tracer():
        return
    until = ti.questions_to_tracer[0]
    for code in ti.asked_of_tracer(session.questions_seen):
        if not (is_library(code.co_filename) and not was_asked_for(code)) and _matters(session, code):
            ti.set_code_exec_strategy(code, _ASKS)
    session.questions_seen = until


def _matters(session: Session, code: types.CodeType) -> bool:
    """Whether what torch's own tracer said of ``code`` holds for this session.

    That tracer is asked again as well, and may trace the code to say the same.  Two frontends that take turns must not
    make each other do so forever for code that the session never meets.
    """
    state = session.states.get(code)
    if state is not None:
        return not (ti.has_buckets and any(entry.kept() is not None for entry in (*state.entries, *state.vain)))
    times = session.asked_again.get(code)
    if times is None:
        session.asked_again.set(code, times := [0])
    times[0] += 1
    return times[0] <= _OFTEN or times[0] & (times[0] - 1) == 0
