"""Two reductions over a long row in one loop over it, where the second one needs the result of the first.

The sum of exponentials of the distances from the maximum, as in softmax: where the maximum grows, what was added up is
scaled.  The sum of squared distances from the mean, as in norms: each lane has a mean of its own until the end (by
Welford), and so nothing cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from ...ir.expressions import Buffer, Node, make
from ...ir.index import Index
from ...ir.operations import binary
from ...schedule.stages import Fold, Stage
from .axes import Axis
from .folds import as_result
from .scopes import TYPES, Writer


class Both(Protocol):
    """``add`` is called in the loop, ``finish`` after it; ``first`` is the reduction of the first stage."""

    first: Fold

    def add(self) -> None: ...

    def finish(self) -> None: ...


def found(stages: Sequence[Stage], w: Writer, r: Axis) -> Both | None:
    """How the second stage, which is one reduction, is done in the loop of the first one, if it can be."""
    if len(stages) < 2 or len(stages[1].body) != 1:
        return None
    second = stages[1].body[0]
    if not isinstance(second, Fold) or second.statement.reduction != "sum":
        return None
    dtype = second.value.dtype
    if dtype not in (torch.float32, torch.float64):
        return None
    for first in stages[0].body:
        if not isinstance(first, Fold) or first.value.dtype is not dtype:
            continue
        target, kind = first.statement.target, first.statement.reduction
        result = make("result", (), dtype, target)
        if kind == "max" and second.value is make("exp", (binary("sub", first.value, result),), dtype):
            return _Exponentials(first, second, w, r)
        if kind == "sum" and _are_distances(second.value, first.value, target, r.total):
            return _Distances(first, second, w, r)
    return None


def adds_exponentials(stages: Sequence[Stage]) -> bool:
    """Whether the second stage adds up exponentials of distances from what the first one has found."""
    folds = [step for stage in stages[1:2] for step in stage.body if isinstance(step, Fold)]
    return any(step.statement.reduction == "sum" and step.value.op == "exp" for step in folds)


def _are_distances(squares: Node, value: Node, target: Buffer, points: Index) -> bool:
    """Whether ``squares`` are the squared distances of ``value`` from its mean over all points; ``target`` is its
    sum."""
    if squares.op != "mul" or squares.args[0] is not squares.args[1] or squares.args[0].op != "sub":
        return False
    left, mean = squares.args[0].args
    if left is not value or mean.op != "div":
        return False
    total, count = mean.args
    is_all = count.op == "const" and type(points) is int and count.attr == points
    return is_all and total.op == "result" and total.attr is target


class _Exponentials:
    """The maximum is that of all lanes, so that an element costs one exponential, and a turn another one."""

    def __init__(self, first: Fold, second: Fold, w: Writer, r: Axis) -> None:
        self.first, self.second, self.w, self.r, self.name = first, second, w, r, w.fresh("a")
        self.along = f"{r.place}, {len(w.blocks) > 1}"
        dtype = TYPES[first.value.dtype]
        rest = w.shape([axis for axis in w.blocks if axis is not r]) if len(w.blocks) > 1 else "()"
        w.write(f"{self.name} = tl.full({rest}, -float('inf'), {dtype})")
        w.write(f"{self.name}_sum = tl.zeros({w.shape()}, {dtype})")

    def add(self) -> None:
        w, a = self.w, self.name
        value, more = w.whole(w.name(self.first.value), self.first.value), w.fresh()
        w.write(f"{more} = " + (f"tl.where({self.r.mask}, {value}, -float('inf'))" if self.r.masked else value))
        w.write(f"{a}_next = fn.greater({a}, fn.extremum({more}, True, {self.along}))")
        # What has seen nothing else than -inf has no distance from it.
        w.write(f"{a}_base = tl.where({self._is_lowest(f'{a}_next')}, 0.0, {a}_next)")
        scale, added = (w.exponential(f"{v} - {a}_base", self.first.value.dtype) for v in (a, more))
        w.write(f"{a}_sum = {a}_sum * {scale} + {added}")
        w.write(f"{a} = {a}_next")

    def finish(self) -> None:
        w, a = self.w, self.name
        w.results[self.first.statement.target] = a
        text = f"tl.where({self._is_lowest(a)}, float('nan'), fn.total({a}_sum, {self.along}))"
        w.results[self.second.statement.target] = as_result(self.second, w, text)

    def _is_lowest(self, name: str) -> str:
        text = f"{name} == -float('inf')"
        return text if len(self.w.blocks) > 1 else f"fn.flag({text})"


class _Distances:
    """A lane's ``turns`` are the values that it has seen, but for the last turn, where it may be beyond the end."""

    def __init__(self, first: Fold, second: Fold, w: Writer, r: Axis) -> None:
        self.first, self.second, self.w, self.r, self.name = first, second, w, r, w.fresh("a")
        self.dtype = TYPES[first.value.dtype]
        for part in ("", "_spread", *(["_count"] if r.masked else [])):
            w.write(f"{self.name}{part} = tl.zeros({w.shape()}, {self.dtype})")
        w.write(f"{self.name}_turns = tl.full((), 0.0, {self.dtype})")

    def add(self) -> None:
        w, a = self.w, self.name
        value, apart, again = w.whole(w.name(self.first.value), self.first.value), w.fresh(), w.fresh()
        inside = self.r.mask if self.r.masked else ""
        w.write(f"{a}_turns = {a}_turns + 1.0")
        if inside:
            w.write(f"{a}_count = {a}_count + tl.where({inside}, 1.0, 0.0)")
        # What is infinite has no distance from itself; as a sum does, the mean stays infinite.
        distance = f"tl.where(tl.abs({a}) == float('inf'), {value}, {value} - {a})"
        w.write(f"{apart} = {f'tl.where({inside}, {distance}, 0.0)' if inside else distance}")
        w.write(f"{a} = {a} + {apart} * (1.0 / {a}_turns)")
        distance = f"{value} - {a}"
        w.write(f"{again} = {f'tl.where({inside}, {distance}, 0.0)' if inside else distance}")
        w.write(f"{a}_spread = {a}_spread + {apart} * {again}")

    def finish(self) -> None:
        w, a = self.w, self.name
        total, spread = w.fresh("r"), w.fresh("r")
        along = f"{self.r.place}, {len(w.blocks) > 1}"
        count = f"{a}_count" if self.r.masked else f"tl.broadcast_to({a}_turns, {w.shape()})"
        w.write(f"{total}, {spread} = fn.moments({a}, {a}_spread, {count}, {along})")
        w.results[self.first.statement.target] = total
        w.results[self.second.statement.target] = as_result(self.second, w, spread)
