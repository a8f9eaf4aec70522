"""Printing reductions: of one block, or of block after block, where each lane has a value of its own until the end."""

from __future__ import annotations

import torch

from ...ir.expressions import Node, compute_type
from ...schedule.stages import Fold
from .axes import Axis
from .scopes import TYPES, Writer, worst

_NEUTRAL = {"sum": "0", "prod": "1", "any": "False", "all": "True"}
_NOWHERE = "0x7FFFFFFFFFFFFFFF"


def kind_of(fold: Fold) -> str:
    return str(fold.statement.reduction)


def folded(fold: Fold, w: Writer, r: Axis) -> str:
    """The name of what a block is reduced to."""
    value = _counted(fold, w, r)
    at = w.whole(w.name(fold.value.args[1]), fold.value.args[1]) if kind_of(fold).startswith("arg") else ""
    if at and r.masked:
        at = f"tl.where({r.mask}, {at}, {_NOWHERE})"
    return finished(fold, w, r, value, at)


def _counted(fold: Fold, w: Writer, r: Axis) -> str:
    """The value as a whole block, with what changes nothing in lanes beyond the last point."""
    value = w.whole(w.name(fold.value), fold.value)
    return f"tl.where({r.mask}, {value}, {neutral(fold)})" if r.masked else value


def neutral(fold: Fold) -> str:
    kind = kind_of(fold)
    return _NEUTRAL.get(kind) or worst(compute_type(fold.value.dtype), kind.endswith("max"))


def finished(fold: Fold, w: Writer, r: Axis, value: str, at: str = "") -> str:
    """The name of what the lanes of a block are reduced to; ``at`` says where they found it."""
    kind = kind_of(fold)
    along = f"{r.place}, {len(w.blocks) > 1}"
    if at:
        text = f"fn.best({value}, {at}, {kind.endswith('max')}, {along})"
    elif kind in ("max", "min"):
        text = f"fn.extremum({value}, {kind == 'max'}, {along})"
    else:
        function = {"sum": "total", "prod": "times", "any": "any_of", "all": "all_of"}[kind]
        text = f"fn.{function}({value}, {along})"
    return as_result(fold, w, text)


def as_result(fold: Fold, w: Writer, text: str) -> str:
    target = compute_type(fold.statement.target.dtype)
    made = torch.int64 if kind_of(fold).startswith("arg") else compute_type(fold.value.dtype)
    small = made in (torch.int8, torch.int16, torch.uint8)  # which are added up in more bits
    result = w.fresh("r")
    w.write(f"{result} = {text if target is made and not small else f'{text}.to({TYPES[target]})'}")
    return result


class Running:
    """A reduction over block after block: each lane reduces what it sees, and then they reduce one another."""

    def __init__(self, fold: Fold, w: Writer, r: Axis) -> None:
        self.fold, self.w, self.r, self.name = fold, w, r, w.fresh("a")
        self.kind, self.most = kind_of(fold), kind_of(fold).endswith("max")
        dtype = compute_type(fold.value.dtype)
        w.write(f"{self.name} = tl.full({w.shape()}, {neutral(fold)}, {TYPES[dtype]})")
        if self._finds_place():
            w.write(f"{self.name}_at = tl.full({w.shape()}, {_NOWHERE}, tl.int64)")

    def add(self) -> None:
        a, w = self.name, self.w
        if self._finds_place():
            place: Node = self.fold.value.args[1]
            at = w.whole(w.name(place), place)
            if self.r.masked:
                at = f"tl.where({self.r.mask}, {at}, {_NOWHERE})"
            w.write(f"{a}, {a}_at = fn.better({a}, {a}_at, {_counted(self.fold, w, self.r)}, {at}, {self.most})")
            return
        value = _counted(self.fold, w, self.r)
        if self.kind in ("max", "min"):
            w.write(f"{a} = fn.{'greater' if self.most else 'smaller'}({a}, {value})")
        else:
            w.write(f"{a} = {a} { {'sum': '+', 'prod': '*', 'any': '|', 'all': '&'}[self.kind] } {value}")

    def finish(self) -> None:
        at = f"{self.name}_at" if self._finds_place() else ""
        self.w.results[self.fold.statement.target] = finished(self.fold, self.w, self.r, self.name, at)

    def _finds_place(self) -> bool:
        return self.kind.startswith("arg")
