"""Conversions from and to floating-point numbers of 8 bits, which lie in memory as bytes.

A value of such a type is its bytes: views of it are views of these.  Torch does all else with such numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import fx

from torchmux import torch_internals as internals

from ..ir import operations as ops
from ..ir.expressions import Node
from ..ir.operations import Unsupported, binary, compare, const, where
from ..ir.values import Value
from . import complex_numbers, pointwise, views  # noqa: F401  (the last one fills the registry's table)
from .registry import SUPPORTED, Context, Lowering, aten, table as usual


class _Format(NamedTuple):
    """How many bits the fraction has, what is added to the exponent, and the bits of the largest finite number."""

    fraction: int
    bias: int
    last: int
    has_infinity: bool


_FORMATS = {
    torch.float8_e4m3fn: _Format(3, 7, 0x7E, False),
    torch.float8_e5m2: _Format(2, 15, 0x7B, True),
}
_VIEWS = (
    aten.view.default, aten._unsafe_view.default, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.expand.default, aten.unsqueeze.default, aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.slice.Tensor, aten.select.int, aten.alias.default, aten.detach.default,
)  # fmt: skip
_CONVERSIONS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)


def is_float8(node: fx.Node) -> bool:
    """Whether ``node`` is a tensor of such numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _FORMATS


def concerns(node: fx.Node) -> bool:
    """Whether ``node`` takes or makes a tensor of such numbers."""
    return is_float8(node) or any(map(is_float8, node.all_input_nodes))


def is_lowered(node: fx.Node) -> bool:
    """Whether ``node`` converts such numbers, or shows them to what does and to nothing else."""
    read = [n.meta["val"] for n in node.all_input_nodes if is_float8(n)]
    if any(type(n) is not int for v in read for n in (*v.shape, *v.stride())):
        return False
    if node.target in _CONVERSIONS:
        known = {n.meta["val"].dtype for n in (node, *node.all_input_nodes) if not is_float8(n)}
        return len(known) == 1 and known <= set(SUPPORTED)
    return node.target in _VIEWS and all(map(is_lowered, node.users))


def _bytes(ctx: Context, a: Value) -> Value:
    if a.dtype not in _FORMATS:
        return a
    shown = complex_numbers.shown(ctx, a, torch.uint8)
    if shown is None:
        raise Unsupported(f"numbers of {a.dtype} that are no input as it is")
    return Value(a.sizes, torch.uint8, None, shown.place)


def _seen(lowering: Lowering) -> Callable[..., Any]:
    def lower(ctx: Context, a: Value, *args: Any, **options: Any) -> Any:
        if not is_lowered(ctx.node):  # the part of the graph that converts is another one
            raise Unsupported(f"tensors of {ctx.dtype}")
        return lowering(ctx, _bytes(ctx, a), *args, **options)

    return lower


def _converted(ctx: Context, a: Value, *args: Any, **options: Any) -> Value:
    if is_float8(ctx.node):
        if any(not (user.op == "output" or is_lowered(user)) for user in ctx.node.users):
            raise Unsupported(f"tensors of {ctx.dtype}")
        given, made = pointwise.converted(a, torch.float32), _FORMATS[ctx.node.meta["val"].dtype]
        large = _of_large(ctx.node.meta["val"].dtype)
        return Value(a.sizes, torch.uint8, lambda at: ops.cast(_bits(given.at(at), made, large), torch.uint8))
    form, stored = _FORMATS[ctx.node.all_input_nodes[0].meta["val"].dtype], _bytes(ctx, a)
    return Value(stored.sizes, ctx.dtype, lambda at: ops.round_to(_number(stored.at(at), form), ctx.dtype))


def _int(value: int) -> Node:
    return const(value, torch.int32)


def _number(byte: Node, form: _Format) -> Node:
    """The number of float32 that has these bits."""
    whole = ops.cast(byte, torch.int32)
    size = binary("and", whole, _int(0x7F))
    moved = binary("shl", size, _int(23 - form.fraction))
    number = ops.reinterpreted("number", binary("add", moved, _int((127 - form.bias) << 23)), torch.float32)
    # Small numbers are exact multiples of the least one; computed so, no subnormal number of float32 comes up.
    least = const(2.0 ** (1 - form.bias - form.fraction), torch.float32)
    small = binary("mul", ops.cast(size, torch.float32), least)
    found = where(compare("lt", size, _int(1 << form.fraction)), small, number)
    beyond: Node = const(math.nan, torch.float32)
    if form.has_infinity:
        beyond = where(compare("eq", size, _int(form.last + 1)), const(math.inf, torch.float32), beyond)
    bits = ops.reinterpreted("bits", where(compare("gt", size, _int(form.last)), beyond, found), torch.int32)
    sign = binary("shl", binary("and", whole, _int(0x80)), _int(24))
    return ops.reinterpreted("number", binary("or", bits, sign), torch.float32)


@functools.cache
def _of_large(dtype: torch.dtype) -> tuple[int, int]:
    """The bits that torch makes of a number that is too large, and of infinity: versions differ."""
    with internals.without_modes():
        made = torch.tensor([1e9, math.inf]).to(dtype).view(torch.uint8)
        return int(made[0]), int(made[1])


def _bits(number: Node, form: _Format, of_large: tuple[int, int]) -> Node:
    """The bits of the nearest number of 8 bits; of two that are as near, the one whose last bit is 0."""
    whole, dropped = ops.reinterpreted("bits", number, torch.int32), 23 - form.fraction
    size = binary("and", whole, _int(0x7FFFFFFF))
    is_odd = binary("and", binary("shr", size, _int(dropped)), _int(1))
    up = _int(((form.bias - 127) << 23) + (1 << (dropped - 1)) - 1)
    usual = binary("shr", binary("add", binary("add", size, up), is_odd), _int(dropped))
    # A number whose last bit stands for the least number of 8 bits rounds what is added to it to a multiple of that.
    large = (127 - form.bias + dropped + 1) << 23
    sum_ = binary("add", *(ops.reinterpreted("number", n, torch.float32) for n in (size, _int(large))))
    small = binary("sub", ops.reinterpreted("bits", sum_, torch.int32), _int(large))
    found = where(compare("lt", size, _int((128 - form.bias) << 23)), small, usual)
    too_large, infinite = map(_int, of_large)
    found = where(compare("gt", found, _int(form.last)), too_large, found)
    found = where(compare("eq", size, _int(255 << 23)), infinite, found)
    found = where(compare("gt", size, _int(255 << 23)), _int(0x7F), found)
    return binary("or", found, binary("and", binary("shr", whole, _int(24)), _int(0x80)))


table: dict[Any, Lowering] = {
    **{op: _seen(usual[op]) for op in _VIEWS if op in usual},
    **dict.fromkeys(_CONVERSIONS, _converted),
}
"""Lowerings of what takes or makes numbers of 8 bits."""
