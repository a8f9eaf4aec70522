"""Closure cells, which functions of the traced program share."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..breaks import OPERATION, GraphBreak
from ..guards.sources import Attr, Source
from .base import Raised, Value

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


class CellValue(Value):
    """A closure cell.  ``contents`` is None while the cell is empty; ``source`` is the cell object's own."""

    __slots__ = ("contents", "contents_source", "obj")

    def __init__(self, contents: Value | None = None, source: Source | None = None, obj: Any = None) -> None:
        self.contents = contents
        self.source = source
        self.obj = obj  # the real cell, read on first use
        self.contents_source: Source | None = None

    def pytype(self) -> type:
        return types.CellType

    def read(self, tr: Tracer) -> Value | None:
        if self.contents is None and self.obj is not None:
            source = self.contents_source or (Attr(self.source, "cell_contents") if self.source else None)
            try:
                contents = self.obj.cell_contents
            except ValueError:  # no check can see that it goes on being empty
                raise GraphBreak(OPERATION, "a variable of an enclosing function that has no value") from None
            self.contents = tr.wrap(contents, source)
        return self.contents

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name != "cell_contents":
            return super().getattr(tr, name)
        if (contents := self.read(tr)) is None:
            raise Raised(tr.make_exception(ValueError, "Cell is empty"))
        return contents

    def write(self, tr: Tracer, value: Value | None) -> None:
        tr.effects.changed(self)
        self.obj = None
        self.contents = value

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        if self.contents is None:
            return [f"del {target}.cell_contents"]
        return [f"{target}.cell_contents = {out.value(self.contents)}"]

    def rebuild(self, out: FrameWriter) -> str:
        variable = out.shell(self, f"{out.names.const(types.CellType)}()")
        if self.contents is not None:
            out.line(f"{variable}.cell_contents = {out.value(self.contents)}")
        return variable
