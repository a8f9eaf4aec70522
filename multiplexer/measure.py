"""One measurement: candidates are admitted, timed in turns, ranked; the simplest of the quickest is chosen."""

from __future__ import annotations

import time
from typing import Any

from torchmux.scratch import scratch_folder

from .admission import Admission, free_memory
from .candidates import EAGER, Field
from .decisions import Decision, Row, machine
from .parcel import Parcel
from .timing import TIE, Times, race
from .workers import Lost

TURN_S = 0.02
"""How long a turn of one candidate takes, about."""

FOR_TIMES = 0.3
"""The share of the budget that is kept for timing."""

PAUSE_S = 0.05
"""Between turns: the threads of some runtimes spin for that long after a call."""


class Measurement:
    """Candidates for one parcel, and what is known of each.

    Args:
        budget: seconds for everything.
        memory: bytes that the process of a candidate may take.
    """

    def __init__(self, parcel: Parcel, candidates: Field, *, budget: float, memory: int, strict: Any) -> None:
        self.parcel = parcel
        self.field = candidates
        self.budget = budget
        self.memory = memory
        self.strict = strict
        self.rows = {c.name: Row(c.name, c.backend, c.options, "") for c in candidates.candidates}
        self.calls: dict[str, int] = {}

    def decide(self) -> Decision:
        """Measure, and choose.  A candidate that is lost costs itself only."""
        began = time.monotonic()
        self.ends = began + self.budget
        admission_ends = began + self.budget * (1 - FOR_TIMES)
        with (
            scratch_folder() as folder,
            Admission(
                self.parcel, folder, self.rows, memory=self.memory, budget=self.budget, ends=admission_ends
            ) as self.admitted,
        ):
            self.admitted.admit(self.field.candidates)
            ranked = self._race()
        decision = self._decision(ranked)
        decision.seconds = time.monotonic() - began
        return decision

    # --- times -----------------------------------------------------------------------------------------------------

    def _race(self) -> list[str]:
        names = list(self.admitted.processes)
        if self.strict:  # torch is not to run it
            names = [name for name in names if self.rows[name].backend != EAGER] or []
        self.times: dict[str, Times] = {}
        return race(names, self._time, self.times, lambda: time.monotonic() > self.ends, self.admitted.release)

    def _time(self, name: str) -> float | None:
        calls = self.calls.get(name, 1)
        time.sleep(PAUSE_S)
        try:
            seconds = sorted(self.admitted.time(name, calls, max(self.ends, time.monotonic() + 1.0)))
        except Lost:
            return None
        median: float = seconds[len(seconds) // 2]
        self.calls[name] = max(1, min(1000, int(TURN_S / max(median, 1e-7))))
        return median

    def _decision(self, ranked: list[str]) -> Decision:
        for name, times in self.times.items():
            row = self.rows[name]
            row.milliseconds, row.spread = times.median * 1e3, times.spread
            if not row.verdict:
                row.verdict = "slower"
        chosen, reason = self._choice(ranked)
        for name in ranked:
            ties = self.times[name].median <= self.times[ranked[0]].median * (1 + TIE)
            self.rows[name].verdict = "chosen" if name == chosen else "tie" if ties else "unsettled"
        for name in self.rows:
            row = self.rows[name]
            if row.verdict in ("slower", "unsettled"):
                row.reason = f"{self.times[name].median / self.times[chosen].median:.2f} times the time of {chosen}"
        rows = sorted(self.rows.values(), key=_order)
        rows += [Row(name, name, {}, "excluded", why) for name, why in self.field.excluded.items()]
        row = self.rows[chosen]
        return Decision(row.backend, row.options, reason, rows, machine=machine())

    def _choice(self, ranked: list[str]) -> tuple[str, str]:
        """The simplest of the quickest, and why."""
        if not ranked:
            return EAGER, "no candidate could be timed"
        best = self.times[ranked[0]].median
        order = {c.name: position for position, c in enumerate(self.field.candidates)}
        ties = [name for name in ranked if self.times[name].median <= best * (1 + TIE)]
        chosen = min(ties, key=order.__getitem__)
        if len(ranked) == 1:
            return chosen, "it is the quickest beyond doubt"
        if len(ties) > 1:
            return chosen, f"it is the simplest of {len(ties)} that are as quick"
        return chosen, "it was the quickest when the budget was spent"


def _order(row: Row) -> tuple[Any, ...]:
    return (row.milliseconds is None, row.verdict != "chosen", row.milliseconds or 0.0, row.candidate)


def default_memory() -> int:
    """Half of the memory that is free now, in bytes."""
    return free_memory() // 2
