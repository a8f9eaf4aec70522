"""What becomes of decisions that leave this machine, or come from another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torchmux.registry.errors import TorchmuxError
from torchmux.registry.options import build_options
from torchmux.registry.resolve import known_spec

from . import store
from .decision import Decision
from .portable import packed, unpacked


@dataclass(frozen=True)
class Imported:
    """What became of one decision of a file.

    ``state`` is ``active`` (a graph of this fingerprint follows it), ``inactive`` (it is kept, and does not hold on
    this machine) or ``refused`` (it is not kept).
    """

    key: str
    state: str
    reasons: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key, "state": self.state, "reasons": self.reasons}


def export_decisions(decisions: Iterable[Decision] | None = None) -> str:
    """Decisions as the text of a file: all that are kept here, or those that are given; pins are among them."""
    return packed(store.entries() if decisions is None else decisions)


def import_decisions(text: str | bytes) -> list[Imported]:
    """Keep the decisions of a file; each replaces one with the same key.  A pin in the file counts here as well.

    Raises:
        InvalidDecisions: this is no such file.
    """
    return [_taken(entry.key, entry.decision, entry.refused) for entry in unpacked(text)]


def _taken(key: str, decision: Decision | None, refused: str) -> Imported:
    if decision is None:
        return Imported(key, "refused", [refused])
    if why := _unfit(decision):
        return Imported(key, "refused", [why])
    from .identity import why_not_here  # it imports torch

    decision.about["source"] = "import"
    pinned = decision.pinned
    store.write(decision)
    if pinned:
        store.pin(decision, pinned)
    assert decision.fingerprint is not None
    reasons = why_not_here(decision.fingerprint)
    return Imported(key, "inactive" if reasons else "active", reasons)


def _unfit(decision: Decision) -> str:
    """What no decision says: a candidate that was not measured, or options that its backend does not have."""
    assert decision.fingerprint is not None
    if why := store.objection(decision, decision.fingerprint):
        return why
    if decision.pinned and all(row.candidate != decision.pinned for row in decision.ranking):
        return f"it is pinned to {decision.pinned}, which is no candidate that may run"
    for name, backend in decision.fingerprint.candidates.items():
        try:
            spec = known_spec(name)
        except TorchmuxError:
            continue  # the other machine has it
        for options in backend.options:
            try:
                build_options(spec, None, options or None)
            except TorchmuxError as error:
                return str(error)
    return ""
