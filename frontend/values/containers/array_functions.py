"""Functions of NumPy's that are functions of torch under other names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ...breaks import C_FUNCTION, GraphBreak
from ..arrays import (
    DTYPES,
    FUNCTIONS,
    METHODS,
    OF_COPIES,
    ArrayValue,
    apply_ufunc,
    dtype_of,
    in_graph,
    made,
    matmul,
    plain_array,
    to_dtype,
)
from ..base import Value
from ..constants import ConstValue
from ..tensors import TensorValue
from .sequences import TupleValue

if TYPE_CHECKING:
    from ...trace.tracer import Tracer


# --- reductions -------------------------------------------------------------------------------------------------------


def _reduction(name: str, result: Any = None, kinds: str = "bif", **fixed: Any) -> Any:
    """A function of an array, its axis and ``keepdims``; ``result`` is the dtype it computes in, by the array's."""

    def reduce(
        tr: Tracer, array: Value, axis: Value | None = None, *, keepdims: Value | None = None, ddof: Value | None = None
    ) -> Value:
        if not isinstance(array, ArrayValue) or array.dtype.kind not in kinds or not array.tensor.example.numel():
            raise GraphBreak(C_FUNCTION, f"numpy.{name} of {array.describe()}")
        dtype = result(array.dtype) if result is not None else array.dtype
        along = None if axis is None else axis.const(tr)
        keep = keepdims is not None and keepdims.truth(tr)
        dims = tuple(range(array.tensor.example.dim())) if along is None else along
        named: dict[str, Value] = {key: ConstValue(value) for key, value in fixed.items()}
        if ddof is not None:
            if "correction" not in named:
                raise GraphBreak(C_FUNCTION, f"numpy.{name} with ddof")
            named["correction"] = ddof
        if name in ("prod", "argmax", "argmin", "all", "any"):  # which torch computes along one dimension
            if (along is None and keep) or isinstance(along, tuple):
                raise GraphBreak(C_FUNCTION, f"numpy.{name} along several axes")
            dims = along
        if dims is not None:
            named.update(dim=tr.lift(dims), keepdim=ConstValue(keep))
        found = tr.emit("call_function", getattr(torch, name), [to_dtype(tr, array, dtype)], named)
        assert isinstance(found, TensorValue)
        return made(found)

    return reduce


def at_least_int64(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.int64) if dtype.kind in "bi" else dtype


def _as_float(dtype: np.dtype) -> np.dtype:
    return np.dtype(np.float64) if dtype.kind in "bi" else dtype


def _as_it_is(dtype: np.dtype) -> np.dtype:
    return dtype


_sum = _reduction("sum", at_least_int64)
_prod = _reduction("prod", at_least_int64)
_mean = _reduction("mean", _as_float)
_std = _reduction("std", _as_float, correction=0)
_var = _reduction("var", _as_float, correction=0)
_max = _reduction("amax")
_min = _reduction("amin")
_argmax = _reduction("argmax", kinds="if")
_argmin = _reduction("argmin", kinds="if")
_all = _reduction("all")
_any = _reduction("any")


# --- shapes -----------------------------------------------------------------------------------------------------------


def _reshape(tr: Tracer, array: Value, *shape: Value) -> Value:
    return made(tr.emit("call_method", "reshape", [plain_array(array, "reshape").tensor, *shape], {}), of_numbers=False)


def _transpose(tr: Tracer, array: Value, *axes: Value) -> Value:
    tensor = plain_array(array, "transpose").tensor
    given = [a for axis in axes for a in (axis.unpack(tr) if isinstance(axis, TupleValue) else [axis])]
    order = [a.const(tr) for a in given] or list(range(tensor.example.dim()))[::-1]
    return made(tr.emit("call_method", "permute", [tensor, tr.lift(tuple(order))], {}), of_numbers=False)


def _swapaxes(tr: Tracer, array: Value, first: Value, second: Value) -> Value:
    found = tr.emit("call_method", "transpose", [plain_array(array, "swapaxes").tensor, first, second], {})
    return made(found, of_numbers=False)


def _copy(tr: Tracer, array: Value) -> Value:
    return made(tr.emit("call_method", "clone", [plain_array(array, "copy").tensor], {}), of_numbers=False)


def _copy_in_rows(tr: Tracer, array: Value) -> Value:
    """The method's copy, which has C's order unless told otherwise; the function keeps the array's order."""
    flat = plain_array(array, "copy").tensor
    named: dict[str, Value] = {"memory_format": ConstValue(torch.contiguous_format)}
    return made(tr.emit("call_method", "clone", [flat], named), of_numbers=False)


def ravel(tr: Tracer, array: Value) -> Value:
    whole = plain_array(array, "ravel").tensor.example.is_contiguous()  # else NumPy copies, where torch may find a view
    return _reshape(tr, array if whole else _copy_in_rows(tr, array), ConstValue(-1))


def _flatten(tr: Tracer, array: Value) -> Value:
    return _copy_in_rows(tr, ravel(tr, array))


def _astype(tr: Tracer, array: Value, dtype: Value) -> Value:
    wanted = dtype_of(tr, dtype)
    given = plain_array(array, "astype")
    if given.dtype.kind == "f" and wanted.kind != "f" and wanted.kind != "b":
        raise GraphBreak(C_FUNCTION, "numpy.ndarray.astype from floats to integers")  # of which not all fit
    named: dict[str, Value] = {"copy": ConstValue(True)}
    return made(tr.emit("call_method", "to", [given.tensor, ConstValue(DTYPES[wanted])], named), of_numbers=False)


def _expand_dims(tr: Tracer, array: Value, axis: Value) -> Value:
    return made(
        tr.emit("call_method", "unsqueeze", [plain_array(array, "expand_dims").tensor, axis], {}),
        of_numbers=False,
    )


def _joined(function: Any) -> Any:
    def join(tr: Tracer, parts_: Value, axis: Value | None = None) -> Value:
        parts = [plain_array(in_graph(tr, part), function.__name__) for part in parts_.unpack(tr)]
        dtype = np.result_type(*(part.dtype for part in parts))
        if dtype not in DTYPES:
            raise GraphBreak(C_FUNCTION, f"numpy arrays of several dtypes in {function.__name__}")
        if not all(part.tensor.example.is_contiguous() for part in parts):  # the result's order depends on theirs
            raise GraphBreak(C_FUNCTION, f"numpy arrays with other than C's order in {function.__name__}")
        tensors = TupleValue([to_dtype(tr, part, dtype) for part in parts])
        return made(tr.emit("call_function", function, [tensors, axis or ConstValue(0)], {}), of_numbers=False)

    return join


def _where(tr: Tracer, condition: Value, left: Value, right: Value) -> Value:
    tensor = plain_array(condition, "where").tensor
    given = [side.dtype if isinstance(side, ArrayValue) else side.const(tr) for side in (left, right)]
    dtype = np.result_type(*given)
    if dtype not in given or tensor.example.dtype is not torch.bool:
        raise GraphBreak(C_FUNCTION, "numpy.where of several dtypes")
    sides = [to_dtype(tr, side, dtype) for side in (left, right)]
    return made(tr.emit("call_function", torch.where, [tensor, *sides], {}), of_numbers=False)


def _stacked(of_rows: Any, axis: int) -> Any:
    """``numpy.vstack`` or ``hstack``: a function of arrays of one dimension, and the axis along which others join."""

    def stack(tr: Tracer, parts_: Value) -> Value:
        parts = [plain_array(in_graph(tr, part), "vstack or hstack") for part in parts_.unpack(tr)]
        dims = {part.tensor.example.dim() for part in parts}
        if len(dims) != 1 or 0 in dims:
            raise GraphBreak(C_FUNCTION, "numpy.vstack or hstack of arrays of several dimensions, or of none")
        join = _joined(of_rows) if dims == {1} else _joined(torch.cat)
        return join(tr, TupleValue(list(parts)), ConstValue(0 if dims == {1} else axis))

    return stack


def _triangle(function: Any) -> Any:
    def triangle(tr: Tracer, array: Value, k: Value | None = None) -> Value:
        given = plain_array(array, function.__name__)
        if given.tensor.example.dim() < 2 or not given.tensor.example.is_contiguous():
            raise GraphBreak(C_FUNCTION, f"numpy.{function.__name__} of {array.describe()}")
        return direct(function, "biuf")(tr, given, k or ConstValue(0))

    return triangle


def _like(value: int) -> Any:
    def like(tr: Tracer, array: Value) -> Value:
        function = torch.ones_like if value else torch.zeros_like
        return made(tr.emit("call_function", function, [plain_array(array, "zeros_like").tensor], {}), of_numbers=False)

    return like


def clip(tr: Tracer, array: Value, low: Value, high: Value) -> Value:
    return apply_ufunc(tr, np.minimum, [apply_ufunc(tr, np.maximum, [plain_array(array, "clip"), low]), high])


def direct(function: Any, kinds: str = "bif") -> Any:
    """A function of an array, and of constants that mean the same to torch."""

    def call(tr: Tracer, array: Value, *args: Value, axis: Value | None = None) -> Value:
        given = plain_array(array, function.__name__)
        if given.dtype.kind not in kinds or not all(value.is_const() for value in args):
            raise GraphBreak(C_FUNCTION, f"numpy.{function.__name__} of {array.describe()}")
        named: dict[str, Value] = {} if axis is None else {"dims" if function is torch.roll else "dim": axis}
        return made(tr.emit("call_function", function, [given.tensor, *args], named), of_numbers=False)

    return call


def tile(tr: Tracer, array: Value, reps: Value) -> Value:
    count = reps.const(tr)
    return direct(torch.tile)(tr, array, tr.lift((count,) if type(count) is int else count))


def round_(tr: Tracer, array: Value, decimals: Value | None = None) -> Value:
    given = plain_array(array, "round")
    if given.dtype.kind != "f":
        raise GraphBreak(C_FUNCTION, f"numpy.round of {array.describe()}")
    named: dict[str, Value] = {} if decimals is None else {"decimals": ConstValue(decimals.const(tr))}
    return made(tr.emit("call_function", torch.round, [given.tensor], named), of_numbers=False)


def outer(tr: Tracer, left: Value, right: Value) -> Value:
    a, b = plain_array(left, "outer"), plain_array(right, "outer")
    if a.dtype != b.dtype or a.tensor.example.dim() != 1 or b.tensor.example.dim() != 1:
        raise GraphBreak(C_FUNCTION, f"numpy.outer of {left.describe()} and {right.describe()}")
    return made(tr.emit("call_function", torch.outer, [a.tensor, b.tensor], {}), of_numbers=False)


def _cumulative(function: Any) -> Any:
    def cumulate(tr: Tracer, array: Value, axis: Value | None = None) -> Value:
        given = plain_array(array, function.__name__)
        if given.dtype.kind == "f" and given.dtype != np.float64:
            raise GraphBreak(C_FUNCTION, f"numpy.{function.__name__} of {given.dtype}")  # where torch takes float64
        along = given if axis is not None and axis.const(tr) is not None else plain_array(ravel(tr, given), "ravel")
        tensor = to_dtype(tr, along, at_least_int64(given.dtype))
        dim = axis if along is given and axis is not None else ConstValue(0)
        return made(tr.emit("call_function", function, [tensor, dim], {}), of_numbers=False)

    return cumulate


def _average(tr: Tracer, array: Value, axis: Value | None = None) -> Value:
    return _mean(tr, array, axis)


def _append(tr: Tracer, array: Value, values: Value, axis: Value | None = None) -> Value:
    parts: list[Value] = [plain_array(part, "append") for part in (array, values)]
    if axis is None or axis.const(tr) is None:
        return _joined(torch.cat)(tr, TupleValue([ravel(tr, part) for part in parts]))
    return _joined(torch.cat)(tr, TupleValue(parts), axis)


def _full_like(tr: Tracer, array: Value, fill_value: Value) -> Value:
    given = plain_array(array, "full_like")
    if not fill_value.is_const() or not np.can_cast(np.min_scalar_type(fill_value.const(tr)), given.dtype, "safe"):
        raise GraphBreak(C_FUNCTION, f"numpy.full_like of {array.describe()} and {fill_value.describe()}")
    return made(tr.emit("call_function", torch.full_like, [given.tensor, fill_value], {}), of_numbers=False)


_cumsum, _cumprod = _cumulative(torch.cumsum), _cumulative(torch.cumprod)
_repeat = direct(torch.repeat_interleave)

METHODS.update(
    {
    "sum": _sum, "prod": _prod, "mean": _mean, "std": _std, "var": _var, "max": _max, "min": _min, "argmax": _argmax,
    "argmin": _argmin, "all": _all, "any": _any, "reshape": _reshape, "transpose": _transpose, "swapaxes": _swapaxes,
    "copy": _copy_in_rows, "ravel": ravel, "flatten": _flatten, "astype": _astype,
    "clip": clip, "cumsum": _cumsum, "cumprod": _cumprod, "round": round_, "repeat": _repeat,
    "squeeze": direct(torch.squeeze), "dot": matmul,
    }
)  # fmt: skip

FUNCTIONS.update(
    {
    np.sum: _sum, np.prod: _prod, np.mean: _mean, np.std: _std, np.var: _var, np.max: _max, np.min: _min,
    np.amax: _max, np.amin: _min, np.argmax: _argmax, np.argmin: _argmin, np.all: _all, np.any: _any,
    np.reshape: _reshape, np.transpose: _transpose, np.swapaxes: _swapaxes, np.copy: _copy, np.ravel: ravel,
    np.expand_dims: _expand_dims, np.concatenate: _joined(torch.cat), np.stack: _joined(torch.stack),
    np.where: _where, np.dot: matmul, np.zeros_like: _like(0), np.ones_like: _like(1),
    np.clip: clip, np.cumsum: _cumsum, np.cumprod: _cumprod, np.average: _average, np.append: _append,
    np.full_like: _full_like, np.round: round_, np.around: round_, np.outer: outer, np.tile: tile,
    np.repeat: _repeat, np.roll: direct(torch.roll), np.diff: direct(torch.diff, "if"),
    np.squeeze: direct(torch.squeeze), np.moveaxis: direct(torch.moveaxis),
    np.tril: _triangle(torch.tril), np.triu: _triangle(torch.triu),
    np.vstack: _stacked(torch.stack, 0), np.hstack: _stacked(torch.cat, 1),
    }
)  # fmt: skip

_SHARING = (_reshape, _transpose, _swapaxes, ravel, _expand_dims, METHODS["squeeze"], FUNCTIONS[np.squeeze],
            FUNCTIONS[np.moveaxis])  # fmt: skip
OF_COPIES.update({*METHODS.values(), *FUNCTIONS.values()} - set(_SHARING))
