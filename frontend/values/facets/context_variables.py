"""``contextvars.ContextVar``: what a context variable has is read, and guarded; setting one ends the graph."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING

from ...breaks import TORCH_STATE, GraphBreak
from ...guards.kinds.objects import NotInContext
from ...guards.sources import Const, InContext, in_context
from ..base import Value
from ..builtin_methods import BuiltinMethodValue
from ..classes import RealValue
from ..constants import ConstValue

if TYPE_CHECKING:
    from ...trace.tracer import Tracer


class ContextVariableValue(RealValue):
    """A context variable from outside."""

    __slots__ = ()

    obj: contextvars.ContextVar

    def truth(self, tr: Tracer) -> bool:
        return True

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "name":
            return ConstValue(self.obj.name)
        if name in ("get", "set", "reset"):
            return BuiltinMethodValue(self, contextvars.ContextVar, name)
        return super().getattr(tr, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        variable = self.source or Const(self.obj, self.obj.name)
        falls_back = not args
        if name != "get" or kwargs or len(args) > 1:
            raise GraphBreak(TORCH_STATE, f"{name} of context variable {self.obj.name}")
        try:
            found = in_context(self.obj, falls_back)
        except KeyError:
            if falls_back:
                raise GraphBreak(TORCH_STATE, f"context variable {self.obj.name}, which is not set") from None
            tr.guards.add(NotInContext(variable))
            return args[0]
        return tr.wrap(found, InContext(variable, falls_back))
