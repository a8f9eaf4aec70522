"""Cumulative sums and products along a dimension."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import operations as ops
from ..ir.layout import ONCE_COST
from ..ir.operations import Unsupported
from ..ir.ordered_loops import Scan, loops
from ..ir.values import Place, Value
from .pointwise import converted
from .registry import Context, aten, lowers


def _cumulative(op: str) -> Any:
    def lower(ctx: Context, a: Value, dim: int, *, dtype: Any = None) -> Value:
        if ctx.dtype is torch.bool:
            raise Unsupported("running sums and products as bools, which torch refuses")
        a = converted(a, ctx.dtype)
        if a.rank == 0 or any(type(s) is int and s == 0 for s in a.sizes):
            return a
        dim %= a.rank
        variables = a.variables()
        along = loops(variables[dim : dim + 1])
        if not along:
            return a
        program = ctx.program
        buffer = program.buffer(ctx.dtype, a.sizes, ctx.strides())
        if a.at(variables).cost >= ONCE_COST:  # which loops compute in vectors, and a sum along rows does not
            program.realize(a)
        position = Place(buffer, buffer.strides, 0).position(variables)
        # As in eager, floating-point numbers are added up in float64.
        wide = torch.float64 if ctx.dtype.is_floating_point else ctx.dtype
        value = ops.cast(a.at(variables), wide)
        rows = loops([v for d, v in enumerate(variables) if d != dim])
        program.add(Scan(buffer, position, value, rows, along[0], op))
        return program.stored(buffer)

    return lower


lowers(aten.cumsum.default)(_cumulative("sum"))
lowers(aten.cumprod.default)(_cumulative("prod"))
