"""What is not worth a graph, and is left to eager.

* A loop that breaks the graph in each pass runs the graphs between its breaks each time, and needs new guards, if not
  new graphs, for each pass: how far the iterator has come, say.  That is worth it where a pass has much to compute.
  Where it has but a handful of operators the loop runs as it stands, the functions that it calls are captured on their
  own, and capture goes on behind it, if there is more than a handful to capture.
* A layer or function of ``torch.nn`` that is called by code which runs in eager.
"""

from __future__ import annotations

import os
import types
from typing import TYPE_CHECKING, NamedTuple

import torch

from .breaks import ASKED_FOR
from .bytecode import loop_ends
from .bytecode.identity import CodeMap

if TYPE_CHECKING:
    from .trace import Trace

FEW = 8  # operators; a graph of fewer saves less than its call and its guards cost

_NN = os.path.join(os.path.dirname(torch.__file__), "nn")
_LAYERS = (os.path.join(_NN, "modules") + os.sep, os.path.join(_NN, "functional.py"))
_OF_LAYERS = ("container.py", "transformer.py")

_behind = CodeMap()  # resume functions that begin where a loop that was left to eager is exhausted


class EagerLoop(NamedTuple):
    """A loop of the root frame that is not captured."""

    head: int  # its first raw instruction
    step: int  # the step of the trace at which its iterator is made, or 0 if the frame begins inside of it


def left_to_eager(tr: Trace, kind: str) -> EagerLoop | None:
    """The outermost loop around the break that the trace has come to which is not worth a graph."""
    if kind == ASKED_FOR:  # the program says what it wants captured
        return None
    program = tr.root.program
    index = program.ops[tr.root.at].index
    around = [head for head, last in loop_ends(program).items() if head <= index <= last]
    for head in sorted(around):
        step, operators = tr.loops.get(head, (0, 0))
        before = program.instructions[head - 1].op if head else ""
        if tr.step_began - operators < FEW and before != "SWAP":  # a comprehension that is part of its function
            return EagerLoop(head, step - 1 if step and before == "GET_ITER" else step)
    return None


def goes_on_in(code: types.CodeType) -> None:
    """Note that ``code`` is the rest of a frame behind a loop that was left to eager."""
    _behind.set(code, True)


class NotWorthIt(Exception):
    """A frame has so few operators that it runs in eager."""


def check(tr: Trace, asked_for: bool) -> None:
    """Raise NotWorthIt for a frame that has little to capture; ``asked_for``: it is itself what was compiled."""
    if tr.op_count >= FEW:
        return
    file = tr.code.co_filename
    is_layer = not asked_for and file.startswith(_LAYERS) and not file.endswith(_OF_LAYERS)
    if is_layer or _behind.get(tr.code) is not None:
        raise NotWorthIt


def note(reason: str) -> str:
    """``reason`` of a break, with what became of the loop around it."""
    return f"{reason} (the loop around it is left to eager: it has fewer than {FEW} operators to capture in a pass)"
