"""Properties that the trace makes: of the class ``property``, or of one that derives from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...breaks import OPERATION, GraphBreak
from ..base import Raised, Value
from ..constants import ConstValue
from ..objects import ObjectValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

_FUNCTIONS = ("fget", "fset", "fdel")
NONE = ConstValue(None)


class NewPropertyValue(ObjectValue):
    """A property that belongs to no class."""

    __slots__ = ("doc",)

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self.attrs = dict.fromkeys(_FUNCTIONS, NONE)
        self.doc: Value = NONE

    def find(self, tr: Tracer, name: str) -> Value | None:
        if name == "__doc__":
            raise GraphBreak(OPERATION, f"attribute {name!r} of {self.describe()}")
        return super().find(tr, name)

    def call_c_method(self, tr: Tracer, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if cls is property and name == "__init__" and len(args) < 5 and kwargs.keys() <= {*_FUNCTIONS, "doc"}:
            given = {**dict(zip((*_FUNCTIONS, "doc"), args, strict=False)), **kwargs}
            self.doc = given.pop("doc", NONE)
            self.attrs.update({**dict.fromkeys(_FUNCTIONS, NONE), **given})
            return NONE
        if cls is property and name == "__get__" and not kwargs and args:
            return self._get(tr, args[0])
        return super().call_c_method(tr, cls, name, args, kwargs)

    def _get(self, tr: Tracer, owner: Value) -> Value:
        if owner.pytype() is type(None):
            return self
        getter = self.attrs["fget"]
        if getter.pytype() is type(None):
            raise Raised(tr.make_exception(AttributeError, "unreadable attribute"))
        return getter.call(tr, [owner], {})

    def rebuild(self, out: FrameWriter) -> str:
        cls = out.names.const(self.cls)
        variable = out.shell(self, f"{out.names.const(property)}.__new__({cls})")
        parts = ", ".join(out.value(part) for part in (*(self.attrs[name] for name in _FUNCTIONS), self.doc))
        out.line(f"{out.names.const(property)}.__init__({variable}, {parts})")
        others = {name: value for name, value in self.attrs.items() if name not in _FUNCTIONS}
        setter = out.names.const(object.__setattr__)
        for name, value in others.items():
            out.line(f"{setter}({variable}, {name!r}, {out.value(value)})")
        return variable
