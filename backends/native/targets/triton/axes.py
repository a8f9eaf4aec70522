"""The axes of a kernel's blocks: each walks the points of some loops, block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...ir import index
from ...ir.index import Index, Ix, Var

LIMIT = 2**31 - 2**17
"""What is smaller by a block at least is counted in 32 bits."""


@dataclass(eq=False)
class Axis:
    """The points of ``loops``, flattened: ``name`` counts them, ``block`` names the constant that is a block's size.

    Without ``block``, a program has one point of the axis.  ``masked`` says that a block may reach beyond the last
    point.  ``place`` is which axis of the blocks it is, None for one point.
    """

    name: str
    loops: tuple[Var, ...]
    block: str | None
    masked: bool
    place: int | None = None

    @property
    def total(self) -> Index:
        return index.product(v.size for v in self.loops)

    @property
    def mask(self) -> str:
        return f"{self.name}_in"


def narrow_if(value: Index) -> frozenset[Index] | None:
    """When an index, and all that it is computed from, can be computed in 32 bits: what must be below :data:`LIMIT`.

    None if it never can.  What is read from memory counts for nothing here: it has 64 bits by itself.
    """
    needed: set[Index] = set()
    return None if _bound(value, needed) is None else frozenset(needed)


def _bound(value: Index, needed: set[Index]) -> Index | None:
    """What the absolute value of an index is at most; None if that is too large.

    What must be below the limit besides, and depends on sizes, is added to ``needed``.
    """
    if not isinstance(value, Ix):
        return abs(value) if abs(value) < LIMIT else None
    whole: Index = 0
    for mono, coef in value.terms:
        term: Index = abs(coef)
        for atom in mono:
            bound = 1 if isinstance(atom, index.Data) else _bound_of_atom(atom, needed)
            if bound is None:
                return None
            term = term * (max(bound, 1) if isinstance(bound, int) else bound)
        if not any(isinstance(atom, index.Data) for atom in mono):
            whole = whole + term
        elif _limited(term, needed) is None:  # what is multiplied before the value from memory
            return None
    return _limited(whole, needed)


def _limited(bound: Index, needed: set[Index]) -> Index | None:
    if isinstance(bound, int):
        return bound if bound < LIMIT else None
    needed.add(bound)
    return bound


def _bound_of_atom(atom: Any, needed: set[Index]) -> Index | None:
    if isinstance(atom, Var):
        return _bound(atom.size, needed)
    if isinstance(atom, index.Size):
        return None if atom.least is None else index.size(atom.key, atom.least)
    if isinstance(atom, (index.Div, index.Rem)):
        left, right = _bound(atom.left, needed), _bound(atom.right, needed)
        if left is None or right is None:
            return None
        if isinstance(atom, index.Rem):
            return right
        known = isinstance(left, int) and isinstance(atom.right, int)
        return left // atom.right + 1 if known else left
    return None


def greatest(bounds: Iterable[Index]) -> list[Index]:
    """Those of some sums of products of sizes that no other one is certain to reach."""
    kept: list[Index] = []
    for bound in sorted(set(bounds), key=str):
        if not any(_reaches(other, bound) for other in kept):
            kept = [*(other for other in kept if not _reaches(bound, other)), bound]
    return kept


def _reaches(left: Index, right: Index) -> bool:
    rest = left - right
    return rest >= 0 if isinstance(rest, int) else all(coef > 0 for _, coef in rest.terms)
