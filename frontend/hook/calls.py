"""Calls of functions under a compiled callable: which ran compiled code, which ran in eager, and why."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import NamedTuple

from ..bytecode.resume import resume_origin

DISABLED = "torchmux.disable"
GENERATOR = "a generator or coroutine, each step of which runs in eager"
LEFT_TO_EAGER = "too few operators for a graph"
LOOP = "a loop that is left to eager"
FORCED = "the stance 'force_eager'"
FIRST_CALL = "the stance 'eager_then_compile'"
JIT_TRACE = "torch.jit.trace records this call"
OTHER_GLOBALS = "its code was compiled for a function of other globals"
UNREADABLE_NAME = "its name is not UTF-8"
REST = "the rest of it after a graph break, which cannot be resumed"

WITH_CALLEES = (FORCED, FIRST_CALL, JIT_TRACE)  # why a call runs in eager with all that it calls


class Frame(NamedTuple):
    """A function of the program, or the rest of one after graph breaks.

    Names and numbers identify it, so that a report keeps no code object alive.  ``resumed`` has the raw instruction at
    which execution resumes after each break; it is empty for the function itself.
    """

    function: str
    place: str
    resumed: tuple[int, ...] = ()


def frame_of(code: types.CodeType) -> Frame:
    """The frame of a code object, which may be that of a resume function."""
    resumed: list[int] = []
    while (origin := resume_origin(code)) is not None:
        code, index = origin
        resumed.insert(0, index)
    return Frame(code.co_qualname, f"{code.co_filename}:{code.co_firstlineno}", tuple(resumed))


@dataclass
class EagerCalls:
    """Calls of a frame that ran in eager for one reason; ``operators`` is the count per call, if a trace has it."""

    calls: int = 0
    operators: int | None = None
    more: bool = False  # whether there may have been others
