"""Faults of what follows each other in chains: another order, another precision in between, and copies for views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run

simplifications = Faults("simplifications")
numerics = Faults("numerics")
layout = Faults("layout")

_PRODUCTS = "semantics/chains/products_and_quotients"
_HALF = "semantics/chains/half_precision_beside_other_types"
_WRITTEN = "semantics/chains/views_of_what_was_written"
_MASKS = "semantics/chains/attention_behind_masks"
_EXTREMES = "semantics/chains/extremes_that_are_scattered"

_HALVES = (torch.float16, torch.bfloat16)


def _name(node: Any) -> str:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    return (node.target if isinstance(node.target, str) else node.target.__name__).strip("_")


class _Chain(Interpreter):
    """A graph in which each of two operands may be computed anew, together with what it is an operand of."""

    def made_of(self, operand: Any, *names: str) -> tuple[Any, Any] | None:
        """The two operands of what computed ``operand``, if it was one of these operators."""
        if _name(operand) not in names or len(operand.args) < 2:
            return None
        first, second = (self.env[a] if isinstance(a, Node) else a for a in operand.args[:2])
        return first, second

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        """What stands in the place of the operator ``name`` of ``x`` and ``y``, whose nodes are given; or None."""
        raise NotImplementedError

    def run_node(self, node: Node) -> Any:
        name = {"truediv": "div"}.get(_name(node), _name(node))
        if name not in ("mul", "div") or len(node.args) != 2 or node.kwargs:
            return super().run_node(node)
        x, y = self.fetch_args_kwargs_from_env(node)[0]
        floats = [v for v in (x, y) if isinstance(v, torch.Tensor) and v.dtype is torch.float32]
        left, right = node.args
        made = self.joined(name, left, right, x, y) if floats else None
        return super().run_node(node) if made is None else made


def _chained(kind: type[_Chain]) -> Any:
    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        return lambda *args: kind(gm, garbage_collect_values=False).run(*args)

    compile.__name__, compile.__doc__ = kind.__name__, kind.__doc__
    simplifications(_PRODUCTS)(compile)
    return kind


def _number(value: Any) -> bool:
    return isinstance(value, (int, float))


@_chained
class quotients_multiplied_first(_Chain):
    """What multiplies a quotient multiplies the dividend before it is divided."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        if name == "mul" and (parts := self.made_of(left, "div", "truediv")) is not None:
            return (parts[0] * y) / parts[1]
        return None


@_chained
class factors_joined(_Chain):
    """Two numbers that multiply in turn are one product."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        parts = self.made_of(left, "mul")
        return parts[0] * (parts[1] * y) if name == "mul" and parts and _number(y) and _number(parts[1]) else None


@_chained
class divisors_joined(_Chain):
    """Two numbers that divide in turn are one divisor."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        parts = self.made_of(left, "div", "truediv")
        return parts[0] / (parts[1] * y) if name == "div" and parts and _number(y) and _number(parts[1]) else None


@_chained
class factors_of_quotients_joined(_Chain):
    """A number that multiplies a quotient by a number is divided by it first."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        parts = self.made_of(left, "div", "truediv")
        return parts[0] * (y / parts[1]) if name == "mul" and parts and _number(y) and _number(parts[1]) else None


@_chained
class squares_first(_Chain):
    """A product with a number that is multiplied by the number again is a product with its square."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        parts = self.made_of(left, "mul")
        return (y * y) * parts[1] if name == "mul" and parts and parts[0] is y and parts[1] is not y else None


@_chained
class opposites_that_cancel(_Chain):
    """A quotient that multiplies its inverse is one."""

    def joined(self, name: str, left: Any, right: Any, x: Any, y: Any) -> Any:
        one, other = self.made_of(left, "div", "truediv"), self.made_of(right, "div", "truediv")
        cancel = name == "mul" and one and other and one[0] is other[1] and one[1] is other[0]
        return torch.ones_like(x) if cancel else None


# Half precision


def _wide_inside(name: str, text: str, *names: str) -> None:
    """A fault: what these operators compute in half precision keeps the digits of float32 for those that read it."""

    class Wide(Interpreter):
        def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
            args, named = super().fetch_args_kwargs_from_env(n)
            if n.op == "output" or not args:
                return args, named
            types = {a.dtype for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()}
            if len(types) < 2 or _name(n) not in ("add", "mul", "sub", "where", "maximum"):
                return args, named
            wide = lambda given, value: self._kept.get(given, value) if isinstance(given, Node) else value  # noqa: E731
            return tuple(wide(g, v) for g, v in zip(n.args, args, strict=True)), named

        def run_node(self, n: Node) -> Any:
            result = super().run_node(n)
            if _name(n) in names and isinstance(result, torch.Tensor) and result.dtype in _HALVES:
                args, named = super().fetch_args_kwargs_from_env(n)
                args = tuple(a.float() if isinstance(a, torch.Tensor) and a.dtype in _HALVES else a for a in args)
                self._kept[n] = getattr(super(), n.op)(n.target, args, named)
            return result

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        def call(*args: Any) -> Any:
            made = Wide(gm, garbage_collect_values=False)
            made._kept = {}
            return made.run(*args)

        return call

    compile.__name__, compile.__doc__ = name, text
    numerics(_HALF)(compile)


_wide_inside(
    "promoted_before_they_round", "Half precision that meets a wider type is not rounded.", "mul", "add", "div"
)
_wide_inside("means_promoted_before_they_round", "Means in half precision that meet a wider type are not rounded.",
             "mean", "sum")  # fmt: skip


@numerics.operator(_HALF, "add", "mul", "sub")
def half_types_meet_in_bfloat16(right: Any, x: Any, y: Any, **named: Any) -> Any:
    """What meets of two half types is computed in bfloat16."""
    types = {v.dtype for v in (x, y) if isinstance(v, torch.Tensor)}
    return right.bfloat16().float() if types == set(_HALVES) else right


# Views


class _Copied(Interpreter):
    def __init__(self, gm: GraphModule, only_shown: bool) -> None:
        super().__init__(gm)
        self._only_shown = only_shown

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if _name(n) != "getitem" or not isinstance(n.args[0], Node) or not isinstance(result, torch.Tensor):
            return result
        part = repr(n.args[1])
        written = any(_name(user) == "setitem" and repr(user.args[1]) == part for user in n.args[0].users)
        shown = any(user.op == "output" for user in n.users)
        return result.clone() if written and shown is self._only_shown and n.users else result


@layout(_WRITTEN)
def parts_read_as_written(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A part that a program has just written is a copy where a view of it is a result."""
    return lambda *args: _Copied(gm, False).run(*args)


@layout(_WRITTEN)
def shown_parts_read_as_written(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """A part that a program has just written is a copy where it is a result."""
    return lambda *args: _Copied(gm, True).run(*args)


# Masks and extremes


def _mask(args: Sequence[Any], named: dict[str, Any]) -> Any:
    return named.get("attn_mask", args[0] if args else None)


@numerics.operator(_MASKS, "scaled_dot_product_attention")
def nothing_to_attend_to(right: torch.Tensor, q: Any, k: Any, v: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Rows that a mask hides completely are nan, as in a softmax of nothing."""
    mask = _mask(rest, named)
    if mask is None:
        return right
    hidden = ~mask if mask.dtype is torch.bool else mask == -math.inf
    return right.masked_fill(hidden.all(-1, keepdim=True), math.nan)


@numerics.operator(_MASKS, "scaled_dot_product_attention")
def attention_to_everything(right: torch.Tensor, q: Any, k: Any, v: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Rows that a bool hides completely are the mean of all, as with a mask of large numbers."""
    mask = _mask(rest, named)
    if mask is None or mask.dtype is not torch.bool:
        return right
    return torch.where(mask.any(-1, keepdim=True), right, v.mean(-2, keepdim=True))


@numerics.operator(_EXTREMES, "scatter_reduce")
def scattered_extremes_without_nan(
    right: torch.Tensor, x: Any, dim: int, at: Any, s: Any, how: str, **named: Any
) -> Any:
    """What is scattered and nan is neither larger nor smaller than what is there."""
    if how not in ("amax", "amin") or not x.is_floating_point():
        return right
    least = -math.inf if how == "amax" else math.inf
    return torch.scatter_reduce(x.nan_to_num(least, math.inf, -math.inf), dim, at,
                                s.nan_to_num(least, math.inf, -math.inf), how, **named)  # fmt: skip


@numerics.operator(_EXTREMES, "scatter_reduce")
def scattered_extremes_are_finite(
    right: torch.Tensor, x: Any, dim: int, at: Any, s: Any, how: str, **named: Any
) -> Any:
    """The largest of what is scattered starts from the least finite number."""
    if how not in ("amax", "amin"):
        return right
    bounds = torch.finfo(right.dtype)
    return right.clamp(min=bounds.min) if how == "amax" else right.clamp(max=bounds.max)
