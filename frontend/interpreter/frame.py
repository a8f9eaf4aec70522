"""One frame: stack, locals, cells and the loop that dispatches micro-ops to handlers."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..breaks import TOO_DEEP, GraphBreak
from ..bytecode import loop_ends, normalize
from ..values.base import Raised, Value
from ..values.cells import CellValue
from ..values.constants import ConstValue
from ..values.contexts import ContextValue
from ..values.exceptions import ExceptionValue

if TYPE_CHECKING:
    from ..trace.tracer import ActiveFrame, Tracer

# A handler returns None to continue, or (finished, value): True for a return, False for a yield.
Handler = Callable[["Frame", Any], "tuple[bool, Value] | None"]
HANDLERS: dict[str, Handler] = {}

MAX_DEPTH = 150
# What a handler that lets an exception pass consists of: the stack is set right, the name of a caught one deleted.
_TIDIES = ("PUSH_EXC_INFO", "COPY", "SWAP", "POP_EXCEPT", "INTRINSIC", "LOAD_CONST", "STORE_FAST", "DELETE_FAST")


def op(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of one or several micro-ops."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


class StopAtBreak(Exception):
    """The root frame has come to the instruction at which an earlier attempt found a graph break."""


class Frame:
    """An activation of a function in the traced program.

    ``cells`` are the frame's own cell variables and its closure, by name.  The root frame is the one that the compiled
    code replaces: only there can a graph end and the rest be resumed.
    """

    __slots__ = (
        "at", "cells", "code", "depth", "handled", "is_root", "locals", "moved", "namespace", "parent", "pc", "program",
        "stack", "tr", "yielding",
    )  # fmt: skip

    def __init__(
        self,
        tr: Tracer,
        code: types.CodeType,
        namespace: dict,
        locals_: dict[str, Value],
        closure: tuple[CellValue, ...] = (),
        parent: ActiveFrame | None = None,
    ) -> None:
        self.tr = tr
        self.code = code
        self.program = normalize(code)
        self.namespace = namespace
        self.locals = locals_
        self.stack: list[Value] = []
        self.pc = 0
        self.at = 0
        self.parent = parent
        self.depth: int = parent.depth + 1 if parent else 0
        self.is_root = parent is None
        self.handled: list[Value] = []  # exceptions being handled, innermost last
        self.yielding = False
        self.moved: dict[str, int] = {}  # cells that an inlined comprehension has put aside -> the step at which
        self.cells: dict[str, CellValue] = {}
        for name in code.co_cellvars:
            self.cells[name] = CellValue(locals_.get(name))
        for name, cell in zip(code.co_freevars, closure, strict=True):
            self.cells[name] = cell
        if self.depth > MAX_DEPTH:
            raise GraphBreak(TOO_DEEP, f"{code.co_qualname} is nested {MAX_DEPTH} calls deep")

    # --- the stack -------------------------------------------------------------------------------------------------

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def pop(self) -> Value:
        return self.stack.pop()

    def popn(self, count: int) -> list[Value]:
        if not count:
            return []
        values = self.stack[-count:]
        del self.stack[-count:]
        return values

    @property
    def line(self) -> int:
        return self.program.ops[self.at].line or self.code.co_firstlineno

    @property
    def exception(self) -> Value | None:
        """The exception being handled here, or by the nearest caller that handles one."""
        frame: ActiveFrame | None = self
        while frame is not None:
            if frame.handled:
                return frame.handled[-1]
            frame = frame.parent
        return None

    @property
    def in_try(self) -> bool:
        """Whether code of the program would run for an exception that is raised here, in this frame or a caller's."""
        return any(map(_has_handler, self._of_the_program()))

    @property
    def may_catch(self) -> bool:
        """Whether an except clause covers the current instruction, in this frame or a caller."""
        return any(map(_has_except_clause, self._of_the_program()))

    def _of_the_program(self) -> Iterator[ActiveFrame]:
        frame: ActiveFrame | None = self
        while frame is not None:
            if not self.tr.in_polyfill(frame.code):
                yield frame
            frame = frame.parent

    # --- running ---------------------------------------------------------------------------------------------------

    def run(self) -> Value:
        """Run to the end; the function's result."""
        _, value = self._loop()
        return value

    def resume(self, value: Value | None, error: Raised | None) -> tuple[bool, Value]:
        """Go on with a generator: with a sent ``value``, or by raising ``error`` where it is suspended."""
        self.parent = self.tr.frame
        if error is not None:
            return self._loop(error)
        if self.yielding:
            assert value is not None
            self.push(value)
        self.yielding = True
        return self._loop()

    def has_to_clean_up(self) -> bool:
        """Whether a suspended generator would run its own code if it were dropped, and so closed, here."""
        ops, pc = self.program.ops, self.at
        while (handler := ops[pc].handler) is not None:
            reraised = self._reraises_exit(handler[0])
            if reraised is None:
                return True
            pc = reraised
        return False

    def _reraises_exit(self, pc: int) -> int | None:
        """Where a handler raises GeneratorExit again, if it does nothing else with it."""
        ops, caught = self.program.ops, None
        while True:
            ins = ops[pc]
            if ins.name in ("RERAISE", "CLEANUP_THROW"):
                return pc
            if ins.name == "LOAD_GLOBAL":
                caught = self.namespace.get(ins.arg, getattr(builtins, ins.arg, None))
            elif ins.name == "CHECK_EXC_MATCH":
                if not isinstance(caught, type) or issubclass(GeneratorExit, caught):
                    return None
            elif ins.name == "POP_JUMP_IF_FALSE":
                pc = ins.target
                continue
            elif ins.name not in _TIDIES:
                return None
            pc += 1

    def _loop(self, error: Raised | None = None) -> tuple[bool, Value]:
        tr, ops = self.tr, self.program.ops
        outer, tr.frame = tr.frame, self
        try:
            if error is not None:
                self.unwind(error)
            while True:
                try:
                    if self.is_root:
                        return self._run_root(ops)
                    handlers = HANDLERS
                    while True:
                        self.at = pc = self.pc
                        self.pc = pc + 1
                        instruction = ops[pc]
                        result = handlers[instruction.name](self, instruction)
                        if result is not None:
                            return result
                except Raised as raised:
                    self.unwind(raised)
        except GraphBreak as stop:
            if self.is_root and self.moved:
                tr.step = min(self.moved.values())
            if not tr.in_polyfill(self.code):
                stop.frames.append((self.code.co_filename, self.line, self.code.co_name))
            raise
        finally:
            tr.frame = outer

    def _run_root(self, ops: list) -> tuple[bool, Value]:
        """As the loop of other frames, but counting raw instructions, so that a break can be found again."""
        tr, previous, heads = self.tr, -1, loop_ends(self.program)
        while True:
            self.at = pc = self.pc
            instruction = ops[pc]
            if instruction.index != previous or ops[pc - 1].index != instruction.index:
                tr.step += 1
                tr.step_began = tr.op_count
                if instruction.index in heads and previous < instruction.index:
                    tr.loops[instruction.index] = tr.step, tr.op_count
                previous = instruction.index
                if tr.step == tr.stop_at:
                    raise StopAtBreak
            self.pc = pc + 1
            result = HANDLERS[instruction.name](self, instruction)
            if result is not None:
                return result

    def unwind(self, raised: Raised) -> None:
        """Go to the handler that covers the current instruction, or let the exception leave the frame."""
        if isinstance(raised.value, ExceptionValue):
            raised.value.raised_while(self.exception)
        handler = self.program.ops[self.at].handler
        if handler is None:
            if not self.tr.in_polyfill(self.code):
                raised.frames.append((self.code.co_filename, self.line, self.code.co_name))
            raise raised
        target, depth, lasti = handler
        del self.stack[depth:]
        if lasti:
            self.push(ConstValue(self.at))
        self.push(raised.value)
        self.pc = target


def _has_handler(frame: ActiveFrame) -> bool:
    """Whether a handler covers the current instruction that does more than leave one of torch's own contexts."""
    ops, pc = frame.program.ops, frame.at
    while (handler := ops[pc].handler) is not None:
        pc, depth, _ = handler
        if ops[pc].name == "PUSH_EXC_INFO":  # others set the stack right, and raise the exception again
            leave = frame.stack[depth - 1] if 0 < depth <= len(frame.stack) else None
            if not isinstance(getattr(leave, "owner", None), ContextValue):
                return True
    return False


def _has_except_clause(frame: ActiveFrame) -> bool:
    """Whether a handler begins with the choice of an except clause, which neither ``finally`` nor ``with`` does."""
    ops, pc = frame.program.ops, frame.at
    while (handler := ops[pc].handler) is not None:
        pc = at = handler[0]
        if ops[at].name == "PUSH_EXC_INFO":
            at += 1
            is_bare = ops[at].name == "POP_TOP"
            while ops[at].name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FAST", "LOAD_DEREF", "LOAD_ATTR", "BUILD_TUPLE"):
                at += 1
            if is_bare or ops[at].name == "CHECK_EXC_MATCH":
                return True
    return False
