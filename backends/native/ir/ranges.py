"""What an integer can be, whatever memory holds: interval arithmetic on expressions."""

from __future__ import annotations

import torch

from . import index
from .expressions import Node
from .operation_table import OPERATIONS

Range = tuple[int, int]
"""The least and the greatest value, both included."""


_DEEPEST = 200
"""Expressions that are deeper have the range of their type: looking into them would take long."""


def of(node: Node) -> Range:
    """The range of an integer or bool expression: that of its type where nothing narrower is known."""
    return _of_type(node.dtype) if node.depth > _DEEPEST else _of(node, {})


def _of(node: Node, known: dict[Node, Range]) -> Range:
    if node not in known:
        every = _of_type(node.dtype)
        found = _narrowed(node, known)
        # What leaves the type wraps around, to anywhere.
        fits = found is not None and every[0] <= found[0] and found[1] <= every[1]
        known[node] = found if found is not None and fits else every
    return known[node]


def _of_type(dtype: torch.dtype) -> Range:
    if dtype is torch.bool:
        return 0, 255  # memory of bools may hold any byte
    info = torch.iinfo(dtype)
    return info.min, info.max


def _narrowed(node: Node, known: dict[Node, Range]) -> Range | None:
    if node.op == "const":
        return int(node.attr), int(node.attr)
    if node.op in ("check", "within"):
        extent = node.attr[0] if node.op == "check" else node.attr
        return (0, extent - 1) if type(extent) is int and extent > 0 else None
    if OPERATIONS[node.op].result == "B":
        return 0, 1
    if node.op == "index":
        least, greatest = index.bounds(node.attr)
        return None if least is None or greatest is None else (least, greatest)
    if node.op == "load" or any(a.dtype.is_floating_point for a in node.args):
        return None
    ranges = [_of(a, known) for a in node.args]
    if node.op == "cast":
        return ranges[0]
    if node.op == "where":
        return _union(ranges[1], ranges[2])
    if node.op in ("neg", "abs"):
        (low, high), = ranges  # fmt: skip
        return (-high, -low) if node.op == "neg" else (max(low, -high, 0), max(-low, high))
    if len(ranges) == 2:
        return _of_two(node.op, *ranges)
    return None


def _union(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), max(a[1], b[1])


def _of_two(op: str, a: Range, b: Range) -> Range | None:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        ends = [x * y for x in a for y in b]
        return min(ends), max(ends)
    if op == "maximum":
        return max(a[0], b[0]), max(a[1], b[1])
    if op == "minimum":
        return min(a[0], b[0]), min(a[1], b[1])
    if op == "and":
        # No bit is set that is not set in a number without a sign.
        greatest = [high for low, high in (a, b) if low >= 0]
        return (0, min(greatest)) if greatest else None
    if op in ("or", "xor") and a[0] >= 0 and b[0] >= 0:
        return 0, (1 << max(a[1], b[1]).bit_length()) - 1
    if op == "shr" and b[0] == b[1] and 0 <= b[0] < 64:
        return a[0] >> b[0], a[1] >> b[0]
    if op == "floor_div" and b[0] == b[1] > 0:
        return a[0] // b[0], a[1] // b[0]
    if op == "floor_rem" and b[0] == b[1] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    return None
