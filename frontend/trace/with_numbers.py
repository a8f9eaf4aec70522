"""Records operators that take a number which the graph reads from a tensor (``values.scalars.ReadNumber``).

They may also be data for a new tensor.

Whatever is not known here ends the graph.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from .. import breaks
from ..breaks import GraphBreak
from ..sizes import read_numbers
from ..values.base import Value
from ..values.constants import ConstValue, SymValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.scalars import ReadNumber
from ..values.tensors import TensorValue
from .tracer import Tracer

_ARITHMETIC = {"add", "sub", "mul", "truediv", "pow"}
_OF_NUMBERS = {getattr(operator, name) for name in _ARITHMETIC | {"neg"}} | {read_numbers.least, read_numbers.greatest}
_OF_TENSORS = {getattr(operator, prefix + name) for prefix in ("", "i") for name in _ARITHMETIC}
_METHODS = {name + suffix for name in ("add", "sub", "mul", "div", "true_divide") for suffix in ("", "_")}
_WITH_ALPHA = {"add", "add_", "sub", "sub_"}
_WITH_VALUE = {"addcmul", "addcmul_", "addcdiv", "addcdiv_"}
_WITH_WEIGHT = {"lerp", "lerp_"}
_FOREACH = {name + suffix for name in ("add", "sub", "mul", "div", "addcmul", "addcdiv") for suffix in ("", "_")}
_MAKE = (torch.tensor, torch.as_tensor)


def with_numbers(tr: Tracer, kind: str, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of an operator that takes such a number; None if it takes none."""
    if args and (numbers := _list_of_numbers(tr, args[-1])) is not None:
        name = getattr(target, "__name__", "")
        if name.removeprefix("_foreach_") in _FOREACH and name != name.removeprefix("_foreach_") and not kwargs:
            return _emit(tr, read_numbers.foreach, [ConstValue(name.removeprefix("_foreach_")), *args[:-1], numbers])
        if target in _MAKE and len(args) == 1 and kwargs.keys() <= {"dtype", "device"}:
            return tr.emit("call_function", read_numbers.tensor_of, [numbers], kwargs)
    if not any(isinstance(value, ReadNumber) for value in (*args, *kwargs.values())):
        return None
    if target in _OF_NUMBERS and not kwargs and all(map(_is_number, args)):
        return ReadNumber.of(_emit(tr, target, list(map(_carrier, args))))
    if target in _MAKE and kwargs.keys() <= {"dtype", "device"}:
        return tr.emit("call_function", read_numbers.tensor_of, [_carrier(args[0])], kwargs)
    tensor = next((value for value in args if isinstance(value, TensorValue)), None)
    if tensor is not None and (found := _with_tensor(tr, kind, target, tensor, args, kwargs)) is not None:
        return found
    name = target if isinstance(target, str) else getattr(target, "__name__", str(target))
    number = next(value for value in (*args, *kwargs.values()) if isinstance(value, ReadNumber))
    raise GraphBreak(breaks.TENSOR_TO_PYTHON, f"{name} with {number.describe()}")


def _with_tensor(
    tr: Tracer, kind: str, target: Any, tensor: Value, args: list[Value], kwargs: dict[str, Value]
) -> Value | None:
    name = _method(kind, target)
    if target in _OF_TENSORS or (name in _METHODS and not kwargs):
        beside = [
            _emit(tr, read_numbers.beside, [v.carrier(), tensor]) if isinstance(v, ReadNumber) else v for v in args
        ]
        return tr.emit(kind, target, beside, {})
    if name in _WITH_ALPHA and kwargs.keys() == {"alpha"} and len(args) == 2 and isinstance(args[1], TensorValue):
        return _emit(tr, read_numbers.add_multiple, [ConstValue(name), *args, _carrier(kwargs["alpha"])])
    if name in _WITH_VALUE and kwargs.keys() == {"value"} and all(isinstance(v, TensorValue) for v in args):
        return _emit(tr, read_numbers.add_product, [ConstValue(name), *args, _carrier(kwargs["value"])])
    if name in _WITH_WEIGHT and not kwargs and len(args) == 3 and isinstance(args[2], ReadNumber):
        return _emit(tr, read_numbers.interpolate, [ConstValue(name), *args[:2], args[2].carrier()])
    return None


def _emit(tr: Tracer, function: Any, args: list[Value]) -> Value:
    return tr.emit("call_function", function, args, {})


def _method(kind: str, target: Any) -> str:
    """The name of the tensor's method that an operator is; empty if it is none."""
    if kind == "call_method":
        return target
    name = getattr(target, "__name__", "")
    return name if getattr(torch, name, None) is target else ""


def _is_number(value: Value) -> bool:
    if isinstance(value, ConstValue):
        return type(value.value) in (int, float)
    return isinstance(value, ReadNumber) or (isinstance(value, SymValue) and value.pytype() is not bool)


def _carrier(value: Value) -> Value:
    return value.carrier() if isinstance(value, ReadNumber) else value


def _list_of_numbers(tr: Tracer, value: Value) -> ListValue | None:
    if not isinstance(value, (ListValue, TupleValue)) or value.source is not None:
        return None
    items = value.items(tr)
    if not any(isinstance(item, ReadNumber) for item in items) or not all(map(_is_number, items)):
        return None
    return ListValue(list(map(_carrier, items)))


# --- numbers of tensors among data ------------------------------------------------------------------------------------


def stacked(tr: Tracer, target: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """``torch.tensor([x.sum(), 2.0])`` and its relatives, stacked of the parts; eager reads their numbers one by one.

    None where the data holds no tensors, or is not understood.
    """
    data = args[-1]
    leaves: list[Value] = []
    shape = _shape(tr, data, leaves)
    if target == "new_tensor" and any(isinstance(leaf, SymValue) for leaf in leaves) and len(args) == 2:
        like = args[0].example  # type: ignore[attr-defined]
        made = {"dtype": ConstValue(like.dtype), "device": ConstValue(like.device), **kwargs}
        return tr.emit("call_function", torch.tensor, [data], made)
    if not isinstance(data, (ListValue, TupleValue)) or kwargs.keys() - {"dtype"} or tr.region is not None:
        return None
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorValue)]
    if shape is None or not tensors or not all(map(_is_part, leaves)):
        return None
    inferred = functools.reduce(torch.promote_types, map(_dtype, leaves))
    asked = kwargs["dtype"].const(tr) if "dtype" in kwargs else None
    if target == "new_tensor" and asked is None:
        asked = args[0].example.dtype  # type: ignore[attr-defined]
    if asked is not None and asked is not inferred and not asked.is_floating_point:
        return None  # eager checks each number for its range
    dtype = ConstValue(asked or inferred)
    parts = []
    for leaf in leaves:
        if isinstance(leaf, TensorValue):
            plain = tr.emit("call_method", "detach", [leaf], {})
            parts.append(tr.emit("call_method", "to", [plain, dtype], {}))
        else:
            parts.append(tr.emit("call_function", torch.tensor, [leaf], {"dtype": dtype}))
    row = tr.emit("call_function", torch.stack, [ListValue(parts)], {})
    return tr.emit("call_method", "reshape", [row, TupleValue([*map(ConstValue, shape)])], {})


def _shape(tr: Tracer, data: Value, leaves: list[Value]) -> tuple[int, ...] | None:
    """The sizes of nested lists, whose innermost elements are added to ``leaves``; None if they differ."""
    if not isinstance(data, (ListValue, TupleValue)):
        leaves.append(data)
        return ()
    shapes = {_shape(tr, item, leaves) for item in data.items(tr)}
    first = shapes.pop() if len(shapes) == 1 else None
    return None if first is None else (len(data.items(tr)), *first)


def _is_part(leaf: Value) -> bool:
    if isinstance(leaf, TensorValue):
        return leaf.example.dim() == 0 and leaf.example.device.type == "cpu"
    return isinstance(leaf, (ConstValue, SymValue)) and leaf.pytype() in (bool, int, float)


def _dtype(leaf: Value) -> torch.dtype:
    if isinstance(leaf, TensorValue):
        return leaf.example.dtype
    return {bool: torch.bool, int: torch.int64}.get(leaf.pytype()) or torch.get_default_dtype()
