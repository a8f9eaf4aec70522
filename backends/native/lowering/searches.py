"""Positions in sorted sequences, found by halving as torch does; each step is a read at a position that data gives."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node
from ..ir.index import Index
from ..ir.operations import binary, compare, const, unary, where
from ..ir.values import Value
from . import calls
from .registry import Context, aten, lowers

_MOST = 2**24


def position(edges: Value, lead: tuple[Index, ...], value: Node, right: bool) -> Node:
    """Where ``value`` belongs among the ``edges``: before equal ones, or after them.

    The steps are those of torch's loop, so that sequences that are not sorted give the same positions.
    """
    count = edges.sizes[-1]
    assert type(count) is int
    start, end = const(0, torch.int32), const(count, torch.int32)
    one, last = const(1, torch.int32), const(count - 1, torch.int32)
    for _ in range(count.bit_length()):
        middle = binary("shr", binary("add", start, end), one)
        at = index.data(ops.cast(binary("minimum", middle, last), torch.int64))
        edge = edges.at((*lead, at))
        before = unary("not", compare("gt" if right else "ge", edge, value))
        on = binary("and", compare("lt", start, end), before)
        start, end = where(on, binary("add", middle, const(1, torch.int32)), start), where(on, end, middle)
    return start


def _search(ctx: Context, edges: Value, values: Value, right: bool) -> Value:
    ctx.keep(edges)
    ctx.keep(values)

    def element(at: tuple[Index, ...]) -> Node:
        lead = at[:-1] if edges.rank > 1 else ()
        return ops.cast(position(edges, lead, values.at(at), right), ctx.dtype)

    return Value(values.sizes, ctx.dtype, element)


def _is_searched(edges: Value, values: Value) -> bool:
    """Whether both are of one type, whose comparisons are those of numbers, and the sequence is of a known length."""
    count = edges.sizes[-1] if edges.rank else 0
    return type(count) is int and 0 < count < _MOST and edges.dtype is values.dtype is not torch.bool


@lowers(aten.bucketize.Tensor)
def _bucketize(ctx: Context, a: Value, edges: Value, *, out_int32: bool = False, right: bool = False) -> Any:
    if not _is_searched(edges, a):
        return calls.call(ctx, aten.bucketize.Tensor, (a, edges), {"out_int32": out_int32, "right": right})
    return _search(ctx, edges, a, right)


@lowers(aten.searchsorted.Tensor)
def _searchsorted(
    ctx: Context,
    edges: Value,
    a: Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Any:
    if sorter is not None or not _is_searched(edges, a) or (edges.rank > 1 and edges.sizes[:-1] != a.sizes[:-1]):
        given = {"out_int32": out_int32, "right": right, "side": side, "sorter": sorter}
        return calls.call(ctx, aten.searchsorted.Tensor, (edges, a), given)
    return _search(ctx, edges, a, right or side == "right")
