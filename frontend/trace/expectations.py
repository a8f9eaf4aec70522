"""Branches that only raise: ``assert mask.any()``, ``if not valid.all(): raise ValueError(...)``.

Which way such a branch goes is data, yet a program that works goes one way.  The trace takes that way and has the graph
return the condition; ``capture.assumed_branches`` is what becomes of that.  What the constraints of torch's
distributions check is expected to hold as well.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from ..bytecode import Program
from ..values.base import GraphValue
from ..values.constants import ConstValue
from ..values.tensors import TensorValue
from .tracer import Tracer

_FAR = 400  # micro-ops; an error message takes some dozens
_CONDITIONAL = frozenset(
    {"POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", "JUMP_IF_TRUE_OR_POP",
     "JUMP_IF_FALSE_OR_POP", "FOR_ITER"}
)  # fmt: skip


def only_raises(program: Program, start: int) -> bool:
    """Whether every way on from micro-op ``start`` comes to a ``raise``, without going back or leaving otherwise."""
    known = program.memo.setdefault("only_raises", {})
    if start not in known:
        known[start] = _only_raises(program, start)
    return known[start]


def _only_raises(program: Program, start: int) -> bool:
    pending, seen = [start], set()
    while pending:
        at = pending.pop()
        if at in seen:
            continue
        seen.add(at)
        if at < start or at >= len(program.ops) or len(seen) > _FAR:
            return False
        op = program.ops[at]
        if op.name == "RAISE_VARARGS":
            continue
        if op.name == "JUMP":
            pending.append(op.target)
        elif op.name in ("RETURN_VALUE", "RERAISE", "YIELD_VALUE", "SEND", "UNSUPPORTED"):
            return False
        else:
            pending.append(at + 1)
            if op.name in _CONDITIONAL:
                pending.append(op.target)
    return True


def expected(
    tr: Tracer, code: types.CodeType, program: Program, value: Any, if_true: int, if_false: int
) -> bool | None:
    """What a branch on ``value`` is taken to do, noted in the trace; None where that is not to be guessed."""
    if not isinstance(value, TensorValue) or not may_expect(tr, value):
        return None
    if code.co_filename == torch.distributions.constraints.__file__:  # what it returns, the caller raises for
        expect(tr, value, True)
        return True
    true_raises, false_raises = only_raises(program, if_true), only_raises(program, if_false)
    if true_raises == false_raises:
        return None
    expect(tr, value, false_raises)
    return false_raises


def may_expect(tr: Tracer, value: TensorValue) -> bool:
    """Whether this condition may be assumed."""
    example = value.example
    return tr.may_expect and tr.region is None and example.device.type == "cpu" and example.shape.numel() == 1


def expect(tr: Tracer, value: TensorValue, outcome: bool) -> None:
    """Take for granted that ``value`` is true, or false."""
    # a separate copy: the program may change the tensor later
    condition = tr.emit("call_function", torch.ne, [value, ConstValue(0)], {})
    assert isinstance(condition, GraphValue)
    tr.expectations.append((condition, outcome))
