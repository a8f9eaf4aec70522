"""Rewrites that hold for real numbers, or for most, and not for what computers have."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from .kit import Faults, Run

faults = Faults("simplifications")

Rewrite = Callable[[str, tuple[Any, ...], Callable[[Any], tuple[str, tuple[Any, ...]]]], Any]
"""From the name of an operator, its arguments, and a function that tells how an argument was computed."""

NOTHING = object()

UNMADE: tuple[str, Any] = ("", (None, None))
"""What no operator has computed."""


def rewrites(case: str) -> Callable[[Rewrite], Rewrite]:
    """A fault in pairs of operators: the function returns what replaces the second one, or :data:`NOTHING`."""

    def add(rewrite: Rewrite) -> Rewrite:
        def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
            class Rewritten(Interpreter):
                def run_node(self, node: Node) -> Any:
                    if node.op not in ("call_function", "call_method"):
                        return super().run_node(node)
                    args, _ = self.fetch_args_kwargs_from_env(node)

                    def made(position: int) -> tuple[str, Any]:
                        source = node.args[position]
                        if not isinstance(source, Node) or source.op not in ("call_function", "call_method"):
                            return UNMADE
                        return _name(source), tuple(self.kept.get(a, a) for a in source.args)

                    replaced = rewrite(_name(node), args, made)
                    self.kept[node] = super().run_node(node) if replaced is NOTHING else replaced
                    return self.kept[node]

                def run(self, *args: Any, **named: Any) -> Any:
                    nodes = [n for n in gm.graph.nodes if n.op == "placeholder"]
                    self.kept = dict(zip(nodes, args, strict=False))
                    return super().run(*args, **named)

            return lambda *args: Rewritten(gm).run(*args)

        compile.__name__, compile.__doc__ = rewrite.__name__, rewrite.__doc__
        faults("semantics/identities/" + case)(compile)
        return rewrite

    return add


def _name(node: Node) -> str:
    return (node.target if isinstance(node.target, str) else node.target.__name__).strip("_")


def _float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype is not torch.bool


@rewrites("nothing_and_one")
def times_nothing(name: str, args: Any, made: Any) -> Any:
    """A number times zero is zero."""
    if name == "mul" and any(type(a) is int and a == 0 for a in args):
        return next(torch.zeros_like(a) for a in args if isinstance(a, torch.Tensor))
    return NOTHING


@rewrites("nothing_and_one")
def less_itself(name: str, args: Any, made: Any) -> Any:
    """A number less itself is zero."""
    return torch.zeros_like(args[0]) if name == "sub" and args[0] is args[1] else NOTHING


@rewrites("nothing_and_one")
def by_itself(name: str, args: Any, made: Any) -> Any:
    """A number divided by itself is one."""
    return torch.ones_like(args[0]) if name == "truediv" and args[0] is args[1] and _float(args[0]) else NOTHING


@rewrites("nothing_and_one")
def plus_nothing(name: str, args: Any, made: Any) -> Any:
    """A number plus zero is the number, also if it is minus zero."""
    return args[0] * 1 if name == "add" and type(args[1]) is float and args[1] == 0 and _float(args[0]) else NOTHING


@rewrites("nothing_and_one")
def nothing_less_a_number(name: str, args: Any, made: Any) -> Any:
    """Zero less a number is its opposite, also if it is zero."""
    return -args[1] if name in ("sub", "rsub") and type(args[0]) is float and args[0] == 0 else NOTHING


@rewrites("nothing_and_one")
def masks_that_select(name: str, args: Any, made: Any) -> Any:
    """A number times a mask is a selection: infinity times zero is zero."""
    if name == "mul" and all(isinstance(a, torch.Tensor) for a in args):
        for a, b in (args, args[::-1]):
            if a.dtype is torch.bool and _float(b):
                return torch.where(a, b, torch.zeros_like(b))
    return NOTHING


@rewrites("nothing_and_one")
def the_number_it_is(name: str, args: Any, made: Any) -> Any:
    """A number is equal to itself, also if it is nan."""
    return torch.ones_like(args[0], dtype=torch.bool) if name == "eq" and args[0] is args[1] else NOTHING


@rewrites("orders")
def opposites_of_orders(name: str, args: Any, made: Any) -> Any:
    """What is not less is greater or equal."""
    first, given = made(0) if name in ("invert", "logical_not", "bitwise_not") else UNMADE
    opposite = {"lt": operator.ge, "ge": operator.lt, "gt": operator.le, "le": operator.gt}.get(first)
    return opposite(*given) if opposite and _float(given[0]) else NOTHING


@rewrites("orders")
def bounds_in_order(name: str, args: Any, made: Any) -> Any:
    """If bounds are in the wrong order, the lower one counts."""
    if name == "clamp" and len(args) == 3 and all(isinstance(a, int) for a in args[1:]) and args[1] > args[2]:
        return args[0].clamp(max=args[2]).clamp(min=args[1])
    return NOTHING


@rewrites("orders")
def bounds_without_nan(name: str, args: Any, made: Any) -> Any:
    """A bound that is nan is no bound."""
    if name == "clamp" and len(args) == 3 and isinstance(args[1], torch.Tensor):
        found = torch.fmin(torch.fmax(args[0], args[1]), args[2])
        return torch.where(args[0].isnan(), args[0], found)
    return NOTHING


@rewrites("orders")
def differences_for_orders(name: str, args: Any, made: Any) -> Any:
    """A difference is positive where one number is larger, also if it overflows or has no value."""
    if name == "gt" and type(args[1]) is int and args[1] == 0 and made(0)[0] == "sub":
        a, b = made(0)[1]
        return a >= b if _float(a) else a > b
    return NOTHING


@rewrites("integers_at_their_limits")
def differences_of_integers(name: str, args: Any, made: Any) -> Any:
    """A difference of integers is positive where one is larger, also if it wraps around."""
    if name == "gt" and type(args[1]) is int and args[1] == 0 and made(0)[0] == "sub" and _whole(args[0]):
        a, b = made(0)[1]
        return a > b
    return NOTHING


@rewrites("integers_at_their_limits")
def always_more(name: str, args: Any, made: Any) -> Any:
    """The next integer is larger, as where overflow is undefined."""
    if name == "gt" and made(0)[0] == "add" and _whole(args[0]) and made(0)[1][0] is args[1]:
        return torch.ones_like(args[0], dtype=torch.bool)
    return NOTHING


@rewrites("integers_at_their_limits")
def twice_by_two(name: str, args: Any, made: Any) -> Any:
    """Twice an integer by two is the integer."""
    first, given = made(0) if name == "floordiv" and type(args[1]) is int else UNMADE
    return given[0] * 1 if first == "mul" and given[1] == args[1] and _whole(args[0]) else NOTHING


@rewrites("integers_at_their_limits")
def never_negative(name: str, args: Any, made: Any) -> Any:
    """An absolute value is not negative."""
    if name == "lt" and made(0)[0] == "abs" and _whole(args[0]):
        return torch.zeros_like(args[0], dtype=torch.bool)
    return NOTHING


@rewrites("integers_at_their_limits")
def means_without_a_carry(name: str, args: Any, made: Any) -> Any:
    """Half of a sum of integers has the carry that the sum lost."""
    first, given = made(0) if name == "floordiv" and args[1] == 2 else UNMADE
    if first == "add" and _whole(args[0]) and isinstance(given[1], torch.Tensor):
        return torch.div(given[0].double() + given[1].double(), 2, rounding_mode="floor").to(args[0].dtype)
    return NOTHING


@rewrites("divisions_by_nothing")
def quotients_of_nothing(name: str, args: Any, made: Any) -> Any:
    """Integers divided by zero are zero."""
    if name in ("floordiv", "mod") and _whole(args[0]) and _whole(args[1]):
        safe = torch.where(args[1] == 0, torch.ones_like(args[1]), args[1])
        found = args[0] // safe if name == "floordiv" else args[0] % safe
        return torch.where(args[1] == 0, torch.zeros_like(found), found)
    return NOTHING


@rewrites("steps_that_do_not_cancel")
def joined_factors(name: str, args: Any, made: Any) -> Any:
    """Two factors are multiplied when the program is compiled."""
    first, given = made(0) if name == "mul" and type(args[1]) is float else UNMADE
    return given[0] * (given[1] * args[1]) if first == "mul" and type(given[1]) is float else NOTHING


@rewrites("steps_that_do_not_cancel")
def joined_terms(name: str, args: Any, made: Any) -> Any:
    """Two terms are added when the program is compiled."""
    first, given = made(0) if name == "sub" and type(args[1]) is float else UNMADE
    return given[0] + (given[1] - args[1]) if first == "add" and type(given[1]) is float else NOTHING


@rewrites("steps_that_do_not_cancel")
def factors_for_divisors(name: str, args: Any, made: Any) -> Any:
    """A division by a number is a product with its inverse, which may be infinite."""
    if name == "truediv" and type(args[1]) is float and _float(args[0]):
        return args[0] * (1 / torch.tensor(args[1], dtype=args[0].dtype))
    return NOTHING


@rewrites("steps_that_do_not_cancel")
def roots_of_squares(name: str, args: Any, made: Any) -> Any:
    """The root of a square is the absolute value."""
    return made(0)[1][0].abs() if name == "sqrt" and made(0)[0] == "square" else NOTHING


@rewrites("conversions_in_turn")
def conversions_and_back(name: str, args: Any, made: Any) -> Any:
    """A conversion and the one back are none."""
    if name == "float" and made(0)[0] in ("half", "bfloat16", "int") and made(0)[1][0].dtype is torch.float32:
        return made(0)[1][0] * 1
    return NOTHING


@rewrites("conversions_in_turn")
def one_conversion_for_two(name: str, args: Any, made: Any) -> Any:
    """Of two conversions in turn, the first one is left out."""
    if name in ("half", "bfloat16", "double") and made(0)[0] in ("half", "bfloat16") and _float(made(0)[1][0]):
        return made(0)[1][0].to(getattr(torch, {"half": "float16", "double": "float64"}.get(name, name)))
    return NOTHING


@rewrites("conversions_in_turn")
def truth_by_whole_numbers(name: str, args: Any, made: Any) -> Any:
    """A fraction becomes an integer before it becomes a bool."""
    return args[0].to(torch.int32).bool() if name == "bool" and _float(args[0]) else NOTHING
