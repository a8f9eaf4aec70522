"""Who may race: each candidate compiles and runs in a process of its own, and eager's process judges what comes out.

As many compile at the same time as there are cores for their threads and memory for their processes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from . import births, trial
from .candidates import EAGER, Candidate
from .decisions import Row
from .leaks import Growth
from .parcel import PARCEL, Parcel
from .workers import Lost, Process

log = logging.getLogger("torchmux")

START_S = 60.0
"""What a process may take to start, beyond the budget of its candidate."""

FOR_OTHER_INPUTS = 0.1
"""The share of the budget in which the referee begins runs on inputs other than those of the call."""

ON_DEVICE = 4
"""How many processes compile at the same time for an accelerator."""

FOR_DRAWING = 0.25
"""The share of the budget in which the referee measures eager's error again, where a candidate differs from eager."""


class Admission:
    """The processes of the candidates for one parcel.

    They end with the block.

    Args:
        parcel: what is measured; None if it is in the folder.
        rows: by the names of candidates; what becomes of each is written there.
        memory: bytes that the process of a candidate may add to what it begins with.
        budget: seconds for the whole measurement, which extend what eager may take.
        training: whether the graph has a backward pass.
        cold: whether they compile with empty caches.
        on_device: whether the graph runs on an accelerator: then candidates compile while the referee computes.
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
        training: bool,
        cold: bool = False,
        on_device: bool = False,
    ) -> None:
        births.prepare()
        self.folder = folder
        self.rows = rows
        self.memory = memory
        self.budget = budget
        self.ends = ends
        self.training = training
        self.cold = cold
        self.on_device = on_device
        self.processes: dict[str, Process] = {}
        self._growth: dict[str, Growth] = {}
        self._tried = 0
        self._stack = contextlib.ExitStack()
        self._judging = threading.Lock()
        self._like: list[str] = []
        self.referee: Process | None = None
        self._has_reference = threading.Event()
        if parcel is not None:
            parcel.save(folder / PARCEL)

    def __enter__(self) -> Admission:
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def admit(self, candidates: Sequence[Candidate], after: Callable[[str], None] = lambda name: None) -> None:
        """Try each; those that may race are in ``processes`` afterwards, in the given order.

        Eager is the first of the first: it is the referee.  ``after`` is called with the name of each that was
        admitted, also while others still compile.
        """
        numbers = range(self._tried, self._tried + len(candidates))
        self._tried += len(candidates)
        alone = 1 if candidates[0].backend == EAGER and not self.on_device else 0
        for candidate, number in zip(candidates[:alone], numbers, strict=False):
            self._admit(candidate, number)
        with ThreadPoolExecutor(self._at_once(), "torchmux-auto") as pool:
            tried = pool.map(self._admit, candidates[alone:], numbers[alone:])
            try:
                for at, candidate in enumerate(candidates):
                    if at >= alone:
                        next(tried)
                    if candidate.name in self.processes:
                        after(candidate.name)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
        order = list(self.rows)
        self.processes = dict(sorted(self.processes.items(), key=lambda item: order.index(item[0])))

    def release(self, name: str) -> None:
        """End the process of a candidate that is out of the race, if it is not the referee; its memory is free."""
        if self.processes[name] is not self.referee:
            self.processes[name].end()

    def time(self, name: str, calls: int, until: float, callers: int = 1) -> list[float]:
        """The seconds of so many calls of a candidate that was admitted.

        With several ``callers``, that many threads make as many calls each, and the answer has one number: the seconds
        of all calls together by the number of calls.

        Raises:
            Lost: it is out; its row has the reason.
        """
        try:
            answer = self.processes[name].ask("time", until + START_S, calls=calls, callers=callers)
            if answer["said"]:
                raise Lost(f"it writes to the standard error in each call: {' '.join(answer['said'].split())}")
            if fault := self._growth.setdefault(name, Growth()).fault((calls + 1) * callers, answer["left"]):
                raise Lost(fault)
        except Lost as lost:
            self.rows[name].verdict, self.rows[name].reason = "lost", str(lost)
            self.processes[name].end()
            raise
        self.rows[name].memory = answer["peak"]
        seconds: list[float] = answer["seconds"]
        return seconds

    def _at_once(self) -> int:
        """How many may compile at the same time."""
        cores = len(os.sched_getaffinity(0))
        if self.on_device:  # the cores do nothing else; each has tensors of its own on the device
            return max(2, min(cores // 2, ON_DEVICE, free_memory() // max(1, self.memory)))
        return max(1, min(cores // max(1, torch.get_num_threads()), free_memory() // max(1, self.memory)))

    def _admit(self, candidate: Candidate, number: int) -> None:
        """Start a candidate's process, have it compile and run, and have the referee judge what comes out."""
        row = self.rows[candidate.name]
        if time.monotonic() > self.ends and candidate.backend != EAGER:
            row.verdict, row.reason = "lost", "the budget was spent before its turn"
            return
        process = Process(self.folder, f"worker{number}", self.memory, training=self.training, cold=self.cold)
        self._stack.callback(process.end)
        try:
            self._open(process, candidate)
            self._judge(process, candidate, number)
        except Lost as lost:
            process.end()
            row.verdict, row.reason = row.verdict or "lost", str(lost)
            log.info("auto: %s is out: %s", candidate.name, lost)
            return
        finally:
            if candidate.backend == EAGER:
                self._has_reference.set()  # or there will be none
        if said := process.said():
            log.info("auto: %s wrote to the standard error: %s", candidate.name, said[:1000])
        self.processes[candidate.name] = process

    def _open(self, process: Process, candidate: Candidate) -> None:
        more: dict[str, Any] = {"backend": candidate.backend, "options": candidate.options or None}
        more |= {"specs": candidate.specs, "pins": candidate.told_pins}
        process.open(time.monotonic() + START_S, parcel=str(self.folder / PARCEL), **more)
        if candidate.backend == EAGER:
            self.referee = process
            shares = {"seconds": self.budget * FOR_OTHER_INPUTS, "drawing": self.budget * FOR_DRAWING}
            self._like = process.ask("reference", time.monotonic() + START_S + self.budget, **shares)["like"]
            self._has_reference.set()
        answer = process.ask("compile", max(self.ends, time.monotonic() + 1.0))
        row = self.rows[candidate.name]
        row.compile_seconds, row.share = answer["seconds"], answer["share"]
        if not answer["share"] and candidate.backend != EAGER:
            row.verdict = "partial"
            raise Lost(f"it leaves everything to torch: {answer['why']}")

    def _judge(self, process: Process, candidate: Candidate, number: int) -> None:
        self._has_reference.wait()
        if self.referee is None:
            raise Lost("it could not be judged, since eager's own process was lost")
        results = str(self.folder / f"results{number}")
        until = max(self.ends, time.monotonic() + 1.0)
        runs = trial.names(self._like, keeps=candidate.keeps)
        written = process.ask("results", until, to=results, names=runs)["written"]
        with self._judging:
            verdict = self.referee.ask("judge", time.monotonic() + START_S + self.budget, of=results, names=written)
        row = self.rows[candidate.name]
        if verdict["wrong"]:
            row.verdict = "wrong"
            raise Lost(verdict["wrong"])
        row.error = verdict["error"]


def free_memory() -> int:
    """Bytes that processes can take now without others having to give some up."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 16 << 30
    return next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable")), 16 << 20) * 1024
