"""The frontend's diagnostics (see :mod:`torchmux.logs`)."""

from __future__ import annotations

import logging
import threading
import types
from typing import Any

from torch.fx import GraphModule

from torchmux import events
from torchmux.logs import emit as emit, enabled


def place(code: types.CodeType) -> str:
    """A code object as a title."""
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"


def _code_of(graph: Any) -> str:
    """The code of a graph, and of the graphs that its operators run."""
    graphs = [(name, part) for name, part in graph.named_modules() if isinstance(part, GraphModule)]
    return "\n".join(f"{name}:{part.code}" if name else part.code for name, part in graphs)


def captured(code: types.CodeType, result: Any) -> None:
    """Count one finished capture, and print everything about it."""
    _count(code, result)
    if not enabled():
        return
    where = place(code)
    if result.graph is not None:
        emit("graph", where, _code_of(result.graph))
        report = getattr(result.compiled, "report", None)
        written = getattr(report, "output_code", None)
        told = "\n".join(written) if written else "this backend does not expose generated code"
        emit("output_code", f"{where} for {getattr(report, 'backend', '?')}", told)
    emit("guards", where, result.guards.text)
    emit("bytecode", where, result.text)
    if result.broke is not None:
        emit("graph_breaks", where, result.broke.message())


def _count(code: types.CodeType, result: Any) -> None:
    about = {"function": code.co_qualname, "where": f"{code.co_filename}:{code.co_firstlineno}", "id": result.number}
    if result.graph is not None:
        report = getattr(result.compiled, "report", None)
        left = sum(not report.is_requested(p) for p in report.placements) if report else 0
        operators, hits = (len(report.placements), report.cache_hits) if report else (0, 0)
        for name, number in (("graphs", 1), ("operators", operators), ("operators_left_to_torch", left)):
            events.count(name, number)
        events.count("cache_hits", hits)
        told = {"backend": report.backend, "phase": report.phase, "partitions": report.partitions} if report else {}
        events.note(
            "graph", **about, **told, name=f"graph {result.number}", operators=operators, operators_left_to_torch=left,
            cache_hits=hits, guards=len(result.guards.words()),
        )  # fmt: skip
    if result.broke is not None:
        broke(result.broke, about["id"])


def broke(record: Any, number: str = "") -> None:
    """Count a graph break."""
    events.count("graph_breaks")
    events.note("graph_break", name=record.kind, id=number, kind=record.kind, reason=record.reason, where=record.where)


def recompiled(code: types.CodeType, number: str, reason: str) -> None:
    """Count a capture of what was compiled before."""
    events.count("recompiles")
    where = f"{code.co_filename}:{code.co_firstlineno}"
    events.note("recompile", function=code.co_qualname, where=where, id=number, reason=reason)


_FAKE_TENSORS = logging.getLogger("torch._subclasses.fake_tensor")


class without_meta_errors(logging.Filter):
    """A block in which torch does not log operators that fail on tensors without data.

    torch logs this as an error, with a traceback.  For a trace it is a graph break, or the program's own exception.
    """

    def __enter__(self) -> None:
        self._thread = threading.get_ident()
        _FAKE_TENSORS.addFilter(self)

    def __exit__(self, *_: object) -> None:
        _FAKE_TENSORS.removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        return record.thread != self._thread or not str(record.msg).startswith("failed while attempting to run meta")
