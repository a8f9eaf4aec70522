"""Indexing a tensor with symbolic integers, or with integers in tensors.

Tensor's own indexing reads an integer's value and so turns it into a constant; ``select`` uses the symbol itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .base import Value
from .constants import ConstValue, SymValue
from .containers.sequences import SliceValue, TupleValue
from .scalars import read_number

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_READ_AS_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)  # others are masks, or errors
_ALL = SliceValue(ConstValue(None), ConstValue(None), ConstValue(None))


def select_symbolic(tr: Tracer, owner: Value, rank: int, key: Value) -> Value | None:
    """``owner[key]`` by ``select`` where the key has symbolic integers; None if that would not be the same."""
    parts = key.items(tr) if isinstance(key, TupleValue) else [key]
    if tr.dims.scalars and all(_is_basic(part) or _is_read(part) for part in parts):
        parts = [read_number(tr, part, "item") if _is_read(part) else part for part in parts]  # type: ignore[arg-type]
    if not any(map(_is_symbolic, parts)) or not all(map(_is_basic, parts)):
        return None
    consumed = sum(not _is_free(part) for part in parts)
    if consumed > rank or sum(map(_is_ellipsis, parts)) > 1:
        return None  # an error, which indexing itself raises
    dims, dim = [], 0
    for part in parts:
        if _is_symbolic(part):
            dims.append((dim, part))
        dim += rank - consumed if _is_ellipsis(part) else not _is_number(part)
    rest: list[Value] = [_ALL if _is_symbolic(part) else part for part in parts]
    if any(part is not _ALL for part in rest):
        owner = owner.getitem(tr, TupleValue(rest))
    for dim, index in reversed(dims):
        owner = tr.emit("call_function", torch.select, [owner, ConstValue(int(dim)), index], {})
    return owner


def arrays_as_tensors(tr: Tracer, key: Value) -> Value:
    """A key with NumPy's arrays of integers as the tensors that indexing makes of them."""
    from .arrays import AnyArray

    parts = key.items(tr) if isinstance(key, TupleValue) else [key]
    if not any(isinstance(part, AnyArray) for part in parts):
        return key

    def as_tensor(part: Value) -> Value:
        if not isinstance(part, AnyArray):
            return part
        array = part.in_graph(tr)
        if array.is_number or not array.tensor.example.dim() or array.tensor.example.dtype not in _READ_AS_INTEGERS:
            return part
        return tr.emit("call_method", "to", [array.tensor, ConstValue(torch.int64)], {})

    found = [as_tensor(part) for part in parts]
    return TupleValue(found) if isinstance(key, TupleValue) else found[0]


def depends_on_data(tr: Tracer, key: Value) -> bool:
    """Whether a key has an integer that only the data tells."""
    parts = key.items(tr) if isinstance(key, TupleValue) else [key]
    return any(_is_read(part) or (isinstance(part, SymValue) and tr.depends_on_data(part.sym)) for part in parts)


def _is_read(part: Value) -> bool:
    """Whether an index is a tensor that indexing reads as an integer."""
    example = getattr(part, "example", None)
    return isinstance(example, torch.Tensor) and example.dim() == 0 and example.dtype in _READ_AS_INTEGERS


def _is_symbolic(part: Value) -> bool:
    return isinstance(part, SymValue) and part.pytype() is int


def _is_number(part: Value) -> bool:
    return isinstance(part, ConstValue) and type(part.value) is int


def _is_ellipsis(part: Value) -> bool:
    return isinstance(part, ConstValue) and part.value is Ellipsis


def _is_free(part: Value) -> bool:
    """Whether an index consumes no dimension."""
    return _is_ellipsis(part) or (isinstance(part, ConstValue) and part.value is None)


def _is_basic(part: Value) -> bool:
    return _is_symbolic(part) or _is_number(part) or _is_free(part) or isinstance(part, SliceValue)
