"""Pins: which backend a program wants for a part of itself, as nodes of captured graphs say it."""

from __future__ import annotations

from typing import Any

PIN = "torchmux_pin"
"""The entry of a node's ``meta`` that holds the name of the backend."""


def pins_of(gm: Any) -> set[str]:
    """The backends that nodes of a captured graph are pinned to."""
    return {node.meta[PIN] for node in gm.graph.nodes if PIN in node.meta}
