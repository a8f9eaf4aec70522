"""``TORCHMUX_LOGS=graph,guards``, or ``torchmux.set_logs(graph=True, guards=True)``: what to print to stderr."""

from __future__ import annotations

import difflib
import os
import sys
import warnings

KINDS = {
    "graph": "each captured graph, as Python",
    "guards": "what is checked before captured code runs again, as Python",
    "attempts": "each attempt to capture a frame, and why the next one starts again",
    "recompiles": "why no compiled code fitted a call",
    "graph_breaks": "where a graph ended, why, and the way out",
    "bytecode": "the function that runs in place of a captured frame",
    "output_code": "the code that a backend made of a graph",
    "fusion": "which operators a backend joined, and why others stayed apart",
    "perf_hints": "what keeps a graph from being faster",
    "kernel_times": "how long each kernel took",
    "tuning": "what a search for faster kernels has found so far",
}
"""What can be asked for.  The last four are told by backends that have something to say about them."""

_enabled: frozenset[str] | None = None


def set_logs(**kinds: bool) -> None:
    """Print these kinds, and no others, from now on: ``set_logs(graph_breaks=True, recompiles=True)``.

    Without arguments, what ``TORCHMUX_LOGS`` asks for.  Raises ValueError for a kind that there is not.
    """
    global _enabled
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"torchmux.set_logs: {_unknown(kind)}")
    _enabled = frozenset(kind for kind, wanted in kinds.items() if wanted) if kinds else None


def enabled() -> frozenset[str]:
    """The kinds that are printed.  Unknown ones in the environment are warned of once."""
    global _enabled
    if _enabled is None:
        asked = {kind.strip() for kind in os.environ.get("TORCHMUX_LOGS", "").split(",")} - {""}
        for kind in sorted(asked.difference(KINDS)):
            warnings.warn(f"TORCHMUX_LOGS: {_unknown(kind)}", stacklevel=2)
        _enabled = frozenset(asked.intersection(KINDS))
    return _enabled


def emit(kind: str, title: str, *text: str) -> None:
    """Print a title, and ``text`` below it, if their kind was asked for."""
    if kind in enabled():
        print("\n".join((f"[torchmux {kind}] {title}", *text)), file=sys.stderr, flush=True)


def _unknown(kind: str) -> str:
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no {kind!r} to print.{hint} There are: {', '.join(KINDS)}."
