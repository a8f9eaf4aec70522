"""Decisions: what was measured for one graph, what was chosen, and why.  They are data: JSON, and nothing else.

* ``decision``: the data of a decision, and its table,
* ``fingerprint``: what a decision holds for, and in words why one does not hold here,
* ``identity``: the fingerprint of a captured graph in this process,
* ``store``: the folder where decisions and pins are kept,
* ``shared``: an address that a fleet shares, so that it measures once,
* ``portable``: files for another machine,
* ``transfer``: what becomes of such a file here,
* ``typed``: data classes from JSON that nobody vouches for.

Only ``identity`` imports torch, and it is imported when one of its names is used: the command line lists decisions
without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .decision import Decision, Row
from .fingerprint import Backend, Fingerprint, differences
from .portable import Entry, InvalidDecisions
from .store import UnknownDecision, entries, find, find_all, forget, keep, load, once, pin, unpin, unused
from .transfer import Imported, export_decisions, import_decisions

if TYPE_CHECKING:
    from .identity import key_of, machine, why_not_here

__all__ = [
    "Backend",
    "Decision",
    "Entry",
    "Fingerprint",
    "Imported",
    "InvalidDecisions",
    "Row",
    "UnknownDecision",
    "differences",
    "entries",
    "export_decisions",
    "find",
    "find_all",
    "forget",
    "import_decisions",
    "keep",
    "key_of",
    "load",
    "machine",
    "once",
    "pin",
    "unpin",
    "unused",
    "why_not_here",
]


def __getattr__(name: str) -> Any:
    if name in ("key_of", "machine", "why_not_here"):
        return getattr(importlib.import_module(f"{__name__}.identity"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
