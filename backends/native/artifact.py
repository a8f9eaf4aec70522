"""The stored form of a compiled graph: its code, or the reasons why some of its nodes cannot be lowered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchmux.config import config

_CODE, _REFUSED = b"C", b"R"


def of_code(head: Mapping[str, Any], built: bytes) -> bytes:
    """``head`` is anything that JSON can tell; ``built`` what the target has built, which may be empty."""
    return _CODE + json.dumps(head).encode() + b"\n" + built


def of_refusal(reasons: Mapping[int, str]) -> bytes:
    """``reasons`` by the positions of the nodes in the graph."""
    return _REFUSED + json.dumps(reasons).encode()


def refusal_in(artifact: bytes) -> dict[int, str] | None:
    """The argument of :func:`of_refusal`; None if it is code."""
    if artifact[:1] != _REFUSED:
        return None
    return {int(at): reason for at, reason in json.loads(artifact[1:]).items()}


def code_in(artifact: bytes) -> tuple[dict[str, Any], bytes]:
    """The arguments of :func:`of_code`."""
    head, _, built = artifact[1:].partition(b"\n")
    return json.loads(head), built


def write_trace(artifact: bytes, key: str) -> Path | None:
    """Write the files that ``trace.enabled`` requests, and return their folder; None if there are none."""
    head, _ = code_in(artifact)
    if not head["trace"]:
        return None
    chosen = head["trace_dir"]
    folder = (Path(chosen) if chosen else Path(config.cache_dir) / "traces") / key[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in head["trace"].items():
        (folder / name).write_text(text)
    return folder
