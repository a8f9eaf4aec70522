"""Text that contains the value of a tensor, and the objects that text is made of."""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import OPERATION, TENSOR_TO_PYTHON, GraphBreak
from ..capture.attempts import TextNeeded
from ..trace.enumerations import ask_operand
from .base import Raised, Value
from .constants import ConstValue
from .containers.mappings import DictValue
from .containers.sequences import SequenceValue, TupleValue
from .exceptions import ExceptionValue
from .objects import ObjectValue, of_protocol
from .tensors import TensorValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


class DataText(Value):
    """Usually an error message: always created, but read only if the error happens.

    Who needs its letters ends the attempt, and the next one breaks the graph where the text is made.
    """

    __slots__ = ()

    def pytype(self) -> type:
        return str

    def describe(self) -> str:
        return "text that contains the value of a tensor"

    def const(self, tr: Tracer) -> Any:
        raise GraphBreak(TENSOR_TO_PYTHON, self.describe())

    def rebuild(self, out: FrameWriter) -> str:
        raise TextNeeded


def text_arg(tr: Tracer, value: Value, around: tuple[Value, ...] = ()) -> Any:
    """The object whose text is wanted, or one with the same text; ``around`` are the containers that it is in."""
    real = value.real()
    if isinstance(real, (type, types.FunctionType, types.ModuleType, enum.Enum)):
        if isinstance(real, (type, enum.Enum)):
            tr.guard_text(real, repr, repr(real), "prints as before")
            tr.guard_text(real, str, str(real), "prints as before")
        return real
    if isinstance(value, TupleValue) and value.pytype() is torch.Size:
        return torch.Size(value.const(tr))
    if isinstance(value, (SequenceValue, DictValue)) and value.pytype() in (list, tuple, dict):
        return _contents(tr, value, around)
    return value.const(tr)


class _Printed:
    """An object of the program's, in a container whose text is wanted: its own ``__repr__`` has been traced."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _contents(tr: Tracer, value: SequenceValue | DictValue, around: tuple[Value, ...]) -> Any:
    """A container that has the text of ``value``, whose items may be objects of the program's."""
    if any(value is each for each in around):
        raise GraphBreak(OPERATION, "the text of a container that contains itself")
    around = (*around, value)

    def shown(item: Value) -> Any:
        if isinstance(item, ObjectValue) and item.special(tr, "__repr__") is not None:
            return _Printed(tr.convert(item, "r").const(tr))
        return text_arg(tr, item, around)

    if isinstance(value, DictValue):
        return dict(zip(map(shown, value.keys(tr)), map(shown, value.values(tr)), strict=True))
    return value.pytype()(map(shown, value.items(tr)))


def _joined(*parts: str) -> str:
    return "".join(parts)


def _percent(text: Any, *items: Any) -> Any:
    return text % items


def joined(tr: Tracer, parts: list[Value]) -> Value:
    """The parts of an f-string as one text."""
    if any(isinstance(part, DataText) for part in parts):  # which contains the value of a tensor
        return DataText()
    return tr.computed(_joined, parts) or ConstValue("".join(part.const(tr) for part in parts))


def printed(tr: Tracer, text: ConstValue, value: Value) -> Value:
    """``text % value``."""
    if isinstance(value, TupleValue) and value.pytype() is tuple:
        found = tr.computed(_percent, [text, *value.items(tr)])
    else:
        found = tr.computed(operator.mod, [text, value])
    return found or tr.fold(operator.mod, [text.const(tr), format_args(tr, value)], {})


def format_args(tr: Tracer, value: Value) -> Any:
    if isinstance(value, TupleValue):
        return tuple(text_arg(tr, v) for v in value.items(tr))
    return text_arg(tr, value)


def formatted(tr: Tracer, value: Value, spec: str) -> Value:
    """``format(value, spec)``."""
    if isinstance(value, ObjectValue):
        method = value.special(tr, "__format__")
        if method is not None:
            return of_protocol(method.call(tr, [ConstValue(spec)], {}), "__format__")
        if spec and tr.static_lookup(value.cls, "__format__") is object.__format__:
            message = f"unsupported format string passed to {value.cls.__name__}.__format__"
            raise Raised(tr.make_exception(TypeError, message))
        value = tr.convert(value, "s")
    if isinstance(value, TensorValue) and not spec and tr.may_expect:
        tr.texts += 1
        return DataText()
    if (found := tr.computed(format, [value, ConstValue(spec)])) is not None:
        return found
    ask_operand(tr, value.real(), "__format__")
    return tr.fold(format, [text_arg(tr, value), spec], {})


def converted(tr: Tracer, value: Value, conversion: str) -> Value:
    """``!s``, ``!r`` and ``!a`` of f-strings, and ``str()``/``repr()``."""
    if isinstance(value, ObjectValue):
        method = value.special(tr, "__str__") if conversion == "s" else None
        method = method or value.special(tr, "__repr__")
        if method is not None:
            return of_protocol(method.call(tr, [], {}), "__str__")
        if isinstance(value, ExceptionValue):
            return value.call_c_method(tr, BaseException, "__str__" if conversion == "s" else "__repr__", [], {})
    function: Callable[[Any], str] = {"s": str, "r": repr, "a": ascii}[conversion]  # type: ignore[assignment]
    return tr.computed(function, [value]) or tr.fold(function, [text_arg(tr, value)], {})
