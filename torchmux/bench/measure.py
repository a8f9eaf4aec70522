"""One measurement: each side in processes of its own, judged by eager's, timed in turns."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchmux.multiplexer.workers import Lost, Process
from torchmux.scratch import scratch_folder

from .latency import Latency, ratio
from .programs import Source
from .results import KEPT, Result, Row
from .sides import Side

WORKER = "torchmux.bench.worker:Bencher"

START_S = 120.0
"""What a process may take to start and to load the program, beyond the budget of its side."""

DRAWING_S = 30.0
"""In which eager's error is measured again, where a side differs from eager."""

TURN_S = 0.02
"""How long a turn of one side takes, about."""

PAUSE_S = 0.05
"""Between turns: the threads of some runtimes spin for that long after a call."""

FEWEST, MOST = 8, 60
"""Turns before the measurement may end, and at most."""

CALLS = 100
"""Calls of a side before the measurement may end: the 99th percentile of fewer is their largest."""

FOR_COMPILING = 2 / 3
"""The share of a cap that is for compiling; the rest is for timing."""

PRECISE = 0.01
"""Half of a confidence interval that is narrow enough."""

Step = Callable[[str], None]


class NoReferee(Exception):
    """Eager cannot run the program, or its process is gone; the message says why."""


class Bench:
    """A program and its sides.

    Args:
        sides: the baseline comes first.
        threads: of torch in each process; other runtimes use as many.
        budget: seconds for each side: for each of its two compilations, and a third of it for timing.
        cap: seconds for all sides together; those whose turn has not come after two thirds of it are lost.
        memory: bytes that the process of a side may take.
        step: is called with what is going on.
        calls: fewest of a side before the measurement ends, however narrow the intervals are.
        twice: whether each side compiles a second time, in a process that finds the caches of the first.
    """

    def __init__(
        self,
        source: Source,
        sides: Sequence[Side],
        *,
        threads: int,
        budget: float,
        memory: int,
        step: Step,
        cap: float = math.inf,
        calls: int = CALLS,
        twice: bool = True,
    ) -> None:
        self.source = source
        self.sides = list(sides)
        self.threads = threads
        self.budget = budget
        self.memory = memory
        self.step = step
        self.fewest_calls = calls
        self.twice = twice
        self.ends = time.monotonic() + cap
        self.admission_ends = time.monotonic() + cap * FOR_COMPILING
        self.told = {**dataclasses.asdict(source), "place": list(source.place)}  # as JSON has it
        self.result = Result(source.name, self.told, threads)
        self.rows = {side.label: Row(side.label, "interrupted") for side in sides}
        self.processes: dict[str, Process] = {}
        self.seconds: dict[str, list[float]] = {}
        self.calls: dict[str, int] = {}

    def run(self) -> Result:
        """Measure.  Ctrl-C ends the measurement; the result then has what was known, and is ``interrupted``."""
        began = time.monotonic()
        self.result.rows = list(self.rows.values())
        try:
            with scratch_folder() as folder, contextlib.ExitStack() as stack:
                self.folder, self.stack = folder, stack
                self._prepare()
                for number, side in enumerate(self.sides):
                    self._admit(side, number)
                self._race()
        except NoReferee as why:
            self.result.failed = str(why)
            self.result.rows = []
        except KeyboardInterrupt:
            self.result.interrupted = True
        self._finish()
        self.result.seconds = time.monotonic() - began
        return self.result

    # --- processes -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """The referee's process."""
        self.step("eager, the reference")
        try:
            process = self._process("referee", self.sides[0], self.folder / "referee-cache")
        except Lost as lost:
            raise NoReferee(str(lost)) from None
        self.referee = self.stack.enter_context(process)
        found = self._ask_referee("load", START_S)
        self.result.parameters, self.result.training = found["parameters"], found["training"]
        self.result.doubt = self._ask_referee("reference", START_S + self.budget)["doubt"]

    def _ask_referee(self, what: str, seconds: float, **more: Any) -> dict[str, Any]:
        try:
            return self.referee.ask(what, self._until(seconds), **more)
        except Lost as lost:
            raise NoReferee(str(lost)) from None

    def _process(self, name: str, side: Side, cache: Path) -> Process:
        cache.mkdir(exist_ok=True)
        process = Process(self.folder, name, self.memory, training=self.source.training)
        try:
            process.open(
                self._until(START_S), worker=WORKER, source=self.told, threads=self.threads, cache=str(cache),
                backend=side.backend, mode=side.mode, options=side.options, specs=side.own_specs(), home=os.getcwd(),
            )  # fmt: skip
        except BaseException:
            process.end()
            raise
        return process

    def _admit(self, side: Side, number: int) -> None:
        """Compile in a process with empty caches, and again in the next; each is judged, and the last is timed."""
        row, cache = self.rows[side.label], self.folder / f"cache{number}"
        if time.monotonic() > self.admission_ends:
            row.verdict, row.reason = "lost", "the time of all sides was spent before its turn"
            return
        try:
            if self.twice and not side.is_baseline:
                self.step(f"{side.label}, cold")
                with self._process(f"cold{number}", side, cache) as process:
                    row.cold_seconds = self._compiled(process, row, number)["seconds"]
            self.step(side.label if side.is_baseline or not self.twice else f"{side.label}, warm")
            process = self.stack.enter_context(self._process(f"warm{number}", side, cache))
            try:
                answer = self._compiled(process, row, number)
                if self.twice and not side.is_baseline:
                    row.warm_seconds = answer["seconds"]
                elif not side.is_baseline:
                    row.cold_seconds = answer["seconds"]
                self._note(row, process.ask("warm", self._until(self.budget)))
            except Lost:
                process.end()
                raise
        except Lost as lost:
            row.verdict, row.reason = ("wrong" if row.verdict == "wrong" else "lost"), str(lost)
            return
        self.processes[side.label] = process

    def _compiled(self, process: Process, row: Row, number: int) -> dict[str, Any]:
        """Have a side compile, run, and be judged."""
        process.ask("load", self._until(START_S))
        shown = self.folder / f"shown{number}"
        until = min(self._until(self.budget), max(self.admission_ends, self._until(1.0)))
        answer = process.ask("compile", until, to=str(shown))
        verdict = self._ask_referee("judge", START_S + DRAWING_S, of=str(shown), drawing=DRAWING_S)
        shown.unlink()
        if verdict["wrong"] and not verdict["doubt"]:
            row.verdict = "wrong"
            raise Lost(verdict["wrong"])
        if verdict["wrong"]:
            row.verdict, row.reason = "unjudged", f"{verdict['doubt']}; {verdict['wrong']}"
        else:
            row.verdict, row.error, row.eager_error = "right", verdict["error"], verdict["eager_error"]
        return answer

    @staticmethod
    def _note(row: Row, told: dict[str, Any]) -> None:
        memory = told.pop("memory")
        row.memory_bytes, row.peak_bytes = memory["now"], memory["peak"]
        row.accelerator_bytes = memory["accelerator"]
        for name, value in told.items():
            setattr(row, name, value)

    @staticmethod
    def _until(seconds: float) -> float:
        return time.monotonic() + seconds

    # --- times -----------------------------------------------------------------------------------------------------

    def _race(self) -> None:
        """Time in turns until the ratios to the baseline are known well enough, or the time is over."""
        ends = min(self.ends, time.monotonic() + self.budget / 3 * max(1, len(self.processes)))
        for turn in range(MOST):
            self.step(f"turn {turn + 1}")
            for name in list(self.processes) if turn % 2 == 0 else list(reversed(self.processes)):
                self._time(name)
            if time.monotonic() > ends or (turn + 1 >= FEWEST and self._is_settled()):
                break

    def _time(self, name: str) -> None:
        row = self.rows[name]
        time.sleep(PAUSE_S)
        try:
            answer = self.processes[name].ask("time", self._until(START_S), calls=self.calls.get(name, 1))
        except Lost as lost:
            row.verdict, row.reason = "lost", str(lost)
            self.processes.pop(name).end()
            return
        seconds: list[float] = answer["seconds"]
        self.seconds.setdefault(name, []).extend(seconds)
        row.turns.append(statistics.median(seconds))
        self.calls[name] = max(1, min(1000, int(TURN_S / max(row.turns[-1], 1e-7))))

    def _is_settled(self) -> bool:
        base = self.rows[self.sides[0].label]
        return all(
            len(self.seconds[name]) >= self.fewest_calls and ratio(base.turns, self.rows[name].turns).width <= PRECISE
            for name in self.processes
        )

    def _finish(self) -> None:
        """What follows from the times."""
        base = self.rows[self.sides[0].label]
        for name, seconds in self.seconds.items():
            row = self.rows[name]
            if row.verdict == "lost":
                continue
            row.latency = Latency.of(seconds)
            row.speedup = ratio(base.turns, row.turns) if base.verdict != "lost" else None
            step = -(-len(seconds) // KEPT)
            row.sample = seconds[::step]


def programs_of(source: Source, *, threads: int, memory: int, within: float) -> list[str]:
    """The names of the programs of a source, which a process of its own finds out: the user's code runs there.

    Raises:
        Lost: it fails; the message says why.
    """
    bench = Bench(source, [Side("eager", "eager")], threads=threads, budget=within, memory=memory, step=lambda _: None)
    with scratch_folder() as folder:
        bench.folder = folder
        with bench._process("names", bench.sides[0], folder / "cache") as process:
            names: list[str] = process.ask("programs", time.monotonic() + within)["names"]
            return names
