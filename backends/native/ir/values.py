"""Tensors during lowering: shapes with a way to compute any element.

A value knows its elements as a function of the index, and its location if it is in memory.  Views are functions of
functions, so they cost nothing, and a value that is never stored in memory is computed inside its users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from . import index, operations as ops
from .expressions import Buffer, Node
from .index import Index

Indices = tuple[Index, ...]
Element = Callable[[Indices], Node]


@dataclass(frozen=True)
class Place:
    """Where a value is in memory; strides and the offset count elements of the value, of which each may be a pair."""

    buffer: Buffer
    strides: tuple[Index, ...]
    offset: Index

    def position(self, indices: Indices) -> Index:
        return index.joined(self.offset + sum((i * s for i, s in zip(indices, self.strides, strict=True)), 0))


class Value:
    """A tensor: sizes, dtype, and its elements in the type that they are computed in."""

    __slots__ = ("_element", "_memo", "dtype", "place", "sizes")

    def __init__(
        self, sizes: Sequence[Index], dtype: torch.dtype, element: Element | None = None, place: Place | None = None
    ) -> None:
        self.sizes = tuple(sizes)
        self.dtype = dtype
        self.place = place
        self._element = element
        self._memo: dict[Indices, Node] = {}

    def at(self, indices: Indices) -> Node:
        """The element at ``indices``."""
        found = self._memo.get(indices)
        if found is None:
            if self.place is not None:
                found = _loaded(self.place.buffer, self.place.position(indices), self.dtype)
            else:
                assert self._element is not None
                found = self._element(indices)
            self._memo[indices] = found
        return found

    def put(self, place: Place) -> None:
        """From now on the value is in memory."""
        self.place = place
        self._memo.clear()

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def numel(self) -> Index:
        return index.product(self.sizes)

    def variables(self, prefix: str = "d") -> Indices:
        return tuple(index.var(f"{prefix}{i}", s) for i, s in enumerate(self.sizes))

    # --- views ----------------------------------------------------------------------------------------------------

    def permute(self, order: Sequence[int]) -> Value:
        order = [d % self.rank for d in order]
        back = sorted(range(self.rank), key=order.__getitem__)
        place = self.place and Place(self.place.buffer, tuple(self.place.strides[d] for d in order), self.place.offset)
        return Value(
            [self.sizes[d] for d in order], self.dtype, lambda at: self.at(tuple(at[b] for b in back)), place or None
        )

    def expand(self, sizes: Sequence[Index]) -> Value:
        """As torch's ``expand``; sizes are final, without -1."""
        if tuple(sizes) == self.sizes:
            return self
        new = len(sizes) - self.rank
        grown = [_is_one(s) and not _is_one(sizes[new + d]) for d, s in enumerate(self.sizes)]

        def element(at: Indices) -> Node:
            return self.at(tuple(0 if grown[d] else at[new + d] for d in range(self.rank)))

        place = self.place and Place(
            self.place.buffer,
            (0,) * new + tuple(0 if g else s for g, s in zip(grown, self.place.strides, strict=True)),
            self.place.offset,
        )
        return Value(sizes, self.dtype, element, place or None)

    def slice(self, dim: int, start: Index, length: Index, step: int = 1) -> Value:
        sizes = list(self.sizes)
        sizes[dim] = length

        def element(at: Indices) -> Node:
            return self.at((*at[:dim], at[dim] * step + start, *at[dim + 1 :]))

        place = None
        if self.place:
            strides = list(self.place.strides)
            offset = self.place.offset + start * strides[dim]
            strides[dim] = strides[dim] * step
            place = Place(self.place.buffer, tuple(strides), offset)
        return Value(sizes, self.dtype, element, place)

    def select(self, dim: int, position: Index) -> Value:
        return self.slice(dim, position, 1).squeeze(dim)

    def squeeze(self, dim: int) -> Value:
        """Without a dimension of size 1."""
        place = self.place and Place(
            self.place.buffer, (*self.place.strides[:dim], *self.place.strides[dim + 1 :]), self.place.offset
        )
        sizes = (*self.sizes[:dim], *self.sizes[dim + 1 :])
        return Value(sizes, self.dtype, lambda at: self.at((*at[:dim], 0, *at[dim:])), place or None)

    def unsqueeze(self, dim: int) -> Value:
        step: Index = 1
        if self.place and dim < self.rank:
            step = self.place.strides[dim] * self.sizes[dim]
        place = self.place and Place(
            self.place.buffer, (*self.place.strides[:dim], step, *self.place.strides[dim:]), self.place.offset
        )
        sizes = (*self.sizes[:dim], 1, *self.sizes[dim:])
        return Value(sizes, self.dtype, lambda at: self.at((*at[:dim], *at[dim + 1 :])), place or None)

    def view(self, sizes: Sequence[Index]) -> Value:
        """The same elements in row-major order with other sizes."""
        sizes = tuple(sizes)
        if sizes == self.sizes:
            return self

        def element(at: Indices) -> Node:
            return self.at(index.unflatten(index.flatten(at, sizes), self.sizes))

        place = None
        if self.place:
            strides = view_strides(self.sizes, self.place.strides, sizes)
            if strides is not None:
                place = Place(self.place.buffer, strides, self.place.offset)
        if place is not None:
            return Value(sizes, self.dtype, None, place)
        return Value(sizes, self.dtype, element)

    def diagonal(self, first: int, second: int, down: Index, right: Index, length: Index) -> Value:
        """A diagonal of two dimensions, as the last one: from so far down, and so far to the right.

        One without elements begins where the tensor does.
        """
        if length == 0:
            down = right = 0
        rest = [d for d in range(self.rank) if d not in (first, second)]

        def element(at: Indices) -> Node:
            full: list[Index] = [0] * self.rank
            for d, i in zip(rest, at[:-1], strict=True):
                full[d] = i
            full[first], full[second] = at[-1] + down, at[-1] + right
            return self.at(tuple(full))

        place = None
        if self.place:
            steps = self.place.strides
            offset = self.place.offset + down * steps[first] + right * steps[second]
            place = Place(self.place.buffer, (*[steps[d] for d in rest], steps[first] + steps[second]), offset)
        return Value([*[self.sizes[d] for d in rest], length], self.dtype, element, place)

    def flip(self, dims: Sequence[int]) -> Value:
        chosen = {d % self.rank for d in dims}

        def element(at: Indices) -> Node:
            return self.at(tuple(self.sizes[d] - 1 - i if d in chosen else i for d, i in enumerate(at)))

        return Value(self.sizes, self.dtype, element)


def _loaded(buffer: Buffer, position: Index, dtype: torch.dtype) -> Node:
    """The element at a position, which counts complex numbers where ``dtype`` is one."""
    if not dtype.is_complex:
        return ops.load(buffer, position)
    return ops.complex_of(ops.load(buffer, position * 2), ops.load(buffer, position * 2 + 1))


def in_place(value: Value) -> Value:
    """``value`` as memory with strides, where it is nothing but a view of that."""
    variables = value.variables()
    element = value.at(variables)
    if value.place is not None or element.op != "load" or element.dtype is not value.dtype:
        return value
    buffer, position = element.attr
    if buffer.dtype is not value.dtype:
        return value  # half precision is loaded as float32: a conversion to that is no operation
    if index.data_atoms(position):
        return value  # only a kernel reads where the memory starts
    loops = [index.the_var(v) for v in variables]
    strides = [0 if loop is None else index.coefficient(position, loop) for loop in loops]
    known = [s for s in strides if s is not None and not index.free(s)]
    if len(known) < len(strides):
        return value
    offset = index.substitute(position, {loop: 0 for loop in loops if loop is not None})
    return Value(value.sizes, value.dtype, None, Place(buffer, tuple(known), offset))


def _is_one(extent: Index) -> bool:
    return type(extent) is int and extent == 1


def view_strides(old: Sequence[Index], strides: Sequence[Index], new: Sequence[Index]) -> tuple[Index, ...] | None:
    """The strides that show memory in other sizes, or None if none do (torch's rule)."""
    if any(type(s) is int and s == 0 for s in old):
        return index.contiguous_strides(tuple(new))
    # Groups of dimensions that are one in memory, last first: the number of elements, and the step between them.
    runs: list[tuple[Index, Index]] = []
    for extent, stride in reversed(list(zip(old, strides, strict=True))):
        if _is_one(extent):
            continue
        if runs and runs[-1][0] * runs[-1][1] == stride:
            runs[-1] = (runs[-1][0] * extent, runs[-1][1])
        else:
            runs.append((extent, stride))
    result: list[Index] = []
    at = 0
    used: Index = 1
    for extent in reversed(new):
        if _is_one(extent):
            result.append(used * runs[at][1] if at < len(runs) else 1)
            continue
        while at < len(runs) and used == runs[at][0]:
            at, used = at + 1, 1
        if at == len(runs):
            return None
        count, step = runs[at]
        whole = index.remainder(count, used * extent)
        if not (type(whole) is int and whole == 0):
            return None
        result.append(used * step)
        used = used * extent
    return tuple(reversed(result))


def broadcast(*values: Value) -> tuple[Value, ...]:
    """The values expanded to a common shape."""
    rank = max(v.rank for v in values)
    sizes: list[Index] = [1] * rank
    for value in values:
        for d, extent in enumerate(value.sizes, rank - value.rank):
            if _is_one(sizes[d]):
                sizes[d] = extent
    return tuple(v.expand(sizes) for v in values)


def scalar(number: object, dtype: torch.dtype, sizes: Sequence[Index] = ()) -> Value:
    """Elements that are one number, rounded as a tensor of this type holds it."""
    node = ops.const(number, dtype)
    stored = ops.round_to(node, dtype) if dtype in (torch.bfloat16, torch.float16) else node
    return Value(sizes, dtype, lambda at: stored)
