"""torchmux's own translations, for operators that TVM's PyTorch frontend translates incorrectly or slowly.

Its converters read only positional arguments (``add(x, y, alpha=2)`` loses the factor), convert scalars to the tensor's
dtype (``n * 0.5`` on integers loses the fraction), and express layer norm by a formula that cancels.  The translations
here take shapes and dtypes from torch's metadata of the node, never from TVM's inference.

A handler is called with the :class:`~.translate.Translator` and the node, and returns a Relax expression, or a list of
them for an operator with several results (None for unused results).
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node
from tvm import relax, te, tirx

_ATEN = torch.ops.aten

Handler = Callable[[Any, Node], Any]
HANDLERS: dict[Any, Handler] = {}


def _handles(*ops: Any) -> Callable[[Handler], Handler]:
    def note(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, handler))
        return handler

    return note


# --- the same elements, otherwise arranged ------------------------------------------------------------------------


@_handles(
    _ATEN.alias.default, _ATEN.clone.default, _ATEN.detach.default, _ATEN.lift_fresh_copy.default,
)  # fmt: skip
def _same(t: Any, node: Node) -> Any:
    return t.env[node.args[0]]


@_handles(
    _ATEN.view.default, _ATEN._unsafe_view.default, _ATEN.reshape.default, _ATEN.unsqueeze.default,
    _ATEN.squeeze.default, _ATEN.squeeze.dim, _ATEN.squeeze.dims, _ATEN._reshape_alias.default,
)  # fmt: skip
def _reshape(t: Any, node: Node) -> Any:
    return t.reshape(t.env[node.args[0]], t.shape(node))


@_handles(_ATEN.permute.default)
def _permute(t: Any, node: Node) -> Any:
    rank = node.meta["val"].dim()
    return t.emit(relax.op.permute_dims(t.env[node.args[0]], [d % rank for d in node.args[1]]))


@_handles(_ATEN.transpose.int, _ATEN.t.default)
def _transpose(t: Any, node: Node) -> Any:
    rank = node.meta["val"].dim()
    if rank < 2:
        return t.env[node.args[0]]
    first, second = (node.args[1] % rank, node.args[2] % rank) if len(node.args) > 1 else (0, 1)
    axes = list(range(rank))
    axes[first], axes[second] = second, first
    return t.emit(relax.op.permute_dims(t.env[node.args[0]], axes))


@_handles(_ATEN.expand.default)
def _expand(t: Any, node: Node) -> Any:
    return t.broadcast(t.env[node.args[0]], t.shape(node))


@_handles(_ATEN.slice.Tensor)
def _slice(t: Any, node: Node) -> Any:
    dim, start, stop, step = t.arguments(node)[1:]
    source, dim = node.args[0], dim % node.meta["val"].dim()
    size = t.shape(source)[dim]
    if isinstance(size, int) and not any(isinstance(v, Node) for v in (start, stop, step)):
        begin, end, step = slice(start, stop, step).indices(size)
    else:
        begin, end = _ends(t, node, dim, size, start, stop, step)
    return t.strided_slice(t.env[source], dim, begin, end, step)


def _ends(t: Any, node: Node, dim: int, size: Any, start: Any, stop: Any, step: Any) -> tuple[Any, Any]:
    """Where a slice begins and ends in a dimension, one of which depends on the call.

    It is not known here whether the bounds are within the dimension, but torch knows the length of the slice.
    """
    begin = 0 if start is None else t.position(start, size)
    end = size if stop is None or (isinstance(stop, int) and stop == sys.maxsize) else t.position(stop, size)
    if step != 1 or not t.is_equal(end - begin, t.shape(node)[dim]):
        raise TypeError("a slice whose bounds depend on the call")
    return begin, end


@_handles(_ATEN.select.int)
def _select(t: Any, node: Node) -> Any:
    source, dim, index = node.args
    shape = t.shape(source)
    at = t.position(index, shape[dim])
    taken = t.strided_slice(t.env[source], dim % len(shape), at, at + 1, 1)
    return t.reshape(taken, t.shape(node))


@_handles(_ATEN.split.Tensor, _ATEN.split_with_sizes.default, _ATEN.unbind.int)
def _split(t: Any, node: Node) -> Any:
    source = node.args[0]
    dim = (t.arguments(node)[-1]) % source.meta["val"].dim()
    results, begin = [], 0
    for value in node.meta["val"]:
        shape = [t.size(s) for s in value.shape]
        size = 1 if node.target is _ATEN.unbind.int else shape[dim]
        taken = t.strided_slice(t.env[source], dim, begin, begin + size, 1)
        results.append(t.reshape(taken, shape))
        begin += size
    return results


@_handles(_ATEN.cat.default)
def _cat(t: Any, node: Node) -> Any:
    # A tensor of shape (0,) may stand among others of any rank, and adds nothing.
    sources = [s for s in node.args[0] if all(type(n) is not int or n for n in s.meta["val"].shape)]
    dim = t.arguments(node)[1] % node.meta["val"].dim()
    parts = [t.cast(t.env[s], node.meta["val"].dtype) for s in sources]
    return parts[0] if len(parts) == 1 else t.emit(relax.op.concat(parts, axis=dim))


# --- dtypes and constants -----------------------------------------------------------------------------------------


@_handles(_ATEN.select_scatter.default)
def _select_scatter(t: Any, node: Node) -> Any:
    """Like ``cat``; spelled out by comparisons of positions, it would lose the strides of its input."""
    source, given, dim, index = t.arguments(node)
    shape = t.shape(source)
    dim %= len(shape)
    at, size = t.position(index, shape[dim]), shape[dim]
    if not isinstance(at, int) or not isinstance(size, int):
        raise TypeError("a position that depends on the call")
    x = t.env[source]
    pieces = [t.reshape(t.operand(given, node.meta["val"].dtype), [*shape[:dim], 1, *shape[dim + 1 :]])]
    if at > 0:
        pieces.insert(0, t.strided_slice(x, dim, 0, at, 1))
    if at + 1 < size:
        pieces.append(t.strided_slice(x, dim, at + 1, size, 1))
    return t.emit(relax.op.concat(pieces, axis=dim))


@_handles(_ATEN._to_copy.default)
def _to_copy(t: Any, node: Node) -> Any:
    return t.cast(t.env[node.args[0]], node.meta["val"].dtype)


@_handles(_ATEN.full.default, _ATEN.full_like.default, _ATEN.new_full.default)
def _full(t: Any, node: Node) -> Any:
    at = 2 if node.target is _ATEN.new_full.default else 1
    return t.full(node.args[at], node)


@_handles(_ATEN.scalar_tensor.default)
def _scalar_tensor(t: Any, node: Node) -> Any:
    return t.full(node.args[0], node)


@_handles(
    _ATEN.zeros.default, _ATEN.zeros_like.default, _ATEN.new_zeros.default,
)  # fmt: skip
def _zeros(t: Any, node: Node) -> Any:
    return t.full(0, node)


@_handles(_ATEN.ones.default, _ATEN.ones_like.default, _ATEN.new_ones.default)
def _ones(t: Any, node: Node) -> Any:
    return t.full(1, node)


@_handles(_ATEN.arange.start_step, _ATEN.arange.start, _ATEN.arange.default)
def _arange(t: Any, node: Node) -> Any:
    given = [t.number(a) for a in node.args]
    start, step = (0, 1) if len(given) == 1 else (given[0], given[2] if len(given) > 2 else 1)
    dtype = t.dtype(node)
    falls = isinstance(step, (int, float)) and step < 0
    step = -step if falls else step
    start, step = (tirx.const(v, dtype) if isinstance(v, (int, float)) else v.astype(dtype) for v in (start, step))
    # TVM drops a zero that is added, and zero times a negative number would be the result: -0.0.
    return t.compute(node, lambda i: start - i.astype(dtype) * step if falls else start + i.astype(dtype) * step)


# --- arithmetic with torch's type promotion -----------------------------------------------------------------------


def _binary(op: Callable[..., Any]) -> Handler:
    """An operator that computes in the dtype of its result, or, for a comparison, in the promoted one."""

    def handle(t: Any, node: Node) -> Any:
        left, right = node.args[:2]
        dtype = node.meta["val"].dtype
        if dtype is torch.bool:
            dtype = torch.result_type(t.value(left), t.value(right))
        alpha = node.kwargs.get("alpha", 1)
        a, b = t.operand(left, dtype), t.operand(right, dtype)
        if alpha != 1:
            b = t.emit(relax.op.multiply(b, t.scalar(alpha, dtype)))
        return t.emit(op(a, b))

    return handle


for _name, _op in {
    "add": relax.op.add,
    "sub": relax.op.subtract,
    "mul": relax.op.multiply,
    "lt": relax.op.less,
    "le": relax.op.less_equal,
    "gt": relax.op.greater,
    "ge": relax.op.greater_equal,
}.items():
    _packet = getattr(_ATEN, _name)
    _handles(_packet.Tensor, _packet.Scalar)(_binary(_op))
_handles(_ATEN.div.Tensor, _ATEN.div.Scalar)(_binary(relax.op.divide))


@_handles(_ATEN.eq.Tensor, _ATEN.eq.Scalar)
def _eq(t: Any, node: Node) -> Any:
    """TVM takes ``x == x`` for true, which is not so of nan."""
    if node.args[0] is node.args[1] and node.args[0].meta["val"].is_floating_point():
        return t.emit(relax.op.logical_not(t.emit(relax.op.isnan(t.env[node.args[0]]))))
    return _binary(relax.op.equal)(t, node)


@_handles(_ATEN.ne.Tensor, _ATEN.ne.Scalar)
def _ne(t: Any, node: Node) -> Any:
    """TVM's own is not true of nan, and neither is what it makes of ``not x == y``."""
    if node.args[0] is node.args[1] and node.args[0].meta["val"].is_floating_point():
        return t.emit(relax.op.isnan(t.env[node.args[0]]))
    equal = t.cast(_binary(relax.op.equal)(t, node), torch.int8)
    return t.cast(t.emit(relax.op.subtract(t.scalar(1, torch.int8), equal)), torch.bool)


def _extremum(t: Any, node: Node, beats: Callable[..., Any]) -> Any:
    """The larger or the smaller of two, or nan if one is: comparisons with nan are false, and a sum with it is nan."""

    def element(a: Any, b: Any) -> Any:
        return tirx.Select(tirx.any(beats(a, b), a.equal(b)), a, tirx.Select(beats(b, a), b, a + b))

    dtype = node.meta["val"].dtype
    return t.elementwise(node, element, *(t.operand(a, dtype) for a in node.args))


@_handles(_ATEN.maximum.default)
def _maximum(t: Any, node: Node) -> Any:
    return _extremum(t, node, operator.gt)


@_handles(_ATEN.minimum.default)
def _minimum(t: Any, node: Node) -> Any:
    return _extremum(t, node, operator.lt)


@_handles(_ATEN.relu.default)
def _relu(t: Any, node: Node) -> Any:
    return _clamped(t, t.env[node.args[0]], node, 0, None)


@_handles(_ATEN.clamp.default, _ATEN.clamp_min.default, _ATEN.clamp_max.default)
def _clamp(t: Any, node: Node) -> Any:
    given = t.arguments(node)
    if node.target is _ATEN.clamp_max.default:
        given = [given[0], None, given[1]]
    low, high = (*given[1:], None)[:2]
    return _clamped(t, t.operand(given[0], node.meta["val"].dtype), node, low, high)


@_handles(_ATEN.hardtanh.default)
def _hardtanh(t: Any, node: Node) -> Any:
    x, low, high = t.arguments(node)
    return _clamped(t, t.env[x], node, low, high)


def _clamped(t: Any, x: Any, node: Node, low: Any, high: Any) -> Any:
    """``x`` between two numbers, or nan if it is that."""

    def element(value: Any) -> Any:
        for limit, beyond in ((low, operator.lt), (high, operator.gt)):
            if limit is not None:
                bound = tirx.const(limit, t.dtype(node))
                value = tirx.Select(beyond(value, bound), bound, value)
        return value

    return t.elementwise(node, element, x)


@_handles(_ATEN.rsub.Scalar, _ATEN.rsub.Tensor)
def _rsub(t: Any, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    a, b = t.operand(node.args[0], dtype), t.operand(node.args[1], dtype)
    alpha = t.arguments(node)[2]
    if alpha != 1:
        a = t.emit(relax.op.multiply(a, t.scalar(alpha, dtype)))
    return t.emit(relax.op.subtract(b, a))


@_handles(_ATEN.pow.Tensor_Scalar)
def _pow(t: Any, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    x, exponent = t.operand(node.args[0], dtype), node.args[1]
    if exponent in (2, 3, 4):
        square = t.emit(relax.op.multiply(x, x))
        return square if exponent == 2 else t.emit(relax.op.multiply(square, x if exponent == 3 else square))
    if exponent == 1:
        return x
    if exponent in (0.5, -0.5):
        root = t.emit(relax.op.sqrt(x))
        return root if exponent > 0 else t.emit(relax.op.divide(t.scalar(1, dtype), root))
    return t.emit(relax.op.power(x, t.scalar(exponent, dtype)))


@_handles(_ATEN.where.self)
def _where(t: Any, node: Node) -> Any:
    condition, left, right = node.args
    dtype = node.meta["val"].dtype
    return t.elementwise(node, tirx.Select, t.env[condition], t.operand(left, dtype), t.operand(right, dtype))


@_handles(_ATEN.masked_fill.Scalar)
def _masked_fill(t: Any, node: Node) -> Any:
    """TVM's own translator fails where the number is infinite, as in masks of attention."""
    x, mask, number = node.args
    dtype = node.meta["val"].dtype
    return t.elementwise(node, tirx.Select, t.env[mask], t.operand(number, dtype), t.operand(x, dtype))


@_handles(_ATEN.logical_and.default, _ATEN.logical_or.default, _ATEN.logical_not.default)
def _logical(t: Any, node: Node) -> Any:
    given = [t.cast(t.env[a], torch.bool) for a in node.args]
    name = node.target.overloadpacket.__name__
    return t.emit(getattr(relax.op, name)(*given))


@_handles(_ATEN.reciprocal.default)
def _reciprocal(t: Any, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    return t.emit(relax.op.divide(t.scalar(1, dtype), t.operand(node.args[0], dtype)))


@_handles(_ATEN.rsqrt.default)
def _rsqrt(t: Any, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    return t.emit(relax.op.divide(t.scalar(1, dtype), t.emit(relax.op.sqrt(t.operand(node.args[0], dtype)))))


@_handles(_ATEN.gelu.default)
def _gelu(t: Any, node: Node) -> Any:
    dtype = node.meta["val"].dtype
    x = t.operand(node.args[0], dtype)
    c = lambda value: t.scalar(value, dtype)  # noqa: E731
    mul, add = (lambda a, b: t.emit(relax.op.multiply(a, b))), (lambda a, b: t.emit(relax.op.add(a, b)))
    if node.kwargs.get("approximate", "none") == "tanh":
        cubed = mul(mul(mul(x, x), x), c(0.044715))
        # 1 + tanh(u) has no digits where it is small, and is twice the sigmoid of 2 u.
        power = t.emit(relax.op.exp(mul(add(x, cubed), c(-2 * math.sqrt(2 / math.pi)))))
        return t.emit(relax.op.divide(x, add(power, c(1.0))))
    curve = t.emit(relax.op.erf(mul(x, c(math.sqrt(0.5)))))
    return mul(mul(x, c(0.5)), add(curve, c(1.0)))


# --- reductions and rows ------------------------------------------------------------------------------------------


# One running sum of so many numbers keeps digits enough; torch's sums are trees.
_MOST_TERMS = 256


def _reduction(op: Callable[..., Any]) -> Handler:
    def handle(t: Any, node: Node) -> Any:
        source = node.args[0]
        shape = list(source.meta["val"].shape)
        given = t.arguments(node)
        dims = given[1] if len(given) > 1 and not isinstance(given[1], torch.dtype) else None
        keep = bool(given[2]) if len(given) > 2 else False
        dims = [dims] if isinstance(dims, int) else dims
        x = t.operand(source, node.meta["val"].dtype)
        if not shape:  # torch calls the one element of a scalar dimension 0, or -1
            return x
        axes = sorted(d % len(shape) for d in dims) if dims else list(range(len(shape)))
        if node.meta["val"].is_floating_point() and not _is_short([shape[a] for a in axes]):
            x = _reduced_in_parts(t, x, axes, source, op)
        return t.emit(op(x, axis=axes, keepdims=keep))

    return handle


def _is_short(sizes: list[Any]) -> bool:
    return all(isinstance(s, int) for s in sizes) and math.prod(sizes) <= _MOST_TERMS


def _reduced_in_parts(t: Any, x: Any, axes: list[int], source: Node, op: Callable[..., Any]) -> Any:
    """``x`` with ``axes`` reduced, but for what one step more can do."""
    sizes = t.shape(source)
    for axis in axes:
        part = _part(sizes[axis]) if isinstance(sizes[axis], int) and sizes[axis] > _MOST_TERMS else 1
        if part > 1:
            sizes[axis] //= part
            x = t.reshape(x, [*sizes[: axis + 1], part, *sizes[axis + 1 :]])
            x = t.emit(op(x, axis=[axis + 1], keepdims=False))
    for axis in reversed(axes[1:]):
        x = t.emit(op(x, axis=[axis], keepdims=True))
    return x


def _part(terms: int) -> int:
    """The divisor of ``terms`` that comes closest to its root from below."""
    return next(d for d in range(math.isqrt(terms), 0, -1) if terms % d == 0)


_handles(_ATEN.sum.default, _ATEN.sum.dim_IntList)(_reduction(relax.op.sum))
_handles(_ATEN.mean.default, _ATEN.mean.dim)(_reduction(relax.op.mean))


@_handles(_ATEN.cumsum.default)
def _cumsum(t: Any, node: Node) -> Any:
    value = node.meta["val"]
    x = t.operand(node.args[0], value.dtype)
    return t.emit(relax.op.cumsum(x, axis=node.args[1] % value.dim(), dtype=t.dtype(node))) if value.dim() else x


@_handles(_ATEN._softmax.default, _ATEN.softmax.int)
def _softmax(t: Any, node: Node) -> Any:
    x = t.operand(node.args[0], node.meta["val"].dtype)
    return t.emit(relax.op.nn.softmax(x, node.args[1] % node.meta["val"].dim()))


@_handles(_ATEN._log_softmax.default, _ATEN.log_softmax.int)
def _log_softmax(t: Any, node: Node) -> Any:
    x = t.operand(node.args[0], node.meta["val"].dtype)
    return t.emit(relax.op.nn.log_softmax(x, node.args[1] % node.meta["val"].dim()))


@_handles(_ATEN.layer_norm.default, _ATEN.native_layer_norm.default)
def _layer_norm(t: Any, node: Node) -> Any:
    """The three results of ``native_layer_norm``, or the first of them: mean and deviation in two passes of a row."""
    source, normalized, weight, bias, eps = t.arguments(node)[:5]
    whole = node.target is _ATEN.layer_norm.default
    shape = t.shape(source)
    split = len(shape) - len(normalized)
    rows, row = shape[:split], shape[split:]
    columns = math.prod(row)
    if not isinstance(columns, int):
        columns = columns.astype(t.dtype(source))
    given = [t.env[v] for v in (source, weight, bias) if v is not None]

    def norm(x: Any, *affine: Any) -> Any:
        def axes(name: str) -> list[Any]:
            return [te.reduce_axis((0, extent), f"{name}{d}") for d, extent in enumerate(row)]

        k, again = axes("k"), axes("again")
        total = te.compute(rows, lambda *i: te.sum(x[(*i, *k)], axis=k), "total")
        mean = te.compute(rows, lambda *i: total[i] / columns, "mean")

        def square(*i: Any) -> Any:
            distance = x[(*i, *again)] - mean[i]
            return te.sum(distance * distance, axis=again)

        spread = te.compute(rows, square, "spread")
        scale = te.compute(rows, lambda *i: 1 / te.sqrt(spread[i] / columns + tirx.const(eps, x.dtype)), "scale")

        def element(*at: Any) -> Any:
            i, j = at[:split], at[split:]
            value = (x[at] - mean[i]) * scale[i]
            rest = list(affine)
            if weight is not None:
                value = value * rest.pop(0)[j]
            if bias is not None:
                value = value + rest.pop(0)[j]
            return value

        out = te.compute(shape, element, "out")
        return out if whole else [out, mean, scale]

    made = t.block_builder.emit_te(norm, *given, primfunc_name_hint="layer_norm")
    if whole:
        return made
    kept = [*rows, *(1 for _ in row)]
    results = [t.emit(relax.TupleGetItem(made, i)) for i in range(3)]
    return [results[0], t.reshape(results[1], kept), t.reshape(results[2], kept)]


@_handles(_ATEN._native_batch_norm_legit_no_training.default)
def _batch_norm(t: Any, node: Node) -> Any:
    source, weight, bias, mean, variance, _, eps = t.arguments(node)
    dtype = source.meta["val"].dtype
    shape = [1, -1] + [1] * (source.meta["val"].dim() - 2)
    shape[1] = source.meta["val"].shape[1]
    mul, add = (lambda a, b: t.emit(relax.op.multiply(a, b))), (lambda a, b: t.emit(relax.op.add(a, b)))
    deviation = t.emit(relax.op.sqrt(add(t.env[variance], t.scalar(eps, dtype))))
    scale = t.emit(relax.op.divide(t.scalar(1, dtype) if weight is None else t.env[weight], deviation))
    shift = t.emit(relax.op.negative(mul(t.env[mean], scale)))
    if bias is not None:
        shift = add(shift, t.env[bias])
    normalized = add(mul(t.env[source], t.reshape(scale, shape)), t.reshape(shift, shape))
    return [normalized, None, None]
