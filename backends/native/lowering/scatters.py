"""Writes to positions given by data: every index is checked, as torch does.

If no two elements can have the same index and every position has at most one candidate, a scatter is a selection at
each position.  The rest are loops that run in order; cases that these do not cover are left to torch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import ONCE_COST
from ..ir.operations import Unsupported, binary, compare, const, where
from ..ir.ordered_loops import Scatter, loops
from ..ir.values import Place, Value, broadcast, scalar
from . import calls, writes
from .indexing import checked, not_empty, place_in_order
from .pointwise import converted
from .reductions import divided, drop, reduce, running
from .registry import Context, aten, lowers

Indices = tuple[Index, ...]


def _scattered(
    ctx: Context,
    a: Value,
    source: Value,
    place: Callable[[Indices], Sequence[Index]],
    serial: Sequence[int],
    *,
    adds: bool = False,
    combine: str = "",
    strides: Sequence[Any] | None = None,
) -> Value:
    """A copy of ``a`` with each element of ``source`` written to ``place`` of its index, or combined with that.

    Elements whose indices differ in other dimensions than ``serial`` go to different places.
    """
    program = ctx.program
    source = _ahead(ctx, source)
    at = ctx.writes.place(ctx.node, a)
    if at is None:
        copy = program.copy(a, ctx.strides() if strides is None else strides)
        assert copy.place is not None
        at = Place(copy.place.buffer, copy.place.strides, 0)
    else:
        copy = writes.region(a, at)
        source = ctx.writes.independent(source, copy, scattered=True)
        ctx.writes.prepare(ctx.node, copy)
    if any(type(s) is int and s == 0 for s in source.sizes):
        return copy
    variables = source.variables()
    buffer = at.buffer
    position = at.position(tuple(place(variables)))
    value = ops.cast(source.at(variables), buffer.dtype)
    apart = loops([v for d, v in enumerate(variables) if d not in serial])
    program.add(Scatter(buffer, position, value, apart, loops([variables[d] for d in serial]), combine or "add" * adds))
    return copy


def _indices(ctx: Context, a: Value, at: Value, extent: Index, fault: str, dim: int) -> Callable[[Indices], Index]:
    """The elements of ``at`` as indices, verified where they are used, or before where ``a`` itself is changed."""
    at = _ahead(ctx, at)

    def check(i: Indices) -> Index:
        return checked(at.at(i), extent, fault, dim)

    return check if ctx.writes.place(ctx.node, a) is None else writes.verified(ctx.program, at, check)


def _ahead(ctx: Context, value: Value) -> Value:
    """``value``, in memory if functions compute it: a loop in order would call them for one number at a time."""
    on_cpu = ctx.program.device.type == "cpu"
    return ctx.program.realize(value) if on_cpu and value.at(value.variables()).cost >= ONCE_COST else value


def _is_refused(a: Value, *others: Value, adds: bool) -> bool:
    """Whether torch has to do it: additions of bools, or nothing to write to."""
    return (adds and a.dtype is torch.bool) or any(type(s) is int and s == 0 for s in a.sizes)


def _along(op: Any, adds: bool) -> Any:
    """Writes along one dimension, as ``scatter`` does."""

    def lower(ctx: Context, a: Value, dim: int, at: Value, source: Any, *, reduce: Any = None) -> Value:
        given = source if isinstance(source, Value) else None
        if reduce is not None or a.rank == 0 or at.rank == 0 or _is_refused(a, adds=adds):
            return calls.call(ctx, op, (a, dim, at, source), {} if reduce is None else {"reduce": reduce})
        dim %= a.rank
        if given is None:
            values = scalar(source, a.dtype, at.sizes)
        else:
            values = Value(at.sizes, a.dtype, converted(given, a.dtype).at)
        if ctx.writes.place(ctx.node, a) is None and _covers(a, at, dim):
            return _chosen(a, dim, at, values, adds)

        found = _indices(ctx, a, at, a.sizes[dim], "element", dim)

        def place(i: Indices) -> list[Index]:
            return [*i[:dim], found(i), *i[dim + 1 :]]

        return _scattered(ctx, a, values, place, [dim], adds=adds)

    return lower


def _covers(a: Value, at: Value, dim: int) -> bool:
    """Whether there is one index for each position in the other dimensions."""
    return type(at.sizes[dim]) is int and all(
        (s == 1 if d == dim else s is t or s == t) for d, (s, t) in enumerate(zip(at.sizes, a.sizes, strict=True))
    )


def _chosen(a: Value, dim: int, at: Value, values: Value, adds: bool) -> Value:
    def element(i: Indices) -> Node:
        only = (*i[:dim], 0, *i[dim + 1 :])
        here = ops.from_index(checked(at.at(only), a.sizes[dim], "element", dim))
        old, new = a.at(i), ops.cast(values.at(only), a.dtype)
        return where(compare("eq", here, ops.from_index(i[dim])), binary("add", old, new) if adds else new, old)

    return Value(a.sizes, a.dtype, element)


lowers(aten.scatter.src)(_along(aten.scatter.src, False))
lowers(aten.scatter.value)(_along(aten.scatter.value, False))
lowers(aten.scatter_add.default)(_along(aten.scatter_add.default, True))


_REDUCES = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@lowers(aten.scatter_reduce.two)
def _scatter_reduce(
    ctx: Context, a: Value, dim: int, at: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """Elements are combined in the order in which they come; a mean counts them."""
    in_place = ctx.writes.place(ctx.node, a) is not None
    if in_place or ctx.program.device.type != "cpu" or 0 in (a.rank, at.rank) or _is_refused(a, adds=True):
        options = {"include_self": include_self}
        return calls.call(ctx, aten.scatter_reduce.two, (a, dim, at, source, reduce), options)
    dim %= a.rank
    found = _indices(ctx, a, at, a.sizes[dim], "element", dim)

    def place(i: Indices) -> list[Index]:
        return [*i[:dim], found(i), *i[dim + 1 :]]

    start = a
    if not include_self:
        start = _scattered(ctx, a, scalar(_neutral(_REDUCES[reduce], a.dtype), a.dtype, at.sizes), place, [dim])
    values = Value(at.sizes, a.dtype, converted(source, a.dtype).at)
    result = _scattered(ctx, start, values, place, [dim], combine=_REDUCES[reduce])
    if reduce != "mean":
        return result
    counted = compute_type(a.dtype)
    none = scalar(int(include_self), counted, a.sizes)
    counts = _scattered(ctx, none, scalar(1, counted, at.sizes), place, [dim], adds=True)

    def mean(i: Indices) -> Node:
        total, count = ops.cast(result.at(i), counted), binary("maximum", counts.at(i), const(1, counted))
        return ops.cast(binary("div" if ops.is_float(counted) else "floor_div", total, count), a.dtype)

    return Value(a.sizes, a.dtype, mean)


def _neutral(combine: str, dtype: torch.dtype) -> int | float:
    """What changes nothing that it is combined with."""
    if combine in ("add", "mul"):
        return int(combine == "mul")
    if ops.is_float(dtype):
        return -math.inf if combine == "max" else math.inf
    return torch.iinfo(dtype).min if combine == "max" else torch.iinfo(dtype).max


@lowers(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(ctx: Context, a: Value, indices: Sequence[Any], values: Value, accumulate: bool = False) -> Any:
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if (masked := _masked(a, given, values, accumulate)) is not None:
        return masked
    if any(i.dtype in (torch.bool, torch.uint8) for _, i in given) or _is_refused(a, adds=accumulate):
        return calls.call(ctx, aten.index_put.default, (a, indices, values, accumulate), {})
    dims = [d for d, _ in given]
    tensors = broadcast(*(i for _, i in given))
    rank = tensors[0].rank
    # Indexed dimensions next to each other are replaced in place, others go to the front.
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    rest = [d for d in range(a.rank) if d not in dims]
    plain = [a.sizes[d] for d in rest]
    sizes = [*plain[:first], *tensors[0].sizes, *plain[first:]]
    source = converted(values, a.dtype).expand(sizes)

    # Eager counts the indices.
    found = [
        _indices(ctx, a, at, a.sizes[d], "index", nth) for nth, (d, at) in enumerate(zip(dims, tensors, strict=True))
    ]

    def place(i: Indices) -> list[Index]:
        full: list[Index] = [0] * a.rank
        for d, at in zip(rest, (*i[:first], *i[first + rank :]), strict=True):
            full[d] = at
        for d, index_at in zip(dims, found, strict=True):
            full[d] = index_at(i[first : first + rank])
        return full

    return _scattered(ctx, a, source, place, range(first, first + rank), adds=accumulate)


def _masked(a: Value, given: Sequence[tuple[int, Value]], values: Value, adds: bool) -> Value | None:
    """A choice at each position, where a mask over the first dimensions selects those that get one value or row."""
    if len(given) != 1 or given[0][0] != 0 or given[0][1].dtype is not torch.bool or (adds and a.dtype is torch.bool):
        return None
    mask = given[0][1]
    rest = a.sizes[mask.rank :]
    if mask.sizes != a.sizes[: mask.rank] or not mask.rank or values.rank > len(rest):
        return None  # as many rows as there are selected positions
    source = converted(values, a.dtype).expand(rest)

    def element(i: Indices) -> Node:
        old, new = a.at(i), ops.cast(source.at(i[mask.rank :]), a.dtype)
        return where(mask.at(i[: mask.rank]), binary("add", old, new) if adds else new, old)

    return Value(a.sizes, a.dtype, element)


def _into_rows(op: Any, adds: bool) -> Any:
    """Writes of slices, as ``index_add`` and ``index_copy`` do."""

    def lower(ctx: Context, a: Value, dim: int, at: Value, source: Value, *, alpha: Any = 1) -> Value:
        if a.rank == 0 or _is_refused(a, adds=adds) or source.rank != a.rank:
            return calls.call(ctx, op, (a, dim, at, source), {"alpha": alpha} if adds else {})
        dim %= a.rank
        flat = at if at.rank else at.unsqueeze(0)
        values = converted(source, a.dtype)
        if adds and alpha != 1:
            whole = values
            values = Value(whole.sizes, a.dtype, lambda i: binary("mul", whole.at(i), const(alpha, whole.at(i).dtype)))

        as_scatter = a.rank == 2 and alpha == 1 and at.dtype is torch.int64  # as eager's kernel does it
        fault = "copy" if not adds else "element" if as_scatter else "row"
        found = _indices(ctx, a, flat, a.sizes[dim], fault, dim)

        def place(i: Indices) -> list[Index]:
            return [*i[:dim], found((i[dim],)), *i[dim + 1 :]]

        return _scattered(ctx, a, values, place, [dim], adds=adds)

    return lower


lowers(aten.index_add.default)(_into_rows(aten.index_add.default, True))
lowers(aten.index_copy.default)(_into_rows(aten.index_copy.default, False))


def _unpooling(op: Any) -> Any:
    def lower(ctx: Context, a: Value, *rest: Any) -> Any:
        fake = ctx.fake(ctx.node.args[0])
        if not fake.is_contiguous():
            raise Unsupported("unpooling of an image in another layout, which torch traces incorrectly")
        return calls.call(ctx, op, (a, *rest), {})

    return lower


lowers(aten.max_unpool2d.default)(_unpooling(aten.max_unpool2d.default))
lowers(aten.max_unpool3d.default)(_unpooling(aten.max_unpool3d.default))


@lowers(aten._embedding_bag_forward_only.default, aten._embedding_bag.default)
def _embedding_bag(ctx: Context, weight: Value, at: Value, offsets: Value, *options: Any, **named: Any) -> Any:
    """Sums, means and maxima of bags of one size, as rows of a matrix of indices are, and sums and means of others."""
    given: list[Any] = [*options, *[False, 0, False, None, False, -1][len(options) :]]
    _, mode, _, weights, last, padding = given
    length = _bag_length(offsets, at)
    alone = all(user.target is operator.getitem and user.args[1] == 0 for user in ctx.node.users)
    differentiable = alone or (padding == -1 and ctx.program.device.type == "cpu")
    plain = not last and not named and (mode == 0 or (weights is None and padding == -1))
    if length is None and differentiable and plain and _can_be_added(ctx, weight, at, offsets, mode, padding):
        return _bags_at_offsets(ctx, weight, at, offsets, mode, weights, padding)
    if length is None or not differentiable or not plain or not weight.dtype.is_floating_point:
        return calls.call(ctx, ctx.node.target, (weight, at, offsets, *options), named)
    not_empty(weight)
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

    # What gradients need: how large bags are, and which index has the maximum.  torch asks for an element's bag only
    # where it has no kernel for the layout of the weights; elsewhere offsets tell it.
    told: list[Any] = [None] * 3 if alone else [scalar(length, torch.int64, ctx.sizes(fake)) for fake in ctx.val[1:]]
    if not alone:
        told[0] = Value(ctx.sizes(ctx.val[1]), torch.int64, lambda i: ops.from_index(i[0] // length))
    bags = Value((offsets.sizes[0], length, weight.sizes[1]), weight.dtype, compared if mode == 2 else element)
    if mode == 2:
        if not alone:
            nth_of = drop(ctx.program.reduce("argmax", bags, [1], torch.int64, lambda node: node), [1], False)
            told[2] = Value(nth_of.sizes, torch.int64, lambda i: at.at((i[0] * length + index.data(nth_of.at(i)),)))
        return (reduce(ctx, "max", bags, [1], False, weight.dtype), *told)
    total = reduce(ctx, "sum", bags, [1], False, compute_type(weight.dtype))
    found = divided(total, length) if mode == 1 else total
    return (Value(found.sizes, weight.dtype, lambda i: ops.round_to(found.at(i), weight.dtype)), *told)


def _can_be_added(ctx: Context, weight: Value, at: Value, offsets: Value, mode: int, padding: int) -> bool:
    """Whether rows are added to their bags one by one, as eager adds them; for sums alone, torch's kernel is faster."""
    if ctx.program.device.type != "cpu" or mode == 2 or (mode == 1 and padding >= 0) or at.rank != 1:
        return False
    if mode == 0 and ctx.node.target is aten._embedding_bag_forward_only.default and weight.dtype is torch.float32:
        return False
    known = [s for v in (at, offsets) for s in v.sizes if type(s) is int and 0 < s < 2**31]
    return offsets.rank == 1 and len(known) == 2 and weight.dtype in (torch.float32, torch.float64)


def _bags_at_offsets(
    ctx: Context, weight: Value, at: Value, offsets: Value, mode: int, weights: Value | None, padding: int
) -> Any:
    """Sums or means of bags that begin at ``offsets``; only the numbers of elements are told of them besides."""
    not_empty(weight)
    ctx.keep(weight)
    ctx.keep(at)
    count, length = offsets.sizes[0], at.sizes[0]
    assert type(count) is type(length) is int

    def start(i: Indices) -> Node:
        """Where a bag starts, and the end of the last; the first and the last offset are verified, as in eager."""
        first = checked(offsets.at((0,)), 1, "first offset")
        last = checked(offsets.at((count - 1,)), length + 1, "last offset")
        nth = index.data(binary("minimum", ops.from_index(i[0]), const(count - 1, torch.int64)))
        own = binary("minimum", ops.cast(offsets.at((nth,)), torch.int64), ops.from_index(last))
        is_end = compare("eq", ops.from_index(i[0]), const(count, torch.int64))
        return where(is_end, ops.from_index(length), binary("add", own, ops.from_index(first)))

    starts = ctx.program.realize(Value((count + 1,), torch.int64, start))

    # Where some bags start, as many are counted; the sum of that so far tells in which bag an element is.
    marks = _scattered(
        ctx,
        scalar(0, torch.int32, (length + 1,)),
        scalar(1, torch.int32, (count,)),
        lambda i: [index.data(binary("maximum", starts.at(i), const(0, torch.int64)))],
        [0],
        adds=True,
        strides=(1,),
    )
    begun = running(ctx.program, marks, 0, "sum", torch.int32, (1,))

    def bag(i: Indices) -> Index:
        return index.data(ops.cast(binary("sub", begun.at(i[:1]), const(1, torch.int32)), torch.int64))

    def element(i: Indices) -> Node:
        row = checked(at.at(i[:1]), weight.sizes[0], "bag")
        found = weight.at((row, i[1]))
        if weights is not None:
            found = binary("mul", found, ops.cast(weights.at(i[:1]), found.dtype))
        if padding < 0:
            return found
        return where(compare("eq", ops.from_index(row), const(padding, torch.int64)), const(0, found.dtype), found)

    def elements(i: Indices) -> Node:
        return binary("sub", starts.at((i[0] + 1,)), starts.at(i[:1]))

    sizes = (count, weight.sizes[1])
    source = Value((length, weight.sizes[1]), weight.dtype, element)
    nothing = scalar(0, weight.dtype, sizes)
    total = _scattered(ctx, nothing, source, lambda i: [bag(i), i[1]], [0], adds=True, strides=ctx.strides(ctx.val[0]))

    def mean(i: Indices) -> Node:
        most = binary("maximum", elements(i), const(1, torch.int64))
        return binary("div", total.at(i), ops.cast(most, weight.dtype))

    found = Value(sizes, weight.dtype, mean) if mode == 1 else total
    told = [scalar(0, torch.int64, ctx.sizes(fake)) for fake in ctx.val[1:]]
    told[0] = Value(ctx.sizes(ctx.val[1]), torch.int64, lambda i: ops.from_index(bag(i)))
    if ctx.sizes(ctx.val[2]) == (count,):
        told[1] = Value((count,), torch.int64, elements)
    return (found, *told)


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


@lowers(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    ctx: Context, grad: Value, at: Value, offsets: Value, bag_of: Value, counts: Value, best: Value, *options: Any
) -> Any:
    """The gradient of bags: each element adds its bag's to the row that it took, and of a maximum the largest alone."""
    rows, by_frequency, mode, sparse, weights, padding = [*options, -1][:6]
    known = type(offsets.sizes[0]) is int and 0 < offsets.sizes[0] < 2**24
    plain = not sparse and not by_frequency and padding == -1 and ctx.program.device.type == "cpu"
    plain = plain and (weights is None or (mode == 0 and weights.dtype is grad.dtype))
    if not known or not plain or grad.dtype not in (torch.float32, torch.float64):
        operands = (grad, at, offsets, bag_of, counts, best, *options)
        return calls.call(ctx, aten._embedding_bag_backward.default, operands, {})
    bag = _bag_by_search(ctx, grad, offsets)

    def element(i: Indices) -> Node:
        found = grad.at((bag(i), i[1]))
        if weights is not None:
            return binary("mul", found, weights.at(i[:1]))
        return binary("div", found, ops.cast(counts.at((bag(i),)), found.dtype)) if mode == 1 else found

    def place(i: Indices) -> list[Index]:
        return [checked(at.at(i[:1]), rows, "bag"), i[1]]

    nothing = scalar(0, grad.dtype, ctx.sizes())
    if mode == 2:
        nowhere = const(0, torch.int64)  # the index of an empty bag is none

        def given(i: Indices, node: Node, otherwise: Node) -> Node:
            return where(compare("gt", counts.at(i[:1]), nowhere), node, otherwise)

        def largest(i: Indices) -> list[Index]:
            return [checked(given(i, best.at(i), nowhere), rows, "bag"), i[1]]

        chosen = Value(grad.sizes, grad.dtype, lambda i: given(i, grad.at(i), const(0, grad.dtype)))
        return _scattered(ctx, nothing, chosen, largest, [0], adds=True)
    source = Value((at.sizes[0], grad.sizes[1]), grad.dtype, element)
    return _scattered(ctx, nothing, source, place, [0], adds=True)


def _bag_by_search(ctx: Context, grad: Value, offsets: Value) -> Callable[[Indices], Index]:
    """In which bag an element is; ``grad``, which has a row for each, is then read from memory, as offsets are."""
    for operand in (grad, offsets):
        ctx.program.realize(operand)

    def bag(i: Indices) -> Index:
        after = place_in_order(offsets, (), ops.cast(ops.from_index(i[0]), offsets.dtype), right=True)
        return index.data(ops.cast(binary("sub", after, const(1, torch.int32)), torch.int64))

    return bag


@lowers(aten._embedding_bag_per_sample_weights_backward.default)
def _gradient_of_factors(
    ctx: Context, grad: Value, weight: Value, at: Value, offsets: Value, bag_of: Value, mode: int, padding: int = -1
) -> Value:
    """The gradient of what the elements of bags are multiplied by: their row times the gradient of their bag."""
    known = type(offsets.sizes[0]) is int and 0 < offsets.sizes[0] < 2**24
    plain = padding == -1 and ctx.program.device.type == "cpu" and grad.dtype is weight.dtype
    if not known or not plain or grad.dtype not in (torch.float32, torch.float64):
        operands = (grad, weight, at, offsets, bag_of, mode, padding)
        found: Value = calls.call(ctx, aten._embedding_bag_per_sample_weights_backward.default, operands, {})
        return found
    not_empty(weight)
    ctx.keep(weight)
    bag = _bag_by_search(ctx, grad, offsets)

    def element(i: Indices) -> Node:
        return binary("mul", grad.at((bag(i), i[1])), weight.at((checked(at.at(i[:1]), weight.sizes[0], "bag"), i[1])))

    products = Value((at.sizes[0], grad.sizes[1]), grad.dtype, element)
    return reduce(ctx, "sum", products, [1], False, grad.dtype)
