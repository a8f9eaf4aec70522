"""Reductions over dimensions, and running sums and products along one."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.layout import ONCE_COST
from ..ir.operations import Unsupported, binary, compare, const, unary, where
from ..ir.ordered_loops import Scan, loops
from ..ir.program import Program
from ..ir.values import Place, Value, broadcast, scalar
from . import calls
from .pointwise import converted, power
from .registry import Context, aten, dims_of, lowers


def drop(value: Value, dims: list[int], keep: bool) -> Value:
    if not keep:
        for d in sorted(dims, reverse=True):
            value = value.squeeze(d)
    return value


def reduce(ctx: Context, kind: str, a: Value, dims: list[int], keep: bool, dtype: torch.dtype) -> Value:
    """``kind`` over ``dims`` of ``a`` converted to ``dtype``."""
    if dtype is torch.bool:  # asked for by name: sums and products of truth values
        kind = {"sum": "any", "prod": "all"}.get(kind, kind)
    if not dims:
        return Value(a.sizes, dtype, lambda at: ops.of_one(kind, ops.cast(a.at(at), dtype)))
    reduced = ctx.program.reduce(kind, a, dims, dtype, lambda node: ops.cast(node, dtype))
    return drop(reduced, dims, keep)


@lowers(aten.sum.default, aten.sum.dim_IntList)
def _sum(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return reduce(ctx, "sum", a, dims_of(dims, a.rank), keepdim, ctx.dtype)


@lowers(aten.prod.default)
def _prod_all(ctx: Context, a: Value, *, dtype: Any = None) -> Value:
    return reduce(ctx, "prod", a, dims_of(None, a.rank), False, ctx.dtype)


@lowers(aten.prod.dim_int)
def _prod(ctx: Context, a: Value, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return reduce(ctx, "prod", a, dims_of(dim, a.rank), keepdim, ctx.dtype)


def extent(a: Value, dims: list[int]) -> Any:
    return index.product(a.sizes[d] for d in dims)


def divided(a: Value, by: Any) -> Value:
    """``a / by`` for a number, at least as precisely as torch."""

    def element(at: Any) -> Node:
        node = a.at(at)
        return binary("div", node, const(by, node.dtype))

    return Value(a.sizes, a.dtype, element)


@lowers(aten.mean.default, aten.mean.dim)
def _mean(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    chosen = dims_of(dims, a.rank)
    total = reduce(ctx, "sum", a, chosen, keepdim, compute_type(ctx.dtype))
    return _as(divided(total, extent(a, chosen)), ctx.dtype)


def _as(value: Value, dtype: torch.dtype) -> Value:
    return Value(value.sizes, dtype, lambda at: ops.cast(value.at(at), dtype))


_NO_DIM = "Expected reduction dim to be specified for input.numel() == 0."
_WITH_DIM = "Specify the reduction dim with the 'dim' argument."


def _need_elements(ctx: Context, name: str, a: Value, dims: Any) -> None:
    """An extremum over nothing has no value: calls that would take one raise what eager raises."""
    for dim in [dims] if isinstance(dims, int) else dims:
        words = f"{name}(): Expected reduction dim {dim} to have non-zero size."
        ctx.program.need(a.sizes[dim] if a.rank else 1, "IndexError", words)


def _extremum(kind: str, name: str) -> Any:
    def lower(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False) -> Value:
        chosen = dims_of(dims, a.rank)
        if dims is None or dims == []:
            ctx.program.need(a.numel, "RuntimeError", f"{name}(): {_NO_DIM} {_WITH_DIM}")
        else:
            _need_elements(ctx, name, a, dims)
        if a.dtype is torch.bool:
            return reduce(ctx, "any" if kind == "max" else "all", a, chosen, keepdim, torch.bool)
        return reduce(ctx, kind, a, chosen, keepdim, a.dtype)

    return lower


lowers(aten.amax.default)(_extremum("max", "amax"))
lowers(aten.max.default)(_extremum("max", "max"))
lowers(aten.amin.default)(_extremum("min", "amin"))
lowers(aten.min.default)(_extremum("min", "min"))


def _as_number(node: Node) -> Node:
    return ops.cast(node, torch.int32) if node.dtype is torch.bool else node


def _with_index(kind: str) -> Any:
    def lower(ctx: Context, a: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        if a.rank == 0:
            return Value((), a.dtype, a.at), scalar(0, torch.int64)
        dims = dims_of(dim, a.rank)
        _need_elements(ctx, kind, a, dims)
        ctx.keep(a)
        if a.dtype is torch.bool:
            values = ctx.program.reduce("any" if kind == "max" else "all", a, dims, a.dtype, lambda node: node)
        else:
            values = ctx.program.reduce(kind, a, dims, a.dtype, lambda node: node)
        at = ctx.program.reduce(f"arg{kind}", a, dims, torch.int64, _as_number)
        return drop(values, dims, keepdim), drop(at, dims, keepdim)

    return lower


lowers(aten.max.dim)(_with_index("max"))
lowers(aten.min.dim)(_with_index("min"))


def _arg(kind: str) -> Any:
    def lower(ctx: Context, a: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if a.dtype is torch.bool:
            raise Unsupported("the position of an extremum among bools, which torch refuses")
        if a.rank == 0:
            return scalar(0, torch.int64)
        if dim is None:
            ctx.program.need(a.numel, "IndexError", f"{kind}(): {_NO_DIM}")
            flat = ctx.program.reduce(kind, a.view((a.numel,)), [0], torch.int64, _as_number)
            return flat.view(ctx.sizes())
        dims = dims_of(dim, a.rank)
        _need_elements(ctx, kind, a, dims)
        return drop(ctx.program.reduce(kind, a, dims, torch.int64, _as_number), dims, keepdim)

    return lower


lowers(aten.argmax.default)(_arg("argmax"))
lowers(aten.argmin.default)(_arg("argmin"))


def _logical(kind: str) -> Any:
    def lower(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False) -> Value:
        result = reduce(ctx, kind, a, dims_of(dims, a.rank), keepdim, torch.bool)
        return _as(result, ctx.dtype)  # torch answers uint8 for uint8

    return lower


lowers(aten.any.default, aten.any.dim, aten.any.dims)(_logical("any"))
lowers(aten.all.default, aten.all.dim, aten.all.dims)(_logical("all"))


# --- variance ---------------------------------------------------------------------------------------------------------


def moments(ctx: Context, a: Value, dims: list[int], correction: Any, wide: bool = False) -> tuple[Value, Value]:
    """Mean and variance over ``dims``, which stay, in the type that is computed in; in two passes over ``a``.

    A ``wide`` variance is one of float64, in which no square of a float32 overflows or vanishes.
    """
    ctx.keep(a)
    if not a.dtype.is_floating_point:  # an error of torch's kernels, which its traced ones do not have
        raise Unsupported(f"a variance of {a.dtype}")
    dtype = compute_type(a.dtype)
    count = extent(a, dims)
    mean = divided(ctx.program.reduce("sum", a, dims, dtype, lambda node: node), count)
    ctx.program.realize(mean)

    def squared(at: Any) -> Node:
        apart = ops.cast(binary("sub", a.at(at), mean.expand(a.sizes).at(at)), square)
        return binary("mul", apart, apart)

    square = torch.float64 if wide else dtype
    squares = ctx.program.reduce("sum", Value(a.sizes, square, squared), dims, square, lambda node: node)
    if type(count) is int and isinstance(correction, (int, float)):
        return mean, divided(squares, max(count - correction, 0.0))
    if not isinstance(correction, (int, float)) or correction != int(correction):
        raise Unsupported("a variance whose degrees of freedom are no whole number")

    def variance(at: Any) -> Node:
        node = squares.at(at)
        left = binary("sub", const(count, torch.int64), const(int(correction), torch.int64))
        return binary("div", node, ops.cast(binary("maximum", left, const(0, torch.int64)), node.dtype))

    return mean, Value(squares.sizes, squares.dtype, variance)


def _variance(root: bool, with_mean: bool) -> Any:
    def lower(
        ctx: Context, a: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False
    ) -> Value | tuple[Value, Value]:
        chosen = dims_of(dims, a.rank)
        if not chosen:
            raise Unsupported("the variance of a scalar")
        wide = ctx.program.forms.sums_squares_widely()
        mean, variance = moments(ctx, a, chosen, 1 if correction is None else correction, wide)
        dtype = a.dtype
        spread = Value(
            variance.sizes,
            dtype,
            lambda at: ops.cast(unary("sqrt", variance.at(at)) if root else variance.at(at), compute_type(dtype)),
        )
        spread = drop(spread, chosen, keepdim)
        return (spread, drop(_as(mean, dtype), chosen, keepdim)) if with_mean else spread

    return lower


lowers(aten.var.correction)(_variance(False, False))
lowers(aten.std.correction)(_variance(True, False))
lowers(aten.var_mean.correction)(_variance(False, True))
lowers(aten.std_mean.correction)(_variance(True, True))


# --- softmax ----------------------------------------------------------------------------------------------------------


def shifted(ctx: Context, a: Value, dims: list[int]) -> Value:
    """``a`` less its maximum over ``dims``, in the type that is computed in."""
    if not a.dtype.is_floating_point:  # which torch takes if there are none
        raise Unsupported(f"exponentials of {a.dtype}")
    ctx.keep(a)
    dtype = compute_type(a.dtype)
    most = ctx.program.reduce("max", a, dims, dtype, lambda node: node).expand(a.sizes)
    return Value(a.sizes, dtype, lambda at: binary("sub", a.at(at), most.at(at)))


def _less_itself(a: Value) -> Value:
    """Zero, or nan for what is not finite."""
    dtype = compute_type(a.dtype)
    return Value(a.sizes, dtype, lambda at: binary("sub", *[ops.cast(a.at(at), dtype)] * 2))


@lowers(aten._softmax.default)
def _softmax(ctx: Context, a: Value, dim: int, half_to_float: bool) -> Value:
    dims = dims_of(dim, a.rank)
    if not dims:  # one, or nan where the scalar is not finite
        apart = _less_itself(a)
        return Value(a.sizes, ctx.dtype, lambda at: ops.cast(unary("exp", apart.at(at)), ctx.dtype))
    apart = shifted(ctx, a, dims)
    powers = Value(a.sizes, apart.dtype, lambda at: unary("exp", apart.at(at)))
    ctx.program.realize(powers)
    total = ctx.program.reduce("sum", powers, dims, apart.dtype, lambda node: node).expand(a.sizes)

    def element(at: Any) -> Node:
        if compute_type(ctx.dtype) is ctx.dtype:
            return ops.cast(binary("div", powers.at(at), total.at(at)), ctx.dtype)
        # One division for the row: what this rounds in float32 is far below what half precision rounds.
        return binary("mul", powers.at(at), binary("div", const(1, apart.dtype), total.at(at)))

    return Value(a.sizes, ctx.dtype, element)


@lowers(aten._log_softmax.default)
def _log_softmax(ctx: Context, a: Value, dim: int, half_to_float: bool) -> Value:
    dims = dims_of(dim, a.rank)
    if not dims:
        return _as(_less_itself(a), ctx.dtype)
    apart = shifted(ctx, a, dims)
    total = ctx.program.reduce("sum", apart, dims, apart.dtype, lambda node: unary("exp", node))
    logarithm = Value(total.sizes, apart.dtype, lambda at: unary("log", total.at(at)))
    ctx.program.realize(logarithm)
    spread = logarithm.expand(a.sizes)
    return Value(a.sizes, ctx.dtype, lambda at: ops.cast(binary("sub", apart.at(at), spread.at(at)), ctx.dtype))


@lowers(aten._softmax_backward_data.default)
def _softmax_backward(ctx: Context, grad: Value, out: Value, dim: int, dtype: Any) -> Value:
    dims = dims_of(dim, out.rank)
    both = broadcast(grad, out)
    computed = compute_type(out.dtype)
    product = Value(out.sizes, computed, lambda at: binary("mul", *(ops.cast(v.at(at), computed) for v in both)))
    ctx.keep(product)
    total = ctx.program.reduce("sum", product, dims, computed, lambda node: node).expand(out.sizes)

    def element(at: Any) -> Node:
        y = ops.cast(out.at(at), computed)
        return ops.cast(binary("sub", product.at(at), binary("mul", y, total.at(at))), ctx.dtype)

    return Value(out.sizes, ctx.dtype, element)


@lowers(aten._log_softmax_backward_data.default)
def _log_softmax_backward(ctx: Context, grad: Value, out: Value, dim: int, dtype: Any) -> Value:
    dims = dims_of(dim, out.rank)
    computed = compute_type(out.dtype)
    ctx.keep(grad)
    total = ctx.program.reduce("sum", grad, dims, computed, lambda n: ops.cast(n, computed)).expand(out.sizes)

    def element(at: Any) -> Node:
        part = binary("mul", unary("exp", ops.cast(out.at(at), computed)), total.at(at))
        return ops.cast(binary("sub", ops.cast(grad.at(at), computed), part), ctx.dtype)

    return Value(out.sizes, ctx.dtype, element)


@lowers(aten.logsumexp.default)
def _logsumexp(ctx: Context, a: Value, dims: Any, keepdim: bool = False) -> Value:
    chosen = dims_of(dims, a.rank)
    if not chosen or not a.dtype.is_floating_point:
        raise Unsupported("logsumexp of a scalar or of integers")
    ctx.keep(a)
    dtype = compute_type(a.dtype)
    most = ctx.program.reduce("max", a, chosen, dtype, lambda node: node)

    def finite(at: Any) -> Node:
        node = most.at(at)
        return where(compare("eq", unary("abs", node), const(math.inf, dtype)), const(0, dtype), node)

    shift = Value(most.sizes, dtype, finite)
    spread = shift.expand(a.sizes)
    apart = Value(a.sizes, dtype, lambda at: unary("exp", binary("sub", a.at(at), spread.at(at))))
    total = ctx.program.reduce("sum", apart, chosen, dtype, lambda node: node)
    result = Value(total.sizes, ctx.dtype, lambda at: binary("add", unary("log", total.at(at)), shift.at(at)))
    return drop(result, chosen, keepdim)


@lowers(aten.linalg_vector_norm.default)
def _vector_norm(
    ctx: Context, a: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Value:
    chosen = dims_of(dims, a.rank)
    computed = compute_type(ctx.dtype)

    def fold(kind: str, element: Any) -> Value:
        return ctx.program.reduce(kind, a, chosen, computed, lambda n: element(unary("abs", ops.cast(n, computed))))

    if not isinstance(order, (int, float)):
        raise Unsupported("a norm whose order is symbolic")
    if not chosen or not ctx.dtype.is_floating_point:
        raise Unsupported("the norm of a scalar")
    if order != 0 and all(type(a.sizes[d]) is int and a.sizes[d] == 1 for d in chosen):
        # Of one number each: roots of powers would only round it.
        return drop(Value(a.sizes, ctx.dtype, lambda at: unary("abs", ops.cast(a.at(at), computed))), chosen, keepdim)
    if order < 0 or order == math.inf:
        for d in chosen:
            where_empty = (
                f"on the dimension {d}because this dimension is empty"
                if dims is not None
                else "on an empty tensor because"
            )
            words = f"linalg.vector_norm cannot compute the {order} norm {where_empty}"
            ctx.program.need(a.sizes[d], "RuntimeError", f"{words} and the operation does not have an identity")
    if order in (math.inf, -math.inf):
        result = fold("max" if order > 0 else "min", lambda n: n)
    elif order == 0:
        result = fold("sum", lambda n: ops.cast(compare("ne", n, const(0, computed)), computed))
    elif order == 1:
        result = fold("sum", lambda n: n)
    else:
        total = fold("sum", lambda n: power(n, order))
        result = Value(total.sizes, computed, lambda at: power(total.at(at), 1 / order))
    return _as(drop(result, chosen, keepdim), ctx.dtype)


# --- running sums and products ----------------------------------------------------------------------------------------


def running(program: Program, a: Value, dim: int, op: str, dtype: torch.dtype, strides: Any) -> Value:
    """What each element and those before it along ``dim`` come to, in memory; combined as ``dtype``."""
    variables = a.variables()
    (along,) = loops(variables[dim : dim + 1])
    buffer = program.buffer(a.dtype, a.sizes, strides)
    position = Place(buffer, buffer.strides, 0).position(variables)
    rows = loops([v for d, v in enumerate(variables) if d != dim])
    program.add(Scan(buffer, position, ops.cast(a.at(variables), dtype), rows, along, op))
    return program.stored(buffer)


def _cumulative(op: str) -> Any:
    def lower(ctx: Context, a: Value, dim: int, *, dtype: Any = None) -> Value:
        if ctx.dtype is torch.bool:
            raise Unsupported("running sums and products as bools, which torch refuses")
        a = converted(a, ctx.dtype)
        if a.rank == 0 or any(type(s) is int and s == 0 for s in a.sizes):
            return a
        dim %= a.rank
        if not loops(a.variables()[dim : dim + 1]):
            return Value(a.sizes, a.dtype, lambda at: ops.of_one(op, a.at(at)))
        if a.at(a.variables()).cost >= ONCE_COST:  # which loops compute in vectors, and a sum along rows does not
            ctx.program.realize(a)
        # As in eager, floating-point numbers are added up in float64.
        wide = torch.float64 if ctx.dtype.is_floating_point else ctx.dtype
        return running(ctx.program, a, dim, op, wide, ctx.strides())

    return lower


lowers(aten.cumsum.default)(_cumulative("sum"))
lowers(aten.cumprod.default)(_cumulative("prod"))


@lowers(aten.logcumsumexp.default)
def _log_of_running_sums(ctx: Context, a: Value, dim: int) -> Any:
    """On a CPU, torch's kernel: each of these functions waits for the one before."""
    known = all(type(s) is int and s != 0 for s in a.sizes)
    if ctx.val.device.type == "cpu" or not known or not a.rank or not a.dtype.is_floating_point:
        return calls.call(ctx, aten.logcumsumexp.default, (a, dim), {})
    dim %= a.rank
    if not loops(a.variables()[dim : dim + 1]):
        return a
    ctx.keep(a)
    return running(ctx.program, a, dim, "logsumexp", compute_type(a.dtype), ctx.strides())


def _extreme_so_far(packet: Any, op: str) -> Any:
    def lower(ctx: Context, a: Value, dim: int) -> Any:
        """The position is that of the last element which equals the extreme so far: the greatest of those positions."""
        values, positions = ctx.val
        computed = compute_type(a.dtype)
        known = all(type(s) is int and s != 0 for s in a.sizes)
        if not known or a.dtype is torch.bool or not a.rank:
            return calls.call(ctx, packet.default, (a, dim), {})
        dim %= a.rank
        on_cpu = values.device.type == "cpu"
        along_rows = on_cpu and dim == a.rank - 1 and any(n.args[1] == 1 for n in ctx.node.users)
        if along_rows and a.numel != a.sizes[dim]:  # two passes for two results are slower than torch's one
            return calls.call(ctx, packet.default, (a, dim), {})
        ctx.keep(a)
        if not loops(a.variables()[dim : dim + 1]):
            return a, Value(a.sizes, torch.int64, lambda _: const(0, torch.int64))
        best = running(ctx.program, a, dim, op, computed, ctx.strides(values))

        def position(at: Any) -> Node:
            x = ops.cast(a.at(at), computed)
            taken = compare("eq", x, ops.cast(best.at(at), computed))
            if ops.is_float(computed):
                taken = binary("or", taken, compare("ne", x, x))
            return ops.where(taken, ops.from_index(at[dim]), const(-1, torch.int64))

        taken = Value(a.sizes, torch.int64, position)
        extent = a.sizes[dim]
        counted = torch.int32 if type(extent) is int and extent < 2**31 else torch.int64
        return best, running(ctx.program, taken, dim, "max", counted, ctx.strides(positions))

    return lower


lowers(aten.cummax.default)(_extreme_so_far(aten.cummax, "max"))
lowers(aten.cummin.default)(_extreme_so_far(aten.cummin, "min"))
