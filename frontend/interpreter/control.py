"""Jumps and loops."""

from __future__ import annotations

from typing import Any

from ..hook import interrupts
from ..trace.expectations import expected
from ..values.base import Value
from ..values.constants import ConstValue
from .frame import Frame, op


def _is_none(frame: Frame) -> bool:
    value = frame.pop()
    return isinstance(value, ConstValue) and value.value is None


def _truth(frame: Frame, value: Value, if_true: int, if_false: int) -> bool:
    """Which way a branch goes; the ways are micro-ops."""
    found = expected(frame.tr, frame.code, frame.program, value, if_true, if_false)
    return value.truth(frame.tr) if found is None else found


def _go(frame: Frame, target: int) -> None:
    if target < frame.pc:
        interrupts.check()  # a loop of the program may run for a long time
    frame.pc = target


@op("JUMP")
def jump(frame: Frame, ins: Any) -> None:
    _go(frame, ins.target)


@op("POP_JUMP_IF_TRUE")
def pop_jump_if_true(frame: Frame, ins: Any) -> None:
    if _truth(frame, frame.pop(), ins.target, frame.pc):
        _go(frame, ins.target)


@op("POP_JUMP_IF_FALSE")
def pop_jump_if_false(frame: Frame, ins: Any) -> None:
    if not _truth(frame, frame.pop(), frame.pc, ins.target):
        _go(frame, ins.target)


@op("POP_JUMP_IF_NONE")
def pop_jump_if_none(frame: Frame, ins: Any) -> None:
    if _is_none(frame):
        frame.pc = ins.target


@op("POP_JUMP_IF_NOT_NONE")
def pop_jump_if_not_none(frame: Frame, ins: Any) -> None:
    if not _is_none(frame):
        frame.pc = ins.target


@op("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(frame: Frame, ins: Any) -> None:
    if frame.stack[-1].truth(frame.tr):
        frame.pc = ins.target
    else:
        frame.pop()


@op("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(frame: Frame, ins: Any) -> None:
    if frame.stack[-1].truth(frame.tr):
        frame.pop()
    else:
        frame.pc = ins.target


@op("GET_ITER")
def get_iter(frame: Frame, ins: Any) -> None:
    frame.push(frame.pop().iter(frame.tr))


@op("FOR_ITER")
def for_iter(frame: Frame, ins: Any) -> None:
    element = frame.stack[-1].next(frame.tr)
    if element is not None:
        frame.push(element)
        return
    if ins.arg:
        frame.pop()
    frame.pc = ins.target


@op("TO_BOOL")
def to_bool(frame: Frame, ins: Any) -> None:
    following, behind = frame.program.ops[frame.pc], frame.pc + 1
    if following.name == "POP_JUMP_IF_TRUE":
        ways = following.target, behind
    elif following.name == "POP_JUMP_IF_FALSE":
        ways = behind, following.target
    else:
        ways = frame.pc, frame.pc
    frame.push(ConstValue(_truth(frame, frame.pop(), *ways)))
