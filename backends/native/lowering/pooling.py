"""Pooling over windows, and its gradients: each result is computed from the elements of its window.

A gradient is gathered: each element of the image adds up what the windows that hold it hand back, in eager's order.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ...common.max_pooling import MAX_POOL_BACKWARD
from ..ir import index, operations as ops
from ..ir.expressions import Node, compute_type
from ..ir.index import Index
from ..ir.layout import channels_last, image_layout
from ..ir.operations import binary, compare, const, masked, where
from ..ir.values import Value
from . import calls
from .registry import Context, aten, lowers
from .windows import FLOATS, MOST_TAPS, Window, held, in_pieces, is_plain, layout, leading_to, overlap, taps, windows

# --- large windows ----------------------------------------------------------------------------------------------------

_LEAST_TAPS = 16
"""Windows of fewer elements are read at once."""
_JOINED = 8
"""So many elements, or parts of a long window, are joined in one pass."""
Finish = Callable[[Node, Any], Node]
Element = Callable[[Any, Sequence[bool]], Node]


class Part(NamedTuple):
    """Element ``tap`` of each window over ``value``, and whether it is known to be inside."""

    window: Window
    value: Value
    tap: int
    is_inside: bool


def _is_worth_passes(shape: Sequence[Window]) -> bool:
    """Whether windows are large and share elements, so that what several of them join is joined once."""
    if not all(w.size > w.step for w in shape if w.size > 1):
        return False
    if any(w.size > MOST_TAPS for w in shape):
        return all(w.size <= MOST_TAPS or _has_parts(w) for w in shape)
    return sum(w.size > 1 for w in shape) > 1 and len(taps(shape)) > _LEAST_TAPS


def _has_parts(w: Window) -> bool:
    """Whether a long window is joined from parts, each of which is in several windows."""
    is_known = type(w.extent) is int and type(w.count) is int
    return is_known and w.dilation == 1 and w.size >= w.step * _LEAST_TAPS // _JOINED


def _in_passes(
    ctx: Context,
    a: Value,
    shape: Sequence[Window],
    join: str,
    none: Node,
    fake: Any,
    dtype: torch.dtype,
    finish: Finish | None = None,
) -> Value:
    """What ``join`` makes of each window, one dimension after the other: as many reads as the sizes add up to.

    Passes before the last one store ``dtype``; ``finish`` makes the result from what that one has joined.
    """
    is_image = image_layout(a) is not None
    passes = [(a.rank - len(shape) + d, w) for d, w in reversed(list(enumerate(shape))) if w.size > 1]
    found = a

    def one_pass(w: Window, dim: int, element: Element) -> Value:
        sizes = (*found.sizes[:dim], w.count, *found.sizes[dim + 1 :])
        strides = channels_last(sizes) if is_image else index.contiguous_strides(sizes)
        return in_pieces(ctx, sizes, dtype, strides, _only(w, dim, sizes), element)

    for nth, (dim, w) in enumerate(passes):
        ctx.keep(found)
        parts = [Part(w, found, tap, False) for tap in range(w.size)]
        if w.size > MOST_TAPS:
            levels = [(w, found)]
            for longer in _parts(w):
                taken = [Part(longer, levels[-1][1], tap, False) for tap in range(longer.size)]
                levels.append((longer, one_pass(longer, dim, _joined(taken, dim, join, none, None))))
            parts = _cover(w, levels, is_idempotent=join == "maximum")
        if nth < len(passes) - 1:
            found = one_pass(w, dim, _joined(parts, dim, join, none, None))
            continue
        sizes = (*found.sizes[:dim], w.count, *found.sizes[dim + 1 :])
        element = _joined(parts, dim, join, none, finish)
        return in_pieces(ctx, sizes, fake.dtype, layout(ctx, a, fake), _only(w, dim, sizes), element)
    raise AssertionError("windows of one element have no passes")


def _parts(w: Window) -> list[Window]:
    """Windows of ``_JOINED`` parts, each as long as a window of the one before, from each place that ``w`` reaches."""
    reached, span, found = (w.count - 1) * w.step + w.size, 1, list[Window]()
    extent, pad = w.extent, w.pad
    while w.size >= span * _LEAST_TAPS:
        count = reached - span * _JOINED + 1
        found.append(Window(extent, count, _JOINED, 1, pad, span))
        extent, pad, span = count, 0, span * _JOINED
    return found


def _cover(w: Window, levels: Sequence[tuple[Window, Value]], *, is_idempotent: bool) -> list[Part]:
    """What makes up ``w``; ``levels`` are its elements and then ever longer parts.

    What is ``is_idempotent`` may join an element twice.
    """
    found: list[Part] = []
    begun, left = 0, w.size
    for level, (part, value) in reversed(list(enumerate(levels))):
        span = _JOINED**level
        reader = Window(part.count, w.count, 1, w.step, 0, 1) if level else w
        while left >= span:
            found.append(Part(reader, value, begun, level > 0))
            begun, left = begun + span, left - span
        if is_idempotent and left and level:
            found.append(Part(reader, value, w.size - span, True))
            left = 0
    return found


def _in_loops(
    ctx: Context, a: Value, shape: Sequence[Window], reduction: str, sizes: Sequence[Index], dtype: torch.dtype
) -> Value:
    """Windows of many elements, all inside of the image, as a reduction."""
    rank = len(shape)
    overlap(ctx, a, shape)

    def element(at: Any) -> Node:
        places = tuple(w.position(i, t) for w, i, t in zip(shape, at[-2 * rank : -rank], at[-rank:], strict=True))
        return ops.cast(a.at((*at[: -2 * rank], *places)), dtype)

    whole = Value((*sizes, *(w.size for w in shape)), dtype, element)
    found = ctx.program.reduce(reduction, whole, list(range(len(sizes), len(sizes) + rank)), dtype, lambda node: node)
    for _ in shape:
        found = found.squeeze(found.rank - 1)
    return found


def _only(w: Window, dim: int, sizes: Sequence[Index]) -> list[tuple[int, Index]]:
    """The interiors of the dimensions from ``dim`` on, where only this one has windows."""
    return [w.interior, *((0, size) for size in sizes[dim + 1 :])]


def _joined(parts: Sequence[Part], dim: int, join: str, none: Node, finish: Finish | None) -> Element:
    """What joins these parts of each window."""

    def element(at: Any, inside: Sequence[bool]) -> Node:
        total = none
        for w, value, tap, is_inside in parts:
            place, condition = held([w], [at[dim]], [tap], [is_inside or inside[0]])
            part = masked(condition, ops.cast(value.at((*at[:dim], *place, *at[dim + 1 :])), none.dtype), none)
            total = binary(join, total, part)
        return total if finish is None else finish(total, at)

    return element


# --- extrema ----------------------------------------------------------------------------------------------------------


def _uses_places(ctx: Context) -> bool:
    return any(user.args[1] == 1 for user in ctx.node.users)


def _apart(distance: Index) -> Node:
    """How far apart two elements of a window are, in the 32 bits that suffice for it."""
    return ops.cast(ops.from_index(distance), torch.int32)


def _largest(ctx: Context, op: Any, args: Any, a: Value, shape: Sequence[Window] | None) -> Any:
    _taps = taps(shape or ())
    if shape is not None and is_plain(a, shape) and not _uses_places(ctx) and _is_worth_passes(shape):
        largest = _in_passes(ctx, a, shape, "maximum", const(-math.inf, a.dtype), ctx.val[0], a.dtype)
        return largest, Value(largest.sizes, torch.int64, lambda at: const(0, torch.int64))
    is_long = len(_taps) > MOST_TAPS
    if is_long and is_plain(a, shape) and not _uses_places(ctx) and all(w.all_inside for w in shape or ()):
        assert shape is not None
        largest = _in_loops(ctx, a, shape, "max", ctx.sizes(ctx.val[0]), a.dtype)
        return largest, Value(largest.sizes, torch.int64, lambda at: const(0, torch.int64))
    if not is_plain(a, shape) or is_long:
        return calls.call(ctx, op, args, {})
    assert shape is not None
    overlap(ctx, a, shape)
    rank = len(shape)
    sizes = ctx.sizes(ctx.val[0])
    strides = layout(ctx, a, ctx.val[0])
    steps = index.contiguous_strides(tuple(w.extent for w in shape))
    least = const(-math.inf, a.dtype)

    def elements(at: Any, inside: Sequence[bool]) -> list[tuple[tuple[int, ...], Node]]:
        found = []
        for tap in _taps:
            place, condition = held(shape, at[-rank:], tap, inside)
            if not (condition.op == "const" and not condition.attr):
                found.append((tap, masked(condition, a.at((*at[:-rank], *place)), least)))
        return found

    def value(at: Any, inside: Sequence[bool]) -> Node:
        found = [node for _, node in elements(at, inside)]
        best = found[0] if found else least
        for node in found[1:]:
            best = binary("maximum", best, node)
        return best

    def first(at: Any, inside: Sequence[bool]) -> Node:
        """How far from the corner of a window its first element in the image is."""
        total = const(0, torch.int32)
        for d, (w, step) in enumerate(zip(shape, steps, strict=True)):
            start = const(0, torch.int32)
            for tap in reversed(range(w.size)) if not inside[d] else ():
                only = [tap if e == d else 0 for e in range(rank)]
                _, condition = held(shape, at[-rank:], only, [e != d for e in range(rank)])
                start = where(condition, _apart(tap * w.dilation * step), start)
            total = binary("add", total, start)
        return total

    def place(at: Any, inside: Sequence[bool]) -> Node:
        """Where the largest is: the first of equal ones, or the last nan."""
        best, apart = least, first(at, inside)
        for tap, node in elements(at, inside):
            wins = binary("or", compare("gt", node, best), compare("ne", node, node))
            far = sum(t * w.dilation * s for t, w, s in zip(tap, shape, steps, strict=True))
            best, apart = where(wins, node, best), where(wins, _apart(far), apart)
        corner = sum((w.position(i, 0) * s for w, i, s in zip(shape, at[-rank:], steps, strict=True)), 0)
        return binary("add", ops.from_index(corner), ops.cast(apart, torch.int64))

    interiors = [w.interior for w in shape]
    values = in_pieces(ctx, sizes, a.dtype, strides, interiors, value)
    if not _uses_places(ctx):
        return values, Value(sizes, torch.int64, lambda at: const(0, torch.int64))
    return values, in_pieces(ctx, sizes, torch.int64, strides, interiors, place)


def _max_pool(op: Any, rank: int) -> Any:
    def lower(
        ctx: Context, a: Value, size: Any, step: Any = (), pad: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        shape = windows(a, ctx.sizes(ctx.val[0])[-rank:], size, step, pad, dilation, not ceil_mode)
        return _largest(ctx, op, (a, size, step, pad, dilation, ceil_mode), a, shape)

    return lower


def _adaptive(a: Value, counts: Sequence[Any]) -> list[Window] | None:
    """The windows of adaptive pooling, if they are all alike."""
    extents = a.sizes[-len(counts) :]
    if any(type(n) is not int or type(c) is not int or c == 0 or n % c for n, c in zip(extents, counts, strict=True)):
        return None
    size = [n // c for n, c in zip(extents, counts, strict=True)]
    return windows(a, counts, size, size, 0, 1)


def _adaptive_max_pool(op: Any, rank: int) -> Any:
    def lower(ctx: Context, a: Value, size: Any) -> Any:
        return _largest(ctx, op, (a, size), a, _adaptive(a, ctx.sizes(ctx.val[0])[-rank:]))

    return lower


def _are_found(places: fx.Node) -> bool:
    """Whether places are those that pooling has found, here or in the forward graph, and not the program's own."""
    return places.op == "placeholder" or (places.target is operator.getitem and places.args[1] == 1)


def _max_pool_backward(op: Any, rank: int) -> Any:
    def lower(ctx: Context, grad: Value, a: Value, *rest: Any) -> Any:
        *numbers, places = rest
        if not _are_found(ctx.node.args[-1]):
            return calls.call(ctx, op, (grad, a, *rest), {})
        shape = (
            windows(a, grad.sizes[-rank:], *numbers[:4])
            if numbers
            else _adaptive(a, [s if type(s) is int else 0 for s in grad.sizes[-rank:]])
        )
        return _placed_back(ctx, op, (grad, a, *rest), grad, a, places, shape)

    return lower


@lowers(MAX_POOL_BACKWARD)
def _max_pool_backward_by_sizes(
    ctx: Context, grad: Value, sizes: Any, is_last: bool, window: Any, step: Any, pad: Any, *rest: Any
) -> Any:
    dilation, _, places = rest
    a = Value(ctx.sizes(ctx.val), grad.dtype, lambda at: const(0, compute_type(grad.dtype)))  # only its sizes count
    shape = windows(a, grad.sizes[-2:], window, step, pad, dilation)
    given = (grad, sizes, is_last, window, step, pad, *rest)
    return _placed_back(ctx, MAX_POOL_BACKWARD, given, grad, a, places, shape)


_MOST_ASKED = 4


def _is_by_channels(ctx: Context, grad: Value) -> bool:
    """Whether channels lie side by side.

    Which windows an element is in differs from one short row of channels to the next, and torch's kernel does not ask.
    """
    strides = layout(ctx, grad, ctx.val)
    return len(strides) == 4 and type(strides[1]) is int and strides[1] == 1 and strides[3] != 1


def _placed_back(
    ctx: Context, op: Any, args: Any, grad: Value, a: Value, places: Value, shape: list[Window] | None
) -> Any:
    # torch's kernel writes where the places say, which is faster than to look at several windows for each element, or
    # to ask each element which of many it is.
    overlaps = any(w.size > w.step or w.dilation > 1 for w in shape or ())
    is_large = math.prod(w.size for w in shape or ()) > _MOST_ASKED
    if not is_plain(a, shape) or overlaps or is_large or _is_by_channels(ctx, grad):
        return calls.call(ctx, op, args, {})
    assert shape is not None
    rank = len(shape)
    ctx.keep(grad)
    extents = tuple(w.extent for w in shape)

    def element(at: Any, inside: Sequence[bool]) -> Node:
        here = ops.cast(ops.from_index(index.flatten(at[-rank:], extents)), torch.int32)
        zero = const(0, compute_type(a.dtype))
        total = zero
        for tap in reversed(taps(shape)):
            which, condition = leading_to(shape, at[-rank:], tap, inside)
            full = (*at[:-rank], *which)
            same = compare("eq", ops.cast(places.at(full), torch.int32), here)
            part = masked(condition, where(same, ops.cast(grad.at(full), zero.dtype), zero), zero)
            total = part if total is zero else binary("add", total, part)
        return ops.cast(total, a.dtype)

    return in_pieces(
        ctx, a.sizes, a.dtype, layout(ctx, grad, ctx.val), [w.surrounded for w in shape], element, whole_rows=True
    )


# --- averages ---------------------------------------------------------------------------------------------------------


_EXACT = 2**24
"""Integers up to this one are numbers of all types that averages are computed in."""


def _count(shape: Sequence[Window], at: Any, inside: Sequence[bool], pads: bool, dtype: torch.dtype) -> Node:
    """How many elements the average of a window is over.

    Places are numbers of ``dtype`` where these are exact: a GPU's assembler is wrong about some sums of integers that
    LLVM finds to fit into 8 bits, as rows of a small image do.
    """
    is_exact = dtype.is_floating_point and all(
        type(w.extent) is int and w.extent + w.pad + w.size <= _EXACT for w in shape
    )
    number = dtype if is_exact else torch.int64
    known = 1
    varying: Node | None = None
    for w, i, whole in zip(shape, at, inside, strict=True):
        if whole or (pads and w.all_in_padding):
            known *= w.size
            continue
        start = ops.cast(ops.from_index(w.position(i, 0)), number)
        end = ops.cast(ops.from_index(w.position(i, w.size)), number)
        most = ops.cast(ops.from_index(w.extent + (w.pad if pads else 0)), number)
        end = binary("minimum", end, most)
        if not pads:
            start = binary("maximum", start, const(0, number))
        length = binary("sub", end, start)
        varying = length if varying is None else binary("mul", varying, length)
    if varying is None:
        return const(known, dtype)
    return ops.cast(binary("mul", varying, const(known, number)), dtype)


def _average(
    ctx: Context, op: Any, args: Any, a: Value, shape: list[Window] | None, pads: bool, divisor: int | None
) -> Any:
    if not is_plain(a, shape):
        return calls.call(ctx, op, args, {})
    assert shape is not None
    rank, dtype = len(shape), compute_type(a.dtype)
    sizes, strides = ctx.sizes(), layout(ctx, a, ctx.val)
    if _is_worth_passes(shape):

        def finish(total: Node, at: Any) -> Node:
            count = _count(shape, at[-rank:], [w.all_inside for w in shape], pads, dtype)
            count = count if divisor is None else const(divisor, dtype)
            return ops.cast(binary("div", total, count), a.dtype)

        return _in_passes(ctx, a, shape, "add", const(0, dtype), ctx.val, dtype, finish)
    if len(taps(shape)) > MOST_TAPS:
        if not all(w.all_inside for w in shape):
            return calls.call(ctx, op, args, {})
        return _average_in_loops(ctx, a, shape, divisor)
    overlap(ctx, a, shape)

    def element(at: Any, inside: Sequence[bool]) -> Node:
        total = const(0, dtype)  # eager begins with it: windows of negative zeros come to a positive one
        for tap in taps(shape):
            place, condition = held(shape, at[-rank:], tap, inside)
            part = masked(condition, ops.cast(a.at((*at[:-rank], *place)), dtype), const(0, dtype))
            total = binary("add", total, part)
        count = _count(shape, at[-rank:], inside, pads, dtype) if divisor is None else const(divisor, dtype)
        return ops.cast(binary("div", total, count), a.dtype)

    return in_pieces(ctx, sizes, a.dtype, strides, [w.interior for w in shape], element)


def _average_in_loops(ctx: Context, a: Value, shape: Sequence[Window], divisor: int | None) -> Value:
    dtype = compute_type(a.dtype)
    total = _in_loops(ctx, a, shape, "sum", ctx.sizes(), dtype)
    count = math.prod(w.size for w in shape) if divisor is None else divisor
    return Value(total.sizes, a.dtype, lambda at: ops.cast(binary("div", total.at(at), const(count, dtype)), a.dtype))


def _avg_pool(op: Any, rank: int) -> Any:
    def lower(
        ctx: Context,
        a: Value,
        size: Any,
        step: Any = (),
        pad: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Any:
        shape = windows(a, ctx.sizes()[-rank:], size, step, pad, 1, not ceil_mode)
        args = (a, size, step, pad, ceil_mode, count_include_pad, divisor_override)
        return _average(ctx, op, args, a, shape, count_include_pad, divisor_override)

    return lower


def _uneven_average(ctx: Context, a: Value, counts: Sequence[int]) -> Value:
    """Means over windows that are not alike, one dimension after the other."""
    rank, dtype = len(counts), compute_type(a.dtype)
    ctx.keep(a)
    strides = layout(ctx, a, ctx.val)
    found, lengths = a, []
    for nth, count in enumerate(counts):
        if nth:  # what several windows share is added up once
            ctx.program.realize(found)
        found, length = _uneven_sums(found, a.rank - rank + nth, count, dtype)
        lengths.append(length)

    def element(at: Any) -> Node:
        node = found.at(at)
        for i, length in zip(at[-rank:], lengths, strict=True):
            node = binary("div", node, ops.cast(length(i), dtype))
        return ops.cast(node, a.dtype)

    return ctx.program.realize(Value(found.sizes, a.dtype, element), strides)


def _uneven_sums(a: Value, dim: int, count: int, dtype: torch.dtype) -> tuple[Value, Callable[[Index], Node]]:
    """Sums over windows along one dimension, and how long each of the windows is."""
    extent = a.sizes[dim]
    assert type(extent) is int
    most = max(-(-(i + 1) * extent // count) - i * extent // count for i in range(count))

    def quotient(number: Index) -> Node:
        """``number // count``, exact as long as both numbers are small."""
        exact = ops.cast(ops.cast(ops.from_index(number), torch.int32), torch.float32)
        return ops.cast(binary("div", exact, const(count, torch.float32)), torch.int32)

    def length(i: Index) -> Node:
        return binary("sub", quotient((i + 1) * extent + (count - 1)), quotient(i * extent))

    def element(at: Any) -> Node:
        start, own = quotient(at[dim] * extent), length(at[dim])
        total = zero = const(0, dtype)
        for k in range(most):
            tap = const(k, torch.int32)
            where_ = binary("minimum", binary("add", start, tap), const(extent - 1, torch.int32))
            here = (*at[:dim], index.data(ops.cast(where_, torch.int64)), *at[dim + 1 :])
            part = where(compare("lt", tap, own), ops.cast(a.at(here), dtype), zero)
            total = binary("add", total, part)
        return total

    return Value((*a.sizes[:dim], count, *a.sizes[dim + 1 :]), dtype, element), length


_MOST_NEAR = 32
"""In longer rows, what a vector reads lies apart."""
_MOST_UNEVEN = 16
"""Windows of adaptive pooling that have more elements in a dimension are torch's."""


def _is_uneven(ctx: Context, a: Value, counts: Sequence[Any]) -> bool:
    pairs = list(zip(a.sizes[-len(counts) :], counts, strict=True))
    if a.dtype not in FLOATS or any(type(s) is int and s == 0 for s in a.sizes):
        return False
    is_row = len(pairs) == 1 and ctx.program.device.type == "cpu"  # a dimension more makes up for it
    if is_row and type(pairs[0][0]) is int and pairs[0][0] > _MOST_NEAR:
        return False
    return all(
        type(n) is int and type(c) is int and 0 < c < 2**10 and n < 2**12 and -(-n // c) < _MOST_UNEVEN
        for n, c in pairs
    )


def _adaptive_avg_pool(op: Any, rank: int) -> Any:
    def lower(ctx: Context, a: Value, size: Any) -> Any:
        counts = ctx.sizes()[-rank:]
        if _adaptive(a, counts) is None and _is_uneven(ctx, a, counts):
            return _uneven_average(ctx, a, [c for c in counts if type(c) is int])
        return _average(ctx, op, (a, size), a, _adaptive(a, ctx.sizes()[-rank:]), True, None)

    return lower


def _handed_back(
    ctx: Context,
    op: Any,
    args: Any,
    grad: Value,
    a: Value,
    shape: list[Window] | None,
    pads: bool,
    divisor: int | None,
) -> Any:
    if not is_plain(a, shape) or len(taps(shape or ())) > MOST_TAPS or _is_by_channels(ctx, grad):
        return calls.call(ctx, op, args, {})
    assert shape is not None
    rank, dtype = len(shape), compute_type(a.dtype)
    ctx.keep(grad)
    whole = [w.all_inside for w in shape]

    def element(at: Any, inside: Sequence[bool]) -> Node:
        zero = const(0, dtype)
        total = zero
        counts = set()
        for tap in reversed(taps(shape)):
            which, condition = leading_to(shape, at[-rank:], tap, inside)
            part = ops.cast(grad.at((*at[:-rank], *which)), dtype)
            count = _count(shape, which, whole, pads, dtype) if divisor is None else const(divisor, dtype)
            if count.op == "const":
                counts.add(count)
            else:
                part = binary("div", part, count)
            part = masked(condition, part, zero)
            total = part if total is zero else binary("add", total, part)
        for count in counts:  # one, if it is the same for all windows
            total = binary("div", total, count)
        return ops.cast(total, a.dtype)

    return in_pieces(
        ctx, a.sizes, a.dtype, layout(ctx, grad, ctx.val), [w.surrounded for w in shape], element, whole_rows=True
    )


def _avg_pool_backward(op: Any, rank: int) -> Any:
    def lower(
        ctx: Context,
        grad: Value,
        a: Value,
        size: Any,
        step: Any,
        pad: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Any:
        shape = windows(a, grad.sizes[-rank:], size, step, pad, 1)
        args = (grad, a, size, step, pad, ceil_mode, count_include_pad, divisor_override)
        return _handed_back(ctx, op, args, grad, a, shape, count_include_pad, divisor_override)

    return lower


def _adaptive_avg_pool_backward(op: Any, rank: int) -> Any:
    def lower(ctx: Context, grad: Value, a: Value) -> Any:
        counts = [s if type(s) is int else 0 for s in grad.sizes[-rank:]]
        return _handed_back(ctx, op, (grad, a), grad, a, _adaptive(a, counts), True, None)

    return lower


for _rank in (2, 3):
    for _name, _made in (
        (f"max_pool{_rank}d_with_indices", _max_pool),
        (f"max_pool{_rank}d_with_indices_backward", _max_pool_backward),
        (f"adaptive_max_pool{_rank}d", _adaptive_max_pool),
        (f"adaptive_max_pool{_rank}d_backward", _max_pool_backward),
        (f"avg_pool{_rank}d", _avg_pool),
        (f"avg_pool{_rank}d_backward", _avg_pool_backward),
        (f"_adaptive_avg_pool{_rank}d", _adaptive_avg_pool),
        (f"_adaptive_avg_pool{_rank}d_backward", _adaptive_avg_pool_backward),
    ):
        _op = getattr(aten, _name).default
        lowers(_op)(_made(_op, _rank))
