"""Every error that torchmux raises on purpose.

Each message is one paragraph that says what happened, where, and how to fix it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


class TorchmuxError(RuntimeError):
    """Base class of all errors raised by torchmux."""


class UnknownBackend(TorchmuxError):
    """No backend has this name; the message suggests the closest known names."""


class BackendUnavailable(TorchmuxError):
    """The backend is known but cannot run here; the message says what is missing and how to get it."""


class BackendConflict(TorchmuxError):
    """Two distributions registered different backends under one name."""


class InvalidSpec(TorchmuxError):
    """A backend's description is malformed or written for another version of the contract."""


class InvalidOption(TorchmuxError, ValueError):
    """The backend does not have this option or mode, or does not accept this value."""


class Unsupported(TorchmuxError):
    """The graph breaks under ``fullgraph=True``; the message has the user's line, the reason and the usual fix."""


class ConstraintViolation(TorchmuxError):
    """A dimension that is marked dynamic needs a fixed size; the message names the line that requires it."""


class FallbackRefused(TorchmuxError):
    """Under ``strict=True``, some node would not run in the requested backend."""


class GraphRefused(TorchmuxError):
    """A backend raises it for a graph that it cannot take and has not changed; the message is the reason.

    Eager then runs the graph, with a line in the log and in the report, or ``strict`` raises an error.
    """


class NodesRefused(TorchmuxError):
    """A backend's ``compile`` raises it for nodes that it cannot take after all; the graph is split again without them.

    ``reasons`` maps the names of nodes in the graph that ``compile`` received to the reasons.  Eager runs these nodes,
    with a line in the log and in the report, or ``strict`` raises an error.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
        self.reasons = dict(reasons)


class FloatsNeeded(TorchmuxError):
    """A backend needs certain floats, which are symbolic in the graph, as constants; the frontend captures again.

    ``symbols`` has their names.
    """

    def __init__(self, backend: str, symbols: frozenset[str]) -> None:
        super().__init__(f"{backend} needs the floats {', '.join(sorted(symbols))} as constants.")
        self.symbols = symbols


class CompilationFailed(TorchmuxError):
    """A backend raised an exception while compiling; the exception is chained.

    ``graph`` is the captured graph as Python.  ``reproducer`` is the file that holds it with inputs like those of the
    call, if they are known.
    """

    graph: str | None = None
    reproducer: Path | None = None


class CallFailed(TorchmuxError):
    """Compiled code raised an exception in a call that cannot be made again in eager; the exception is chained."""


class DerivativeUnavailable(TorchmuxError):
    """A compiled graph is differentiated in a way that takes eager, and what eager would need is gone."""


class SaveRefused(TorchmuxError):
    """``torchmux.save`` cannot write what was compiled so that it would do the same; the message says why."""


class LoadRefused(TorchmuxError):
    """A saved file is damaged, altered, not signed with the key, or made for another machine or version.

    Nothing in it has run.  The message says what to do.
    """


class QuantizationFailed(TorchmuxError):
    """``torchmux.quantize``: the tool does not take the model, or finds nothing in it to quantize."""


class NumericsError(TorchmuxError):
    """A compiled graph's result differs from eager by more than the tolerance."""
