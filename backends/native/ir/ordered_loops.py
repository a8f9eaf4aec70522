"""Loops whose order matters: sums along a dimension, and writes to positions given by data.

They are steps of a program like kernels, products and calls.  Their inputs are computed inside them; they are not fused
with the code that reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from . import index
from .expressions import Buffer, Node
from .index import Index, Var


def _loads(value: Node, position: Index) -> set[Buffer]:
    return {b for b, _ in value.loads} | {b for a in index.data_atoms(position) for b, _ in a.node.loads}


@dataclass(eq=False)
class Scan:
    """``target[position] = value`` combined by ``op`` with those before it in the loop ``along``.

    ``op`` is "sum", "prod", "max", "min", or "logsumexp", which only GPUs know.  ``value`` has the type in which it is
    accumulated, ``rows`` are the other loops.
    """

    target: Buffer
    position: Index
    value: Node
    rows: tuple[Var, ...]
    along: Var
    op: str
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return _loads(self.value, self.position)

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


@dataclass(eq=False)
class Scatter:
    """``target[position] = value``, or what ``combine`` makes of the element and the value, at each point of a space.

    ``combine`` is ``add``, ``mul``, ``max`` or ``min``, or empty where values replace elements.  Only the CPU knows
    others than ``add``.

    Points that differ in a loop of ``apart`` go to different places; those that differ only in ``serial`` may meet, and
    are written in order.
    """

    target: Buffer
    position: Index
    value: Node
    apart: tuple[Var, ...]
    serial: tuple[Var, ...]
    combine: str = ""
    origins: list[Any] = field(default_factory=list)

    @property
    def adds(self) -> bool:
        return self.combine == "add"

    @property
    def reads(self) -> set[Buffer]:
        return _loads(self.value, self.position) | {self.target}

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}

    @property
    def vector(self) -> Var | None:
        """The loop whose points are adjacent in memory, if it is one of ``apart``."""
        for variable in self.apart:
            step = index.coefficient(self.position, variable)
            shared = any(variable in a.node.free for a in index.data_atoms(self.position))
            if type(step) is int and step == 1 and not shared:
                return variable
        return None


def loops(variables: Sequence[Index]) -> tuple[Var, ...]:
    """The loops among variables, without those of size 1."""
    return tuple(v for i in variables if (v := index.the_var(i)) is not None)
