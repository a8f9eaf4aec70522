"""One measurement: candidates are admitted, timed in turns, ranked; the simplest of the best is chosen."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchmux.scratch import scratch_folder

from .admission import Admission, free_memory
from .candidates import EAGER, Field
from .decisions import Decision, Row, machine
from .objectives import Choice, Objective, choose
from .parcel import Parcel
from .sharing import splits
from .timing import FEWEST, TIE, Times, race
from .workers import Lost

log = logging.getLogger("torchmux")

TURN_S = 0.02
"""How long a turn of one candidate takes, about."""

FOR_TIMES = 0.3
"""The share of the budget that is kept for timing."""

PAUSE_S = 0.05
"""Between turns: the threads of some runtimes spin for that long after a call."""

FIRST_TURNS = 3
"""How often a candidate that has just been admitted is timed against what the program runs."""


class Measurement:
    """Candidates for one parcel, and what is known of each.

    Args:
        budget: seconds for everything.
        memory: bytes that the process of a candidate may take.
        lead: called with the row of a candidate that is quicker than what the program runs, while the rest is still
            measured; the answer is whether the program runs it from now on.  Its time is not part of the budget.
        turn: a block in which the measurement is the only one; what others take is not part of the budget.
        check: called between steps, to end the measurement by an exception.
        shares: whether several backends may share the graph; a second race is run for them.
    """

    def __init__(
        self,
        parcel: Parcel,
        candidates: Field,
        *,
        budget: float,
        memory: int,
        strict: Any,
        objective: Objective | None = None,
        lead: Callable[[Row], bool] | None = None,
        turn: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        check: Callable[[], None] = lambda: None,
        shares: bool = True,
    ) -> None:
        self.parcel: Parcel | None = parcel
        self.training = parcel.training
        self.field = candidates
        self.budget = budget
        self.memory = memory
        self.strict = strict
        self.objective = objective or Objective()
        self.lead = lead
        self.turn = turn
        self.check = check
        self.shares = shares
        self.rows = {c.name: Row(c.name, c.backend, c.options, "") for c in candidates.candidates}
        self.calls: dict[str, int] = {}
        self.times: dict[str, Times] = {}
        self.leader = EAGER
        self.split: splits.Split | None = None

    def decide(self) -> Decision:
        """Measure, and choose.  A candidate that is lost costs itself only."""
        with scratch_folder() as folder, contextlib.ExitStack() as stack:
            assert self.parcel is not None
            self.admitted = Admission(
                self.parcel,
                folder,
                self.rows,
                memory=self.memory,
                budget=self.budget,
                ends=0.0,
                training=self.training,
                cold=self.objective.is_cold,
                on_device=any(isinstance(v, torch.Tensor) and v.device.type != "cpu" for v in self.parcel.inputs),
            )
            self.parcel = None  # the inputs of the call are in a file from here on
            stack.enter_context(self.turn())
            stack.enter_context(self.admitted)
            began = time.monotonic()
            self.ends = began + self.budget
            self.admitted.ends = began + self.budget * (1 - FOR_TIMES)
            self.admitted.admit(self.field.in_turn, after=self._first_look)
            ranked = self._race([name for name in self.admitted.processes if not self.rows[name].verdict])
            if self.shares and self.objective.name == "latency":
                ranked = self._share(ranked, folder)
        decision = self._decision(ranked)
        decision.seconds = time.monotonic() - began
        return decision

    # --- while candidates are admitted -----------------------------------------------------------------------------

    def _first_look(self, name: str) -> None:
        """Time a candidate that was just admitted against the one that leads; the program may switch to it."""
        self.check()
        row = self.rows[name]
        if why := self.objective.broken(row):
            row.verdict, row.reason = "limit", why
            return
        if self.lead is None or name == self.leader or EAGER not in self.admitted.processes:
            return
        if (row.compile_seconds or 0.0) > self.ends - time.monotonic():
            return  # the decision falls before it would run here
        times = {self.leader: Times(), name: Times()}
        for turn in range(FIRST_TURNS + 1):
            for each, own in times.items():
                if turn == 0 and each in self.calls:
                    continue  # the first turn tells how many calls make one
                seconds = self._time(each)
                if seconds is None or time.monotonic() > self.ends:
                    return
                if turn:
                    own.turns.append(seconds)
        if times[name].median * (1 + TIE) >= times[self.leader].median:
            return
        began = time.monotonic()
        if self.lead(row):
            self.leader = name
        spent = time.monotonic() - began
        self.ends += spent
        self.admitted.ends += spent

    # --- times -----------------------------------------------------------------------------------------------------

    def _race(self, names: list[str]) -> list[str]:
        if self.strict:  # torch is not to run it
            names = [name for name in names if self.rows[name].backend != EAGER]
        for name in names:
            self.times.pop(name, None)
        return race(names, self._time, self.times, lambda: time.monotonic() > self.ends, self.admitted.release)

    def _share(self, ranked: list[str], folder: Path) -> list[str]:
        """Candidates for which several backends share the graph, raced against the best single ones."""
        singles = splits.finalists(self.field.candidates, self.rows, self.times)
        referee = self.admitted.processes.get(EAGER)
        if not ranked or referee is None:
            return ranked
        self.split = splits.Split(
            folder,
            referee.ask,
            singles,
            strict=self.strict,
            training=self.training,
            memory=self.memory,
            ends=self.ends,
            check=self.check,
        )
        found = splits.chains(singles)
        split = self.split.search()
        if isinstance(split, Row):
            self.rows[split.candidate] = split
        else:
            found.append(split)
        if not found:
            return ranked
        self.field = dataclasses.replace(self.field, candidates=(*self.field.candidates, *found))
        self.rows |= {c.name: Row(c.name, c.backend, c.options, "", pins=c.told_pins) for c in found}
        self.admitted.ends = self.ends
        self.admitted.admit(found, after=self._first_look)
        admitted = [c.name for c in found if c.name in self.admitted.processes and not self.rows[c.name].verdict]
        if not admitted:
            return ranked
        before = dict(self.times)
        again = self._race([*ranked, *admitted])
        if all(len(self.times[name].turns) < FEWEST for name in again):  # the budget ended it: the first race counts
            self.times.update(before)
            for name in admitted:
                row = self.rows[name]
                row.verdict, row.reason = row.verdict or "lost", row.reason or "the budget was spent before its race"
                self.times.pop(name, None)
            return ranked
        return again

    def _time(self, name: str) -> float | None:
        """The median seconds of a call in one turn; None if the candidate is lost, or breaks a limit."""
        self.check()
        row, callers = self.rows[name], self.objective.callers
        time.sleep(PAUSE_S)
        try:
            until = max(self.ends, time.monotonic() + 1.0)
            seconds = sorted(self.admitted.time(name, self.calls.get(name, 1), until, callers=callers))
        except Lost:
            return None
        if why := self.objective.broken(row):
            row.verdict, row.reason = "limit", why
            return None
        median: float = seconds[len(seconds) // 2]
        self.calls[name] = max(1, min(1000, int(TURN_S / max(median * callers, 1e-7))))
        return median

    def _decision(self, ranked: list[str]) -> Decision:
        for name, times in self.times.items():
            row = self.rows[name]
            row.milliseconds, row.spread = times.median * 1e3, times.spread
            if not row.verdict:
                row.verdict = "slower"
        for name in ranked:
            self.rows[name].verdict = ""
        choice = choose(
            self.objective, self.rows, self.times, ranked, [candidate.name for candidate in self.field.candidates]
        )
        if choice is None:
            choice = Choice(EAGER, self._nobody(), (), ())
        else:
            self._judge_all(choice, ranked)
        if self.split is not None:
            for row in self.rows.values():
                self.split.explain(row)
        position = {name: number for number, name in enumerate(choice.order)}
        rows = sorted(
            self.rows.values(),
            key=lambda row: (row.verdict != "chosen", position.get(row.candidate, len(position)), row.candidate),
        )
        rows += [Row(name, name, {}, "excluded", why) for name, why in self.field.excluded.items()]
        chosen = self.rows[choice.chosen]
        return Decision(chosen.backend, chosen.options, choice.reason, rows, machine=machine())

    def _judge_all(self, choice: Choice, ranked: list[str]) -> None:
        """The verdicts on all that were timed."""
        objective = self.objective
        best = objective.figure(self.rows[choice.chosen], self.times[choice.chosen])
        for name in choice.order:
            row = self.rows[name]
            if name == choice.chosen:
                row.verdict = "chosen"
            elif name in choice.ties:
                row.verdict = "tie"
            elif objective.name in ("latency", "throughput"):
                row.verdict = "unsettled" if name in ranked else "slower"
                row.reason = f"{self.times[name].median / best:.2f} times the time of {choice.chosen}"
            else:
                row.verdict, row.reason = "slower", self._behind(row, choice.chosen)

    def _behind(self, row: Row, chosen: str) -> str:
        """Why a candidate is not chosen for another objective than speed."""
        if self.objective.name == "memory":
            return f"it takes more memory than {chosen}"
        eager = self.times.get(EAGER)
        if row.backend == EAGER or (eager and self.times[row.candidate].median * (1 + TIE) >= eager.median):
            return "it is not quicker than eager" if row.backend != EAGER else "others are quicker"
        return f"it compiles in more time than {chosen}"

    def _nobody(self) -> str:
        """Why nobody is left to choose."""
        referee = self.rows[EAGER]
        if referee.verdict == "lost":
            return f"no candidate could be judged, since eager's own process was lost: {referee.reason}"
        broken = [row for row in self.rows.values() if row.verdict == "limit"]
        if broken:
            return f"no candidate keeps the limits: {broken[0].candidate}: {broken[0].reason}"
        lost = [row for row in self.rows.values() if row.backend != EAGER and row.verdict]
        if lost:
            return f"no candidate could be timed: {lost[0].candidate}: {lost[0].reason}"
        return "no candidate could be timed"


def default_memory() -> int:
    """Half of the memory that is free now, in bytes."""
    return free_memory() // 2
