"""What a tensor that consists of others is made of apart from their contents, in a form that can be compared; and the
tensors that NumPy's arrays are.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any

import numpy as np
import torch

SAME = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, enum.Enum, torch.dtype)
PLAIN = (bool, int, str, bytes, types.NoneType, torch.device, torch.layout, torch.memory_format)


class Unknown:
    """The form of what cannot be compared; equal to nothing."""


def form_of(obj: Any) -> Any:
    """What a context says, for comparison with another: equal forms make equal tensors."""
    cls = type(obj)
    if isinstance(obj, SAME):
        return id(obj), obj
    if cls in PLAIN:
        return cls, obj
    if cls is float or cls is complex:
        return cls, repr(obj)
    found: Any
    if cls in (list, torch.Size) or isinstance(obj, tuple):
        found = list(map(form_of, obj))
    elif cls is dict:
        found = [each for item in obj.items() for each in map(form_of, item)]
    elif dataclasses.is_dataclass(obj):
        found = [form_of(getattr(obj, field.name)) for field in dataclasses.fields(obj)]
    elif cls.__eq__ is not object.__eq__ and cls.__hash__ is not None and not isinstance(obj, torch.Tensor):
        return cls, obj  # which is as its class says
    else:
        return Unknown()
    return (
        found[-1]
        if found and type(found[-1]) is Unknown
        else next((each for each in found if type(each) is Unknown), (cls, found))
    )


def flattens_to(tensor: Any) -> Any:
    """What a tensor consists of, apart from the contents."""
    names, context = tensor.__tensor_flatten__()
    return list(names), form_of(context)


def accepts(tensor: Any, cls: Any, names: list[str], context: Any) -> bool:
    """Whether ``cls`` says that a tensor is made of the same as one with this context was."""
    found, other = tensor.__tensor_flatten__()
    return list(found) == names and bool(cls.__metadata_guard__(context, other))


def memory_of(array: np.ndarray) -> torch.Tensor:
    """A tensor over the memory of an array.

    Raises:
        TypeError: it is of a class derived from NumPy's, read-only, or of a dtype that torch does not have.
        ValueError: torch cannot describe its memory.
    """
    if type(array) is not np.ndarray:
        raise TypeError(f"{type(array).__name__} is not NumPy's own array")
    if not array.flags.writeable:
        raise TypeError("it is read-only")
    return torch.from_numpy(array)


# NumPy 2 has moved it
_byte_bounds = np.lib.array_utils.byte_bounds if hasattr(np.lib, "array_utils") else np.byte_bounds  # type: ignore[attr-defined]


def apart(array: np.ndarray, *others: Any) -> bool:
    """Whether no other array or tensor may share memory with ``array``."""
    begin, end = _byte_bounds(array)
    return not any(begin < last and first < end for first, last in map(_memory_bounds, others))


_OF_SEVERAL = frozenset(f"{name}Backward0" for name in ("Unbind", "Split", "SplitWithSizes"))  # views made together


def shows_leaf(tensor: torch.Tensor) -> bool:
    """Whether eager refuses to write to a tensor: a view of a leaf that requires a gradient or one of several views."""
    base = tensor._base
    if base is None or not tensor.requires_grad:
        return False
    return (base.is_leaf and base.requires_grad) or type(tensor.grad_fn).__name__ in _OF_SEVERAL


def _memory_bounds(obj: Any) -> tuple[int, int]:
    if isinstance(obj, np.ndarray):
        return _byte_bounds(obj)
    if isinstance(obj, torch.Tensor) and obj.layout is torch.strided and obj.device.type == "cpu":
        memory = obj.untyped_storage()
        return memory.data_ptr(), memory.data_ptr() + memory.nbytes()
    return 0, 0
