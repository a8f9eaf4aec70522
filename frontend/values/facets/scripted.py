"""Functions that ``torch.jit.script`` has compiled: the Python that they were made of is traced in their place."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from ...breaks import C_FUNCTION, GraphBreak
from ...guards.sources import Const
from ..base import Value
from ..classes import RealValue
from ..constants import ConstValue, SymValue
from ..tensors import TensorValue

if TYPE_CHECKING:
    from ...trace.tracer import Tracer

_NUMBERS = (bool, int, float)


class ScriptedValue(RealValue):
    """A ``torch.jit.ScriptFunction``."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        original = getattr(self.obj, "_torchdynamo_inline", None)
        if not isinstance(original, types.FunctionType) or not _means_the_same(original, args, kwargs):
            raise GraphBreak(C_FUNCTION, f"the scripted function {self.obj.name} with these arguments")
        tr.scripted += 1
        try:
            return tr.wrap(original, Const(original, original.__qualname__)).call(tr, args, kwargs)
        finally:
            tr.scripted -= 1


def _means_the_same(function: types.FunctionType, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Whether TorchScript takes the arguments as they are: it copies containers, and converts numbers."""
    given = {**dict(zip(function.__code__.co_varnames, args, strict=False)), **kwargs}
    return len(given) == len(args) + len(kwargs) and all(
        isinstance(value, TensorValue)
        or (isinstance(value, ConstValue | SymValue) and _says(function, name, value.pytype()))
        for name, value in given.items()
    )


def _says(function: types.FunctionType, name: str, cls: type) -> bool:
    return cls in _NUMBERS and function.__annotations__.get(name) in (cls, cls.__name__)
