"""The data of a decision: what became of each candidate, which one was chosen, and why."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from .fingerprint import Fingerprint
from .typed import Invalid, built, dumped, loads, written

FORMAT = 2
"""The version of the JSON; a decision of another version is not read."""

USABLE = ("chosen", "tie", "unsettled", "slower")
"""The verdicts of candidates that may run."""

COLUMNS = ("candidate", "compile s", "ms", "+-", "error", "MiB", "verdict", "reason")
"""The heads of the table."""


@dataclass
class Row:
    """What became of one candidate."""

    candidate: str
    backend: str  # several as "onnxrt+native", whose options are by member
    options: dict[str, Any]
    verdict: str  # chosen, tie, unsettled, slower, limit, wrong, lost, partial, excluded, refused
    reason: str = ""
    compile_seconds: float | None = None
    milliseconds: float | None = None
    spread: float | None = None  # half of the distance between the quartiles, as a share of the median
    error: float | None = None  # the largest distance of a result from the reference
    memory: int | None = None  # bytes
    share: float | None = None  # of the operators that the backend runs itself
    pins: dict[str, str] = field(default_factory=dict)  # the number of a node in the graph -> another backend

    def by_member(self) -> dict[str, dict[str, Any]]:
        """The options of each backend that runs parts of the graph; one, for a single backend."""
        members = self.backend.split("+")
        return {member: self.options.get(member, {}) if len(members) > 1 else self.options for member in members}

    def cells(self) -> tuple[str, ...]:
        """The row under :data:`COLUMNS`."""

        def number(value: float | None, form: str) -> str:
            return "" if value is None or value != value else format(value, form)

        return (
            self.candidate,
            number(self.compile_seconds, ".2f"),
            number(self.milliseconds, ".4g"),
            number(self.spread, ".0%"),
            number(self.error, ".1e"),
            "" if self.memory is None else str(self.memory >> 20),
            self.verdict,
            self.reason,
        )


@dataclass
class Decision:
    """The choice for one graph.

    ``backend`` and ``options`` are the choice of the measurement; a pin is laid over it by :func:`.store.load`.
    """

    backend: str
    options: dict[str, Any]
    reason: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0  # that the measurement took
    machine: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT
    fingerprint: Fingerprint | None = None  # what it holds for; None: it was never kept
    about: dict[str, str] = field(default_factory=dict)  # for readers: program, first lines, when, where it came from
    notes: list[str] = field(default_factory=list)  # such as why earlier decisions on this graph were not used
    pinned: str = ""  # the candidate that a person prefers to the choice

    @property
    def ranking(self) -> list[Row]:
        """The candidates that may run, best first."""
        usable = [row for row in self.rows if row.verdict in USABLE]
        # the rows stand in the order of the objective
        return sorted(usable, key=lambda row: (row.candidate != self.pinned, row.verdict != "chosen"))

    @property
    def choice(self) -> str:
        """The candidate that is chosen, with its options, or pinned."""
        return self.pinned or self._measured

    @property
    def _measured(self) -> str:
        return next((row.candidate for row in self.rows if row.verdict == "chosen"), self.backend)

    @property
    def key(self) -> str:
        """The key of its fingerprint, which it must have."""
        assert self.fingerprint is not None
        return self.fingerprint.key

    @property
    def described(self) -> str:
        """Which decision this is, as a message names it: its key, where it came from and when it was made."""
        kinds = {"import": "the imported decision", "shared": "the shared decision", "tune": "the tuned decision"}
        head = kinds.get(self.about.get("source", ""), "the decision")
        made = self.about.get("made")
        return f"{head} {self.key[:12]}" + (f" of {made}" if made else "")

    @property
    def source(self) -> str:
        """Where a decision that was found comes from, for a report."""
        kinds = {"import": "an imported decision", "shared": "a shared decision", "tune": "a tuned decision"}
        return kinds.get(self.about.get("source", ""), "an earlier measurement")

    @property
    def explanation(self) -> str:
        """Why it is what it is, pins included."""
        if not self.pinned:
            return self.reason
        pinned = next((row for row in self.ranking if row.candidate == self.pinned), None)
        if pinned is None:
            return f"{self.reason}; it is pinned to {self.pinned}, which is no candidate that may run"
        return f"it is pinned; the measurement chose {self._measured}: {self.reason}"

    def table(self) -> list[str]:
        """A line for each candidate."""
        lines = [COLUMNS, *(row.cells() for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS) - 1)]
        return ["  ".join([*(c.ljust(w) for c, w in zip(line[:-1], widths, strict=True)), line[-1]]) for line in lines]

    def to_data(self) -> dict[str, Any]:
        """The decision as JSON holds it; numbers that are not finite become null."""
        told: dict[str, Any] = {**written(dataclasses.asdict(self)), "format": FORMAT}
        if self.fingerprint is not None:
            told["fingerprint"] = self.fingerprint.to_data()
        return told

    def to_json(self) -> str:
        return dumped(self.to_data())

    @classmethod
    def from_data(cls, told: Any) -> Decision:
        """The decision in what JSON holds, checked throughout.

        Raises:
            Invalid: it is none, or one of another version; the message says what is wrong with it.
        """
        if not isinstance(told, dict):
            raise Invalid("it is not an object")
        if told.get("format") != FORMAT:
            raise Invalid(f"it has format {told.get('format')!r}, and this version of torchmux reads {FORMAT}")
        decision: Decision = built(cls, told, "decision")
        names = [row.candidate for row in decision.rows]
        if len(set(names)) < len(names):
            raise Invalid("two rows have the same candidate")
        numbers = [n for row in decision.rows for n in (row.compile_seconds, row.milliseconds, row.spread, row.error)]
        if any(n is not None and not (math.isfinite(n) and n >= 0) for n in (*numbers, decision.seconds)):
            raise Invalid("a number is negative or not finite")
        return decision

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision:
        """As :meth:`from_data`."""
        return cls.from_data(loads(text))
