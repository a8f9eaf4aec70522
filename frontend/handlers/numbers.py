"""Functions of numbers that may be symbolic: rounding, ``math``, ``min`` and ``max``, ``torch.sym_*``, and checks."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..sizes import read_numbers
from ..trace import expectations
from ..values.base import Raised, Value
from ..values.constants import ConstValue, SymValue
from ..values.containers.sequences import TupleValue
from ..values.objects import ObjectValue
from ..values.scalars import ReadNumber, draw
from ..values.tensors import TensorValue
from .resolve import polyfill_of
from .table import FUNCTIONS, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE = ConstValue(None)


# --- rounding and conversion --------------------------------------------------------------------------------------


def _rounding(function: Any, method: str) -> None:
    def answer(tr: Tracer, value: Value) -> Value:
        if isinstance(value, SymValue):
            if value.pytype() is not float:  # whole already
                return tr.emit("call_function", function, [value], {}) if function is torch.sym_float else as_int(value)
            return tr.emit("call_function", function, [value], {})
        if isinstance(value, TensorValue):
            return value.call_method(tr, f"__{method}__", [], {})
        if isinstance(value, ObjectValue) and (found := value.special(tr, f"__{method}__")) is not None:
            return found.call(tr, [], {})
        return tr.fold(function, [value.const(tr)], {})

    handles(function)(answer)

    def as_int(value: SymValue) -> Value:
        return value if value.pytype() is int else ConstValue(int(value.sym))


for _function, _name in (
    (torch.sym_int, "int"), (torch.sym_float, "float"), (math.floor, "floor"), (math.ceil, "ceil"),
    (math.trunc, "trunc"),
):  # fmt: skip
    _rounding(_function, _name)


# --- math ---------------------------------------------------------------------------------------------------------

# Where Python raises ValueError instead of computing.
_DOMAINS: dict[Any, list[tuple[str, int]]] = {
    math.sqrt: [(">=", 0)],
    math.log2: [(">", 0)],
    math.asin: [(">=", -1), ("<=", 1)],
    math.acos: [(">=", -1), ("<=", 1)],
}


def _symbolic_math(function: Any, symbolic: Any) -> None:
    def answer(tr: Tracer, value: Value) -> Value:
        if isinstance(value, SymValue) and value.pytype() is not bool:
            domain = _DOMAINS.get(function, [])
            if all(tr.compare(relation, value, ConstValue(bound)).truth(tr) for relation, bound in domain):
                return tr.emit("call_function", symbolic, [value], {})
        elif isinstance(value, TensorValue):
            value = value.call_method(tr, "__float__", [], {})
        return tr.computed(function, [value]) or tr.fold(function, [value.const(tr)], {})

    handles(function)(answer)


for _function, _symbolic in ti.symbolic_math().items():
    _symbolic_math(_function, _symbolic)


def _angle(function: Any, factor: float) -> None:
    def answer(tr: Tracer, value: Value) -> Value:
        if isinstance(value, SymValue):
            return tr.binary("*", value, ConstValue(factor))
        if isinstance(value, TensorValue):
            value = value.call_method(tr, "__float__", [], {})
        return tr.fold(function, [value.const(tr)], {})

    handles(function)(answer)


_angle(math.degrees, 180 / math.pi)  # which is how Python computes them
_angle(math.radians, math.pi / 180)


def _is_finite(value: SymValue) -> bool:
    """Whether a symbol is known to be finite: infinity and nan are constants, but a computed float may overflow."""
    return value.pytype() is int or value.sym.node.expr.is_symbol


def _finite(function: Any) -> None:
    def answer(tr: Tracer, value: Value) -> Value:
        if isinstance(value, SymValue) and not tr.depends_on_data(value.sym) and _is_finite(value):
            return ConstValue(function(1.0))
        if isinstance(value, TensorValue):
            value = value.call_method(tr, "__float__", [], {})
        return tr.fold(function, [value.const(tr)], {})

    handles(function)(answer)


for _function in (math.isfinite, math.isinf, math.isnan):
    _finite(_function)


@handles(math.isclose)
def isclose(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
    """As Python computes it, where one of the numbers changes."""
    values = [v.call_method(tr, "__float__", [], {}) if isinstance(v, TensorValue) else v for v in args]
    rel_tol, abs_tol = kwargs.get("rel_tol", ConstValue(1e-9)), kwargs.get("abs_tol", ConstValue(0.0))
    numbers = [*values, rel_tol, abs_tol]
    is_plain = len(values) == 2 and kwargs.keys() <= {"rel_tol", "abs_tol"} and all(map(_is_known_finite, numbers))
    if not is_plain or not any(isinstance(value, SymValue) for value in numbers):
        return tr.fold(math.isclose, [v.const(tr) for v in values], {n: v.const(tr) for n, v in kwargs.items()})
    left, right, rel_tol, abs_tol = (v if v.pytype() is float else FUNCTIONS[torch.sym_float](tr, v) for v in numbers)
    zero = ConstValue(0.0)

    def holds(symbol: str, a: Value, b: Value) -> bool:
        return tr.compare(symbol, a, b).truth(tr)

    if holds("<", rel_tol, zero) or holds("<", abs_tol, zero):
        raise Raised(tr.make_exception(ValueError, "tolerances must be non-negative"))
    if holds("==", left, right):
        return ConstValue(True)
    apart = tr.binary("-", right, left) if holds("<", left, right) else tr.binary("-", left, right)
    sizes = (value if holds(">", value, zero) else tr.unary("-", value) for value in (right, left))
    near = any(holds("<=", apart, tr.binary("*", rel_tol, size)) for size in sizes)
    return ConstValue(near or holds("<=", apart, abs_tol))


def _is_known_finite(value: Value) -> bool:
    if isinstance(value, SymValue):
        return _is_finite(value)
    return isinstance(value, ConstValue) and type(value.value) in (int, float) and math.isfinite(value.value)


@handles(math.isqrt)
def isqrt(tr: Tracer, value: Value) -> Value:
    if isinstance(value, SymValue) and value.pytype() is int and not tr.depends_on_data(value.sym):
        if tr.decide(value.sym >= 0) and tr.decide(value.sym < 2**52):  # where floats do not round up to the next whole
            return FUNCTIONS[math.floor](tr, FUNCTIONS[math.sqrt](tr, value))
    return tr.fold(math.isqrt, [value.const(tr)], {})


@handles(math.pow)
def math_pow(tr: Tracer, base: Value, exponent: Value) -> Value:
    """A decay for a number of steps is ``**``; anything else may raise other errors than it, and is a constant."""
    if isinstance(exponent, SymValue) and isinstance(base, ConstValue) and not tr.depends_on_data(exponent.sym):
        is_decay = type(base.value) in (int, float) and 0 < base.value <= 1 and exponent.pytype() is not bool
        if is_decay and tr.compare(">=", exponent, ConstValue(0)).truth(tr):
            return tr.binary("**", ConstValue(float(base.value)), FUNCTIONS[torch.sym_float](tr, exponent))
    values = [v.call_method(tr, "__float__", [], {}) if isinstance(v, TensorValue) else v for v in (base, exponent)]
    return tr.computed(math.pow, values) or tr.fold(math.pow, [v.const(tr) for v in values], {})


# --- the least and the greatest -----------------------------------------------------------------------------------


def _is_algebraic(value: Value) -> bool:
    """Whether a float may be compared by algebra, which knows no nan and no sign of zero."""
    return isinstance(value, SymValue) or (math.isfinite(value.real()) and value.real() != 0)


def _extreme(builtin: Any, symbolic: Any, read: Any) -> None:
    def numbers(values: list[Value]) -> bool:
        kinds = {value.pytype() for value in values}
        if len(kinds) != 1 or not kinds <= {int, float} or not any(isinstance(value, SymValue) for value in values):
            return False
        return kinds == {int} or all(map(_is_algebraic, values))

    def of_numbers(tr: Tracer, values: list[Value]) -> Value:
        found = values[0]
        for value in values[1:]:
            found = tr.emit("call_function", symbolic, [found, value], {}) if value is not found else found
        return found

    def answer(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        if not kwargs:
            values = args[0].unpack(tr) if len(args) == 1 else list(args)
            if len(values) > 1 and any(isinstance(value, ReadNumber) for value in values):
                return tr.emit("call_function", read, values, {})
            if len(values) > 1 and numbers(values):
                return of_numbers(tr, values)
            if len(args) == 1:
                args = (TupleValue(values),)  # an iterator can be used up only once
        polyfill = polyfill_of(tr, builtin)
        assert polyfill is not None
        return polyfill.call(tr, list(args), kwargs)

    def of_two(tr: Tracer, left: Value, right: Value) -> Value:
        if left.is_const() and right.is_const():
            return tr.fold(symbolic, [left.const(tr), right.const(tr)], {})
        return tr.emit("call_function", symbolic, [left, right], {})

    handles(builtin)(answer)
    handles(symbolic)(of_two)


_extreme(min, torch.sym_min, read_numbers.least)
_extreme(max, torch.sym_max, read_numbers.greatest)


@handles(torch.sym_not)
def sym_not(tr: Tracer, value: Value) -> Value:
    if isinstance(value, SymValue) and value.pytype() is bool:
        return tr.emit("call_function", torch.sym_not, [value], {})
    return ConstValue(not value.truth(tr))


@handles(torch.sym_ite)
def sym_ite(tr: Tracer, condition: Value, then: Value, otherwise: Value) -> Value:
    if isinstance(condition, SymValue):
        return tr.emit("call_function", torch.sym_ite, [condition, then, otherwise], {})
    return then if condition.truth(tr) else otherwise


@handles(torch.sym_sum)
def sym_sum(tr: Tracer, values: Value) -> Value:
    total: Value = ConstValue(0)
    for value in values.unpack(tr):
        total = tr.binary("+", total, value)
    return total


# --- checks -------------------------------------------------------------------------------------------------------


def _checking(function: Any, error: type[Exception]) -> None:
    def answer(tr: Tracer, condition: Value, *message: Value, **named: Value) -> Value:
        if isinstance(condition, SymValue) and tr.depends_on_data(condition.sym):
            return tr.emit("call_function", function, [condition], {})  # checked when the graph runs
        if condition.truth(tr):
            return NONE
        told = (message or list(named.values()))[:1]
        text = "Expected cond to be True, but got False."
        if told and told[0] is not NONE and not (isinstance(told[0], ConstValue) and told[0].value is None):
            text = tr.convert(told[0] if told[0].is_const() else told[0].call(tr, [], {}), "s").const(tr)
        else:
            text += " (Could this error message be improved? If so, please report an enhancement request to PyTorch.)"
        raise Raised(tr.make_exception(error, text))

    handles(function)(answer)


for _check, _error in (
    (torch._check, RuntimeError), (torch._check_index, IndexError), (torch._check_value, ValueError),
    (torch._check_type, TypeError), (torch._check_not_implemented, NotImplementedError),
):  # fmt: skip
    _checking(_check, _error)


@handles(torch._check_is_size)
def check_is_size(tr: Tracer, value: Value, *message: Value, **named: Value) -> Value:
    return FUNCTIONS[torch._check](tr, tr.compare(">=", value, ConstValue(0)), *message)


@handles(*ti.distribution_checks())
def distribution_check(tr: Tracer, condition: Value, *message: Value) -> Value:
    """Asked by branches alone, which only raise, so that the tensor serves as well as its bool."""
    return tr.emit("call_function", torch.all, [condition], {})


@handles(torch._check_tensor_all)
def check_tensor_all(tr: Tracer, condition: Value, *message: Value, **named: Value) -> Value:
    """A check that all elements are true is a branch that only raises."""
    if not isinstance(condition, TensorValue) or condition.example.dtype is not torch.bool:
        raise GraphBreak(breaks.OPERATION, f"torch._check_tensor_all of {condition.describe()}")
    holds = tr.emit("call_method", "all", [condition], {})
    if not isinstance(holds, TensorValue) or not expectations.may_expect(tr, holds):
        raise GraphBreak(breaks.DATA_DEPENDENT_BRANCH, f"a check depends on the value of {condition.describe()}")
    expectations.expect(tr, holds, True)
    return NONE


# --- numbers of Python's generators ---------------------------------------------------------------------------------


def _drawing(name: str) -> None:
    def answer(tr: Tracer, generator: Value, *args: Value, **kwargs: Value) -> Value:
        return draw(tr, generator, name, list(args), kwargs)

    handles(getattr(random.Random, name))(answer)


for _name in (
    "random", "uniform", "gauss", "normalvariate", "expovariate", "triangular", "betavariate", "randint", "randrange",
):  # fmt: skip
    _drawing(_name)
