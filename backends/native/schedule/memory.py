"""Memory for buffers that torch never sees: offsets in one arena, reused after the last read."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir import index
from ..ir.expressions import Buffer
from ..ir.index import Index

ALIGNMENT = 64


@dataclass
class Arena:
    """``offsets`` in bytes; ``size`` is what must be allocated."""

    offsets: dict[Buffer, Index]
    size: Index


def size_in_bytes(buffer: Buffer) -> Index:
    """What a buffer takes, rounded up so that the next one is aligned."""
    wanted = buffer.numel * buffer.dtype.itemsize
    if type(wanted) is int:
        return -(-wanted // ALIGNMENT) * ALIGNMENT
    return index.floordiv(wanted + ALIGNMENT - 1, ALIGNMENT) * ALIGNMENT


LARGE = {"cuda": 4 * 2**20}
"""On such a device, buffers of so many bytes are tensors, which are made as late as possible and freed as early, where
torch's operators are called between kernels: the arena lasts for all of the function.  On a CPU, the system's memory is
slow to get."""


LATE = {**LARGE, "cpu": 2**18}
"""Buffers of so many bytes are computed right before they are first needed: weights that are laid out otherwise at the
start of a graph are in no cache when their product begins, and all of them are there at once."""


def is_large(buffer: Buffer) -> bool:
    """Whether a buffer is worth memory of its own."""
    return _has_bytes(buffer, LARGE)


def is_late(buffer: Buffer) -> bool:
    """Whether a buffer is large enough to be computed as late as possible."""
    return _has_bytes(buffer, LATE)


def _has_bytes(buffer: Buffer, least: Mapping[str, int]) -> bool:
    size = size_in_bytes(buffer)
    return type(size) is int and size >= least.get(buffer.device.type, size + 1)


def plan(uses: Sequence[set[Buffer]], temporary: set[Buffer]) -> Arena:
    """Place the ``temporary`` buffers; ``uses`` are the buffers that each step reads or writes."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for at, step in enumerate(uses):
        for buffer in step & temporary:
            first.setdefault(buffer, at)
            last[buffer] = at
    if all(type(size_in_bytes(b)) is int for b in first):
        return _packed(first, last)
    return _by_equal_size(first, last)


def cuts(lives: Sequence[tuple[int, int, Any]], ends: Collection[int], count: int) -> set[int]:
    """The steps before which a piece of ``count`` steps has to be divided, so that all pieces need as little at a time
    as single steps would.

    Pieces end at the steps ``ends``.  The ``lives`` are the first and the last step that use a tensor, and its bytes.
    A tensor is there from the beginning of the piece of its first step to the end of that of its last.
    """
    begun, ended = [0] * (count + 1), [0] * (count + 2)
    for first, last, size in lives:
        begun[first] += size
        ended[last + 1] += size
    there = list(itertools.accumulate(map(operator.sub, begun, ended)))  # at each step
    least = max(there)
    found: set[int] = set()
    is_first, held = True, 0
    for at in range(count):
        held = there[at] if is_first else held + begun[at]
        if held > least:
            found.add(at)
            held = there[at]
        is_first = at in ends
    return found


def _packed(first: dict[Buffer, int], last: dict[Buffer, int]) -> Arena:
    """Largest first, each at the lowest offset that is free while it lives."""
    placed: list[tuple[int, int, Buffer]] = []
    offsets: dict[Buffer, Index] = {}
    total = 0
    sizes = {b: int(size_in_bytes(b)) for b in first}  # type: ignore[arg-type]
    for buffer in sorted(first, key=lambda b: (-sizes[b], first[b])):
        at = 0
        for start, end, other in placed:
            if first[other] <= last[buffer] and first[buffer] <= last[other]:
                if at + sizes[buffer] <= start:
                    break
                at = max(at, end)
        offsets[buffer] = at
        placed.append((at, at + sizes[buffer], buffer))
        placed.sort(key=lambda p: p[:2])
        total = max(total, at + sizes[buffer])
    return Arena(offsets, total)


def _by_equal_size(first: dict[Buffer, int], last: dict[Buffer, int]) -> Arena:
    """With symbolic sizes a place is reused by a buffer of the same size."""
    offsets: dict[Buffer, Index] = {}
    free: dict[Index, list[tuple[int, Index]]] = {}
    total: Index = 0
    for buffer in sorted(first, key=lambda b: first[b]):
        extent = size_in_bytes(buffer)
        waiting = free.setdefault(extent, [])
        at = next((n for n, (end, _) in enumerate(waiting) if end < first[buffer]), None)
        if at is None:
            offsets[buffer] = total
            total = total + extent
        else:
            offsets[buffer] = waiting.pop(at)[1]
        waiting.append((last[buffer], offsets[buffer]))
    return Arena(offsets, total)
