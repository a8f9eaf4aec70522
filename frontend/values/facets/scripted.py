"""Functions that ``torch.jit.script`` has compiled: the Python that they were made of is traced in their place."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ...breaks import C_FUNCTION, GraphBreak
from ...guards.sources import Const
from ..base import Value
from ..classes import RealValue
from ..constants import ConstValue, SymValue
from ..containers.sequences import ListValue, TupleValue
from ..tensors import TensorValue

if TYPE_CHECKING:
    from ...trace.tracer import Tracer

# What TorchScript takes as it is; a number of another class would be converted.
_KEPT = {"BoolType": bool, "FloatType": float, "IntType": int, "StringType": str}


class ScriptedValue(RealValue):
    """A ``torch.jit.ScriptFunction``."""

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        attributes = vars(self.obj)
        original = attributes.get("_torchdynamo_inline")
        # ``torch.jit.trace`` makes the same kind of object, but one that has forgotten what the function decides by.
        is_scripted = attributes.get("__qualname__") == "torch.jit.ScriptFunction"
        taken = _taken(tr, self.obj.schema.arguments, args, kwargs) if is_scripted else None
        if taken is None or not isinstance(original, types.FunctionType):
            raise GraphBreak(C_FUNCTION, f"the scripted function {self.obj.name} with these arguments")
        tr.scripted += 1
        try:
            return tr.wrap(original, Const(original, original.__qualname__)).call(tr, *taken)
        finally:
            tr.scripted -= 1


def _taken(
    tr: Tracer, declared: list[Any], args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Value], dict[str, Value]] | None:
    """The arguments as TorchScript hands them to the function; None where it refuses or changes any of them."""
    of_names = {each.name: each.type for each in declared}
    if len(args) > len(declared) or not kwargs.keys() <= of_names.keys():
        return None
    given = [_as_declared(tr, each.type, value) for each, value in zip(declared, args, strict=False)]
    named = {name: _as_declared(tr, of_names[name], value) for name, value in kwargs.items()}
    if None in given or None in named.values():
        return None
    return given, named  # type: ignore[return-value]


def _as_declared(tr: Tracer, declared: Any, value: Value) -> Value | None:
    """The value that TorchScript makes of an argument: it copies containers, and takes lists for tuples."""
    kind = declared.kind()
    if kind == "OptionalType":
        is_none = isinstance(value, ConstValue) and value.value is None
        return value if is_none else _as_declared(tr, declared.getElementType(), value)
    if kind == "TensorType":
        return value if isinstance(value, TensorValue) else None
    if kind in ("ListType", "TupleType"):
        if not isinstance(value, ListValue | TupleValue) or value.pytype() not in (list, tuple):
            return None
        items = value.items(tr)
        kinds = declared.elements() if kind == "TupleType" else [declared.getElementType()] * len(items)
        made = [_as_declared(tr, each, item) for each, item in zip(kinds, items, strict=False)]
        if len(kinds) != len(items) or None in made:
            return None
        return ListValue(made) if kind == "ListType" else TupleValue(made)
    is_number = isinstance(value, ConstValue | SymValue) and value.pytype() is _KEPT.get(kind)
    return value if is_number else None
