"""``map`` and ``scan`` of torch: loops over a dimension of a size that is known, written out.

Eager has torch's own tracer compile the function, and refuses what is no function of tensors, or gives a tensor back
that it was given.  All of that ends the graph here, so that eager says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from torchmux import torch_internals as ti

from .. import breaks
from ..breaks import GraphBreak
from ..handlers.classify import TORCH_MARKERS
from ..values.base import Value
from ..values.constants import ConstValue
from ..values.containers.sequences import TupleValue
from ..values.tensors import TensorValue
from .trees import flatten, unflatten

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_MOST_STEPS = 256
FALSE, ZERO = ConstValue(False), ConstValue(0)


def map_(tr: Tracer, f: Value, xs: Value, *args: Value) -> Value:
    """``torch._higher_order_ops.map``: results of ``f`` for each element of the first dimension, stacked."""
    leaves, structure, steps = _over(tr, "map", xs, 0)
    outputs, out_structure = [], None
    for index in range(steps):
        parts = _at(tr, leaves, index)
        found, out_structure = _results(tr, "map", lambda: f.call(tr, [unflatten(parts, structure), *args], {}), parts)  # noqa: B023
        outputs.append(found)
    return unflatten(_stacked(tr, outputs), out_structure)


def scan(tr: Tracer, combine_fn: Value, init: Value, xs: Value, *, dim: Value = ZERO, reverse: Value = FALSE) -> Value:
    """``torch._higher_order_ops.scan``: the last carry, and the results of each step, stacked as torch does."""
    along, backwards = dim.const(tr), reverse.truth(tr)
    leaves, structure, steps = _over(tr, "scan", xs, along)
    along %= leaves[0].example.dim()
    if along:
        leaves = [_method(tr, "movedim", leaf, ConstValue(along), ZERO) for leaf in leaves]
    carry, outputs, out_structure = init, [], None
    carried, form = flatten(tr, init)
    for index in reversed(range(steps)) if backwards else range(steps):
        parts = _at(tr, leaves, index)
        given = [carry, unflatten(parts, structure)]
        both: list[Value] = []

        def step() -> Value:
            both[:] = combine_fn.call(tr, given, {}).unpack(tr)  # noqa: B023
            return TupleValue(list(both))  # noqa: B023

        _results(tr, "scan", step, [*carried, *parts])
        if len(both) != 2:
            raise GraphBreak(breaks.REGION, "scan with a function that does not return a carry and a result")
        following, after = flatten(tr, both[0])
        if after != form or [_look(a) for a in following] != [_look(b) for b in carried]:
            raise GraphBreak(breaks.REGION, "scan with a carry that changes its shape, dtype or structure")
        carry, carried = both[0], following
        found, out_structure = flatten(tr, both[1])
        outputs.append(found)
    results = _stacked(tr, outputs[::-1] if backwards else outputs)
    if along and ti.scan_stacks_along_its_dimension():
        results = [
            _method(tr, "movedim", r, ZERO, ConstValue(along)) if along < r.example.dim() else r for r in results
        ]
    return TupleValue([carry, unflatten(list(results), out_structure)])


def _over(tr: Tracer, name: str, xs: Value, dim: int) -> tuple[list[TensorValue], Any, int]:
    """The tensors that are taken apart, their structure, and how many steps that makes."""
    leaves, structure = flatten(tr, xs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, TensorValue)]
    # Steps are written out, so their number is a constant.
    sizes = {int(leaf.example.shape[dim]) for leaf in tensors if -leaf.example.dim() <= dim < leaf.example.dim()}
    steps = next(iter(sizes), 0)
    if len(tensors) != len(leaves) or len(sizes) != 1 or not 0 < steps <= _MOST_STEPS:
        raise GraphBreak(breaks.REGION, f"{name} over other than tensors with 1 to {_MOST_STEPS} elements each")
    return tensors, structure, steps


def _at(tr: Tracer, leaves: list[TensorValue], index: int) -> list[Value]:
    return [_method(tr, "select", leaf, ZERO, ConstValue(index)) for leaf in leaves]


def _method(tr: Tracer, name: str, *args: Value) -> TensorValue:
    found = tr.emit("call_method", name, list(args), {})
    assert isinstance(found, TensorValue)
    return found


def _results(tr: Tracer, name: str, step: Callable[[], Value], given: list[Value]) -> tuple[list[Value], Any]:
    """What a step returns, which is new tensors, and nothing else that it does."""
    around = tr.effects.region
    tr.effects.region = cast(Any, _Pure(name))
    try:
        result = step()
    finally:
        tr.effects.region = around
    found, structure = flatten(tr, result)
    seen = [leaf.example for leaf in given if isinstance(leaf, TensorValue)]
    for leaf in found:
        if isinstance(leaf, TensorValue) and not any(ti.share_storage(leaf.example, other) for other in seen):
            seen.append(leaf.example)
            continue
        raise GraphBreak(breaks.REGION, f"{name} with a function that returns other than new tensors")
    return found, structure


class _Pure:
    """Refuses changes of what exists outside of a step."""

    def __init__(self, name: str) -> None:
        self.name = name

    def changed(self, value: Value) -> None:
        if value.source is not None:
            self.changed_global(value.describe())

    def changed_global(self, what: str) -> None:
        raise GraphBreak(breaks.REGION, f"{self.name} with a function that changes {what}")


def _look(value: Value) -> Any:
    like = value.example  # type: ignore[attr-defined]
    return tuple(like.shape), like.dtype, like.device


def _stacked(tr: Tracer, outputs: list[list[Value]]) -> list[TensorValue]:
    columns = [TupleValue(list(each)) for each in zip(*outputs, strict=True)]
    stacked = [tr.emit("call_function", torch.stack, [column], {}) for column in columns]
    return [each for each in stacked if isinstance(each, TensorValue)]


TORCH_MARKERS["torch._higher_order_ops.map", "map"] = map_
TORCH_MARKERS["torch._higher_order_ops.scan", "scan"] = scan
