"""Tensors that partially overlap: ``y.sub_(y[0])`` would read what it just wrote, and eager refuses it.

Fake tensors have no addresses, so propagation does not detect this, and a graph would compute an arbitrary result.  The
rule is that of ATen's ``get_overlap_status``: it checks only tensors without gaps, and treats tensors at the same
address with the same strides as identical.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import OPERATION, GraphBreak
from ..guards.forms import apart, memory_of
from ..guards.kinds.tensors import ApartInMemory
from ..guards.sources import Converted, Source

if TYPE_CHECKING:
    from .tracer import Tracer


def overlaps_in_part(written: torch.Tensor, others: Iterable[Any]) -> bool:
    """Whether one of ``others`` shares some elements with ``written``, and is not the same.

    All are fake.  Of symbolic sizes those of this call count.
    """
    place = None
    for other in others:
        if not isinstance(other, torch.Tensor) or other is written or not on_one_storage(other, written):
            continue
        place = place or _place(written)
        theirs = _place(other)
        if place is None or theirs is None or place == theirs:
            continue
        if theirs[0] < place[1] and place[0] < theirs[1]:
            return True
    return False


def overlaps_itself(written: torch.Tensor) -> bool:
    """Whether several elements are certainly in one place, as in an expanded tensor: eager refuses to write to it."""
    if written.layout is not torch.strided:
        return False
    return any(
        _now(n) not in (None, 0, 1) and _now(s) == 0 for n, s in zip(written.shape, written.stride(), strict=True)
    )


def on_one_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors show the same memory, wherever in it."""
    return a.layout is b.layout is torch.strided and a.untyped_storage()._cdata == b.untyped_storage()._cdata


def _place(tensor: torch.Tensor) -> tuple[int, int, tuple[Any, ...]] | None:
    """The first byte, the byte after the last, and the strides.

    None for tensors with gaps, without elements, or of a data-dependent size.
    """
    sizes, strides = [_now(n) for n in tensor.shape], tuple(_now(n) for n in tensor.stride())
    begin = _now(tensor.storage_offset())
    if begin is None or None in sizes or None in strides:
        return None
    expected = 1
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides, strict=True) if size != 1):
        if size == 0 or stride != expected:
            return None
        expected *= size
    width = tensor.element_size()
    return begin * width, (begin + expected) * width, strides


def meets_itself(written: list, *others: Any) -> bool:
    """Whether an element of a list that an operator writes to shows memory of another element of its arguments.

    Eager goes from one element to the next, so it reads what it has just written; a compiler computes all of them
    before it writes any.
    """
    places: dict[Any, list[tuple[int, int, Any, bool]]] = {}
    for given in (written, *others):
        for at, tensor in enumerate(given) if isinstance(given, (list, tuple)) else [(None, given)]:
            if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                begin, end = _span(tensor) or (0, sys.maxsize)
                if begin < end:
                    storage = places.setdefault(tensor.untyped_storage()._cdata, [])
                    storage.append((begin, end, at, given is written))
    for entries in places.values():
        # A flat buffer holds hundreds of parameters, so only those are compared that overlap.
        entries.sort(key=lambda entry: entry[:2])
        for one, (_, end, at, is_written) in enumerate(entries):
            for begin, _, other, is_also_written in itertools.islice(entries, one + 1, None):
                if begin >= end:
                    break
                if (is_written or is_also_written) and (at != other or (is_written and is_also_written)):
                    return True
    return False


def _span(tensor: torch.Tensor) -> tuple[int, int] | None:
    sizes, strides = [_now(n) for n in tensor.shape], [_now(n) for n in tensor.stride()]
    begin = _now(tensor.storage_offset())
    if begin is None or None in sizes or None in strides:
        return None
    if 0 in sizes:
        return begin, begin
    return begin, begin + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _now(number: Any) -> Any:
    """A size of this call; None if there is none yet."""
    return number if type(number) is int else number.node.hint


def guard_apart(tr: Tracer) -> None:
    """Where an input is written to, arrays must not share memory with others: each is a tensor of its own.

    Raises:
        GraphBreak: some do.
    """
    inputs = [(node, source) for node, source in tr.inputs if isinstance(tr.real_inputs[node], torch.Tensor)]
    arrays = {node: source.parent for node, source in inputs if _is_array(source)}
    if not arrays or len(inputs) < 2 or not any(node.meta["example_value"]._version for node, _ in inputs):
        return
    for node, source in arrays.items():
        assert source is not None
        others = [other for other, _ in inputs if other is not node]
        if not apart(tr.real_inputs[node].numpy(), *map(tr.real_inputs.__getitem__, others)):
            stop = GraphBreak(OPERATION, f"NumPy array {source.words()} shares memory with another input")
            stop.whole_frame = True
            raise stop
        paths = [arrays.get(other) or path for other, path in inputs if other is not node]
        tr.guards.add(ApartInMemory(source, tuple(paths)))


def _is_array(source: Source) -> bool:
    return isinstance(source, Converted) and source.function is memory_of
