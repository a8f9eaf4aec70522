"""Reads at positions given by data: every index is checked, as torch does.

Positions in sorted sequences are found by halving, also as torch does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import faults
from ..ir import index, operations as ops
from ..ir.expressions import Node
from ..ir.index import Index
from ..ir.operations import Unsupported, binary, compare, const, unary, where
from ..ir.values import Value, broadcast
from . import calls
from .registry import Context, aten, lowers


def checked(node: Node, extent: Any, fault: str, dim: int = 0) -> index.Index:
    """An element of a tensor as an index, verified; ``fault`` names what is raised otherwise, of dimension ``dim``."""
    return index.data(ops.check(node, extent, wrap=fault in ("index", "flat"), fault=faults.number(fault, dim)))


def not_empty(a: Value) -> None:
    if any(type(s) is int and s == 0 for s in a.sizes):
        raise Unsupported("reading at data-dependent positions of a tensor without elements")


@lowers(aten.embedding.default)
def _embedding(ctx: Context, weight: Value, at: Value, *options: Any) -> Value:
    not_empty(weight)
    ctx.keep(weight)

    def element(i: Any) -> Node:
        row = checked(at.at(i[:-1]), weight.sizes[0], "row")
        return weight.at((row, i[-1]))

    return Value(ctx.sizes(), weight.dtype, element)


@lowers(aten.index_select.default)
def _index_select(ctx: Context, a: Value, dim: int, at: Value) -> Value:
    scalar = a.rank == 0
    a = a.unsqueeze(0) if scalar else a
    dim %= a.rank
    not_empty(a)
    ctx.keep(a)
    flat = at if at.rank else at.unsqueeze(0)
    if scalar:
        return Value((), a.dtype, lambda i: a.at((checked(flat.at((0,)), 1, "row"),)))

    def element(i: Any) -> Node:
        return a.at((*i[:dim], checked(flat.at((i[dim],)), a.sizes[dim], "slice" if dim else "row"), *i[dim + 1 :]))

    return Value(ctx.sizes(), a.dtype, element)


@lowers(aten.gather.default)
def _gather(ctx: Context, a: Value, dim: int, at: Value, *, sparse_grad: bool = False) -> Value:
    if a.rank == 0 or at.rank == 0:
        raise Unsupported("gather of a scalar")
    if a.rank != at.rank:  # torch takes indices of any shape that has no elements
        raise Unsupported("gather by indices of another rank")
    dim %= a.rank
    not_empty(a)
    ctx.keep(a)
    fault = faults.of_program(ctx.node) or "element"

    def element(i: Any) -> Node:
        return a.at((*i[:dim], checked(at.at(i), a.sizes[dim], fault, dim), *i[dim + 1 :]))

    return Value(ctx.sizes(), a.dtype, element)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(ctx: Context, a: Value, indices: Sequence[Any]) -> Value:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if any(i.dtype in (torch.bool, torch.uint8) for _, i in given):
        raise Unsupported("an index of bools, whose result has a size that depends on data")
    not_empty(a)
    ctx.keep(a)
    tensors = broadcast(*(i for _, i in given))
    rank = tensors[0].rank
    dims = [d for d, _ in given]
    # Indexed dimensions next to each other are replaced in place, others go to the front.
    fault = faults.of_program(ctx.node) or "index"
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [d for d in range(a.rank) if d not in dims]

    def element(i: Any) -> Node:
        shared = i[first : first + rank]
        plain = (*i[:first], *i[first + rank :])
        full: list[Any] = [0] * a.rank
        for d, at in zip(rest, plain, strict=True):
            full[d] = at
        for nth, (d, tensor) in enumerate(zip(dims, tensors, strict=True)):  # eager counts the indices
            full[d] = checked(tensor.at(shared), a.sizes[d], fault, nth)
        return a.at(tuple(full))

    return Value(ctx.sizes(), a.dtype, element)


_LONGEST = 2**24


def place_in_order(edges: Value, lead: tuple[Index, ...], value: Node, right: bool) -> Node:
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
        return ops.cast(place_in_order(edges, lead, values.at(at), right), ctx.dtype)

    return Value(values.sizes, ctx.dtype, element)


def _is_searched(edges: Value, values: Value) -> bool:
    """Whether both are of one type, whose comparisons are those of numbers, and the sequence is of a known length."""
    count = edges.sizes[-1] if edges.rank else 0
    return type(count) is int and 0 < count < _LONGEST and edges.dtype is values.dtype is not torch.bool


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
