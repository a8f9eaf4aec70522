"""Text that contains the value of a tensor, and the objects that text is made of."""

from __future__ import annotations

import dataclasses
import enum
import operator
import string
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import OPERATION, TENSOR_TO_PYTHON, GraphBreak
from ..capture.attempts import TextNeeded
from ..trace.enumerations import ask_operand
from .base import Raised, Value
from .constants import CHANGING, ConstValue, SymValue
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


class _Printed:
    """An object of the program's, in a container whose text is wanted: its own ``__repr__`` has been traced."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True, repr=False)
class _Holds:
    """A container whose text is wanted, by what is in it: the keys of a dictionary are followed by its values."""

    cls: type
    items: tuple[_Holds | None, ...]  # None for what is no such container

    def __repr__(self) -> str:
        return f"{self.cls.__name__}({', '.join('.' if each is None else repr(each) for each in self.items)})"

    def filled(self, leaves: Iterator[Any]) -> Any:
        """The container that has these leaves in their places."""
        items = [next(leaves) if each is None else each.filled(leaves) for each in self.items]
        if self.cls is dict:
            count = len(items) // 2
            return dict(zip(items[:count], items[count:], strict=True))
        return self.cls(items)


def _with_filled(function: Callable, holds: _Holds, *leaves: Any) -> Any:
    """What a function gives for operands, of which some are containers."""
    return function(*holds.filled(iter(leaves)))


def text_of(tr: Tracer, function: Callable, operands: list[Value]) -> Value:
    """What ``function`` gives for operands that it only takes the text of, or refuses."""
    leaves: list[Value] = []
    holds = _Holds(tuple, tuple(_leaves(tr, each, (), leaves) for each in operands))
    if not any(holds.items):
        found = tr.computed(function, leaves)
    else:
        found = tr.computed(_with_filled, [ConstValue(function), ConstValue(holds), *leaves])
    return found or tr.fold(function, list(holds.filled(leaf.const(tr) for leaf in leaves)), {})


def _leaves(tr: Tracer, value: Value, around: tuple[Value, ...], leaves: list[Value]) -> _Holds | None:
    """How to make an object with the text of ``value``; ``around`` are the containers that it is in.

    Numbers that change stay what they are, and objects of the program's inside of containers are known by their text.
    """
    if isinstance(value, (SymValue, *CHANGING)):
        leaves.append(value)
        return None
    real = value.real()
    if isinstance(real, (type, types.FunctionType, types.ModuleType, enum.Enum)):
        if isinstance(real, (type, enum.Enum)):
            tr.guard_text(real, repr, repr(real), "prints as before")
            tr.guard_text(real, str, str(real), "prints as before")
        leaves.append(ConstValue(real))
        return None
    if isinstance(value, (SequenceValue, DictValue)) and value.pytype() in (list, tuple, dict, torch.Size):
        if any(value is each for each in around):
            raise GraphBreak(OPERATION, "the text of a container that contains itself")
        parts = [*value.keys(tr), *value.values(tr)] if isinstance(value, DictValue) else value.items(tr)
        return _Holds(value.pytype(), tuple(_leaves(tr, each, (*around, value), leaves) for each in parts))
    if around and isinstance(value, ObjectValue) and value.special(tr, "__repr__") is not None:
        text = tr.convert(value, "r")
        leaves.append(tr.computed(_Printed, [text]) or ConstValue(_Printed(text.const(tr))))
    else:
        leaves.append(ConstValue(value.const(tr)))
    return None


def _joined(*parts: str) -> str:
    return "".join(parts)


def _percent(text: Any, *items: Any) -> Any:
    return text % items


def _percent_named(text: Any, *parts: Any) -> Any:
    count = len(parts) // 2
    return text % dict(zip(parts[:count], parts[count:], strict=True))


def in_fields(tr: Tracer, text: str, operands: list[Value]) -> Value | None:
    """``text.format(*operands)``, unless it asks for what is in an operand."""
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
    except ValueError:
        return None
    return (
        None
        if any("." in name or "[" in name for name in names)
        else text_of(tr, str.format, [ConstValue(text), *operands])
    )


def joined(tr: Tracer, parts: list[Value]) -> Value:
    """The parts of an f-string as one text."""
    if any(isinstance(part, DataText) for part in parts):  # which contains the value of a tensor
        return DataText()
    return tr.computed(_joined, parts) or ConstValue("".join(part.const(tr) for part in parts))


def printed(tr: Tracer, text: ConstValue, value: Value) -> Value:
    """``text % value``."""
    if isinstance(value, TupleValue) and value.pytype() is tuple:
        return text_of(tr, _percent, [text, *value.items(tr)])
    if isinstance(value, DictValue) and value.pytype() is dict:  # it is printed, or its values are, each in its own way
        return text_of(tr, _percent_named, [text, *value.keys(tr), *value.values(tr)])
    return text_of(tr, operator.mod, [text, value])


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
    if not isinstance(value, CHANGING):
        ask_operand(tr, value.real(), "__format__")
    return text_of(tr, format, [value, ConstValue(spec)])


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
    return text_of(tr, function, [value])
