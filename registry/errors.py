"""Every error that torchmux raises on purpose.

Each message is one paragraph that says what happened, where, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TorchmuxError(RuntimeError):
    """Base class of all errors raised by torchmux."""


class UnknownBackend(TorchmuxError):
    """No backend has this name; the message holds the nearest known names."""


class BackendUnavailable(TorchmuxError):
    """The backend is known but cannot run here; the message says what is missing and how to get it."""


class BackendConflict(TorchmuxError):
    """Two distributions registered different backends under one name."""


class InvalidSpec(TorchmuxError):
    """A backend's description is malformed or written for another version of the contract."""


class InvalidOption(TorchmuxError, ValueError):
    """An option or mode the backend does not have, or a value it does not take."""


class Unsupported(TorchmuxError):
    """``fullgraph=True`` met a graph break: the user's line, the reason and the way out."""


class ConstraintViolation(TorchmuxError):
    """A dimension that is marked dynamic has to have one size; the message names the line that needs it."""


class FallbackRefused(TorchmuxError):
    """``strict=True`` and some node would not have run in the backend that was asked for."""


class GraphRefused(TorchmuxError):
    """A backend raises it for a graph that it cannot take, and has not changed; the message is the reason.

    Eager runs the graph then, with a line in the log and in the report, or ``strict`` refuses it.
    """


class NodesRefused(TorchmuxError):
    """A backend's ``compile`` raises it for nodes that it cannot take after all; the graph is split again without them.

    ``reasons`` maps names of nodes in the graph that ``compile`` was given to why.  Eager runs these nodes, with a line
    in the log and in the report, or ``strict`` refuses them.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = dict(reasons)


class FloatsNeeded(TorchmuxError):
    """A backend needs certain floats, symbolic in the graph, as constants; the frontend then captures anew.

    ``symbols`` has their names.
    """

    def __init__(self, backend: str, symbols: frozenset[str]) -> None:
        super().__init__(f"{backend} needs the floats {', '.join(sorted(symbols))} as constants.")
        self.symbols = symbols


class CompilationFailed(TorchmuxError):
    """A backend raised while compiling; the cause is chained.

    ``graph`` is the captured graph as Python, and ``reproducer`` the file that holds it with inputs like those of the
    call, where they are known.
    """

    graph: str | None = None
    reproducer: Path | None = None


class NumericsError(TorchmuxError):
    """A compiled graph's result differs from eager by more than the tolerance."""
