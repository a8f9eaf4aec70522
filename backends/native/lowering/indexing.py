"""Reads at positions given by data: every index is checked, as torch does."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from .. import faults
from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.operations import Unsupported, binary, compare, const, where
from ..ir.values import Value, broadcast, scalar
from . import calls
from .reductions import divided, drop, reduce
from .registry import Context, aten, lowers


def checked(node: Node, extent: Any, fault: str, dim: int = 0) -> index.Index:
    """An element of a tensor as an index, verified; ``fault`` names what is raised otherwise, of dimension ``dim``."""
    return index.data(ops.check(node, extent, wrap=fault in ("index", "flat"), fault=faults.number(fault, dim)))


def _not_empty(a: Value) -> None:
    if any(type(s) is int and s == 0 for s in a.sizes):
        raise Unsupported("reading at data-dependent positions of a tensor without elements")


@lowers(aten.embedding.default)
def _embedding(ctx: Context, weight: Value, at: Value, *options: Any) -> Value:
    _not_empty(weight)
    ctx.keep(weight)

    def element(i: Any) -> Node:
        row = checked(at.at(i[:-1]), weight.sizes[0], "row")
        return weight.at((row, i[-1]))

    return Value(ctx.sizes(), weight.dtype, element)


@lowers(aten._embedding_bag_forward_only.default, aten._embedding_bag.default)
def _embedding_bag(ctx: Context, weight: Value, at: Value, offsets: Value, *options: Any, **named: Any) -> Any:
    """Bags of one size, as rows of a matrix of indices are: their sum, mean or maximum; torch takes the others."""
    given: list[Any] = [*options, *[False, 0, False, None, False, -1][len(options) :]]
    _, mode, _, weights, last, padding = given
    length = _bag_length(offsets, at)
    alone = all(user.target is operator.getitem and user.args[1] == 0 for user in ctx.node.users)
    differentiable = alone or (padding == -1 and ctx.program.device.type == "cpu")
    plain = not last and not named and (mode == 0 or (weights is None and padding == -1))
    if length is None or not differentiable or not plain or not weight.dtype.is_floating_point:
        return calls.call(ctx, ctx.node.target, (weight, at, offsets, *options), named)
    _not_empty(weight)
    ctx.keep(weight)

    def element(i: Any) -> Node:
        nth = (i[0] * length + i[1],)
        row = checked(at.at(nth), weight.sizes[0], "bag")
        found = weight.at((row, i[2]))
        if weights is not None:
            found = binary("mul", found, ops.cast(weights.at(nth), found.dtype))
        if padding < 0:
            return found
        left_out = compare("eq", ops.from_index(row), const(padding, torch.int64))
        return where(left_out, const(0, found.dtype), found)

    def compared(i: Any) -> Node:
        """Nothing is larger than a nan, and a nan is larger than nothing: one counts if it comes first."""
        found = ops.cast(element(i), compute_type(weight.dtype))
        later = binary("and", compare("ne", found, found), compare("ne", ops.from_index(i[1]), const(0, torch.int64)))
        return where(later, const(-math.inf, found.dtype), found)

    # What gradients need: how large bags are, and which index has the maximum.  Offsets tell an element's bag.
    told: list[Any] = [None] * 3 if alone else [scalar(length, torch.int64, ctx.sizes(fake)) for fake in ctx.val[1:]]
    bags = Value((offsets.sizes[0], length, weight.sizes[1]), weight.dtype, compared if mode == 2 else element)
    if mode == 2:
        if not alone:
            nth_of = drop(ctx.program.reduce("argmax", bags, [1], torch.int64, lambda node: node), [1], False)
            told[2] = Value(nth_of.sizes, torch.int64, lambda i: at.at((i[0] * length + index.data(nth_of.at(i)),)))
        return (reduce(ctx, "max", bags, [1], False, weight.dtype), *told)
    total = reduce(ctx, "sum", bags, [1], False, compute_type(weight.dtype))
    found = divided(total, length) if mode == 1 else total
    return (Value(found.sizes, weight.dtype, lambda i: ops.round_to(found.at(i), weight.dtype)), *told)


def _bag_length(offsets: Value, at: Value) -> int | None:
    """The size of each bag, if all have the same: their offsets are multiples of it, and were not read from memory."""
    if offsets.rank != 1 or at.rank != 1:
        return None
    (bag,) = offsets.variables()
    node = offsets.at((bag,))
    if node.op != "index":
        return None
    variable = index.the_var(bag)
    length = None if variable is None else index.coefficient(node.attr, variable)
    if type(length) is not int or length < 1 or node.attr != bag * length or at.numel != offsets.numel * length:
        return None
    return length


@lowers(aten.index_select.default)
def _index_select(ctx: Context, a: Value, dim: int, at: Value) -> Value:
    scalar = a.rank == 0
    a = a.unsqueeze(0) if scalar else a
    dim %= a.rank
    _not_empty(a)
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
    _not_empty(a)
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
    _not_empty(a)
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
