"""Raising, catching and ``with``."""

from __future__ import annotations

from typing import Any

from ..breaks import INSTRUCTION, GraphBreak
from ..values.base import Raised, Value
from ..values.constants import ConstValue
from ..values.containers.sequences import TupleValue
from ..values.exceptions import TracebackValue
from .frame import Frame, op

NONE = ConstValue(None)


@op("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, ins: Any) -> None:
    error = frame.pop()
    frame.push(frame.handled[-1] if frame.handled else NONE)
    frame.push(error)
    frame.handled.append(error)


@op("POP_EXCEPT")
def pop_except(frame: Frame, ins: Any) -> None:
    frame.pop()
    if frame.handled:
        frame.handled.pop()


@op("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, ins: Any) -> None:
    wanted = frame.pop()
    frame.push(ConstValue(_matches(frame, frame.stack[-1], wanted)))


def _matches(frame: Frame, error: Value, wanted: Value) -> bool:
    classes = [each.real() for each in (wanted.unpack(frame.tr) if isinstance(wanted, TupleValue) else [wanted])]
    if not all(isinstance(cls, type) and issubclass(cls, BaseException) for cls in classes):
        message = "catching classes that do not inherit from BaseException is not allowed"
        raise Raised(frame.tr.make_exception(TypeError, message))
    return issubclass(error.pytype(), tuple(classes))


@op("RAISE_VARARGS")
def raise_varargs(frame: Frame, ins: Any) -> None:
    tr = frame.tr
    if ins.arg == 0:
        current = tr.handled_exception()
        if current is None:
            raise Raised(tr.make_exception(RuntimeError, "No active exception to reraise"))
        raise Raised(current)
    cause = frame.pop() if ins.arg == 2 else None
    error = tr.as_exception([frame.pop()])
    if cause is not None:
        is_none = cause.is_const() and cause.const(tr) is None
        error.setattr(tr, "__cause__", cause if is_none else tr.as_exception([cause]))
        error.setattr(tr, "__suppress_context__", ConstValue(True))
    raise Raised(error)


@op("RERAISE")
def reraise(frame: Frame, ins: Any) -> None:
    # the argument is the stack position of the first raise's offset; only tracebacks need it
    raise Raised(frame.pop())


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(frame: Frame, ins: Any) -> None:
    frame.push(frame.tr.lift(AssertionError))


@op("BEFORE_WITH")
def before_with(frame: Frame, ins: Any) -> None:
    tr, manager = frame.tr, frame.pop()
    leave = tr.special_method(manager, "__exit__")
    enter = tr.special_method(manager, "__enter__")
    if enter is None or leave is None:
        missing = "" if enter is None else " (missed __exit__ method)"
        message = f"'{manager.pytype().__name__}' object does not support the context manager protocol{missing}"
        raise Raised(tr.make_exception(TypeError, message))
    frame.push(leave)
    frame.push(enter.call(tr, [], {}))


@op("WITH_EXCEPT_START")
def with_except_start(frame: Frame, ins: Any) -> None:
    error, leave = frame.stack[-1], frame.stack[-4]
    tr = frame.tr
    frame.push(leave.call(tr, [tr.lift(error.pytype()), error, TracebackValue()], {}))


@op("CLEANUP_THROW", "CHECK_EG_MATCH", "PREP_RERAISE_STAR")
def unsupported(frame: Frame, ins: Any) -> None:
    if ins.name == "CLEANUP_THROW":
        error = frame.stack[-1]
        if issubclass(error.pytype(), StopIteration):
            value = error.getattr(frame.tr, "value")
            frame.popn(3)
            frame.push(NONE)
            frame.push(value)
            return
        raise Raised(error)
    raise GraphBreak(INSTRUCTION, "except*")
