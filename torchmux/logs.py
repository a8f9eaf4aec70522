"""Diagnostics on stderr: ``TORCHMUX_LOGS=graph,guards``, or ``torchmux.set_logs(graph=True, guards=True)``."""

from __future__ import annotations

import difflib
import os
import sys
import warnings

from .wording import require

HELP = "help"
"""In the environment, lists the kinds."""

KINDS = {
    "backends": "which backend was chosen where none was named, and why",
    "graph": "each captured graph, as Python",
    "guards": "the checks that run before captured code is reused, as Python",
    "attempts": "each attempt to capture a frame, and why the next one starts again",
    "recompiles": "why a call matched no compiled code",
    "graph_breaks": "where a graph ended, why, and the usual fix",
    "bytecode": "the function that replaces a captured frame",
    "output_code": "the code that a backend generated for a graph",
    "fusion": "which operators a backend fused, and why it did not fuse others",
    "perf_hints": "what keeps a graph from running faster",
    "kernel_times": "how long each kernel took",
    "tuning": "what a search for faster kernels has found so far",
}
"""The kinds of output.  Only backends that support the last four print them."""

_enabled: frozenset[str] | None = None


def set_logs(**kinds: bool) -> None:
    """Print only these kinds from now on: ``set_logs(graph_breaks=True, recompiles=True)``.

    Without arguments, print what ``TORCHMUX_LOGS`` selects.  Raises ValueError for an unknown kind.

    Examples:
        >>> torchmux.set_logs(recompiles=True)
        >>> torchmux.set_logs()
    """
    global _enabled
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"torchmux.set_logs: {_unknown(kind)}")
        require(kinds[kind], (bool,), f"set_logs(): {kind}")
    _enabled = frozenset(kind for kind, wanted in kinds.items() if wanted) if kinds else None


def enabled() -> frozenset[str]:
    """The kinds that are printed.  Unknown kinds in the environment cause one warning."""
    global _enabled
    if _enabled is None:
        asked = {kind.strip() for kind in os.environ.get("TORCHMUX_LOGS", "").split(",")} - {""}
        if HELP in asked:
            print("\n".join(("TORCHMUX_LOGS takes, separated by commas:", *_lines())), file=sys.stderr, flush=True)
        for kind in sorted(asked.difference(KINDS, {HELP})):
            warnings.warn(f"TORCHMUX_LOGS: {_unknown(kind)}", stacklevel=2)
        _enabled = frozenset(asked.intersection(KINDS))
    return _enabled


def emit(kind: str, title: str, *text: str) -> None:
    """Print a title, and ``text`` below it, if their kind is enabled."""
    if kind in enabled():
        print("\n".join((f"[torchmux {kind}] {title}", *text)), file=sys.stderr, flush=True)


def _lines() -> list[str]:
    widest = max(map(len, KINDS))
    return [f"  {kind:<{widest}}  {what}" for kind, what in KINDS.items()]


def _unknown(kind: str) -> str:
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown kind {kind!r}.{hint} The kinds are: {', '.join(KINDS)}."
