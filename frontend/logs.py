"""What the frontend prints when asked to (see :mod:`torchmux.logs`)."""

from __future__ import annotations

import types
from typing import Any

from torchmux.logs import emit as emit, enabled


def place(code: types.CodeType) -> str:
    """A code object as a title."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def captured(code: types.CodeType, result: Any) -> None:
    """Everything about one finished capture."""
    if not enabled():
        return
    where = place(code)
    if result.graph is not None:
        emit("graph", where, result.graph.code)
        report = getattr(result.compiled, "report", None)
        written = getattr(report, "output_code", None)
        told = "\n".join(written) if written else "the backend tells no code of its own"
        emit("output_code", f"{where} for {getattr(report, 'backend', '?')}", told)
    emit("guards", where, result.guards.text)
    emit("bytecode", where, result.text)
    if result.broke is not None:
        emit("graph_breaks", where, result.broke.message())
