"""``TORCHMUX_LOGS=graph,guards,recompiles,graph_breaks,bytecode``: what the frontend does, on standard error."""

from __future__ import annotations

import functools
import logging
import os
import sys
import types
from typing import Any

KINDS = ("graph", "guards", "recompiles", "graph_breaks", "bytecode")


@functools.cache
def enabled() -> frozenset[str]:
    """The kinds asked for in the environment; unknown ones are named once."""
    asked = [k.strip() for k in os.environ.get("TORCHMUX_LOGS", "").split(",") if k.strip()]
    unknown = [k for k in asked if k not in KINDS and k not in ("output_code", "fusion", "perf_hints", "kernel_times")]
    if unknown:
        logging.getLogger("torchmux").warning(
            "TORCHMUX_LOGS: unknown %s; known are %s", ", ".join(unknown), ", ".join(KINDS)
        )
    return frozenset(asked)


def emit(kind: str, title: str, text: str) -> None:
    if kind in enabled():
        print(f"[torchmux {kind}] {title}\n{text}", file=sys.stderr, flush=True)


def captured(code: types.CodeType, result: Any) -> None:
    """Everything about one finished capture."""
    if not enabled():
        return
    where = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
    if result.graph is not None:
        emit("graph", where, result.graph.code)
    emit("guards", where, result.guards.text)
    emit("bytecode", where, result.text)
    if result.broke is not None:
        emit("graph_breaks", where, result.broke.message())
