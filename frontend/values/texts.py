"""Text that contains the value of a tensor, and the objects that text is made of."""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import TENSOR_TO_PYTHON, GraphBreak
from ..capture.attempts import TextNeeded
from .base import Value
from .containers.mappings import DictValue
from .containers.sequences import SequenceValue, TupleValue
from .containers.sets import SetValue

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


def has_data(parts: list[Value]) -> bool:
    """Whether one of the parts of a text contains the value of a tensor."""
    return any(isinstance(part, DataText) for part in parts)


def text_arg(tr: Tracer, value: Value) -> Any:
    """The object whose text is wanted; containers of constants count."""
    real = value.real()
    if isinstance(real, (type, types.FunctionType, types.ModuleType, enum.Enum)):
        if isinstance(real, (type, enum.Enum)):
            tr.guard_text(real, repr, repr(real), "prints as before")
            tr.guard_text(real, str, str(real), "prints as before")
        return real
    if isinstance(value, (SequenceValue, DictValue, SetValue)) and value.pytype() in (
        list,
        tuple,
        dict,
        set,
        torch.Size,
    ):
        if value.pytype() is torch.Size:
            return torch.Size(value.const(tr))
        return value.const(tr)
    return value.const(tr)


def format_args(tr: Tracer, value: Value) -> Any:
    if isinstance(value, TupleValue):
        return tuple(text_arg(tr, v) for v in value.items(tr))
    return text_arg(tr, value)
