"""Memory for buffers that torch never sees: offsets in one arena, reused after the last read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
"""On such a device, buffers of so many bytes are tensors where torch's operators are called between kernels, since the
arena lasts for all of the function, and are made as late as possible.  On a CPU, the system's memory is slow to get."""


def is_large(buffer: Buffer) -> bool:
    """Whether a buffer is worth memory of its own."""
    size = size_in_bytes(buffer)
    return type(size) is int and size >= LARGE.get(buffer.device.type, size + 1)


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


def not_shared(uses: Sequence[set[Buffer]], ends: Sequence[int], buffers: set[Buffer]) -> set[Buffer]:
    """Those of ``buffers`` that need no more memory as tensors than in an arena, where they may share it.

    A tensor is there from the first to the last of the pieces that use it; pieces end at the steps ``ends``.
    """
    pieces = [uses[begin:end] for begin, end in zip([0, *(n + 1 for n in ends)], [*ends, len(uses)], strict=True)]
    touched = [set().union(*piece, set()) & buffers for piece in pieces]
    found = {b for b in buffers if sum(b in piece for piece in touched) > 1}
    for piece, steps in zip(touched, pieces, strict=True):
        alone = piece - found
        together: Index = 0
        for buffer in alone:
            together = together + size_in_bytes(buffer)
        if plan(steps, alone).size == together:
            found |= alone
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
