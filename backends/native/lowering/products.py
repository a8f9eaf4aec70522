"""Matrix products: a call of the library for the product, loops for what is added to it."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import operations as ops
from ..ir.expressions import Buffer, Node
from ..ir.index import Index
from ..ir.operations import binary, const
from ..ir.program import Matrix, Product, TensorRef
from ..ir.values import Value
from ..targets.cpu.build import has_gemm
from ..targets.cpu.packing import PackedMatrix
from .registry import Context, aten, lowers

LEAST_ROWS = 8
"""Products with fewer rows read a weight once, which packing does not make faster."""


def matrix(value: Value) -> Matrix:
    place = value.place
    assert place is not None
    step = place.strides[0] if value.rank == 3 else 0
    return Matrix(place.buffer, place.offset, place.strides[-2], place.strides[-1], step)


def product(ctx: Context, left: Value, right: Value) -> Value:
    """``left @ right`` of matrices, or of as many matrices in each, in memory."""
    sizes: tuple[Index, ...] = (*left.sizes[:-1], right.sizes[-1])
    program = ctx.program
    if any(type(s) is int and s == 0 for s in (*sizes, left.sizes[-1])):
        return Value(sizes, left.dtype, lambda at: const(0, left.dtype))
    if left.dtype in (torch.float32, torch.float64) and has_gemm():
        left, right = program.as_matrix(left), program.as_matrix(right)
        buffer = program.buffer(left.dtype, sizes)
        batch = sizes[0] if len(sizes) == 3 else 1
        extents = left.sizes[-2], right.sizes[-1], left.sizes[-1]
        packed = _packed(ctx, left, right)
        program.add(Product(buffer, matrix(left), matrix(right), *extents, batch, packed))
        return program.stored(buffer)
    buffer = program.buffer(left.dtype, sizes)
    op = aten.bmm.default if len(sizes) == 3 else aten.mm.default
    refs = [TensorRef.of(program.realize(v)) for v in (left, right)]
    program.call(op, refs, {}, [buffer])
    return program.stored(buffer)


def _packed(ctx: Context, left: Value, right: Value) -> Buffer | None:
    """The right operand in packed form, if it is a frozen weight."""
    constant = ctx.program.frozen(right)
    if constant is None or right.rank != 2 or right.dtype is not torch.float32:
        return None
    place, source = right.place, left.place
    assert place is not None and source is not None
    sizes = (left.sizes[0], *right.sizes[::-1], place.offset, *place.strides)
    if any(type(s) is not int for s in sizes) or 1 not in place.strides:
        return None
    if left.sizes[0] < LEAST_ROWS or source.strides[1] != 1:  # type: ignore[operator]
        return None
    return ctx.program.pack(PackedMatrix(constant, *sizes))  # type: ignore[arg-type]


@lowers(aten.mm.default)
def _mm(ctx: Context, left: Value, right: Value) -> Value:
    return product(ctx, left, right)


@lowers(aten.bmm.default)
def _bmm(ctx: Context, left: Value, right: Value) -> Value:
    return product(ctx, left, right)


@lowers(aten.addmm.default, aten.baddbmm.default)
def _addmm(ctx: Context, bias: Value, left: Value, right: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    plain = product(ctx, left, right)
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


@lowers(aten.addbmm.default)
def _addbmm(ctx: Context, bias: Value, left: Value, right: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """The sum of the products is one product of matrices laid side by side."""
    batch, m, k = left.sizes
    wide = left.permute((1, 0, 2)).view((m, batch * k))
    return _addmm(ctx, bias, wide, right.view((batch * k, right.sizes[2])), beta=beta, alpha=alpha)
