"""One measurement: every candidate in a process of its own, judged, timed in turns, ranked."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path
from typing import Any

from torchmux.scratch import scratch_folder

from .candidates import EAGER, Candidate, Field
from .decisions import Decision, Row, machine
from .parcel import Parcel
from .timing import TIE, Times, race
from .workers import Lost, Process

log = logging.getLogger("torchmux")

TURN_S = 0.02
"""How long a turn of one candidate takes, about."""

FOR_TIMES = 0.3
"""The share of the budget that is kept for timing."""

PAUSE_S = 0.05
"""Between turns: the threads of some runtimes spin for that long after a call."""

START_S = 60.0
"""What a process may take to start, beyond the budget of its candidate."""


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
        self.processes: dict[str, Process] = {}
        self.calls: dict[str, int] = {}

    def decide(self) -> Decision:
        """Measure, and choose.  A candidate that is lost costs itself only."""
        began = time.monotonic()
        self.ends = began + self.budget
        self.admission_ends = began + self.budget * (1 - FOR_TIMES)
        with scratch_folder() as folder, contextlib.ExitStack() as stack:
            self.folder = folder
            self.parcel.save(folder / "parcel")
            for number, candidate in enumerate(self.field.candidates):
                self._admit(candidate, number, stack)
            ranked = self._race()
        decision = self._decision(ranked)
        decision.seconds = time.monotonic() - began
        return decision

    def _admit(self, candidate: Candidate, number: int, stack: contextlib.ExitStack) -> None:
        """Start a candidate's process, have it compile and run, and have the referee judge what comes out."""
        row = self.rows[candidate.name]
        if time.monotonic() > self.admission_ends and candidate.backend != EAGER:
            row.verdict, row.reason = "lost", "the budget was spent before its turn"
            return
        process = stack.enter_context(Process(self.folder, f"worker{number}", self.memory))
        try:
            self._open(process, candidate)
            self._judge(process, candidate, number)
        except Lost as lost:
            process.end()
            row.verdict, row.reason = row.verdict or "lost", str(lost)
            log.info("auto: %s is out: %s", candidate.name, lost)
            return
        self.processes[candidate.name] = process

    def _open(self, process: Process, candidate: Candidate) -> None:
        more: dict[str, Any] = {"backend": candidate.backend, "options": candidate.options or None}
        if candidate.spec:
            more["spec"] = candidate.spec
        parcel = str(self.folder / "parcel")
        process.ask("open", time.monotonic() + START_S, parcel=parcel, path=sys.path, **more)
        if candidate.backend == EAGER:
            self.referee = process
            process.ask("reference", time.monotonic() + START_S + self.budget)
        answer = process.ask("compile", max(self.admission_ends, time.monotonic() + 1.0))
        row = self.rows[candidate.name]
        row.compile_seconds, row.share = answer["seconds"], answer["share"]
        if not answer["share"] and candidate.backend != EAGER:
            row.verdict = "partial"
            raise Lost(f"it leaves everything to torch: {answer['why']}")

    def _judge(self, process: Process, candidate: Candidate, number: int) -> None:
        results = self.folder / f"results{number}"
        until = max(self.admission_ends, time.monotonic() + 1.0)
        process.ask("results", until, to=str(results))
        verdict = self.referee.ask("judge", time.monotonic() + START_S, of=str(results))
        results.unlink()
        row = self.rows[candidate.name]
        if verdict["wrong"]:
            row.verdict = "wrong"
            raise Lost(verdict["wrong"])
        row.error = verdict["error"]

    # --- times -----------------------------------------------------------------------------------------------------

    def _race(self) -> list[str]:
        names = list(self.processes)
        if self.strict:  # torch is not to run it
            names = [name for name in names if self.rows[name].backend != EAGER] or []
        self.times: dict[str, Times] = {}
        return race(names, self._time, self.times, lambda: time.monotonic() > self.ends)

    def _time(self, name: str) -> float | None:
        calls = self.calls.get(name, 1)
        time.sleep(PAUSE_S)
        try:
            answer = self.processes[name].ask("time", max(self.ends, time.monotonic() + 1.0) + START_S, calls=calls)
        except Lost as lost:
            self.rows[name].verdict, self.rows[name].reason = "lost", str(lost)
            return None
        seconds = sorted(answer["seconds"])
        median: float = seconds[len(seconds) // 2]
        self.calls[name] = max(1, min(1000, int(TURN_S / max(median, 1e-7))))
        self.rows[name].memory = answer["peak"]
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
    """Half of the memory that is free now."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 8 << 30
    free = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), 16 << 20)
    return free * 1024 // 2
