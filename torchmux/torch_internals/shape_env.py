"""Symbolic sizes: torch's ShapeEnv, what it is told of inputs, and what it knows of expressions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

_located_shape_env: Any = None


def located_shape_env() -> Any:
    """A ShapeEnv that asks us for the line of the program instead of walking the Python stack for each guard.

    What it has for a symbol or an expression of symbols is in the form of :class:`RoundedSizes`.
    """
    global _located_shape_env
    if _located_shape_env is None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv, SLoc

        class LocatedShapeEnv(ShapeEnv):
            where: Callable[[], str] | None = None

            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                self._shortest = RoundedSizes()
                # torch asks for what stands in place of an expression as soon as this is not zero.
                self._replacements_version_counter = 1

            def replace(self, expr: Any) -> Any:
                return self._shortest(super().replace(expr))

            def _get_stack_summary(self, is_debug: bool = False, framework_loc: Any = None) -> tuple[Any, str]:
                return SLoc("", self.where() if self.where is not None else None), ""

        _located_shape_env = LocatedShapeEnv
    return _located_shape_env


class RoundedSizes:
    """Shortens sizes that are rounded up and divided, which torch leaves as they were computed, and remembers each.

    Models that cut images into windows make ``h + (-h) % 4`` rows of them and divide those by their quotients.  torch
    writes each step into the next, tries to simplify the whole for each question, and takes minutes for one model.

    Two identities of integers are applied, from the inside out.  ``a - a % c`` is ``c * (a // c)`` for a positive
    number ``c``, and ``a + (-a) % c`` is ``c * ((a + c - 1) // c)``.  A product divided by some of its factors is the
    product of the others; where such a factor is zero, the program's own division has raised already.
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
        return self._rounded(expr) if expr.is_Add else expr

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
            terms.append(math.prod(base**power for base, power in factors.items()))
        return sum(terms)

    def _rounded(self, expr: Any) -> Any:
        from torch.utils._sympy.functions import FloorDiv

        for term in expr.args:
            times, remainder = term.as_coeff_Mul()
            if type(remainder).__name__ not in ("Mod", "PythonMod") or not times.is_Integer:
                continue
            number, multiple = remainder.args
            if not multiple.is_Integer or multiple <= 0:
                continue
            number = _without_remainders(number, multiple)
            rest = expr - term + times * number
            if len(_terms(rest)) < len(expr.args) - 1:
                if number.could_extract_minus_sign():
                    return self(rest + times * multiple * self(FloorDiv(multiple - 1 - number, multiple)))
                return self(rest - times * multiple * self(FloorDiv(number, multiple)))
        return expr


def _terms(expr: Any) -> tuple[Any, ...]:
    if expr.is_Add:
        return tuple(expr.args)
    return () if expr.is_zero else (expr,)


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


def printed_source(source: Any) -> tuple[str, str, int | None]:
    """What ShapeEnv prints as ``x.size()[1]``: the name, the method and the index; of a number, the name alone."""
    from torch._dynamo.source import TensorPropertySource

    if isinstance(source, TensorPropertySource):
        return str(source.base.name), source.prop.method_name(), source.idx
    return str(source.name), "", None


def dim_kinds() -> Any:
    """How ShapeEnv may treat a dimension: ``STATIC``, ``DYNAMIC`` (a symbol of its own, whatever other sizes have the
    same value), ``DUCK`` (one symbol for equal sizes), ``UNBACKED``, ``INFER_STRIDE``."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    return DimDynamic


def dim_bounds(low: int | None, high: int | None) -> Any:
    """The constraint that a dimension lies between two bounds (None: open)."""
    return _bounds(2 if low is None else low, high)


def shape_guard_namespace() -> dict[str, Any]:
    """The names that printed shape guards use besides their variables."""
    from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

    return dict(SYMPY_INTERP)


def depends_on_data(number: Any) -> bool:
    """Whether a symbolic number follows from the data of a tensor."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return bool(free_unbacked_symbols(number))


def new_unbacked_symbols(shape_env: Any, value: Any) -> dict[Any, Any] | None:
    """The symbols that an operator's result has brought, and where in it they stand.

    Raises:
        LookupError: some are nowhere in it, since the operator is made of others that bring them.
    """
    from torch.fx.experimental.symbolic_shapes import PendingUnbackedSymbolNotFound, compute_unbacked_bindings

    try:
        return compute_unbacked_bindings(shape_env, value)
    except PendingUnbackedSymbolNotFound as error:
        raise LookupError(str(error)) from None


def insert_runtime_asserts(gm: Any, shape_env: Any) -> None:
    """Write what was taken for granted of numbers that depend on data into the graph, as checks."""
    from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

    insert_deferred_runtime_asserts(gm, shape_env, "torchmux")


def is_never_negative(shape_env: Any, expr: Any) -> bool:
    """Whether an expression of symbols is known to be at least zero."""
    return bool(shape_env.bound_sympy(expr).lower >= 0)


def least_of(shape_env: Any, expr: Any) -> int | None:
    """The least value that an expression of symbols is known to have, if it cannot be negative; None if it can."""
    lower = shape_env.bound_sympy(expr).lower
    return int(lower) if lower >= 0 and lower.is_finite else None


def least_size(shape_env: Any, expr: Any) -> int:
    """The least value that a size of a tensor is known to have: it is not negative, and guards say what else it is not.

    Whatever asked whether the tensor has elements, or more than one in a dimension, left such a guard.
    """
    least = least_of(shape_env, expr) or 0
    others = {g.expr.args[1] for g in shape_env.guards if type(g.expr).__name__ == "Unequality" and g.expr.lhs == expr}
    while any(other.is_Integer and other == least for other in others):
        least += 1
    return least


def settled(shape_env: Any, expr: Any) -> int | None:
    """The number that a quotient is, if a guard says that what is divided is so many times the divisor."""
    if type(expr).__name__ != "FloorDiv":
        return None
    number, divisor = expr.args
    for each in (g.expr.args for g in shape_env.guards if type(g.expr).__name__ == "Equality"):
        if number in each and (times := each[each[0] == number] / divisor).is_Integer:
            return int(times)
    return None


def usual_of(shape_env: Any, expr: Any) -> int | None:
    """What an expression of symbols was in the first call; None if it depends on data."""
    known = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    if not all(symbol in known for symbol in expr.free_symbols):
        return None
    value = expr.xreplace({symbol: known[symbol] for symbol in expr.free_symbols})
    return int(value) if value.is_Integer else None


def factor_of(shape_env: Any, symbol: Any) -> int:
    """A number by which the value of a symbol is known to be divisible.

    A view of ``n`` elements as rows of ``n // 4`` says that of ``n`` in two steps: it is divisible by ``n // 4``, which
    makes 4 of it.
    """
    known = [e.args for e in map(shape_env.replace, shape_env.divisible) if type(e).__name__ in ("Mod", "PythonMod")]
    found = [int(by) for number, by in known if number == symbol and by.is_Integer and by > 0]
    equal = [set(g.expr.args) for g in shape_env.guards if type(g.expr).__name__ == "Equality"]
    for part in (by for number, by in known if number == symbol):
        divisor = _divisor(part, symbol)
        if divisor is not None and {type(part)(symbol, part), divisor} in equal:
            found.append(int(divisor))
    return math.lcm(*found)


def _divisor(expr: Any, number: Any) -> Any:
    """The positive integer by which ``number`` is divided in an expression that rounds the quotient down, perhaps with
    the same positive factors above and below; None if it is another expression."""
    if type(expr).__name__ != "FloorDiv" or not all(s.is_positive for s in expr.free_symbols):
        return None
    divisor = number * expr.args[1] / expr.args[0]
    return divisor if divisor.is_Integer and divisor > 0 else None


def ranges_of(size: Any) -> dict[str, str]:
    """What is known of each symbol in a symbolic number, as text: the least and the largest value, and a factor."""
    env = size.node.shape_env
    return {str(s): f"{env.bound_sympy(s)} {factor_of(env, s)}" for s in size.node.expr.free_symbols}


def symbol_of(size: Any) -> Any:
    """The symbol that a symbolic integer was captured as; None for anything else, an expression of symbols too."""
    expr = size.node._expr if isinstance(size, torch.SymInt) else None
    return expr if expr is not None and expr.is_Symbol else None


def assumptions(mode: Any) -> list[Any]:
    """What the ShapeEnv of a fake mode has taken for granted so far, as expressions of symbols."""
    env = mode.shape_env if mode is not None else None
    return [] if env is None else [guard.expr for guard in env.guards]


def holds(expression: Any, symbols: Any) -> bool:
    """Whether an expression of :func:`assumptions` is true for these values of its symbols."""
    return bool(rebuild_symbolic(expression, symbols))


def as_python(expression: Any) -> str:
    """An expression of :func:`assumptions` as Python, for the namespace of :func:`shape_guard_namespace`."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression))


def size_range(size: Any) -> tuple[int, int, int | None]:
    """The least value of a symbolic size, the one it has in the first call, and the largest (None: unbounded)."""
    from torch.utils._sympy.numbers import int_oo

    node = size.node
    bounds = node.shape_env.bound_sympy(node.expr)
    return int(bounds.lower), int(node.hint), None if bounds.upper == int_oo else int(bounds.upper)


def possible_value(number: Any) -> Any:
    """What a symbolic number was in the first call; of one that depends on data, a value that it may have."""
    from torch.utils._sympy.numbers import int_oo

    node = number.node
    if node.hint is not None:
        return node.hint
    env = node.shape_env
    known = env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val

    def value(symbol: Any) -> Any:
        if symbol in known:
            return int(known[symbol])
        if not symbol.is_integer:
            return 1.5
        bounds = env.bound_sympy(symbol)
        least = 3 if bounds.lower == -int_oo else max(int(bounds.lower), 3)
        return least if bounds.upper == int_oo else min(least, int(bounds.upper))

    return rebuild_symbolic(node.expr, {s: value(s) for s in node.expr.free_symbols})


def symbolic_math() -> dict[Any, Any]:
    """Functions of ``math`` and what computes them on symbolic numbers."""
    names = ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
    return {getattr(math, n): f for n in names if (f := getattr(torch, f"_sym_{n}", None)) is not None}


def rebuild_symbolic(expr: Any, symbols: dict[Any, Any]) -> Any:
    """Evaluate a sympy expression by Python operators on ``symbols`` (symbol -> anything with operators).

    Raises:
        NotImplementedError: the expression has a function that operators cannot tell.
    """
    from torch.utils._sympy.interp import sympy_interp

    try:
        return sympy_interp(_operator_analysis(), symbols, expr)
    except AttributeError as error:  # it has no name for the function
        raise NotImplementedError(str(error)) from None


_operators_only: Any = None


def _operator_analysis() -> Any:
    """torch's way to evaluate expressions in Python, without what asks a number for its value."""
    global _operators_only
    if _operators_only is None:
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        class OperatorsOnly(PythonReferenceAnalysis):
            truediv = int_truediv = staticmethod(operator.truediv)
            pow = staticmethod(operator.pow)
            floor = staticmethod(lambda x: x // 1)
            ceil = staticmethod(lambda x: -(-x // 1))
            trunc_to_int = staticmethod(lambda x, dtype: torch.sym_int(x))
            floor_to_int = staticmethod(lambda x, dtype: torch.sym_int(x // 1))
            ceil_to_int = staticmethod(lambda x, dtype: -torch.sym_int(-x // 1))

            @staticmethod
            def pow_by_natural(base: Any, exponent: Any) -> Any:
                known = isinstance(exponent, int) and exponent > 0
                return functools.reduce(operator.mul, [base] * exponent) if known else base**exponent

            @staticmethod
            def round_to_int(x: Any, dtype: Any) -> Any:
                raise NotImplementedError("rounding is no operator")

            round_decimal = round_to_int

        _operators_only = OperatorsOnly
    return _operators_only


def told_symbol(shape_env: Any, symbol: Any) -> dict[str, Any]:
    """What :func:`made_symbol` needs to make a symbol of another ShapeEnv with the same name and the same range.

    Raises:
        ValueError: it stands for a number that depends on data.
    """
    from torch.utils._sympy.numbers import int_oo

    sources = shape_env.var_to_sources.get(symbol)
    known = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    if not sources or symbol not in known:
        raise ValueError(f"{symbol} depends on data, or is marked unbacked")
    name = sources[0].name
    found = {"symbol": symbol, "source": str(name() if not isinstance(name, str) else name), "hint": known[symbol]}
    if symbol.is_integer:
        bounds = shape_env.bound_sympy(symbol)
        low, high = (None if abs(end) == int_oo else int(end) for end in (bounds.lower, bounds.upper))
        found["range"] = (low, high)
    return found


def made_symbol(shape_env: Any, told: dict[str, Any], hint: int | float) -> Any:
    """A symbol as :func:`told_symbol` told it, which stands for ``hint`` in the first call."""
    symbol = told["symbol"]
    made = shape_env.create_symbol(
        hint,
        named_source(told["source"]),
        dynamic_dim=dim_kinds().DYNAMIC,
        constraint_dim=None if told.get("range") is None else _bounds(*told["range"]),
        positive=True if symbol.is_positive else None,
        do_not_specialize_zero_one=True,
    )
    return made


def _bounds(low: int | None, high: int | None) -> Any:
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    ends = -int_oo if low is None else low, int_oo if high is None else high
    return StrictMinMaxConstraint(vr=ValueRanges(*ends), warn_only=False)


def made_number(shape_env: Any, expr: Any, replaced: dict[Any, Any]) -> Any:
    """A symbolic number of a ShapeEnv for an expression; ``replaced`` are the symbols that have other names there."""
    expr = expr.xreplace(replaced)
    if expr.is_number:
        return int(expr) if expr.is_integer else float(expr)
    known = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    value = expr.xreplace({s: known[s] for s in expr.free_symbols})
    if expr.is_integer or all(s.is_integer for s in expr.free_symbols):
        return shape_env.create_symintnode(expr, hint=int(value))
    return shape_env.create_symfloatnode(expr, hint=float(value))


_plain_source: Any = None


def named_source(text: str) -> Any:
    """A source that is a name and nothing else."""
    global _plain_source
    if _plain_source is None:
        from torch._guards import GuardSource, Source

        class Name(str):
            """May be read as a property or called: torch 2.11 and 2.13 differ."""

            def __call__(self) -> str:
                return str(self)

        class NamedSource(Source):
            def __init__(self, name: str) -> None:
                self._text = name

            @property
            def name(self) -> str:
                return Name(self._text)

            @property
            def _name_template(self) -> str:
                return self._text

            def __hash__(self) -> int:
                return hash(self._text)

            def __eq__(self, other: object) -> bool:
                return isinstance(other, NamedSource) and other._text == self._text

            def is_ephemeral(self) -> bool:
                return False

            @property
            def guard_source(self) -> Any:
                return GuardSource.LOCAL

        _plain_source = NamedSource
    return _plain_source(text)
