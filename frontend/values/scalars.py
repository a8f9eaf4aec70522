"""Numbers read from tensors: symbols whose value depends on data, if this is enabled."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..breaks import TENSOR_TO_PYTHON, GraphBreak
from ..capture.attempts import NeedsShapeEnv
from .base import Value
from .constants import ConstValue
from .containers.sequences import ListValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer
    from .tensors import TensorValue

READS = frozenset({"item", "tolist", "__int__", "__float__", "__index__"})
_LONGEST_LIST = 1024


def read_number(tr: Tracer, tensor: TensorValue, name: str) -> Value:
    """``tensor.item()`` and its relatives."""
    if not tr.dims.scalars:
        raise GraphBreak(
            TENSOR_TO_PYTHON,
            f"Tensor.{name} on {tensor.describe()}; torchmux.config.capture_scalar_outputs = True captures it",
        )
    dtype = tensor.example.dtype
    if dtype.is_complex or (name == "__index__" and dtype.is_floating_point):
        raise GraphBreak(TENSOR_TO_PYTHON, f"Tensor.{name} on {tensor.describe()}")
    if not tr.symbolic:
        raise NeedsShapeEnv
    if name == "tolist":
        return _as_list(tr, tensor)
    if name == "__float__" and not dtype.is_floating_point:
        return _item(tr, tr.emit("call_method", "to", [tensor, ConstValue(torch.float64)], {}))
    if name in ("__int__", "__index__") and dtype is torch.bool:
        return _item(tr, tr.emit("call_method", "to", [tensor, ConstValue(torch.int64)], {}))
    number = _item(tr, tensor)
    if name == "__int__" and dtype.is_floating_point:
        return tr.emit("call_function", torch.sym_int, [number], {})
    return number


def _item(tr: Tracer, tensor: Value) -> Value:
    return tr.emit("call_method", "item", [tensor], {})


def _as_list(tr: Tracer, tensor: TensorValue) -> Value:
    if tensor.example.dim() == 0:
        return _item(tr, tensor)
    rows = tensor.unpack(tr)
    if len(rows) > _LONGEST_LIST:
        raise GraphBreak(
            TENSOR_TO_PYTHON, f"Tensor.tolist on {tensor.describe()}, which has more than {_LONGEST_LIST} items"
        )
    return ListValue([_as_list(tr, row) for row in rows])  # type: ignore[arg-type]
