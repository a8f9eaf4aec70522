"""In which order the elements of a value lie in memory, where nothing prescribes it.

A value that is computed from memory is written in the order in which most of it is read: then reading and writing both
walk along memory, whatever views stand in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import index
from .index import Index, Var
from .values import Place, Value

_APART = 8
"""What an element costs that lies apart from its neighbour in the innermost loop, where one beside it costs 1."""

ONCE_COST = 20
"""What costs as much as a function such as ``exp``, and is the same for all rows, is computed once and not for each."""

_SHORT = 32
_SHORT_OF_ITSELF = 256
_MANY = 64


def is_short_row(inner: Index, rows: Index) -> bool:
    """Whether what is the same for ``inner`` points is computed sooner in vectors of its own: there are many rows."""
    return type(inner) is int and inner <= _SHORT and type(rows) is int and rows >= _MANY


def is_short_beside_a_function(inner: Index, rows: Index) -> bool:
    """As :func:`is_short_row` for what no other points need: a function of one number takes as long as of a vector."""
    return type(inner) is int and inner <= _SHORT_OF_ITSELF and type(rows) is int and rows >= _MANY


def channels_last(sizes: Sequence[Index]) -> tuple[Index, ...]:
    """Strides with which the channels of images are adjacent."""
    _, channels, height, width = sizes
    return (height * width * channels, 1, width * channels, channels)


def image_layout(value: Value) -> tuple[Index, ...] | None:
    """Channels last, if all images that ``value`` depends on have this layout; None for the usual order."""
    if value.rank != 4 or any(type(s) is not int for s in value.sizes):
        return None
    last = channels_last(value.sizes)
    if value.place is not None:
        return last if value.place.strides == last else None
    variables = value.variables()
    usual = index.contiguous_strides(value.sizes)
    images = [(b, at) for b, at in value.at(variables).loads if b.numel == value.numel]
    if any(at == Place(b, usual, 0).position(variables) for b, at in images):
        return None
    return last if any(at == Place(b, last, 0).position(variables) for b, at in images) else None


def followed_strides(value: Value, innermost: int = 0) -> tuple[Index, ...] | None:
    """The dense strides that follow what ``value`` reads; None for the usual order.

    Of the orders of what it reads, and the usual one, it is the one in which most bytes lie side by side.  The last
    ``innermost`` dimensions stay the innermost ones, in either order, if that is not 0.
    """
    variables = value.variables()
    if sum(index.the_var(v) is not None for v in variables) < 2:
        return None
    reads: list[tuple[int, list[Index]]] = []
    for buffer, position in value.at(variables).loads:
        known = [s for v in variables if (s := _step(position, v)) is not None]
        if len(known) == value.rank:
            touched = index.product(
                s for s, t in zip(value.sizes, known, strict=True) if not (type(t) is int and t == 0)
            )
            reads.append((weight(touched) * buffer.dtype.itemsize, known))
    usual = list(range(value.rank))
    best, least = usual, _cost(usual, value, reads)
    for _, steps in reads:
        order = sorted(usual, key=lambda d: -weight(steps[d]) if weight(steps[d]) else -(2**62))
        if innermost and set(order[-innermost:]) != set(usual[-innermost:]):
            continue
        cost = _cost(order, value, reads)
        if cost < least:
            best, least = order, cost
    if best == usual:
        return None
    strides: list[Index] = [1] * value.rank
    step: Index = 1
    for d in reversed(best):
        strides[d] = step
        step = step * value.sizes[d]
    return tuple(strides)


def _step(position: Index, variable: Index) -> Index | None:
    found = index.the_var(variable)
    return 0 if found is None else index.coefficient(position, found)


def _cost(order: Sequence[int], value: Value, reads: Sequence[tuple[int, Sequence[Index]]]) -> int:
    """What it costs to read all this in loops of an order, in bytes that lie side by side."""
    inner = next((d for d in reversed(order) if isinstance(index.the_var(value.variables()[d]), Var)), order[-1])
    return sum(size * (1 if weight(steps[inner]) in (0, 1) else _APART) for size, steps in reads)


def weight(stride: Index | None) -> int:
    """A number that orders strides and sizes: symbolic ones count as large."""
    if stride is None:
        return 0
    if type(stride) is int:
        return stride
    assert isinstance(stride, index.Ix)
    return max(coef * 1000 ** len(mono) for mono, coef in stride.terms)
