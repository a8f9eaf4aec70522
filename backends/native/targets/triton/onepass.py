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
        if kind == "sum" and (mean := _mean_in(second.value, first.value, target)) is not None:
            return _Distances(first, second, mean, w, r)
    return None


def _mean_in(squares: Node, value: Node, target: Buffer) -> Node | None:
    """The mean of which ``squares`` are the squared distances of ``value``."""
    if squares.op != "mul" or squares.args[0] is not squares.args[1] or squares.args[0].op != "sub":
        return None
    left, mean = squares.args[0].args
    if left is not value or mean.op not in ("div", "mul"):
        return None
    total, count = mean.args
    is_total = total.op == "result" and total.attr is target
    return mean if is_total and not count.free and not count.loads else None


class _Exponentials:
    def __init__(self, first: Fold, second: Fold, w: Writer, r: Axis) -> None:
        self.first, self.second, self.w, self.r, self.name = first, second, w, r, w.fresh("a")
        self.dtype = TYPES[first.value.dtype]
        w.write(f"{self.name} = tl.full({w.shape()}, -float('inf'), {self.dtype})")
        w.write(f"{self.name}_sum = tl.zeros({w.shape()}, {self.dtype})")

    def add(self) -> None:
        w, a = self.w, self.name
        value, more = w.whole(w.name(self.first.value), self.first.value), w.fresh()
        counted = f"tl.where({self.r.mask}, {value}, -float('inf'))" if self.r.masked else value
        w.write(f"{more} = {counted}")
        w.write(f"{a}_next = fn.greater({a}, {more})")
        # A lane that has seen nothing else than -inf has no distance from it.
        w.write(f"{a}_base = tl.where({a}_next == -float('inf'), 0.0, {a}_next)")
        w.write(f"{a}_sum = {a}_sum * m.exp({a} - {a}_base) + m.exp({more} - {a}_base)")
        w.write(f"{a} = {a}_next")

    def finish(self) -> None:
        w, a = self.w, self.name
        along = f"{self.r.place}, {len(w.blocks) > 1}"
        most = w.fresh("r")
        w.write(f"{most} = fn.extremum({a}, True, {along})")
        w.results[self.first.statement.target] = most
        scaled = f"{a}_sum * m.exp({a} - tl.where({most} == -float('inf'), 0.0, {most}))"
        text = f"fn.total({scaled}, {along})"
        lost = f"fn.flag({most} == -float('inf'))" if len(w.blocks) == 1 else f"{most} == -float('inf')"
        w.results[self.second.statement.target] = as_result(self.second, w, f"tl.where({lost}, float('nan'), {text})")


class _Distances:
    def __init__(self, first: Fold, second: Fold, mean: Node, w: Writer, r: Axis) -> None:
        self.first, self.second, self.mean, self.w, self.r, self.name = first, second, mean, w, r, w.fresh("a")
        dtype = TYPES[first.value.dtype]
        for part in ("", "_spread", "_count"):
            w.write(f"{self.name}{part} = tl.zeros({w.shape()}, {dtype})")

    def add(self) -> None:
        w, a = self.w, self.name
        value, apart = w.whole(w.name(self.first.value), self.first.value), w.fresh()
        inside = self.r.mask if self.r.masked else ""
        w.write(f"{a}_count = {a}_count + {f'tl.where({inside}, 1.0, 0.0)' if inside else '1.0'}")
        distance = f"{value} - {a}"
        w.write(f"{apart} = {f'tl.where({inside}, {distance}, 0.0)' if inside else distance}")
        least = f"tl.maximum({a}_count, 1.0)" if inside else f"{a}_count"
        w.write(f"{a} = {a} + fn.div({apart}, {least})")
        again = f"{value} - {a}"
        w.write(f"{a}_spread = {a}_spread + {apart} * ({f'tl.where({inside}, {again}, 0.0)' if inside else again})")

    def finish(self) -> None:
        w, a = self.w, self.name
        total, spread = w.fresh("r"), w.fresh("r")
        along = f"{self.r.place}, {len(w.blocks) > 1}"
        w.write(f"{total}, {spread} = fn.moments({a}, {a}_spread, {a}_count, {along})")
        w.results[self.first.statement.target] = total
        w.results[self.second.statement.target] = as_result(self.second, w, spread)
