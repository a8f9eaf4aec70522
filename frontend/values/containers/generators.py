"""Generators: those that the traced program makes, and those from outside that have not begun."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from torchmux import torch_internals as ti

from ...breaks import NOT_REBUILDABLE, SUSPENDED, GraphBreak
from ...capture.attempts import GeneratorSuspended
from ...guards.kinds.iterators import NotBegun
from ...guards.sources import GeneratorArgument, Source
from ..base import Raised, Value
from ..constants import ConstValue
from .iteration import IteratorValue
from .sequences import TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import ActiveFrame, FrameWriter, Tracer


def _wraps_at_start() -> bool:
    """Whether this Python makes an error of a StopIteration that is thrown into a generator that has not begun."""
    try:
        (each for each in range(0)).throw(StopIteration)
    except RuntimeError:
        return True
    except StopIteration:
        pass
    return False


_WRAPS_AT_START = _wraps_at_start()


class GeneratorValue(IteratorValue):
    """A running generator: a suspended frame of the interpreter; ``made_by`` is the call that made it."""

    __slots__ = ("done", "frame", "made_by", "running", "started")

    def __init__(self, frame: ActiveFrame, made_by: tuple[Value, list[Value], dict[str, Value]]) -> None:
        self.frame = frame
        self.made_by = made_by
        self.started = False
        self.done = False
        self.running = False
        self.source = None

    def pytype(self) -> type:
        return types.GeneratorType

    def next(self, tr: Tracer) -> Value | None:
        try:
            return self.send(tr, ConstValue(None))
        except Raised as raised:
            if raised.value.pytype() is StopIteration:
                return None
            raise

    def send(self, tr: Tracer, value: Value) -> Value:
        if self.done:
            raise Raised(tr.make_exception(StopIteration))
        if not self.started and not (value.is_const() and value.const(tr) is None):
            raise Raised(tr.make_exception(TypeError, "can't send non-None value to a just-started generator"))
        return self._resume(tr, value, None)

    def throw(self, tr: Tracer, error: Raised) -> Value:
        if self.done or not self.started:
            is_wrapped = not self.done and _WRAPS_AT_START and error.value.pytype() is StopIteration
            self.done = True
            raise Raised(tr.generator_raised_stop(error.value)) if is_wrapped else error
        return self._resume(tr, None, error)

    def _resume(self, tr: Tracer, value: Value | None, error: Raised | None) -> Value:
        if self.running:
            raise Raised(tr.make_exception(ValueError, "generator already executing"))
        self.running = True
        self.started = True
        tr.unfinished.pop(self, None)
        try:
            finished, result = self.frame.resume(value, error)
        except Raised as raised:
            self.done = True
            if raised.value.pytype() is StopIteration:
                raise Raised(tr.generator_raised_stop(raised.value)) from None
            raise
        except GraphBreak:
            self.done = True
            raise
        finally:
            self.running = False
        if finished:
            self.done = True
            raise Raised(tr.make_exception_from_values(StopIteration, [] if _is_none(result) else [result]))
        if self.frame.has_to_clean_up():
            tr.unfinished[self] = None
        return result

    def close(self, tr: Tracer) -> None:
        if self.done:
            return
        if not self.started:
            self.done = True
            return
        try:
            self.throw(tr, Raised(tr.make_exception(GeneratorExit)))
        except Raised as raised:
            if issubclass(raised.value.pytype(), (GeneratorExit, StopIteration)):
                return
            raise
        raise Raised(tr.make_exception(RuntimeError, "generator ignored GeneratorExit"))

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "send":
            return self.send(tr, args[0])
        if name == "close":
            self.close(tr)
            return ConstValue(None)
        if name == "throw":
            return self.throw(tr, Raised(tr.as_exception(args)))
        return super().call_method(tr, name, args, kwargs)

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name.startswith("gi_"):
            raise GraphBreak(SUSPENDED, f"{name} of a generator")
        return super().getattr(tr, name)

    def rebuild(self, out: FrameWriter) -> str:
        if self.done:
            if out.tr.in_polyfill(self.frame.code):
                return "iter(())"
            return f"{out.names.const(finished_generator)}({out.names.const(self.frame.code)})"
        name = self.frame.code.co_name
        if self.started:
            raise GraphBreak(NOT_REBUILDABLE, f"generator {name} is suspended in the middle")
        if not out.resumes or out.tr.in_polyfill(self.frame.code):
            # nothing of it would ever be captured, and the graph break would be the only one to tell
            raise GraphBreak(NOT_REBUILDABLE, f"generator {name} outlives the compiled function")
        function, args, kwargs = self.made_by
        parts = [*map(out.value, args), *(f"**{{{key!r}: {out.value(value)}}}" for key, value in kwargs.items())]
        return f"{out.value(function)}({', '.join(parts)})"


class ExistingGenerator(GeneratorValue):
    """A generator from outside that has not begun.

    After the graph, the real one is closed if it is at its end here.  If it is in the middle, it runs up to there,
    which must do nothing but give what was there before: the program has what it gave here.
    """

    __slots__ = ("repeats", "taken")

    def __init__(self, frame: ActiveFrame, source: Source) -> None:
        super().__init__(frame, (ConstValue(None), [], {}))
        self.source = source
        self.taken = 0
        self.repeats = True  # what it has done may be done again

    def _resume(self, tr: Tracer, value: Value | None, error: Raised | None) -> Value:
        tr.effects.entered(self)
        before = tr.op_count, len(tr.draws)
        self.repeats &= tr.region is None and error is None and value is not None and _is_none(value)
        try:
            given = super()._resume(tr, value, error)
        finally:
            tr.unfinished.pop(self, None)  # it is not dropped here
        self.taken += 1
        self.repeats &= (tr.op_count, len(tr.draws)) == before and not tr.effects.outside and _was_there(given)
        return given

    def throw(self, tr: Tracer, error: Raised) -> Value:
        tr.effects.entered(self)
        return super().throw(tr, error)

    def close(self, tr: Tracer) -> None:
        tr.effects.entered(self)
        super().close(tr)

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        if self.done:
            return [f"{target}.close()"]
        if not self.repeats:
            raise GeneratorSuspended
        return [f"{out.names.const(run_up_to)}({target}, {self.taken})"]


def _was_there(value: Value) -> bool:
    """Whether a value is no new object that its maker could go on to change."""
    if type(value) is TupleValue and value.source is None:
        return all(isinstance(element, Value) and _was_there(element) for element in value._items)
    return value.source is not None or isinstance(value, ConstValue)


def run_up_to(generator: types.GeneratorType, count: int) -> None:
    """Let a generator give so much, with nothing of it captured."""
    previous = ti.set_eval_frame(None)
    try:
        for _ in range(count):
            next(generator)
    finally:
        ti.set_eval_frame(previous)


def wrap_generator(tr: Tracer, obj: types.GeneratorType, source: Source | None) -> Value | None:
    """A generator from outside, if it can be traced: it has not begun, and what it can read is known."""
    if source is None or not tr.enters_generators or not NotBegun.holds(obj) or obj.gi_code.co_freevars:
        return None
    frame: Any = obj.gi_frame
    code = obj.gi_code
    if tr.refuses_module(frame.f_globals.get("__name__")):
        return None
    tr.guards.type_is(source, types.GeneratorType)
    tr.guards.add(NotBegun(source, code, frame.f_globals))
    given = {name: tr.wrap(value, GeneratorArgument(source, name)) for name, value in frame.f_locals.items()}
    return ExistingGenerator(tr.suspended_frame(code, frame.f_globals, given), source)


def finished_generator(code: types.CodeType) -> types.GeneratorType:
    """A generator of this code that is at its end; nothing of the code runs."""
    function = types.FunctionType(code, {}, closure=tuple(types.CellType() for _ in code.co_freevars))
    names = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    generator = function(*[None] * code.co_argcount, **dict.fromkeys(names))
    generator.close()
    return generator


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstValue) and value.value is None
