"""Text that contains the value of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..breaks import TENSOR_TO_PYTHON, GraphBreak
from ..capture.attempts import TextNeeded
from .base import Value

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
