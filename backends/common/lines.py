"""Carrying the user's source lines from a captured graph through tracing into ATen graphs."""

from __future__ import annotations

import re
from typing import Any

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

# torch's tracers, AOTAutograd's backward included, copy a node's "custom" dictionary to the nodes made from it.
_CARRIER = "custom"
_KEY = "torchmux_source_line"
_STACK = "torchmux_user_stack"  # the frames of the program, for tracebacks


def attach(gm: Any) -> None:
    """Put every node's line where tracers carry it along."""
    for node in gm.graph.nodes:
        line = _own_line(node)
        if line is not None:
            node.meta[_CARRIER] = {**node.meta.get(_CARRIER, {}), _KEY: line, _STACK: node.meta.get(_STACK, ())}


def line_of(node: Any) -> str | None:
    """``file:line`` of the user's code that ``node`` comes from, if known."""
    carried = node.meta.get(_CARRIER)
    if carried and _KEY in carried:
        return carried[_KEY]
    return _own_line(node)


def _own_line(node: Any) -> str | None:
    line = node.meta.get("source_line")
    if line is not None:
        return str(line)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return ":".join(frames[-1]) if frames else None
