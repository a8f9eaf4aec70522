"""Functions of statistics whose C code asks for data that the usual call does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..polyfills import statistics_
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.functions import wrap_function
from ..values.tensors import TensorValue
from .table import handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer


def _written(function: Any, written: Any, names: frozenset[str] = frozenset()) -> None:
    """``function`` is traced as what is ``written``, where that computes the same; else it is torch's, as it stands."""

    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        if names.issuperset(kwargs) and _is_usual(*args, **kwargs):
            return wrap_function(tr, written, None).call(tr, list(args), kwargs)
        return tr.emit("call_function", function, list(args), kwargs)

    handles(function)(answer)


def _is_usual(tensor: Value, *rest: Value, correction: Value | None = None) -> bool:
    """Whether these are real numbers of which torch has such statistics, and enough of them to say nothing."""
    taken = 1 if correction is None else correction.value if isinstance(correction, ConstValue) else None
    if rest or type(taken) is not int or not isinstance(tensor, TensorValue):
        return False
    example = tensor.example
    if tensor.cls not in (torch.Tensor, torch.nn.Parameter) or not example.is_floating_point() or example.dim() > 2:
        return False
    count = example.shape[-1] if example.dim() else 1
    return bool(count > max(taken, 0))


_written(torch.cov, statistics_.cov, frozenset({"correction"}))
_written(torch.corrcoef, statistics_.corrcoef)
