"""Calls, function definitions, returns and generators."""

from __future__ import annotations

from typing import Any

from ..breaks import INSTRUCTION, SUSPENDED, GraphBreak
from ..bytecode import NULL_BELOW_CALLABLE
from ..values.base import NULL, Raised, Value
from ..values.constants import ConstValue
from ..values.containers.generators import GeneratorValue
from ..values.functions import CodeValue, FunctionValue
from .frame import Frame, op


def _pop_callable(frame: Frame, args: list[Value]) -> Value:
    """Undo CPython's call convention: a method call has its object in the slot that otherwise holds NULL."""
    upper, lower = frame.pop(), frame.pop()
    if NULL_BELOW_CALLABLE:
        if lower is NULL:
            return upper
        args.insert(0, upper)
        return lower
    if upper is not NULL:
        args.insert(0, upper)
    return lower


@op("CALL")
def call(frame: Frame, ins: Any) -> None:
    count, names = ins.arg
    args = frame.popn(count)
    kwargs = _split(args, names)
    function = _pop_callable(frame, args)
    frame.push(function.call(frame.tr, args, kwargs))


@op("CALL_KW")
def call_kw(frame: Frame, ins: Any) -> None:
    names = frame.pop().const(frame.tr)
    args = frame.popn(ins.arg)
    kwargs = _split(args, names)
    function = _pop_callable(frame, args)
    frame.push(function.call(frame.tr, args, kwargs))


def _split(args: list[Value], names: tuple[str, ...]) -> dict[str, Value]:
    if not names:
        return {}
    kwargs = dict(zip(names, args[-len(names) :], strict=True))
    del args[-len(names) :]
    return kwargs


@op("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, ins: Any) -> None:
    tr = frame.tr
    kwargs: dict[str, Value] = {}
    if ins.arg:
        mapping = frame.pop()
        for key, value in _pairs(tr, mapping):
            name = key.const(tr)
            if not isinstance(name, str):
                raise Raised(tr.make_exception(TypeError, "keywords must be strings"))
            kwargs[name] = value
    args = frame.pop().unpack(tr)
    upper = frame.pop()
    if NULL_BELOW_CALLABLE:
        function = upper
        frame.pop()
    else:
        function = frame.pop() if upper is NULL else upper
    frame.push(function.call(tr, args, kwargs))


def _pairs(tr: Any, mapping: Value) -> list[tuple[Value, Value]]:
    from ..values.containers.mappings import pairs

    return pairs(tr, mapping)


@op("MAKE_FUNCTION")
def make_function(frame: Frame, ins: Any) -> None:
    code = frame.pop()
    assert isinstance(code, CodeValue)
    function = FunctionValue(code.code, frame.namespace, code.code.co_name, code.code.co_qualname)
    for flag in (8, 4, 2, 1):
        if ins.arg and ins.arg & flag:
            _function_attribute(frame, function, flag, frame.pop())
    frame.push(function)


@op("SET_FUNCTION_ATTRIBUTE")
def set_function_attribute(frame: Frame, ins: Any) -> None:
    function, value = frame.pop(), frame.pop()
    assert isinstance(function, FunctionValue)
    _function_attribute(frame, function, ins.arg, value)
    frame.push(function)


def _function_attribute(frame: Frame, function: FunctionValue, flag: int, value: Value) -> None:
    if flag == 8:
        function.closure = tuple(value.unpack(frame.tr))  # type: ignore[arg-type]
    elif flag == 2:
        function.kwdefaults = {k.const(frame.tr): v for k, v in _pairs(frame.tr, value)}
    elif flag == 1:
        function.defaults = value.unpack(frame.tr)
    elif flag == 4:
        function.annotations = value  # names and values in turns


@op("RETURN_VALUE")
def return_value(frame: Frame, ins: Any) -> tuple[bool, Value]:
    return True, frame.pop()


# --- generators ---------------------------------------------------------------------------------------------------


@op("RETURN_GENERATOR")
def return_generator(frame: Frame, ins: Any) -> None:
    """The call has made the generator already; what is left is the None that the first ``next`` sends."""
    if frame.is_root:
        raise GraphBreak(SUSPENDED, "a generator function can only be compiled as a whole frame")
    frame.push(ConstValue(None))


@op("YIELD_VALUE")
def yield_value(frame: Frame, ins: Any) -> tuple[bool, Value]:
    if frame.is_root:
        raise GraphBreak(SUSPENDED, "yield in the compiled function")
    frame.yielding = True
    return False, frame.pop()


@op("GET_YIELD_FROM_ITER")
def get_yield_from_iter(frame: Frame, ins: Any) -> None:
    frame.push(frame.pop().iter(frame.tr))


@op("SEND")
def send(frame: Frame, ins: Any) -> None:
    """``yield from``: pass a value to the inner iterator; at its end take its result and jump."""
    value, receiver = frame.pop(), frame.stack[-1]
    try:
        if isinstance(receiver, GeneratorValue):
            frame.push(receiver.send(frame.tr, value))
            return
        is_none = value.is_const() and value.const(frame.tr) is None
        element = receiver.next(frame.tr) if is_none else receiver.call_method(frame.tr, "send", [value], {})
        if element is not None:
            frame.push(element)
            return
        result: Value = ConstValue(None)
    except Raised as raised:
        if raised.value.pytype() is not StopIteration:
            raise
        result = raised.value.getattr(frame.tr, "value")
    if ins.arg:
        frame.pop()
    frame.push(result)
    frame.pc = ins.target


@op("END_SEND")
def end_send(frame: Frame, ins: Any) -> None:
    value = frame.pop()
    frame.pop()
    frame.push(value)


@op("INTRINSIC")
def intrinsic(frame: Frame, ins: Any) -> None:
    if "STOPITERATION" in str(ins.arg):
        error = frame.stack[-1]
        if issubclass(error.pytype(), StopIteration):
            frame.pop()
            frame.push(frame.tr.generator_raised_stop(error))
        return
    raise GraphBreak(INSTRUCTION, f"{ins.arg}")
