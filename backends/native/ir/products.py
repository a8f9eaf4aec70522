"""The abstract operations: products of matrices, convolutions, attention.

Lowering says with them what is computed, of operands that lie in memory; the right one of a product may also be
computed while it is read, where the target says so.  A target decides who computes them: a library, a kernel of its
own, or one of torch's operators (``Target.select``).  What is computed along with the result, where one kernel can do
both, is part of the operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from . import index, operations as ops
from .expressions import Buffer, Node, Statement, operators_in
from .index import Index, Var
from .program import TensorRef
from .values import Value


def _buffers(refs: Iterable[TensorRef | None]) -> set[Buffer]:
    return {ref.buffer for ref in refs if ref is not None}


@dataclass(eq=False)
class Product:
    """``target = left @ right``, of matrices or of as many matrices in each; the target is contiguous, or, with a
    ``unit``, has gaps between its rows, which start at multiples of so many elements.

    What follows is statements that read the target: the kernel that finishes a product may work in its place
    (``schedule/placement.py``).
    """

    target: Buffer
    left: TensorRef
    right: TensorRef
    origins: list[Any] = field(default_factory=list)
    unit: int = 1

    @property
    def m(self) -> Index:
        return self.left.sizes[-2]

    @property
    def n(self) -> Index:
        return self.right.sizes[-1]

    @property
    def k(self) -> Index:
        return self.left.sizes[-1]

    @property
    def batch(self) -> Index:
        return self.left.sizes[0] if len(self.left.sizes) == 3 else 1

    @property
    def reads(self) -> set[Buffer]:
        return _buffers((self.left, self.right))

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


@dataclass(eq=False)
class FinishedProduct:
    """A product of matrices of which a kernel finishes each element before anything is stored.

    The element in row ``row`` and column ``column`` is the sum of ``left * right`` over the loop ``term``: ``left``
    reads an element of memory by row and term, and ``right`` by term and column, both of the same type.  All sizes are
    known.  ``finish`` is a statement over rows and columns; what it loads at ``position`` of ``product`` is this sum,
    which is not in memory.  ``shapes`` are ways to run it, which the target knows.

    With a loop ``part``, on which all of them may depend, there is a sum for each of its turns.
    """

    product: Buffer
    left: Node
    right: Node
    row: Index
    column: Index
    term: Index
    position: Index
    finish: Statement
    origins: list[Any] = field(default_factory=list)
    shapes: tuple[Any, ...] = ()
    part: Index = 0

    @property
    def loops(self) -> tuple[Var, Var, Var]:
        """The variables of rows, columns and the terms of a sum."""
        row, column, term = map(index.the_var, (self.row, self.column, self.term))
        assert row is not None and column is not None and term is not None
        return row, column, term

    @property
    def rows(self) -> int:
        return cast("int", self.loops[0].size)

    @property
    def columns(self) -> int:
        return cast("int", self.loops[1].size)

    @property
    def terms(self) -> int:
        return cast("int", self.loops[2].size)

    @property
    def parts(self) -> int:
        part = index.the_var(self.part)
        return 1 if part is None else cast("int", part.size)

    @property
    def target(self) -> Buffer:
        return self.finish.target

    @property
    def reads(self) -> set[Buffer]:
        return {b for node in (self.left, self.right) for b, _ in node.loads} | (self.finish.reads - {self.product})

    @property
    def writes(self) -> set[Buffer]:
        return {self.finish.target}


@dataclass(eq=False)
class ComputedProduct:
    """``target = left @ right`` in float32, where ``right`` is not in memory.

    It is an expression for the element in row ``depth`` and column ``column`` of matrix ``batch``, or as many for rows
    that take turns: ``right[i]`` for row ``depth * len(right) + i``.

    Each of these three is a loop variable, or the index 0 where there is one of it.  The rows of ``left`` have no gaps.
    """

    target: Buffer
    left: TensorRef
    right: tuple[Node, ...]
    depth: Index
    column: Index
    batch: Index
    origins: list[Any] = field(default_factory=list)

    @property
    def m(self) -> Index:
        return self.left.sizes[-2]

    @property
    def n(self) -> Index:
        return self.target.sizes[-1]

    @property
    def k(self) -> Index:
        return self.left.sizes[-1]

    @property
    def reads(self) -> set[Buffer]:
        return {self.left.buffer, *(buffer for element in self.right for buffer, _ in element.loads)}

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


def elements_of(right: Value) -> tuple[tuple[Node, ...], Index, Index, Index]:
    """``right``, ``depth``, ``column`` and ``batch`` of a :class:`ComputedProduct` for the right operand ``right``.

    Where several rows are computed of one element, as of numbers that share a byte, each of them has an expression.
    """
    *outer, k, n = right.sizes
    batch = index.var("b0", outer[0]) if outer else 0
    column = index.var("j0", n)
    depth = index.var("p0", k)

    def at(row: Index) -> Node:
        return ops.cast(right.at((*([batch] if outer else ()), row, column)), torch.float32)

    turns = _rows_in_turn(at(depth), index.the_var(depth))
    if turns == 1 or type(k) is not int or k % turns:
        return (at(depth),), depth, column, batch
    depth = index.var("p0", k // turns)
    return tuple(at(depth * turns + i) for i in range(turns)), depth, column, batch


_TURNS = (2, 4)


def _rows_in_turn(element: Node, depth: Var | None) -> int:
    """By which of these numbers ``depth`` is divided."""
    divisors = {
        atom.right
        for node in operators_in(element)
        for position in node._indices()
        if isinstance(position, index.Ix)
        for atom in position.atoms()
        if isinstance(atom, (index.Div, index.Rem)) and depth in index.free(atom.left)
    }
    return next((t for t in _TURNS if t in divisors), 1)


@dataclass(eq=False)
class Convolution:
    """``target = addend + convolution(image) + bias``, at least 0 with ``relu``.

    The settings are those of torch, a number for each dimension of space.  ``constant`` is the attribute of the graph
    that the weight is, where it does not change and the target said that it finishes convolutions; only then there may
    be an ``addend`` or ``relu``.  Then, too, all images are channels last, the bias has no gaps, and ``target`` may be
    the buffer of ``addend``, which nothing reads afterwards.
    """

    target: Buffer
    image: TensorRef
    weight: TensorRef
    bias: TensorRef | None
    stride: tuple[Index, ...]
    padding: tuple[Index, ...]
    dilation: tuple[Index, ...]
    transposed: bool = False
    output_padding: tuple[Index, ...] = ()
    groups: Index = 1
    constant: str | None = None
    addend: TensorRef | None = None
    relu: bool = False
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return _buffers((self.image, self.weight, self.bias, self.addend))

    @property
    def writes(self) -> set[Buffer]:
        return {self.target}


@dataclass(eq=False)
class Attention:
    """``target = softmax(query @ key.mT * scale + mask) @ value``, and ``sums``, the logarithm of the sum of ``exp`` in
    each row of scores, which the gradient needs; see ``torchmux::attention`` in ``rewrites/attention_operator.py``."""

    target: Buffer
    sums: Buffer
    query: TensorRef
    key: TensorRef
    value: TensorRef
    mask: TensorRef | None
    scale: float
    origins: list[Any] = field(default_factory=list)

    @property
    def reads(self) -> set[Buffer]:
        return _buffers((self.query, self.key, self.value, self.mask))

    @property
    def writes(self) -> set[Buffer]:
        return {self.target, self.sums}
