"""What is left to eager, because it has too little to compute for a graph.

* A loop that breaks the graph in each pass runs the graphs between its breaks each time, and needs new guards, if not
  new graphs, for each pass: how far the iterator has come, say.  That pays where a pass has much to compute.  Where it
  has but a handful of operators, or after two passes with graphs of their own, the loop runs as it stands, the
  functions that it calls are captured on their own, and capture resumes after it, if there is more than a handful to
  capture.
* A layer or function of ``torch.nn``, or a comprehension, that is called by code which runs in eager.
* A function that is called by code which runs in eager, and that breaks the graph after hardly any operators while it
  holds a generator: what it does with that is not captured.
* A function of no tensors that breaks the graph before its first operator, with hardly any behind that.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from torchmux.wording import counted

from ..breaks import ASKED_FOR
from ..bytecode import live_locals, loop_ends
from ..bytecode.identity import CodeMap

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

FEW = 8  # operators; a graph of fewer saves less than its call and its guards cost

_NN = os.path.join(os.path.dirname(torch.__file__), "nn")
_LAYERS = (os.path.join(_NN, "modules") + os.sep, os.path.join(_NN, "functional.py"))
_OF_LAYERS = ("container.py", "transformer.py")
_COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")  # separate functions in CPython 3.11

_MOST_PASSES = 2  # iterations of a loop that get their own graph: each is the rest of a frame, and separate code

_broken = CodeMap()  # resume functions that start inside a loop -> where it has broken so far
_after = CodeMap()  # resume functions that start where a loop that ran in eager is exhausted


_MAY_COMPUTE = {  # with tensors
    "BINARY_OP", "BINARY_SLICE", "BINARY_SUBSCR", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "COMPARE_OP", "STORE_SLICE",
    "STORE_SUBSCR", "UNARY_INVERT", "UNARY_NEGATIVE", "UNARY_POSITIVE",
}  # fmt: skip


class EagerLoop(NamedTuple):
    """A loop of the root frame that is not captured."""

    head: int  # its first raw instruction
    step: int  # the step of the trace at which its iterator is made, or 0 if the frame begins inside of it


def left_to_eager(tr: Tracer, kind: str) -> EagerLoop | None:
    """The outermost loop around the break that the trace has come to which has too little for a graph."""
    if kind == ASKED_FOR:  # the program says what it wants captured
        return None
    program = tr.root.program
    index = program.ops[tr.root.at].index
    again = _passes(tr, index).count(program.instructions[index].positions) >= _MOST_PASSES
    for head in _loops_around(program, index):
        step, operators = tr.loops.get(head, (0, 0))
        before = program.ops[program.first_op[head] - 1].name if head else ""
        if before == "SWAP":  # a comprehension that is part of its function
            continue
        if again or tr.step_began - operators < FEW:
            return EagerLoop(head, step - 1 if step and before == "GET_ITER" else step)
    return None


def _loops_around(program: Any, index: int) -> list[int]:
    """The first instructions of the loops around an instruction, outermost first."""
    return sorted(head for head, last in loop_ends(program).items() if head <= index <= last)


def _passes(tr: Tracer, index: int) -> tuple:
    """Where the loop around ``index`` has broken before, in the frames that this one is the rest of."""
    return _broken.get(tr.code) or () if _loops_around(tr.root.program, index) else ()


def resumes_in(code: types.CodeType, tr: Tracer) -> None:
    """Note that ``code`` is the rest of the traced frame after its break: of another pass, if that is in a loop."""
    index, program = tr.break_index, tr.root.program
    if _loops_around(program, index):
        _broken.set(code, (*_passes(tr, index), program.instructions[index].positions))


def goes_on_in(code: types.CodeType) -> None:
    """Note that ``code`` is the rest of a frame after a loop that was left to eager."""
    _after.set(code, True)


class LeftToEager(Exception):
    """A frame has so few operators that it runs in eager; ``always``: so do all others of its code."""

    def __init__(self, operators: int, where: str, always: bool, without_tensors: bool = False) -> None:
        super().__init__(
            f"it has {counted(operators, 'operator')} {where}: a graph with fewer than {FEW} saves less than it costs"
        )
        self.always = always
        self.without_tensors = without_tensors  # it has none to compute with: after many calls, nobody asks any more
        self.operators = operators
        self.guards: Any = None  # the check of what the trace has read, which leads here again


def check(tr: Tracer, asked_for: bool) -> None:
    """Raise LeftToEager for a frame that has little to capture; ``asked_for``: its user wants a graph of this one."""
    if tr.op_count >= FEW:
        return
    file = tr.code.co_filename
    if _after.get(tr.code) is not None:
        raise LeftToEager(tr.op_count, "after a loop that runs in eager", always=True)
    if not asked_for and tr.code.co_name in _COMPREHENSIONS:
        raise LeftToEager(tr.op_count, "in a comprehension that eager code runs", always=False)
    if not asked_for and file.startswith(_LAYERS):
        raise LeftToEager(tr.op_count, "in a layer that eager code calls", always=not file.endswith(_OF_LAYERS))


def check_before_break(tr: Tracer, asked_for: bool) -> None:
    """Raise LeftToEager for what breaks the graph when it has hardly begun.

    That is a layer of torch's, as a packed RNN, and a function that has made a generator before the break and reads it
    behind that: a loop over one that exists is seldom captured.
    """
    if asked_for or tr.op_count >= FEW:
        return
    live = live_locals(tr.root.program, tr.break_index)
    if any(value.pytype() is types.GeneratorType for name, value in tr.root.locals.items() if name in live):
        raise LeftToEager(tr.op_count, "before a graph break that a generator outlives", always=False)
    file = tr.code.co_filename
    if file.startswith(_LAYERS) and not file.endswith(_OF_LAYERS):
        raise LeftToEager(tr.op_count, "before a graph break in a layer that eager code calls", always=False)


def has_tensors(frame_locals: dict[str, Any], depth: int = 3) -> bool:
    """Whether a frame works on tensors: no other is worth compiling, or an error that it is not."""
    pending: list[Iterable[Any]] = [frame_locals.values()]
    for _ in range(depth):
        found = [value for values in pending for value in values]
        if any(issubclass(type(value), (torch.Tensor, torch.nn.Module)) for value in found):
            return True
        pending = [contents for value in found if (contents := _contents(value)) is not None]
    return False


def _contents(value: Any) -> Iterable[Any] | None:
    """What is in a builtin container; no code of a class that derives from it runs."""
    for base, contents in _CONTENTS.items():
        if issubclass(type(value), base):
            return contents(value)
    return None


_CONTENTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    list: list.__iter__, tuple: tuple.__iter__, dict: dict.values, set: set.__iter__,
}  # fmt: skip


def check_rest(tr: Tracer, asked_for: bool) -> None:
    """Raise LeftToEager for a function of no tensors that has nothing before a graph break, and too little behind it.

    What a context manager does that takes the time, say.  The functions that it calls are captured on their own.
    """
    if asked_for or tr.op_count or has_tensors(tr.frame_locals):
        return
    program = tr.root.program
    rest = program.ops[program.first_op[tr.break_index] :]
    if not loop_ends(program) and sum(op.name in _MAY_COMPUTE for op in rest) < FEW:
        where = "before a graph break in a function of no tensors"
        raise LeftToEager(0, where, always=False, without_tensors=True)


def note(reason: str) -> str:
    """``reason`` of a break, with what became of the loop around it."""
    return f"{reason} (the surrounding loop runs in eager: an iteration has too little to capture)"
