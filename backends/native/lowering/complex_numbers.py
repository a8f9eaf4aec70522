"""Numbers seen as others: operators on complex numbers, which are computed as pairs of real ones, and on bits.

A complex value has a node for each part (:func:`~..ir.operations.complex_of`), and its memory holds the parts in turn.
:data:`table` has the operators that are lowered: those below, and those of :data:`AS_REAL`, which only move elements,
or compute with what :mod:`..ir.operations` knows of complex numbers.  torch's kernels compute all others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node
from ..ir.index import Index
from ..ir.operations import Unsupported, binary, compare, complex_of, const, unary, where
from ..ir.values import Place, Value
from . import creation, indexing, joining, pointwise, registry, views  # noqa: F401  (they fill the registry's table)
from .reductions import divided, drop
from .registry import Context, Lowering, aten, combine, dims_of, elementwise, lowers
from .writes import is_write

table: dict[Any, Lowering] = {}
"""Lowerings of operators that take or make complex numbers."""

AS_REAL = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default, aten.transpose.int,
    aten.t.default, aten.expand.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.slice.Tensor, aten.narrow.default, aten.select.int, aten.split_with_sizes.default,
    aten.split.Tensor, aten.unbind.int, aten.alias.default, aten.detach.default, aten.clone.default,
    aten.lift_fresh_copy.default, aten.copy.default, aten.flip.default, aten.roll.default, aten.repeat.default,
    aten.diagonal.default, aten.unfold.default, aten.cat.default, aten.stack.default, aten.constant_pad_nd.default,
    aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default, aten.full.default,
    aten.full_like.default, aten.new_full.default, aten.scalar_tensor.default, aten.zeros.default,
    aten.zeros_like.default, aten.new_zeros.default, aten.ones.default, aten.ones_like.default, aten.new_ones.default,
    aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.fill.Scalar, aten.fill.Tensor, aten.tril.default, aten.triu.default, aten.index_select.default,
    aten.gather.default, aten.index.Tensor, aten.embedding.default, aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor,
    aten.div.Scalar, aten.neg.default, aten.where.self, aten.masked_fill.Scalar, aten.masked_fill.Tensor,
    aten._to_copy.default, torch.ops.prims.convert_element_type.default,
)  # fmt: skip


def has_complex(values: Sequence[Any]) -> bool:
    return any(isinstance(v, torch.Tensor) and v.dtype.is_complex for v in values)


def _lowers(*operators: Any) -> Callable[[Lowering], Lowering]:
    def register(function: Lowering) -> Lowering:
        table.update(dict.fromkeys(operators, function))
        return function

    return register


def _parts(x: Node) -> tuple[Node, Node]:
    real, imaginary = x.args
    return real, imaginary


# --- from and to real numbers -----------------------------------------------------------------------------------------


@_lowers(aten.view_as_real.default)
def _view_as_real(ctx: Context, a: Value) -> Value:
    real = a.dtype.to_real()
    place = a.place

    def element(at: Any) -> Node:
        *rest, which = at
        if place is not None:
            return ops.load(place.buffer, place.position(tuple(rest)) * 2 + which)
        x, y = _parts(a.at(tuple(rest)))
        return where(compare("eq", ops.from_index(which), const(0, torch.int64)), x, y)

    result = Value((*a.sizes, 2), real, element)
    if place is None and not all(map(_takes_a_part, ctx.node.users)):
        # Both parts of an element are computed together, and not each where it is needed.
        buffer = ctx.program.buffer(real, result.sizes)
        steps = buffer.strides
        for at in (0, 1):
            ctx.program.store(result.slice(a.rank, at, 1), buffer, steps, at)
        return ctx.program.stored(buffer)
    return result


def _takes_a_part(node: Any) -> bool:
    """Whether ``node`` takes the real parts, or the imaginary ones, of pairs."""
    if node.target is not aten.select.int:
        return False
    rank = node.args[0].meta["val"].dim()
    return bool(node.args[1] % rank == rank - 1)


@_lowers(aten.view_as_complex.default)
def _view_as_complex(ctx: Context, a: Value) -> Value:
    return Value(ctx.sizes(), ctx.dtype, lambda at: complex_of(a.at((*at, 0)), a.at((*at, 1))))


@_lowers(aten.complex.default)
def _complex(ctx: Context, real: Value, imaginary: Value) -> Value:
    return elementwise(ctx, complex_of, real, imaginary, compute=ctx.dtype.to_real())


@_lowers(aten.polar.default)
def _polar(ctx: Context, length: Value, angle: Value) -> Value:
    def element(r: Node, phi: Node) -> Node:
        return complex_of(binary("mul", r, unary("cos", phi)), binary("mul", r, unary("sin", phi)))

    return elementwise(ctx, element, length, angle, compute=ctx.dtype.to_real())


# --- functions --------------------------------------------------------------------------------------------------------


def _conjugate(x: Node) -> Node:
    real, imaginary = _parts(x)
    return complex_of(real, unary("neg", imaginary))


def conjugate(a: Value) -> Value:
    return Value(a.sizes, a.dtype, lambda at: _conjugate(a.at(at)))


def _abs(x: Node) -> Node:
    return binary("hypot", *_parts(x))


def _angle(x: Node) -> Node:
    real, imaginary = _parts(x)
    return binary("atan2", imaginary, real)


def _exp(x: Node) -> Node:
    real, imaginary = _parts(x)
    length = unary("exp", real)
    zero, infinity, undefined = (const(number, real.dtype) for number in (0, math.inf, math.nan))
    cosine = binary("mul", length, unary("cos", imaginary))
    sine = where(
        compare("eq", imaginary, zero), imaginary, binary("mul", length, unary("sin", imaginary))
    )  # infinity times zero is undefined
    # Far out, a direction that is undefined matters only where the length is not zero.
    has_none = compare("ne", binary("sub", imaginary, imaginary), zero)
    goes_on = binary("and", has_none, compare("eq", real, infinity))
    vanishes = binary("and", has_none, compare("eq", real, const(-math.inf, real.dtype)))
    cosine = where(goes_on, infinity, where(vanishes, zero, cosine))
    return complex_of(cosine, where(goes_on, undefined, where(vanishes, zero, sine)))


def _sgn(x: Node) -> Node:
    length = _abs(x)
    zero = const(0, length.dtype)
    is_zero = compare("eq", length, zero)
    return complex_of(*(where(is_zero, zero, binary("div", part, length)) for part in _parts(x)))


def _square(x: Node) -> Node:
    return binary("mul", x, x)


def _of_one(function: Callable[[Node], Node]) -> Lowering:
    def lower(ctx: Context, a: Any) -> Value:
        # A gradient may have the conjugate of a number of the program.
        return elementwise(ctx, function, a, compute=a.dtype if isinstance(a, Value) else ctx.dtype)

    return lower


for _op, _function in (
    (aten._conj.default, _conjugate),
    (aten._conj_physical.default, _conjugate),
    (aten.conj_physical.default, _conjugate),
    (aten.abs.default, _abs),
    (aten.exp.default, _exp),
    (aten.sgn.default, _sgn),
    (aten.square.default, _square),
):
    _lowers(_op)(_of_one(_function))


@_lowers(aten.angle.default)
def _angle_of(ctx: Context, a: Value) -> Value:
    if ctx.strides() != index.contiguous_strides(a.sizes):
        raise Unsupported("angles in another order of dimensions than the usual one, which torch traces incorrectly")
    return elementwise(ctx, _angle, a, compute=a.dtype)


def _sum_with(sign: int) -> Lowering:
    """Eager multiplies the second operand, also by one: the product of an infinite part and zero is undefined."""

    def lower(ctx: Context, a: Any, b: Any, alpha: Any = 1) -> Value:
        def element(x: Node, y: Node) -> Node:
            return binary("add", x, binary("mul", y, const(sign * alpha, y.dtype)))

        return elementwise(ctx, element, a, b)

    return lower


_lowers(aten.add.Tensor)(_sum_with(1))
_lowers(aten.sub.Tensor)(_sum_with(-1))


def _comparison(op: str) -> Lowering:
    def lower(ctx: Context, a: Any, b: Any) -> Value:
        return elementwise(ctx, functools.partial(compare, op), a, b, compute=ctx.promoted())

    return lower


for _name in ("eq", "ne"):
    _lowers(getattr(aten, _name).Tensor, getattr(aten, _name).Scalar)(_comparison(_name))


@_lowers(aten.pow.Tensor_Scalar)
def _power(ctx: Context, a: Value, exponent: Any) -> Value:
    if exponent != 2:
        raise Unsupported("powers of complex numbers, but for squares")
    return elementwise(ctx, _square, a)


# --- reductions -------------------------------------------------------------------------------------------------------


def _part_of(a: Value, which: int) -> Callable[[tuple[Index, ...]], Node]:
    return lambda at: a.at(at).args[which]


@_lowers(aten.sum.default, aten.sum.dim_IntList)
def _sum(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    chosen = dims_of(dims, a.rank)
    a = combine(a.sizes, ctx.dtype, lambda x: x, [a], ctx.dtype)
    if not chosen:
        return a
    ctx.keep(a)
    real = ctx.dtype.to_real()
    sums = []
    for part in (Value(a.sizes, real, _part_of(a, which)) for which in (0, 1)):
        sums.append(drop(ctx.program.reduce("sum", part, chosen, real, lambda node: node), chosen, keepdim))
    return Value(sums[0].sizes, ctx.dtype, lambda at: complex_of(*(total.at(at) for total in sums)))


@_lowers(aten.mean.default, aten.mean.dim)
def _mean(ctx: Context, a: Value, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    count: Index = index.product(a.sizes[d] for d in dims_of(dims, a.rank))
    return divided(_sum(ctx, a, dims, keepdim), count)


# --- memory seen as another dtype -------------------------------------------------------------------------------------

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_REFUSED = (torch.bool, torch.float16)  # what is no bool may be in a byte; bits of float16 exist in memory alone


@lowers(aten.view.dtype)
@_lowers(aten.view.dtype)
def _view_dtype(ctx: Context, a: Value, dtype: torch.dtype) -> Value:
    if dtype is a.dtype:
        return a
    if a.dtype.is_complex or dtype.is_complex:
        return _as_parts(ctx, a, dtype)
    found = shown(ctx, a, dtype)
    if found is not None:
        return found
    if a.dtype in _REFUSED or dtype in _REFUSED:
        raise Unsupported(f"{a.dtype} seen as {dtype}")
    if a.dtype.itemsize == dtype.itemsize:
        return Value(ctx.sizes(), dtype, lambda at: _from_bits(_bits(a.at(at), a.dtype), dtype))
    return _narrowed(ctx, a, dtype) if dtype.itemsize < a.dtype.itemsize else _widened(ctx, a, dtype)


def shown(ctx: Context, a: Value, dtype: torch.dtype) -> Value | None:
    """An input that the graph does not write to, as its memory is; None where it is computed with."""
    if a.place is None or dtype in _REFUSED:
        return None
    given, old, new = a.place.buffer, a.dtype.itemsize, dtype.itemsize
    steps = [a.place.offset, *a.place.strides[: a.rank - (old != new)]]
    if given not in ctx.program.inputs or any(map(is_write, ctx.node.graph.nodes)):
        return None
    if any(type(n) is not int or n * old % new for n in (given.numel, *steps)):
        return None
    offset, *strides = (n * old // new for n in steps)
    strides += [1] * (a.rank - len(strides))
    return Value(ctx.sizes(), dtype, None, Place(ctx.program.shown(given, dtype), tuple(strides), offset))


def _as_parts(ctx: Context, a: Value, dtype: torch.dtype) -> Value:
    if dtype is a.dtype.to_real() and a.dtype.is_complex:
        return _view_as_real(ctx, a).view(ctx.sizes())
    if dtype.is_complex and dtype.to_real() is a.dtype:
        return Value(
            ctx.sizes(),
            dtype,
            lambda at: complex_of(a.at((*at[:-1], at[-1] * 2)), a.at((*at[:-1], at[-1] * 2 + 1))),
        )
    raise Unsupported(f"{a.dtype} seen as {dtype}")


def _narrowed(ctx: Context, a: Value, dtype: torch.dtype) -> Value:
    """Parts of each element side by side, the lowest bits first."""
    ratio, width = a.dtype.itemsize // dtype.itemsize, 8 * dtype.itemsize
    ctx.keep(a)
    sizes = (*a.sizes, ratio)
    buffer = ctx.program.buffer(dtype, sizes)

    def part(which: int) -> Value:
        def element(at: Sequence[Index]) -> Node:
            bits = _bits(a.at(tuple(at[:-1])), a.dtype)
            return _from_bits(ops.cast(binary("shr", bits, const(which * width, bits.dtype)), _integer(dtype)), dtype)

        return Value((*a.sizes, 1), dtype, element)

    for which in range(ratio):
        ctx.program.store(part(which), buffer, buffer.strides, which)
    return ctx.program.stored(buffer).view(ctx.sizes())


def _widened(ctx: Context, a: Value, dtype: torch.dtype) -> Value:
    ratio, width = dtype.itemsize // a.dtype.itemsize, 8 * a.dtype.itemsize
    wide = _integer(dtype)
    ctx.keep(a)

    def element(at: Sequence[Index]) -> Node:
        whole = const(0, wide)
        for which in range(ratio):
            bits = ops.cast(_bits(a.at((*at[:-1], at[-1] * ratio + which)), a.dtype), wide)
            bits = binary("and", bits, const(2**width - 1, wide))
            whole = binary("or", whole, binary("shl", bits, const(which * width, wide)))
        return _from_bits(whole, dtype)

    return Value(ctx.sizes(), dtype, element)


def _integer(dtype: torch.dtype) -> torch.dtype:
    """The integers that have as many bits."""
    return _INTEGERS[dtype.itemsize]


def _bits(node: Node, dtype: torch.dtype) -> Node:
    """The bits of an element of ``dtype``."""
    if dtype is torch.bfloat16:
        stored = node.op == "load" and node.attr[0].dtype is dtype
        bits = ops.reinterpreted("bits", node if stored else ops.round_to(node, dtype), torch.int32)
        return ops.cast(binary("shr", bits, const(16, torch.int32)), torch.int16)
    if dtype.is_floating_point:
        return ops.reinterpreted("bits", node, _integer(dtype))
    return ops.cast(node, _integer(dtype))


def _from_bits(bits: Node, dtype: torch.dtype) -> Node:
    """The element of ``dtype`` that has these bits."""
    if dtype is torch.bfloat16:
        wide = binary("shl", ops.cast(bits, torch.int32), const(16, torch.int32))
        return ops.reinterpreted("number", wide, torch.float32)
    if dtype.is_floating_point:
        return ops.reinterpreted("number", bits, dtype)
    return ops.cast(bits, dtype)


table.update((op, registry.table[op]) for op in AS_REAL)
