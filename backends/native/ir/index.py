"""Integer expressions over loop variables and sizes: what indexes buffers.

An expression is a Python ``int`` or an :class:`Ix`, a polynomial with integer coefficients over atoms: loop variables,
symbolic sizes, floor divisions, remainders, and values that are read from memory.  Equal expressions are the same
object, so comparing two accesses compares two references.  General computer algebra is not needed here, and makes
lowering slow elsewhere.  It is enough that splitting and merging dimensions cancel, which follows from knowing that a
variable is smaller than its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Union

Index = Union[int, "Ix"]


class Atom:
    """What a polynomial is made of; ``key`` orders and identifies it."""

    __slots__ = ("key",)
    key: str

    def __repr__(self) -> str:
        return self.key

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


class Var(Atom):
    """A loop variable: ``0 <= var < size``."""

    __slots__ = ("size",)

    def __init__(self, key: str, size: Index) -> None:
        self.key = key
        self.size = size


class Size(Atom):
    """A number that is known when the code runs: never smaller than ``least``, or maybe negative if that is None.

    ``usual`` is what it was in the first call, if that is known: for what is chosen by speed alone.
    """

    __slots__ = ("least", "usual")

    def __init__(self, key: str, least: int | None = 0, usual: int | None = None) -> None:
        self.key = key
        self.least = least
        self.usual = usual


class Div(Atom):
    """``floor(left / right)``, ``right`` positive."""

    __slots__ = ("left", "right")

    def __init__(self, left: Index, right: Index) -> None:
        self.left, self.right = left, right
        self.key = f"(({left}) // ({right}))"


class Rem(Atom):
    """``left`` modulo ``right``, not negative; ``right`` positive."""

    __slots__ = ("left", "right")

    def __init__(self, left: Index, right: Index) -> None:
        self.left, self.right = left, right
        self.key = f"(({left}) % ({right}))"


class Data(Atom):
    """An index that is the value of a scalar expression, such as a row of an embedding."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node
        self.key = f"data{node.number}"


Monomial = tuple[Atom, ...]

_interned: dict[Any, Any] = {}


def forget() -> None:
    """Drop all interned expressions; those still in use stay valid but are no longer comparable with new ones."""
    _interned.clear()


def _intern(key: Any, make: Callable[[], Any]) -> Any:
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = make()
    return found


class Ix:
    """A polynomial that is not a constant: ``terms`` maps products of atoms to coefficients."""

    __slots__ = ("_free", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._free: frozenset[Var] | None = None

    # --- arithmetic -----------------------------------------------------------------------------------------------

    def __add__(self, other: Index) -> Index:
        terms = dict(self.terms)
        for mono, coef in _terms(other):
            terms[mono] = terms.get(mono, 0) + coef
        return _make(terms)

    __radd__ = __add__

    def __neg__(self) -> Index:
        return _make({mono: -coef for mono, coef in self.terms})

    def __sub__(self, other: Index) -> Index:
        return self + (-other)

    def __rsub__(self, other: Index) -> Index:
        return -self + other

    def __mul__(self, other: Index) -> Index:
        terms: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                mono = tuple(sorted(left + right))
                terms[mono] = terms.get(mono, 0) + a * b
        return _make(terms)

    __rmul__ = __mul__

    def __floordiv__(self, other: Index) -> Index:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Index) -> Index:
        return floordiv(other, self)

    def __mod__(self, other: Index) -> Index:
        return remainder(self, other)

    def __rmod__(self, other: Index) -> Index:
        return remainder(other, self)

    def __repr__(self) -> str:
        parts = []
        for mono, coef in self.terms:
            factors = [a.key for a in mono]
            if coef != 1 or not factors:
                factors.insert(0, str(coef))
            parts.append("*".join(factors))
        return " + ".join(parts)

    # --- questions ------------------------------------------------------------------------------------------------

    @property
    def free(self) -> frozenset[Var]:
        """The loop variables that it depends on."""
        if self._free is None:
            found: set[Var] = set()
            for mono, _ in self.terms:
                for atom in mono:
                    if isinstance(atom, Var):
                        found.add(atom)
                    elif isinstance(atom, (Div, Rem)):
                        found |= free(atom.left) | free(atom.right)
                    elif isinstance(atom, Data):
                        found |= atom.node.free
            self._free = frozenset(found)
        return self._free

    def atoms(self) -> Iterable[Atom]:
        for mono, _ in self.terms:
            for atom in mono:
                yield atom
                if isinstance(atom, (Div, Rem)):
                    for side in (atom.left, atom.right):
                        if isinstance(side, Ix):
                            yield from side.atoms()


def _terms(value: Index) -> Iterable[tuple[Monomial, int]]:
    if isinstance(value, Ix):
        return value.terms
    return (((), value),) if value else ()


def _make(terms: Mapping[Monomial, int]) -> Index:
    kept = tuple(sorted((item for item in terms.items() if item[1]), key=lambda item: [a.key for a in item[0]]))
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    result: Index = _intern(kept, lambda: Ix(kept))
    return result


def _of(atom: Atom) -> Index:
    return _make({(atom,): 1})


def var(key: str, size: Index) -> Index:
    """The loop variable ``key``; always 0 if its size is 1."""
    if type(size) is int and size == 1:
        return 0
    return _of(_intern(("var", key, size), lambda: Var(key, size)))


def size(key: str, least: int | None = 0, usual: int | None = None) -> Index:
    """The symbolic size ``key``; the first caller sets its minimum, and what it usually is."""
    return _of(_intern(("size", key), lambda: Size(key, least, usual)))


def data(node: Any) -> Index:
    """The value of a scalar expression as an index."""
    if node.op == "const":
        return int(node.attr)
    if node.op == "index":
        result: Index = node.attr
        return result
    return _of(_intern(("data", node), lambda: Data(node)))


def the_var(value: Index) -> Var | None:
    """The variable that ``value`` is, if it is nothing else."""
    if isinstance(value, Ix) and len(value.terms) == 1:
        mono, coef = value.terms[0]
        if coef == 1 and len(mono) == 1 and isinstance(mono[0], Var):
            return mono[0]
    return None


def the_data(value: Ix) -> Any:
    """The scalar expression whose value this is, if it is nothing else."""
    (mono, coef), *rest = value.terms
    return mono[0].node if not rest and coef == 1 and len(mono) == 1 and isinstance(mono[0], Data) else None


def free(value: Index) -> frozenset[Var]:
    return value.free if isinstance(value, Ix) else frozenset()


def coefficient(value: Index, variable: Var) -> Index | None:
    """The stride of ``variable`` in ``value``: None if ``value`` is not linear in it."""
    if not isinstance(value, Ix):
        return 0
    terms: dict[Monomial, int] = {}
    for mono, coef in value.terms:
        rest = tuple(a for a in mono if a is not variable)
        if len(rest) == len(mono):
            if any(variable in free_in(a) for a in mono):
                return None
        elif len(rest) == len(mono) - 1 and not any(variable in free_in(a) for a in rest):
            terms[rest] = terms.get(rest, 0) + coef
        else:
            return None
    return _make(terms)


def free_in(atom: Atom) -> frozenset[Var]:
    if isinstance(atom, (Div, Rem)):
        return free(atom.left) | free(atom.right)
    if isinstance(atom, Data):
        found: frozenset[Var] = atom.node.free
        return found
    return frozenset()


# --- bounds -----------------------------------------------------------------------------------------------------------


def not_negative(value: Index) -> bool:
    """Whether ``value >= 0`` can be shown for all variables and sizes."""
    if not isinstance(value, Ix):
        return value >= 0
    least = _least(value)
    return least is not None and least >= 0


def less(left: Index, right: Index) -> bool:
    """Whether ``left < right`` can be shown."""
    return not_negative(right - left - 1)


def usual(value: Index) -> int | None:
    """What an expression of sizes was in the first call, if all of these are known."""
    total = 0
    for mono, coef in _terms(value):
        for atom in mono:
            if (number := _usual_of(atom)) is None:
                return None
            coef *= number
        total += coef
    return total


def _usual_of(atom: Atom) -> int | None:
    if isinstance(atom, (Div, Rem)):
        left, right = usual(atom.left), usual(atom.right)
        return None if left is None or not right else left // right if isinstance(atom, Div) else left % right
    return atom.usual if isinstance(atom, Size) else None


def bounds(value: Index) -> tuple[int | None, int | None]:
    """The least and the greatest value, as far as they can be shown."""
    return _least_of(value), _greatest(value)


def _least(value: Ix) -> int | None:
    """A lower bound: variables go to the end that makes their terms small, sizes to their least value."""
    found = _interned.get(("least", value))
    if found is None:
        found = _interned[("least", value)] = (_find_least(value),)
    least: int | None = found[0]
    return least


def _find_least(value: Ix) -> int | None:
    if any(isinstance(atom, Size) and atom.least is None for mono, _ in value.terms for atom in mono):
        return None
    # A quotient last: where it is a size, the end of a loop cancels it.
    for mono, coef in sorted(value.terms, key=lambda term: any(isinstance(atom, Div) for atom in term[0])):
        for atom in mono:
            if isinstance(atom, Size):
                continue
            # The rest of this term must be a product of sizes, which is not negative.
            if any(not isinstance(a, Size) for a in mono if a is not atom):
                return None
            rest = _make({tuple(a for a in mono if a is not atom): coef})
            if isinstance(atom, Data):
                if atom.node.op not in ("check", "within"):
                    return None
                extent = atom.node.attr[0] if atom.node.op == "check" else atom.node.attr
                end = extent - 1
            elif isinstance(atom, Var):
                end = atom.size - 1
            elif isinstance(atom, Rem):
                end = atom.right - 1
            else:
                assert isinstance(atom, Div)
                bound = _least_of(atom.left) if coef > 0 else _greatest(atom.left)
                if bound is not None and type(atom.right) is int:
                    end = bound // atom.right
                elif coef > 0 and not_negative(atom.left):
                    end = 0
                else:
                    return None
                others = _make({m: c for m, c in value.terms if m != mono})
                replaced = others + rest * end
                return replaced if type(replaced) is int else _least(replaced) if isinstance(replaced, Ix) else None
            others = _make({m: c for m, c in value.terms if m != mono})
            replaced = others + (0 if coef > 0 else rest * end)
            return replaced if type(replaced) is int else _least(replaced) if isinstance(replaced, Ix) else None
    return _least_of_sizes(value)


def _least_of(value: Index) -> int | None:
    return _least(value) if isinstance(value, Ix) else value


def _greatest(value: Index) -> int | None:
    if not isinstance(value, Ix):
        return value
    negated = -value
    least = _least(negated) if isinstance(negated, Ix) else negated
    return None if least is None else -least


def _least_of_sizes(value: Ix) -> int | None:
    """With each size written as its least value plus something not negative, all coefficients but one must be so."""
    shifted: Index = 0
    for mono, coef in value.terms:
        product: Index = coef
        for atom in mono:
            assert isinstance(atom, Size) and atom.least is not None
            product = product * (size(atom.key + "'") + atom.least)
        shifted = shifted + product
    if not isinstance(shifted, Ix):
        return shifted
    if any(coef < 0 for mono, coef in shifted.terms if mono):
        return None
    return dict(shifted.terms).get((), 0)


# --- division ---------------------------------------------------------------------------------------------------------


def floordiv(left: Index, right: Index) -> Index:
    """``floor(left / right)`` for a positive ``right``."""
    if type(right) is int and right == 0:
        return 0  # a size of 0: there is no element whose index this is
    if type(left) is int and left == 0:
        return 0
    if type(left) is int and type(right) is int:
        return left // right
    quotient, rest, right, _ = _divide(left, right)
    if rest is None:
        return quotient
    if type(rest) is int and type(right) is int:  # of a sum of which all else could be divided
        return quotient + rest // right
    for mono, coef in _terms(rest):
        if coef == 1 and len(mono) == 1 and len(tuple(_terms(rest))) == 1 and isinstance(mono[0], Div):
            return quotient + floordiv(mono[0].left, mono[0].right * right)
    return quotient + _of(_intern(("div", rest, right), lambda: Div(rest, right)))


def remainder(left: Index, right: Index) -> Index:
    """``left`` modulo a positive ``right``, never negative."""
    if type(right) is int and right == 0:
        return 0
    if type(left) is int and left == 0:
        return 0
    if type(left) is int and type(right) is int:
        return left % right
    whole = right
    quotient, rest, right, low = _divide(left, right)
    if rest is None:
        return left - quotient * whole
    if type(rest) is int and type(right) is int:
        return rest % right * exact(whole, right) + low
    reduced = _of(_intern(("rem", rest, right), lambda: Rem(rest, right)))
    return reduced * exact(whole, right) + low


def _divide(left: Index, right: Index) -> tuple[Index, Index | None, Index, Index]:
    """``left = right * quotient + rest`` with what can be divided in the quotient; rest is None if it is in range.

    A common factor ``g`` of ``right`` and most of the rest is taken out, if what remains is in ``[0, g)``: the last two
    values are ``right / g`` and what remains.
    """
    if type(right) is int and right == 1:
        return left, None, 1, 0
    quotient: Index = 0
    rest: Index = 0
    undivided = left
    while undivided:
        mono, coef = _leading(undivided)
        part = _quotient(mono, coef, right)
        term = _make({mono: coef})
        quotient, rest = (quotient, rest + term) if part is None else (quotient + part, rest)
        undivided = undivided - (term if part is None else part * right)
    if len(tuple(_terms(right))) > 1 and not not_negative(rest):  # which takes longer to divide
        quotient, rest = 0, left
    if not_negative(rest) and less(rest, right):
        return quotient, None, right, 0
    if isinstance(right, Ix):
        divisible = right.terms[0][1] if len(right.terms) == 1 else 1
    else:
        divisible = right
    if isinstance(rest, Ix):
        factors = {math.gcd(divisible, coef) for mono, coef in rest.terms if mono}
        for factor in sorted(factors, reverse=True):
            if factor == 1:
                break
            high = _make({m: c // factor for m, c in rest.terms if c % factor == 0})
            low = _make({m: c for m, c in rest.terms if c % factor})
            if not_negative(low) and less(low, factor):
                smaller = exact(right, factor)
                if not_negative(high) and less(high, smaller):
                    return quotient, None, smaller, low
                return quotient, high, smaller, low
    return quotient, rest, right, 0


def _quotient(mono: Monomial, coef: int, right: Index) -> Index | None:
    if type(right) is int:
        return _make({mono: coef // right}) if coef % right == 0 else None
    divisor, factor = _leading(right)
    if coef % factor:
        return None
    atoms = list(mono)
    for atom in divisor:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return _make({tuple(atoms): coef // factor})


def _leading(value: Index) -> tuple[Monomial, int]:
    """The term that stays the greatest if all are multiplied by the same: of the highest degree."""
    return max(_terms(value), key=lambda term: (len(term[0]), [a.key for a in term[0]]))


def exact(left: Index, right: Index) -> Index:
    """``left / right`` where that is known to leave no remainder."""
    if type(left) is int and type(right) is int:
        return left // right
    return floordiv(left, right)


# --- rewriting --------------------------------------------------------------------------------------------------------


def substitute(value: Index, variables: Mapping[Var, Index], node: Callable[[Any], Any] | None = None) -> Index:
    """``value`` with variables replaced; ``node`` rewrites the scalar expressions of data-dependent indices."""
    if not isinstance(value, Ix) or not (value.free & variables.keys()):
        return value
    result: Index = 0
    for mono, coef in value.terms:
        product: Index = coef
        for atom in mono:
            product = product * _substitute_atom(atom, variables, node)
        result = result + product
    return result


def _substitute_atom(atom: Atom, variables: Mapping[Var, Index], node: Callable[[Any], Any] | None) -> Index:
    if isinstance(atom, Var):
        return variables.get(atom, _of(atom))
    if isinstance(atom, Div):
        return floordiv(substitute(atom.left, variables, node), substitute(atom.right, variables, node))
    if isinstance(atom, Rem):
        return remainder(substitute(atom.left, variables, node), substitute(atom.right, variables, node))
    if isinstance(atom, Data):
        assert node is not None
        return data(node(atom.node))
    return _of(atom)


def product(values: Iterable[Index]) -> Index:
    result: Index = 1
    for value in values:
        result = result * value
    return result


def flatten(indices: Iterable[Index], sizes: Iterable[Index]) -> Index:
    """The position in row-major order."""
    position: Index = 0
    for index, extent in zip(indices, sizes, strict=True):
        position = position * extent + index
    return joined(position)


def joined(value: Index) -> Index:
    """``value``, where quotients and remainders of the same division that make up what was divided do so."""
    if not isinstance(value, Ix):
        return value
    terms = dict(value.terms)
    for mono, coef in value.terms:
        for at, atom in enumerate(mono):
            if not isinstance(atom, Rem):
                continue
            factor = _make({mono[:at] + mono[at + 1 :]: coef})
            whole = floordiv(atom.left, atom.right) * atom.right * factor
            if isinstance(whole, Ix) and all(terms.get(m) == c for m, c in whole.terms):
                return joined(value - factor * _of(atom) - whole + factor * atom.left)
    return value


def unflatten(position: Index, sizes: tuple[Index, ...]) -> tuple[Index, ...]:
    """The indices of a position in row-major order; the position must be in range."""
    indices: list[Index] = []
    for at, extent in enumerate(reversed(sizes)):
        last = at == len(sizes) - 1
        indices.append(position if last else remainder(position, extent))
        position = position if last else floordiv(position, extent)
    return tuple(reversed(indices))


def contiguous_strides(sizes: tuple[Index, ...]) -> tuple[Index, ...]:
    strides: list[Index] = []
    step: Index = 1
    for extent in reversed(sizes):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def data_atoms(value: Index) -> list[Data]:
    """The data-dependent parts of an index."""
    return [a for a in value.atoms() if isinstance(a, Data)] if isinstance(value, Ix) else []


def map_data(value: Index, node: Callable[[Any], Any]) -> Index:
    """``value`` with its data-dependent parts rewritten."""
    if not isinstance(value, Ix) or not data_atoms(value):
        return value
    result: Index = 0
    for mono, coef in value.terms:
        part: Index = coef
        for atom in mono:
            if isinstance(atom, Data):
                part = part * data(node(atom.node))
            elif isinstance(atom, Div):
                part = part * floordiv(map_data(atom.left, node), map_data(atom.right, node))
            elif isinstance(atom, Rem):
                part = part * remainder(map_data(atom.left, node), map_data(atom.right, node))
            else:
                part = part * _of(atom)
        result = result + part
    return result
