"""Carries the user's source lines, and pins to backends, from a captured graph through tracing into ATen graphs."""

from __future__ import annotations

import re
from typing import Any

from torchmux.registry.contract import PIN

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')

# torch's tracers, AOTAutograd's backward included, copy a node's "custom" dictionary to the nodes made from it.
_CARRIER = "custom"
_KEY = "torchmux_source_line"
_STACK = "torchmux_user_stack"  # the frames of the program, for tracebacks
_ORIGIN = "torchmux_captured_node"  # the position of the captured node


def attach(gm: Any) -> None:
    """Put every node's line where tracers carry it along."""
    for position, node in enumerate(gm.graph.nodes):
        line = _own_line(node)
        if line is not None:
            told = {_KEY: line, _STACK: node.meta.get(_STACK, ()), _ORIGIN: position}
            node.meta[_CARRIER] = {**node.meta.get(_CARRIER, {}), **told}
        if PIN in node.meta:
            node.meta[_CARRIER] = {**node.meta.get(_CARRIER, {}), PIN: node.meta[PIN]}


def line_of(node: Any) -> str | None:
    """``file:line`` of the user's code that ``node`` comes from, if known."""
    carried = node.meta.get(_CARRIER)
    if carried and _KEY in carried:
        return carried[_KEY]
    return _own_line(node)


def pin_of(node: Any) -> str | None:
    """The backend that the program, or ``placement=``, wants for what ``node`` comes from."""
    carried = node.meta.get(_CARRIER, {}).get(PIN)
    return carried if carried is not None else node.meta.get(PIN)


def origin_of(node: Any) -> int | None:
    """The position in the captured graph of the node that ``node`` comes from, if its line is known."""
    origin: int | None = node.meta.get(_CARRIER, {}).get(_ORIGIN)
    return origin


def _own_line(node: Any) -> str | None:
    line = node.meta.get("source_line")
    if line is not None:
        return str(line)
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    return ":".join(frames[-1]) if frames else None
