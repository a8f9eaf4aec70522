"""Products of matrices and fused attention, as abstract operations on operands in memory; loops for what is added."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import followed_strides
from ..ir.operations import binary, const
from ..ir.products import Attention, ComputedProduct, Product, elements_of
from ..ir.program import Program, TensorRef
from ..ir.values import Value, in_place
from ..rewrites import attention_operator
from . import calls
from .calls import buffers_for, prepared
from .registry import KEEP_COST, Context, aten, lowers


def product(program: Program, left: Value, right: Value, *, exact: bool = False) -> Value:
    """``left @ right`` of matrices, or of as many matrices in each.

    Of operands in half precision, it is rounded as eager's is, unless more is added to it before that, which takes it
    as ``exact`` as it is.
    """
    sizes: tuple[Index, ...] = (*left.sizes[:-1], right.sizes[-1])
    if any(type(s) is int and s == 0 for s in (*sizes, left.sizes[-1])):
        return Value(sizes, left.dtype, lambda at: const(0, left.dtype))
    if (shared := _shared(left, right)) is not None:
        return product(program, *shared, exact=exact).view(sizes)
    if program.own_products and program.forms.computes_operand(left, right):
        return _computed(program, left, right, exact)
    if program.own_products and program.forms.is_thin(left, right):
        return _thin(program, left, right, exact)
    if program.own_products and (turned := _turned(program, left, right)) is not None:
        return _computed(program, *turned, exact).permute(_TURNED[left.rank])
    unit = program.forms.row_unit(left, right)
    if program.own_products and _is_half(left) and right.place is None:
        # What cannot be computed while it is read, as rows that a table names, can be read where the library would.
        _realize(program, right, unit)
        if program.forms.computes_operand(left, right):
            return _computed(program, left, right, exact)
    operands = _operand(program, left, unit), _operand(program, right, unit)
    buffer = program.buffer(left.dtype, sizes, _apart(sizes, index.contiguous_strides(sizes), unit))
    program.add(Product(buffer, *operands, unit=unit))
    return program.stored(buffer)


_TURNED = {2: (1, 0), 3: (0, 2, 1)}
"""The order of the dimensions of transposed matrices."""


def _turned(program: Program, left: Value, right: Value) -> tuple[Value, Value] | None:
    """A column of half precision as a row, times the transposed matrices, which are read as they lie; None if the
    library is to compute the product."""
    if not _is_half(left) or type(right.sizes[-1]) is not int or right.sizes[-1] != 1 or left.rank != right.rank:
        return None

    def computed() -> tuple[Value, Value] | None:
        found = right.permute(_TURNED[right.rank]), left.permute(_TURNED[left.rank])
        return found if program.forms.computes_operand(*found) else None

    turned = computed()
    if turned is None and left.place is None:
        program.realize(left)  # as the library asks for it too
        turned = computed()
    return turned


def _is_half(value: Value) -> bool:
    return compute_type(value.dtype) is not value.dtype


def _shared(left: Value, right: Value) -> tuple[Value, Value] | None:
    """Operands in which a right matrix that is repeated for several left ones stands once, and these are its rows.

    So the keys of a group of queries are read where they lie.  None if ``right`` does not repeat matrices.
    """
    if right.rank != 3 or right.place is not None:
        return None
    batch, k, n = right.sizes
    variables = right.variables()
    divisors = [
        atom.right
        for _, position in right.at(variables).loads
        if isinstance(position, index.Ix)
        for atom in position.atoms()
        if isinstance(atom, index.Div) and index.the_var(variables[0]) in index.free(atom.left)
    ]
    times = math.gcd(*(d for d in divisors if type(d) is int)) or batch
    if type(times) is not int or times == 1 or index.remainder(batch, times) != 0:
        return None
    groups = index.floordiv(batch, times)
    group, copy = index.var("g0", groups), index.var("c0", times)
    if index.the_var(copy) in right.at((group * times + copy, *variables[1:])).free:
        return None
    rows = left.view((groups, left.sizes[1] * times, k))
    if left.place is not None and rows.place is None and index.less(n, left.sizes[1]):
        return None  # the left matrices, which are larger, would be copied
    return rows, in_place(Value((groups, k, n), right.dtype, lambda at: right.at((at[0] * times, *at[1:]))))


def _thin(program: Program, left: Value, right: Value, exact: bool) -> Value:
    """The product of matrices of a few columns and rows, as a sum of what is multiplied."""
    *batch, m, k = left.sizes
    n = right.sizes[-1]
    for operand in (left, right):
        if operand.place is None and operand.at(operand.variables()).cost > KEEP_COST:
            program.realize(operand)
    dtype = compute_type(left.dtype)

    def factor(at: Any) -> Node:
        pair = left.at((*at[:-2], at[-1])), right.at((*at[:-3], at[-1], at[-2]))
        return binary("mul", *(ops.cast(each, dtype) for each in pair))

    sums = program.reduce("sum", Value((*batch, m, n, k), dtype, factor), [-1], dtype, lambda node: node)

    def element(at: Any) -> Node:
        total = sums.at((*at, 0))
        return total if exact or dtype is left.dtype else ops.round_to(total, left.dtype)

    return Value((*batch, m, n), left.dtype, element)


def _computed(program: Program, left: Value, right: Value, exact: bool) -> Value:
    """The product whose right operand is computed while it is read."""
    sizes = (*left.sizes[:-1], right.sizes[-1])
    buffer = program.buffer(torch.float32, sizes)
    program.add(ComputedProduct(buffer, TensorRef.of(_in_float32(program, left)), *elements_of(right)))
    sums = program.stored(buffer)
    if left.dtype is torch.float32:
        return sums
    return Value(sizes, left.dtype, lambda at: sums.at(at) if exact else ops.round_to(sums.at(at), left.dtype))


def _in_float32(program: Program, value: Value) -> Value:
    """``value`` in memory, in float32 and without gaps between the elements of a row."""
    usual = index.contiguous_strides(value.sizes)
    place = value.place
    if value.dtype is torch.float32:
        if place is None:
            return program.realize(value, usual)
        dense = type(place.strides[-1]) is int and place.strides[-1] == 1
        return value if dense else program.copy(value, usual)
    key = None if place is None else (place, value.sizes)
    found = program.exact.get(key)
    if found is None:
        found = program.realize(Value(value.sizes, torch.float32, value.at), usual)
        if key is not None:
            program.exact[key] = found
    return found


def _operand(program: Program, value: Value, unit: int) -> TensorRef:
    """``value`` in memory, in a form that the target takes."""
    if value.place is None:
        _realize(program, value, unit)
    elif unit > 1:
        value = _in_rows(program, value, unit)
    elif not program.forms.takes_matrix(value):
        value = program.copy(value)
    return TensorRef.of(value)


def _realize(program: Program, value: Value, unit: int) -> None:
    """``value`` in memory, in the layout that it asks for."""
    padded = program.forms.padded_strides(value) if program.padded else None
    usual = index.contiguous_strides(value.sizes)
    strides = followed_strides(value, innermost=2) or padded or usual
    program.realize(value, _apart(value.sizes, strides, unit))


def _apart(sizes: tuple[Index, ...], strides: tuple[Index, ...], unit: int) -> tuple[Index, ...]:
    """Strides of a matrix in the same order, whose rows, or columns, start at multiples of ``unit``."""
    if unit == 1:
        return strides
    inner = 1 if strides[1] == 1 else 0
    step = -(-int(sizes[inner]) // unit) * unit  # type: ignore[arg-type]
    return (step, 1) if inner else (1, step)


def _in_rows(program: Program, value: Value, unit: int) -> Value:
    """A matrix in memory, or a copy of it, whose rows, or columns, start at multiples of ``unit``.

    What is read as it is, and transposed, as for both gradients of a product, is copied once.
    """
    assert value.place is not None
    across, inner = value.place.strides if value.place.strides[1] == 1 else reversed(value.place.strides)
    if inner == 1 and all(type(i) is int and i % unit == 0 for i in (across, value.place.offset)):
        return value
    by_columns = value.place.strides[0] == 1
    upright = value.permute((1, 0)) if by_columns else value
    found = program.exact.get((upright.place, unit))
    if found is None:
        usual = index.contiguous_strides(upright.sizes)
        found = program.exact[upright.place, unit] = program.copy(upright, _apart(upright.sizes, usual, unit))
    return found.permute((1, 0)) if by_columns else found


@lowers(aten.mm.default)
def _mm(ctx: Context, left: Value, right: Value) -> Value:
    return product(ctx.program, left, right)


@lowers(aten.bmm.default)
def _bmm(ctx: Context, left: Value, right: Value) -> Value:
    return product(ctx.program, left, right)


@lowers(aten.addmm.default, aten.baddbmm.default)
def _addmm(ctx: Context, bias: Value, left: Value, right: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    if _is_rounded_once(ctx, bias, left, right, beta, alpha):
        op = aten.addmm.default if left.rank == 2 else aten.baddbmm.default
        return calls.call(ctx, op, (bias, left, right), {"beta": beta, "alpha": alpha})
    plain = product(ctx.program, left, right, exact=True)
    grown = bias.expand(plain.sizes) if beta != 0 else None

    def element(at: Any) -> Node:
        node = plain.at(at)
        if alpha != 1:
            node = binary("mul", node, const(alpha, node.dtype))
        if grown is not None:
            extra = ops.cast(grown.at(at), node.dtype)
            if beta != 1:
                extra = binary("mul", extra, const(beta, node.dtype))
            node = binary("add", node, extra)
        return node

    return Value(plain.sizes, ctx.dtype, element)


def _is_rounded_once(ctx: Context, bias: Value, left: Value, right: Value, beta: Any, alpha: Any) -> bool:
    """Whether only the library adds before it rounds.  Inputs as biases of columns are left to the target, which may do
    more."""
    program = ctx.program
    if not _is_half(left) or (program.own_products and program.forms.computes_operand(left, right)):
        return False
    is_bias = left.rank == 2 and _is_vector(bias)
    return beta != 0 and not (is_bias and beta == 1 and alpha == 1)


def _is_vector(bias: Value) -> bool:
    """Whether a bias is an input that lies as the library reads it, or what that is when it is rounded."""
    if bias.rank != 1:
        return False
    at = bias.variables()
    node = bias.at(at)
    if node.op == "round" and node.attr is bias.dtype:
        node = node.args[0]
    if node.op != "load" or node.args:
        return False
    buffer, position = node.attr
    return buffer.kind == "input" and len(buffer.sizes) == 1 and buffer.strides == (1,) and position is at[0]


@lowers(aten.addbmm.default)
def _addbmm(ctx: Context, bias: Value, left: Value, right: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """The sum of the products is one product of matrices laid side by side."""
    batch, m, k = left.sizes
    wide = left.permute((1, 0, 2)).view((m, batch * k))
    return _addmm(ctx, bias, wide, right.view((batch * k, right.sizes[2])), beta=beta, alpha=alpha)


@lowers(aten._weight_int8pack_mm.default)
def _int8_weight(ctx: Context, x: Value, weight: Value, scales: Value) -> Value:
    """``x @ (weight * scales).mT`` of a weight in int8 with a scale for each row."""
    turned = weight.permute((1, 0))
    converted = Value(turned.sizes, x.dtype, lambda at: ops.cast(turned.at(at), x.dtype))
    plain = product(ctx.program, x, converted, exact=True)
    return Value(ctx.sizes(), ctx.dtype, lambda at: binary("mul", plain.at(at), ops.cast(scales.at(at[-1:]), x.dtype)))


@lowers(attention_operator.ATTENTION)
def _attention(ctx: Context, *args: Any) -> tuple[Value, Value]:
    given = prepared(args, ctx)
    target, sums = buffers_for(ctx, attention_operator.ATTENTION, given, {})
    ctx.program.add(Attention(target, sums, *given))
    return ctx.program.stored(target), ctx.program.stored(sums)
