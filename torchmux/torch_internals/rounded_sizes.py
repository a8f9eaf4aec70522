"""Sizes that are rounded up and divided, in the shortest form: what torch's ShapeEnv leaves as it was computed.

Models that cut images into windows make ``h + (-h) % 4`` rows of them and divide those by their quotients.  torch
writes each step into the next, tries to simplify the whole for each question, and takes minutes for one model.
"""

from __future__ import annotations

from typing import Any


class RoundedSizes:
    """Shortens expressions, and remembers each.

    Two identities of integers are applied, from the inside out.  ``a + (-a) % c`` is ``c * ((a + c - 1) // c)`` for a
    positive number ``c``.  A product divided by some of its factors is the product of the others; where such a factor
    is zero, the program's own division has raised already.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def __call__(self, expr: Any) -> Any:
        """``expr``, or what equals it for all values of its symbols."""
        if not expr.args:
            return expr
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._shortened(expr)
        return found

    def _shortened(self, expr: Any) -> Any:
        args = tuple(map(self, expr.args))
        if any(new is not old for new, old in zip(args, expr.args, strict=True)):
            expr = expr.func(*args)
        if type(expr).__name__ == "FloorDiv":
            return self._divided(expr)
        return self._rounded_up(expr) if expr.is_Add else expr

    def _divided(self, expr: Any) -> Any:
        divisor = expr.args[1].as_powers_dict()
        terms = []
        for term in _terms(expr.args[0]):
            factors = term.as_powers_dict()
            for factor, power in divisor.items():
                left = factors.get(factor, 0) - power
                if factor.is_number or not left.is_Integer or left < 0:
                    return expr
                factors[factor] = left
            terms.append(_product(factors))
        return sum(terms)

    def _rounded_up(self, expr: Any) -> Any:
        for term in expr.args:
            if type(term).__name__ in ("Mod", "PythonMod") and term.args[1].is_Integer and term.args[1] > 0:
                lacks, multiple = term.args
                number = -_without_remainders(lacks, multiple)
                rest = expr - term - number
                if len(_terms(rest)) < len(expr.args) - 1:
                    floor_div = _floor_div()
                    return self(rest + multiple * self(floor_div(number + multiple - 1, multiple)))
        return expr


def _terms(expr: Any) -> tuple[Any, ...]:
    if expr.is_Add:
        return tuple(expr.args)
    return () if expr.is_zero else (expr,)


def _product(factors: Any) -> Any:
    from sympy import Mul, Pow

    return Mul(*(Pow(factor, power) for factor, power in factors.items()))


def _without_remainders(expr: Any, multiple: Any) -> Any:
    """What leaves the same remainder when divided by ``multiple``, without multiples and remainders of it inside."""
    terms = []
    for term in _terms(expr):
        factor, rest = term.as_coeff_Mul()
        if rest.is_Number:
            term = factor * rest % multiple
        elif type(rest).__name__ in ("Mod", "PythonMod") and rest.args[1] == multiple and factor.is_Integer:
            term = factor * rest.args[0]
        terms.append(term)
    return sum(terms)


def _floor_div() -> Any:
    from torch.utils._sympy.functions import FloorDiv

    return FloorDiv
