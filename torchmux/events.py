"""What happens while programs are compiled: counts of the process, and a trace of it on disk.

``torchmux.counters()`` returns the counts.  With ``TORCHMUX_TRACE=folder`` (``config.trace``) each process also writes

* ``torchmux-PID.jsonl``: one JSON object a line for each event, with ``time`` (seconds since 1970), ``event`` and what
  the event has to say;
* ``torchmux-PID.trace.json``: stages as bars and other events as marks, in Chrome's trace format, which
  ``chrome://tracing`` and Perfetto show.  It can be read while the process runs, and when it was killed.

A trace that cannot be written is given up with one warning: it never ends the program.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import IO, Any

from .config import config

KINDS = {
    "graph": "a graph was captured and compiled",
    "graph_break": "a graph ended before its function did",
    "recompile": "a call matched no compiled code, and is captured again",
    "stage": "a stage of a compilation came to its end",
}
"""The events."""

_counts: Counter[str] = Counter()
_lock = threading.Lock()


def counters() -> dict[str, int]:
    """How often each event happened in this process: ``graphs``, ``graph_breaks``, ``recompiles``, and
    ``operators``, ``operators_left_to_torch`` and ``cache_hits`` of all compiled graphs together.

    ``torchmux.reset()`` leaves them as they are; compare two calls to learn what happened between them.

    Examples:
        >>> before = torchmux.counters()["graphs"]
        >>> result = torchmux.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
        >>> torchmux.counters()["graphs"] - before
        1
    """
    names = ("graphs", "graph_breaks", "recompiles", "operators", "operators_left_to_torch", "cache_hits")
    with _lock:
        return {name: _counts[name] for name in names}


def count(name: str, number: int = 1) -> None:
    """Add to one of the counters."""
    with _lock:
        _counts[name] += number


def is_traced() -> bool:
    """Whether events are written anywhere, for those that cost time to describe."""
    return bool(config.trace) or config.otel


def note(event: str, **told: Any) -> None:
    """Write one event into the trace, if there is one.

    ``begin`` and ``end``, in seconds since 1970, make it a bar of the drawing; ``name`` is what the drawing calls it.
    """
    if config.otel:
        from . import otel

        try:
            otel.note(event, told)
        except ImportError:
            config.otel = False
            warnings.warn(
                'torchmux: config.otel needs OpenTelemetry: python -m pip install "torchmux[otel]"', stacklevel=2
            )
    if not config.trace:
        return
    with _lock:
        try:
            _file_of(config.trace).write(event, told)
        except OSError as error:
            warnings.warn(f"torchmux writes no trace to {config.trace}: {error}", stacklevel=2)
            config.trace = ""


class _Trace:
    """The two files of one process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.process = folder, os.getpid()
        self._events = self._opened(f"torchmux-{self.process}.jsonl")
        self._drawing = self._opened(f"torchmux-{self.process}.trace.json")
        # The closing bracket is optional in this format, so that the file is complete after each event.
        self._drawing.write("[\n")
        self._draw({"name": "process_name", "ph": "M", "args": {"name": f"torchmux {self.process}"}}, first=True)

    def _opened(self, name: str) -> IO[str]:
        return (self.folder / name).open("w", encoding="utf-8", errors="backslashreplace")

    def write(self, event: str, told: dict[str, Any]) -> None:
        now = time.time()
        self._events.write(json.dumps({"time": now, "event": event, **told}, default=str) + "\n")
        self._events.flush()
        begin = told.get("begin", now)
        shape = {"ph": "X", "dur": (told["end"] - begin) * 1e6} if "end" in told else {"ph": "i", "s": "p"}
        arguments = {name: value for name, value in told.items() if name not in ("begin", "end")}
        named = told.get("name", event)
        self._draw({"name": named, "cat": event, **shape, "ts": begin * 1e6, "args": arguments})

    def _draw(self, entry: dict[str, Any], *, first: bool = False) -> None:
        whole = {**entry, "pid": self.process, "tid": threading.get_native_id()}
        self._drawing.write(("" if first else ",\n") + json.dumps(whole, default=str))
        self._drawing.flush()

    def close(self) -> None:
        if self.process == os.getpid():  # a child of fork has the parent's files
            self._drawing.write("\n]\n")
            self._drawing.close()
            self._events.close()


_open: _Trace | None = None


def _file_of(folder: str) -> _Trace:
    global _open
    if _open is None or _open.folder != Path(folder) or _open.process != os.getpid():
        close()
        _open = _Trace(Path(folder))
    return _open


@atexit.register
def close() -> None:
    """End the trace; the next event begins another."""
    global _open
    if _open is not None:
        _open.close()
    _open = None
