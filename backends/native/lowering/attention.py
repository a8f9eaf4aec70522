"""Attention that a rewrite has found, as an abstract operation."""

from __future__ import annotations

from typing import Any

from ..ir.products import Attention
from ..ir.values import Value
from ..rewrites import attention_operator
from .calls import buffers_for, prepared
from .registry import Context, lowers


@lowers(attention_operator.ATTENTION)
def _attention(ctx: Context, *args: Any) -> tuple[Value, Value]:
    given = prepared(args, ctx)
    target, sums = buffers_for(ctx, attention_operator.ATTENTION, given, {})
    ctx.program.add(Attention(target, sums, *given))
    return ctx.program.stored(target), ctx.program.stored(sums)
