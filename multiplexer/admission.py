"""Who may race: each candidate compiles and runs in a process of its own, and eager's process judges what comes out."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .candidates import EAGER, Candidate
from .decisions import Row
from .parcel import Parcel
from .workers import Lost, Process

log = logging.getLogger("torchmux")

PARCEL = "parcel"
"""The file of the parcel, in the folder of its admission."""

START_S = 60.0
"""What a process may take to start, beyond the budget of its candidate."""


class Admission:
    """The processes of the candidates for one parcel.

    They end with the block.

    Args:
        parcel: what is measured; None if it is in the folder.
        rows: by the names of candidates; what becomes of each is written there.
        memory: bytes that the process of a candidate may take.
        budget: seconds for the whole measurement, which extend what eager may take.
        cold: whether they compile with empty caches.
        ends: on the clock of ``time.monotonic``; the candidates whose turn has not come by then are lost.
    """

    def __init__(
        self,
        parcel: Parcel | None,
        folder: Path,
        rows: Mapping[str, Row],
        *,
        memory: int,
        budget: float,
        ends: float,
        cold: bool = False,
    ) -> None:
        self.folder = folder
        self.rows = rows
        self.memory = memory
        self.budget = budget
        self.ends = ends
        self.cold = cold
        self.processes: dict[str, Process] = {}
        self._tried = 0
        self._stack = contextlib.ExitStack()
        if parcel is not None:
            parcel.save(folder / PARCEL)

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def admit(self, candidates: Sequence[Candidate], after: Callable[[str], None] = lambda name: None) -> None:
        """Try each; those that may race are in ``processes`` afterwards.  Eager comes first: it is the referee.

        ``after`` is called with the name of each that was admitted.
        """
        for candidate in candidates:
            self._admit(candidate, self._tried)
            self._tried += 1
            if candidate.name in self.processes:
                after(candidate.name)

    def time(self, name: str, calls: int, until: float, callers: int = 1) -> list[float]:
        """The seconds of so many calls of a candidate that was admitted.

        With several ``callers``, that many threads make as many calls each, and the answer has one number: the seconds
        of all calls together by the number of calls.

        Raises:
            Lost: it is out; its row has the reason.
        """
        try:
            answer = self.processes[name].ask("time", until + START_S, calls=calls, callers=callers)
        except Lost as lost:
            self.rows[name].verdict, self.rows[name].reason = "lost", str(lost)
            raise
        self.rows[name].memory = answer["added"]
        seconds: list[float] = answer["seconds"]
        return seconds

    def _admit(self, candidate: Candidate, number: int) -> None:
        """Start a candidate's process, have it compile and run, and have the referee judge what comes out."""
        row = self.rows[candidate.name]
        if time.monotonic() > self.ends and candidate.backend != EAGER:
            row.verdict, row.reason = "lost", "the budget was spent before its turn"
            return
        process = self._stack.enter_context(Process(self.folder, f"worker{number}", self.memory, cold=self.cold))
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
        more |= {"specs": candidate.specs, "pins": candidate.told_pins}
        parcel = str(self.folder / PARCEL)
        process.ask("open", time.monotonic() + START_S, parcel=parcel, path=sys.path, **more)
        if candidate.backend == EAGER:
            self.referee = process
            process.ask("reference", time.monotonic() + START_S + self.budget)
        answer = process.ask("compile", max(self.ends, time.monotonic() + 1.0))
        row = self.rows[candidate.name]
        row.compile_seconds, row.share = answer["seconds"], answer["share"]
        if not answer["share"] and candidate.backend != EAGER:
            row.verdict = "partial"
            raise Lost(f"it leaves everything to torch: {answer['why']}")

    def _judge(self, process: Process, candidate: Candidate, number: int) -> None:
        results = self.folder / f"results{number}"
        until = max(self.ends, time.monotonic() + 1.0)
        process.ask("results", until, to=str(results))
        verdict = self.referee.ask("judge", time.monotonic() + START_S, of=str(results))
        results.unlink()
        row = self.rows[candidate.name]
        if verdict["wrong"]:
            row.verdict = "wrong"
            raise Lost(verdict["wrong"])
        row.error = verdict["error"]
