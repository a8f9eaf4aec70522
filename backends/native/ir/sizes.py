"""Sizes as torch knows them, as indices: expressions of symbols, and what is made of them once for all.

A window that moves over a size leaves ``1 + (size - window) // step`` places.  Such a size has a name, as if it were a
symbol: positions are then polynomials of names, which divide without a remainder where a quotient would stay one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch

from torchmux import torch_internals as internals

from . import index
from .index import Index
from .operations import Unsupported


class SymbolicSizes:
    """Sizes of torch's symbolic shapes as index expressions; collects the symbols that come up."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}
        self._symbols: dict[Any, Index] = {}
        self.given: dict[Any, str] = {}  # expressions that are inputs themselves, and what they are called
        self.places: dict[str, Index] = {}  # what counts the places of windows is called, and how it follows
        self._quotients: dict[Any, Index] = {}  # those in such numbers, by what these are called

    def __call__(self, value: Any) -> Index:
        if isinstance(value, int):
            return int(value)
        if isinstance(value, torch.SymInt):
            return self._expression(value.node.expr, value.node.shape_env)
        raise Unsupported(f"{type(value).__name__} where a size is expected")

    def take(self, expr: Any, name: str) -> None:
        """An expression is an input itself, of this name."""
        self.given[expr] = name

    def name_places(self, values: Iterable[Any]) -> None:
        """Name the sizes of tensors that are a number and a quotient; what comes later says the quotient by it."""
        for value in values:
            for size in value.shape if isinstance(value, torch.Tensor) else ():
                expr = size.node.expr if isinstance(size, torch.SymInt) else None
                if expr is None or (parts := _in_parts(expr)) is None or parts[1] in self._quotients:
                    continue
                number, quotient = parts
                env = size.node.shape_env
                least, usual = internals.least_size(env, expr), internals.usual_of(env, expr)
                with contextlib.suppress(Unsupported):  # it says so where it is needed
                    name = self.given.get(expr)
                    if name is None:
                        formula = self._expression(expr, env)
                        if not _has_quotient(formula):
                            continue
                        name = f"places{len(self.places)}"
                        self.places[name] = formula
                    self._quotients[quotient] = index.size(name, least, usual) - number

    def strides(self, tensor: torch.Tensor) -> tuple[Index, ...]:
        """The strides of a tensor: torch counts sizes of 0 as 1 there, which matters to none of the elements."""
        return tuple(
            self._expression(s.node.expr, s.node.shape_env, stride=True) if isinstance(s, torch.SymInt) else self(s)
            for s in tensor.stride()
        )

    def of(self, expr: Any, shape_env: Any) -> Index:
        """An expression of ``shape_env``."""
        return self._expression(expr, shape_env)

    def _expression(self, expr: Any, shape_env: Any, stride: bool = False) -> Index:
        if expr.is_Integer:
            return int(expr)
        if expr in self.given:
            least, usual = internals.least_of(shape_env, expr), internals.usual_of(shape_env, expr)
            return index.size(self.given[expr], least, usual)
        if expr in self._quotients:
            return self._quotients[expr]
        if expr.is_Symbol:
            if expr not in self._symbols:
                self._symbols[expr] = self._symbol(expr, shape_env)
            return self._symbols[expr]
        name = type(expr).__name__
        if name == "Max" and stride and len(expr.args) == 2 and expr.args[0] == 1:
            return self._expression(expr.args[1], shape_env, stride)
        if name in ("Add", "Mul"):
            parts = [self._expression(a, shape_env, stride) for a in expr.args]
            result = parts[0]
            for part in parts[1:]:
                result = result + part if name == "Add" else result * part
            return result
        if name == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
            base = self._expression(expr.args[0], shape_env, stride)
            return index.product([base] * int(expr.args[1]))
        if name in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"):
            left, right = (self._expression(a, shape_env, stride) for a in expr.args)
            if index.less(0, right):
                return index.floordiv(left, right) if name in ("FloorDiv", "CleanDiv") else index.remainder(left, right)
        if name in ("TruncToInt", "FloorToInt", "CeilToInt") and (scaled := _scaled(expr.args[0])) is not None:
            number, over, under = scaled
            whole = self._expression(number, shape_env, stride) * over
            if index.not_negative(whole):
                return index.floordiv(whole + (under - 1 if name == "CeilToInt" else 0), under)
        if (number := internals.settled(shape_env, expr)) is not None:
            return number
        raise Unsupported(f"the size {expr}")

    def _symbol(self, expr: Any, shape_env: Any) -> Index:
        """A symbol, as the multiple of a size where that is known: its parts then have no remainders."""
        # An integer that the user passes is a symbol like a size, and may be an index from the end.
        least = internals.least_of(shape_env, expr)
        factor = internals.factor_of(shape_env, expr) if least is not None else 1
        name = f"{expr}_{factor}" if factor > 1 else str(expr)
        self.seen[name] = expr
        usual = internals.usual_of(shape_env, expr)
        of_parts = least if least is None else -(-least // factor)
        return index.size(name, of_parts, usual if usual is None else usual // factor) * factor


def _in_parts(expr: Any) -> tuple[int, Any] | None:
    """The number and the quotient whose sum an expression is."""
    if type(expr).__name__ != "Add" or len(expr.args) != 2 or not expr.args[0].is_Integer:
        return None
    return (int(expr.args[0]), expr.args[1]) if type(expr.args[1]).__name__ in ("FloorDiv", "CleanDiv") else None


def _has_quotient(value: Index) -> bool:
    return isinstance(value, index.Ix) and any(isinstance(atom, index.Div) for atom in value.atoms())


_FINEST = 1 << 12
"""Integers up to some 2 ** 40 times a float that is a quotient of two numbers up to this are exact in floats."""


def _scaled(expr: Any) -> tuple[Any, int, int] | None:
    """What is scaled, and the factor as a quotient, if ``expr`` is an integer times a float, or by an integer, and that
    is exact."""
    if type(expr).__name__ == "IntTrueDiv":
        number, under = expr.args
        return (number, 1, int(under)) if under.is_Integer and 0 < under <= _FINEST else None
    if type(expr).__name__ != "Mul" or len(expr.args) != 2:
        return None
    factor, number = expr.args
    if not factor.is_Float or factor <= 0 or type(number).__name__ != "ToFloat":
        return None
    over, under = float(factor).as_integer_ratio()
    return (number.args[0], over, under) if max(over, under) <= _FINEST else None


def multiple(value: Index) -> tuple[str, int] | None:
    """The name of a size and a factor, if ``value`` is their product."""
    if not isinstance(value, index.Ix) or len(value.terms) > 1:
        return None
    ((atoms, factor),) = value.terms
    only = atoms[0] if len(atoms) == 1 else None
    return (only.key, factor) if isinstance(only, index.Size) and factor > 0 else None


def told_by(extents: Iterable[Any]) -> set[Any]:
    """Symbols of which a size or a stride is a multiple, or a part without a remainder."""
    sizes, found = SymbolicSizes(), set()
    for extent in extents:
        with contextlib.suppress(Unsupported):
            if isinstance(extent, torch.SymInt) and (told := multiple(sizes(extent))) is not None:
                found.add(sizes.seen[told[0]])
    return found
