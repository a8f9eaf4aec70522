"""Writes the files of a trace, which an artifact carries, when its code is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchmux.config import config


def write_trace(head: Mapping[str, Any], key: str) -> Path | None:
    """Write the files that ``trace.enabled`` requests, and return their folder; None if there are none."""
    if not head["trace"]:
        return None
    chosen = head["trace_dir"]
    folder = (Path(chosen) if chosen else Path(config.cache_dir) / "traces") / key[:16]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in head["trace"].items():
        (folder / Path(name).name).write_text(text, encoding="utf-8", errors="backslashreplace")
    return folder
