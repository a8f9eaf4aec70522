"""Tensors made from numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..ir import operations as ops
from ..ir.expressions import Node
from ..ir.operations import Unsupported, binary, compare, const, where
from ..ir.values import Value, scalar
from . import calls
from .registry import Context, aten, lowers


@lowers(aten.full.default, aten.full_like.default, aten.new_full.default)
def _full(ctx: Context, first: Any, *rest: Any, **options: Any) -> Value:
    value = options.pop("fill_value", rest[-1] if rest else None)
    return scalar(value, ctx.dtype, ctx.sizes())


@lowers(aten.scalar_tensor.default)
def _scalar_tensor(ctx: Context, value: Any, **options: Any) -> Value:
    return scalar(value, ctx.dtype)


def _filled(number: int) -> Any:
    return lambda ctx, *args, **options: scalar(number, ctx.dtype, ctx.sizes())


lowers(aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default)(_filled(0))
lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)(_filled(1))
# Uninitialized memory may hold anything, so zeros are valid.
lowers(
    aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.new_empty_strided.default, aten.empty_permuted.default,
)(_filled(0))  # fmt: skip


@lowers(aten.fill.Scalar)
def _fill(ctx: Context, a: Value, value: Any) -> Value:
    return scalar(value, ctx.dtype, ctx.sizes())


@lowers(aten.fill.Tensor)
def _fill_tensor(ctx: Context, a: Value, value: Value) -> Value:
    return Value(ctx.sizes(), ctx.dtype, lambda at: ops.cast(value.at(()), ctx.dtype))


@lowers(aten.arange.start_step)
def _arange(ctx: Context, start: Any, end: Any, step: Any = 1, **options: Any) -> Value:
    dtype = ctx.dtype
    if dtype.is_floating_point and not (isinstance(start, (int, float)) and isinstance(step, (int, float))):
        raise Unsupported("arange of floating-point numbers with symbolic bounds")
    # torch computes floating-point numbers in double precision, which holds integers of this size, and rounds once.
    whole = not dtype.is_floating_point or (_is_whole(start, 2**52) and _is_whole(step, 2**20))
    if whole:
        start, step = (int(n) if isinstance(n, float) else n for n in (start, step))

    def element(at: Any) -> Node:
        if whole:
            return ops.from_index(at[0] * step + start, dtype)
        position = ops.from_index(at[0], torch.float64)
        wide = binary("mul", const(step, torch.float64), position)
        return ops.cast(binary("add", const(start, torch.float64), wide), dtype)

    return Value(ctx.sizes(), dtype, element)


def _is_whole(n: Any, limit: int) -> bool:
    """Whether a number is an integer below the limit; the negative zero is none."""
    if isinstance(n, float):
        return n.is_integer() and abs(n) < limit and (n != 0 or math.copysign(1, n) > 0)
    return type(n) is int and abs(n) < limit


def _frequencies(is_half: bool) -> Any:
    """Those of a Fourier transform, or the half that are not negative."""

    def lower(ctx: Context, n: Any, d: Any = 1.0, **options: Any) -> Any:
        is_known = type(n) is int and type(d) in (int, float) and n * d != 0
        if not is_known or ctx.dtype not in (torch.float32, torch.float64):
            return calls.call(ctx, ctx.node.target, (n, d), options)

        def element(at: Any) -> Node:
            nth = ops.from_index(at[0])
            if not is_half:
                nth = where(
                    compare("lt", nth, const((n + 1) // 2, nth.dtype)), nth, binary("sub", nth, const(n, nth.dtype))
                )
            return binary("mul", ops.cast(nth, ctx.dtype), const(1.0 / (n * d), ctx.dtype))

        return Value(ctx.sizes(), ctx.dtype, element)

    return lower


lowers(aten.fft_rfftfreq.default)(_frequencies(True))
lowers(aten.fft_fftfreq.default)(_frequencies(False))


@lowers(aten.eye.default, aten.eye.m)
def _eye(ctx: Context, *args: Any, **options: Any) -> Value:
    def element(at: Any) -> Node:
        on = compare("eq", ops.from_index(at[0]), ops.from_index(at[1]))
        return ops.cast(on, ctx.dtype)

    return Value(ctx.sizes(), ctx.dtype, element)


def _triangle(op: str) -> Any:
    def lower(ctx: Context, a: Value, diagonal: Any = 0) -> Value:
        def element(at: Any) -> Node:
            inside = compare(op, ops.from_index(at[-1] - at[-2]), ops.from_index(diagonal))
            node = a.at(at)
            return where(inside, node, const(0, node.dtype))

        return Value(a.sizes, a.dtype, element)

    return lower


lowers(aten.tril.default)(_triangle("le"))
lowers(aten.triu.default)(_triangle("ge"))
