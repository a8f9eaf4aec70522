"""Decisions as files: JSON that people can read and compare, for another machine or for a shared folder.

Such a file is checked throughout: it may come from anybody.  All it can do is to choose among the backends and options
that would be measured for the same graph on a machine with the same fingerprint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torchmux.registry.errors import TorchmuxError

from .decision import FORMAT, Decision
from .typed import Invalid, dumped, loads

HEAD = f"torchmux decisions {FORMAT}"


class InvalidDecisions(TorchmuxError):
    """This is no file of decisions, or it is damaged."""


@dataclass(frozen=True)
class Entry:
    """One decision of a file, or why it is refused."""

    key: str
    decision: Decision | None
    refused: str = ""


def packed(decisions: Iterable[Decision]) -> str:
    """A file with these decisions; equal decisions make equal files."""
    told = {}
    for decision in decisions:
        data = decision.to_data()
        told[decision.key] = {"decision": data, "digest": _digest(data)}
    return dumped({"format": HEAD, "decisions": told})


def unpacked(text: str | bytes) -> list[Entry]:
    """The decisions in a file, each with what is wrong with it, if anything.

    Raises:
        InvalidDecisions: it is no such file, or one of another version.
    """
    try:
        told = loads(text)
    except Invalid as error:
        raise InvalidDecisions(f"This is no file of decisions: {error}.") from None
    if not isinstance(told, dict) or not isinstance(told.get("decisions"), dict):
        raise InvalidDecisions("This is no file of decisions: `torchmux decisions export` writes them.")
    if told.get("format") != HEAD:
        raise InvalidDecisions(f"This file has the format {told.get('format')!r}; this torchmux reads {HEAD!r}.")
    return [_entry(key, each) for key, each in sorted(told["decisions"].items())]


def _entry(key: str, told: Any) -> Entry:
    if not isinstance(told, dict) or "decision" not in told or "digest" not in told:
        return Entry(key, None, "it is no decision")
    try:
        if told["digest"] != _digest(told["decision"]):
            return Entry(key, None, "it is damaged, or was changed: its digest differs")
        decision = Decision.from_data(told["decision"])
    except (Invalid, ValueError) as error:
        return Entry(key, None, str(error))
    if decision.fingerprint is None or decision.key != key:
        return Entry(key, None, "its fingerprint has another key")
    return Entry(key, decision)


def _digest(data: Any) -> str:
    return hashlib.sha256(dumped(data).encode()).hexdigest()
