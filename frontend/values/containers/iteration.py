"""What all iterators of the traced program share, and the plainest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import Raised, Value
from ..builtin_methods import builtin_method

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer


class IteratorValue(Value):
    __slots__ = ()

    def iter(self, tr: Tracer) -> Value:
        return self

    def truth(self, tr: Tracer) -> bool:
        return True

    def hash_key(self, tr: Tracer) -> Any:
        return self

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__iter__":
            return self
        if name == "__next__":
            element = self.next(tr)
            if element is None:
                raise Raised(tr.make_exception(StopIteration))
            return element
        return super().call_method(tr, name, args, kwargs)


class SequenceIterator(IteratorValue):
    """Over a fixed list of values; ``of`` is the text or the bytes that they are the elements of."""

    __slots__ = ("items", "of", "position")

    def __init__(self, items: list[Value], of: str | bytes | None = None) -> None:
        self.items = items
        self.of = of
        self.position = 0
        self.source = None

    def pytype(self) -> type:
        return type(iter(())) if self.of is None else type(iter(self.of))

    def next(self, tr: Tracer) -> Value | None:
        if self.position >= len(self.items):
            return None
        self.position += 1
        return self.items[self.position - 1]

    def rebuild(self, out: FrameWriter) -> str:
        if self.of is not None:
            return f"iter({self.of[self.position :]!r})"
        return f"iter({out.container('[', ']', self.items[self.position :])})"
