"""The axes of a kernel's blocks: each walks the points of some loops, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...ir import index
from ...ir.index import Index, Ix, Var

_LIMIT = 2**31 - 2**17
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
    def narrow(self) -> bool:
        """Whether 32 bits count its points."""
        return type(self.total) is int and self.total < _LIMIT

    @property
    def mask(self) -> str:
        return f"{self.name}_in"


def fits(value: Index) -> bool:
    """Whether an index and all that it is computed from can be computed in 32 bits, data in it aside."""
    return _bound(value) is not None


def _bound(value: Index) -> int | None:
    """What the absolute value of an index, and of each of its parts, is at most; None if that is too large."""
    if not isinstance(value, Ix):
        return abs(value) if abs(value) < _LIMIT else None
    whole = 0
    for mono, coef in value.terms:
        if any(isinstance(a, index.Data) for a in mono):  # 64 bits by itself
            continue
        term = abs(coef)
        for atom in mono:
            bound = _bound_of_atom(atom)
            if bound is None:
                return None
            term *= max(bound, 1)
        whole += term
    return whole if whole < _LIMIT else None


def _bound_of_atom(atom: Any) -> int | None:
    if isinstance(atom, Var):
        return _bound(atom.size)
    if isinstance(atom, (index.Div, index.Rem)):
        left, right = _bound(atom.left), _bound(atom.right)
        if left is None or right is None or type(atom.right) is not int:
            return None
        return left // right + 1 if isinstance(atom, index.Div) else right
    return None
