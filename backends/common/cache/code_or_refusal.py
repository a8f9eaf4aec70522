"""What is kept of a compiled part: its code, or the reasons why some of its nodes are refused.

A refusal is kept as well as code is: to find out anew which nodes a compiler does not take can cost as much as
compiling.  Nodes are told by their positions in the graph, since their names are no part of a key.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from torchmux.registry.errors import NodesRefused

from .cache import default_cache

_CODE, _REFUSED = b"C", b"R"
log = logging.getLogger("torchmux.cache")


@dataclass(frozen=True)
class Code:
    """``head`` is anything that JSON can tell, ``code`` what the compiler made."""

    head: Any
    code: bytes


# --- the bytes --------------------------------------------------------------------------------------------------------


def of_code(head: Any, code: bytes) -> bytes:
    """What is kept of code: ``head`` is anything that JSON can tell."""
    return _CODE + json.dumps(head).encode() + b"\n" + code


def of_refusal(reasons: Mapping[int, str]) -> bytes:
    """What is kept of a refusal: ``reasons`` by the positions of the nodes in the graph."""
    return _REFUSED + json.dumps(reasons).encode()


def code_in(payload: bytes) -> Code | None:
    """What :func:`of_code` was given; None if it is a refusal.

    Raises:
        ValueError: it is neither.
    """
    if payload[:1] == _REFUSED:
        return None
    if payload[:1] != _CODE:
        raise ValueError(f"an artifact begins with {payload[:1]!r}")
    head, _, code = payload[1:].partition(b"\n")
    return Code(json.loads(head), code)


def refusal_in(payload: bytes) -> dict[int, str] | None:
    """What :func:`of_refusal` was given; None if it is no refusal."""
    if payload[:1] != _REFUSED:
        return None
    return {int(at): reason for at, reason in json.loads(payload[1:]).items()}


# --- in the artifact cache --------------------------------------------------------------------------------------------


def load(key: str, gm: GraphModule) -> Code | None:
    """The code that is kept under ``key`` for ``gm``; None if there is none, or it is damaged.

    Raises:
        NodesRefused: what is kept is a refusal.
    """
    payload = _loaded(key)
    if payload is None:
        return None
    try:
        refused = refusal_in(payload)
        if refused is None:
            return code_in(payload)
        raise _error(list(gm.graph.nodes), refused)
    except (ValueError, LookupError, AttributeError) as error:
        log.warning("a cached artifact is invalid and will be rebuilt: %s", error)
        return None


def load_code(key: str) -> Code | None:
    """The code that is kept under ``key``; None if there is none, or a refusal, or it is damaged."""
    payload = _loaded(key)
    try:
        return None if payload is None else code_in(payload)
    except ValueError as error:
        log.warning("a cached artifact is invalid and will be rebuilt: %s", error)
        return None


def keep_code(key: str, head: Any, code: bytes) -> bool:
    """Keep code under ``key``; whether there is a cache to keep it in."""
    return _store(key, of_code(head, code))


def keep_refusal(key: str, nodes: Sequence[Node], reasons: Mapping[int, str]) -> NodesRefused:
    """Keep under ``key`` why some of a graph's ``nodes`` are refused, by position; returns the error to raise."""
    _store(key, of_refusal(reasons))
    return _error(nodes, reasons)


def _error(nodes: Sequence[Node], reasons: Mapping[int, str]) -> NodesRefused:
    return NodesRefused({nodes[at].name: reason for at, reason in reasons.items()})


def _loaded(key: str) -> bytes | None:
    cache = default_cache()
    return cache.load(key) if cache is not None else None


def _store(key: str, payload: bytes) -> bool:
    cache = default_cache()
    if cache is not None:
        cache.store(key, payload)
    return cache is not None
