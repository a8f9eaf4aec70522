"""Bounds of 64-bit integers: OpenVINO's CPU plugin keeps them in 32 bits, without a warning if they do not fit.

A node that returns int64 values is accepted only if its bounds are known and fit.  They follow from the graph, from
sizes, and from an assumption about the graph's inputs, which is checked at every call.  Floats are also followed, as
far as they are converted to integers.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

from torchmux import torch_internals as internals

from ..common.adapter import indices
from ..common.adapter.indices import Limits
from ..common.pipeline import aliasing

Bounds = tuple[float, float]

ASSUMED: Bounds = (-(2**24), 2**24)
"""The assumed bounds of a compiled part's integer inputs, such as token and position numbers."""

_SIZE: Bounds = (0, ASSUMED[1])
_FITS: Bounds = (-(2**31), 2**31 - 1)
_ROUNDED = 2.0**-20
"""More than the rounding errors of the few steps of float32 that are followed add up to."""
_NARROWER = (torch.int32, torch.int16, torch.int8, torch.uint8)
_KEY = "torchmux_integer_bounds"


def is_long(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.int64


def fit(node: Node) -> bool:
    """Whether all int64 values that ``node`` makes are known to fit into 32 bits."""
    found = _known(node)
    return found is not None and _FITS[0] <= found[0] and found[1] <= _FITS[1]


def sums_exactly(node: Node) -> bool:
    """Whether the sum ``node`` is known to stay where float32 has all integers."""
    found = _sum(node)
    return found is not None and found[0] >= -(2**24) and found[1] <= 2**24


def bounds(node: Node) -> Bounds:
    """The bounds of the integers of ``node``; the assumed bounds if nothing is known."""
    return _known(node) or ASSUMED


def assume(node: Node) -> Limits:
    """The range to check a part's input ``node`` for, at every call.

    It is narrower where the input is an index: torch complains about those that are out of range, OpenVINO does not.
    """
    assumed, wanted = Limits(*bounds(node)), indices.of_input(node)
    if wanted is None:
        return assumed
    wanted = _with_last_bag(wanted)
    return dataclasses.replace(wanted, low=max(assumed.low, wanted.low), high=min(assumed.high, wanted.high))


def _with_last_bag(wanted: Limits) -> Limits:
    """Torch lets the last bag be empty, and OpenVINO raises where it begins at the end."""
    return dataclasses.replace(wanted, high=wanted.high - wanted.bags)


def unchecked_index(node: Node) -> bool:
    """Whether ``node`` uses an index that the graph computes, and that is not known to be in range."""
    for index, limits in indices.limits(node):
        if limits is None:
            return True
        source, wanted = indices.origin(index, _with_last_bag(limits))
        if source.op == "placeholder":
            continue
        found = _known(source)
        if found is None or found[0] < wanted.low or found[1] > wanted.high:
            found = _computed(source)
        if found is None or found[0] < wanted.low or found[1] > wanted.high:
            return True
    return False


def _computed(node: Node) -> Bounds | None:
    """The exact bounds of numbers that depend on no input; None if they do, or are many."""
    found = indices.computed(node)
    if found is None or not found.numel():
        return None if found is None else (0, 0)
    return int(found.min()), int(found.max())


def _known(node: Node) -> Bounds | None:
    if _KEY not in node.meta:
        node.meta[_KEY] = _find(node)
    return node.meta[_KEY]


def _find(node: Node) -> Bounds | None:
    value = node.meta.get("val")
    if isinstance(value, (torch.SymInt, int)):
        return _SIZE
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
        return 0, 1
    if isinstance(value, torch.Tensor) and value.dtype in _NARROWER:
        return torch.iinfo(value.dtype).min, torch.iinfo(value.dtype).max
    if node.op == "placeholder":
        return ASSUMED if is_long(value) else None
    if node.op == "get_attr":
        return _of_tensor(node)
    if node.target is operator.getitem or aliasing.is_view(node):
        return _known(node.all_input_nodes[0])
    rule = _RULES.get(getattr(node.target, "overloadpacket", None))
    return rule(node) if rule is not None else None


def _of_tensor(node: Node) -> Bounds | None:
    held = getattr(node.graph.owning_module, str(node.target), None)
    if not isinstance(held, torch.Tensor) or not held.numel():
        return None
    low, high = held.aminmax()
    return low.item(), high.item()


# --- rules -----------------------------------------------------------------------------------------------------------


def _of(argument: Any) -> Bounds | None:
    """Bounds of an argument, a node or a number; of a float that is computed somehow there may be none."""
    if isinstance(argument, Node):
        return bounds(argument) if is_long(argument.meta.get("val")) else _known(argument)
    return (argument, argument) if isinstance(argument, (int, float)) else None


def _hull(*found: Bounds | None) -> Bounds | None:
    if any(f is None for f in found):
        return None
    known = [f for f in found if f is not None]
    return min(f[0] for f in known), max(f[1] for f in known)


def _moves(node: Node) -> Bounds | None:
    """The result holds elements of the tensors that go in, or zeros."""
    return _hull((0, 0), *(_of(n) for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)))


def _convert(node: Node) -> Bounds | None:
    """Minus infinity has no integer: torch converts it to the smallest integer, and so does OpenVINO, with 32 bits.

    Floats may have been rounded beyond their bounds: the largest int32 is 2^31 in float32.
    """
    found, value = _of(node.args[0]), node.meta["val"]
    if found is None or math.isnan(found[0]) or found[1] == math.inf:
        return None
    if node.args[0].meta["val"].is_floating_point() and not value.is_floating_point():
        found = (found[0] - _ROUNDED * abs(found[0]), found[1] + _ROUNDED * abs(found[1]))
    return (found[0], found[1]) if found[0] > -math.inf else (_FITS[0], max(found[1], _FITS[0]))


def _first(node: Node) -> Bounds | None:
    """The result holds elements of the first argument; further arguments say which."""
    return _of(node.args[0])


def _first_or_position(node: Node) -> Bounds | None:
    return _hull(_SIZE, _of(node.args[0]))


def _all_arguments(node: Node) -> Bounds | None:
    """The result holds elements of tensors and numbers among the arguments."""
    return _hull(*(_of(a) for a in (*node.args, *node.kwargs.values()) if isinstance(a, (Node, int, float))))


def _constant(node: Node) -> Bounds | None:
    return _hull((0, 1), *(_of(a) for a in node.args if isinstance(a, (Node, int, float))))


def _drawn(node: Node) -> Bounds | None:
    """``randint``: from a number, or from 0, up to below a number."""
    names = [argument.name for argument in internals.operator_schema(node.target).arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    low, high = given.get("low", 0), given["high"]
    return (low, high - 1) if type(low) is int and type(high) is int else None


def _filled(node: Node) -> Bounds | None:
    return _of(node.args[1])


def _interval(combine: Callable[[float, float], float]) -> Callable[[Node], Bounds | None]:
    def rule(node: Node) -> Bounds | None:
        left, right = _of(node.args[0]), _of(node.args[1])
        factor = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        if left is None or right is None or not isinstance(factor, (int, float)):
            return None
        corners = [combine(a, factor * b) for a in left for b in right]
        return None if any(map(math.isnan, corners)) else (min(corners), max(corners))

    return rule


def _quotient(node: Node) -> Bounds | None:
    """By a number, rounded to an integer or not."""
    found, divisor = _of(node.args[0]), node.args[1]
    if found is None or not isinstance(divisor, (int, float)) or not divisor:
        return None
    corners = found[0] / divisor, found[1] / divisor
    return min(corners) - 1, max(corners) + 1


def _logarithm(node: Node) -> Bounds | None:
    found = _of(node.args[0])
    if found is None:
        return None
    low, high = (math.log(v) if v > 0 else -math.inf for v in found)
    return low, high


def _as_large(node: Node) -> Bounds | None:
    """Not larger than the largest argument, with any sign."""
    found = _all_arguments(node)
    if found is None:
        return None
    most = max(abs(found[0]), abs(found[1]))
    return -most, most


def _bits(node: Node) -> Bounds | None:
    found = _as_large(node)
    if found is None:
        return None
    most = 2 ** int(found[1]).bit_length()
    return -most, most


def _sum(node: Node) -> Bounds | None:
    argument = node.args[0]
    found = _of(argument)
    if found is None or not isinstance(argument, Node):
        return None
    sizes = argument.meta["val"].shape
    count = math.prod(sizes) if all(type(s) is int for s in sizes) else ASSUMED[1]
    return min(0, found[0] * count), max(0, found[1] * count)


def _position(node: Node) -> Bounds | None:
    argument = node.args[0]
    sizes = argument.meta["val"].shape if isinstance(argument, Node) else ()
    if any(type(size) is not int for size in sizes):
        return _SIZE
    dim = node.args[1] if len(node.args) > 1 else None
    size = sizes[dim] if isinstance(dim, int) and len(sizes) else math.prod(sizes)
    return 0, max(size - 1, 0)


def _difference_from(node: Node) -> Bounds | None:
    """``rsub``: the second argument less the first one."""
    left, right = _of(node.args[0]), _of(node.args[1])
    if left is None or right is None or len(node.args) > 2 or node.kwargs:
        return None
    return right[0] - left[1], right[1] - left[0]


_aten = torch.ops.aten
_RULES: Mapping[Any, Callable[[Node], Bounds | None]] = {
    _aten.randint: _drawn,
    _aten.randint_like: _drawn,
    **dict.fromkeys(
        (_aten.cat, _aten.stack, _aten.hstack, _aten.vstack, _aten.clone, _aten.repeat, _aten.flip,
         _aten.roll, _aten.tril, _aten.triu, _aten.copy, _aten.lift_fresh_copy, _aten.minimum, _aten.maximum,
         _aten.relu, _aten._unsafe_view, _aten.view_copy, _aten.expand_copy),
        _moves,
    ),
    **dict.fromkeys(
        (_aten.gather, _aten.index, _aten._unsafe_index, _aten.index_select, _aten.embedding, _aten.amax, _aten.amin,
         _aten.take_along_dim, _aten.repeat_interleave),
        _first,
    ),
    **dict.fromkeys((_aten.sort, _aten.topk, _aten.max, _aten.min, _aten.cummax), _first_or_position),
    **dict.fromkeys((_aten.clamp, _aten.clamp_min, _aten.clamp_max, _aten.masked_fill, _aten.where), _all_arguments),
    **dict.fromkeys((_aten.arange, _aten.scalar_tensor, _aten.zeros, _aten.ones, _aten.zeros_like, _aten.ones_like,
                     _aten.new_zeros, _aten.new_ones, _aten.eye, _aten.constant_pad_nd), _constant),
    **dict.fromkeys((_aten.full, _aten.full_like, _aten.new_full, _aten.fill), _filled),
    **dict.fromkeys((_aten.floor_divide, _aten.remainder, _aten.neg, _aten.abs, _aten.sign), _as_large),
    **dict.fromkeys((_aten.bitwise_and, _aten.bitwise_or, _aten.bitwise_xor, _aten.bitwise_not), _bits),
    **dict.fromkeys((_aten.sum, _aten.cumsum), _sum),
    **dict.fromkeys((_aten.argmax, _aten.argmin, _aten.argsort, _aten.nonzero), _position),
    _aten._to_copy: _convert,
    _aten.log: _logarithm,
    _aten.div: _quotient,
    _aten.add: _interval(operator.add),
    _aten.sub: _interval(operator.sub),
    _aten.rsub: _difference_from,
    _aten.mul: _interval(operator.mul),
}  # fmt: skip
