"""Candidates for which several backends share the graph: chains, and splits that a cost model chooses.

They come after the race of single backends, from what it has shown, and join a second race with its winners:

* a *chain* for each backend that leaves parts to torch: that backend, with the quickest of those that take everything
  behind it,
* a *split*: the graph is cut into pieces, the quickest single backends are measured on each, and ``costs`` predicts
  what the graph takes if each piece goes to a backend of its own.  Only a predicted gain beyond ``GAIN`` and the noise
  of the times makes a candidate; it is then compiled, judged and timed as a whole like any other.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..admission import Admission
from ..candidates import EAGER, Candidate
from ..decisions import Row
from ..timing import TIE, Times
from ..workers import Lost
from .costs import Assignment, Costs
from .segments import Segment

log = logging.getLogger("torchmux")

GAIN = 0.03
"""A split must promise to save more than this share of the quickest single backend's time."""

BACKENDS = 5
"""How many single backends are measured on the pieces, besides eager: who is slow on the whole may win a part."""

MOST_PIECES = 12

MOST_CHAINS = 2

TURNS = 5
"""How often each piece is timed under each backend."""

TURN_S, PAUSE_S = 0.02, 0.05

FOR_RACE = 0.3
"""The share of the remaining time that is kept for the candidates that come out of this."""

NAME = "split"
"""The row of a split that did not become a candidate."""


@dataclass
class Finalist:
    """A single backend that was measured on the whole graph."""

    candidate: Candidate
    row: Row
    seconds: float


def finalists(candidates: Sequence[Candidate], rows: Mapping[str, Row], times: Mapping[str, Times]) -> list[Finalist]:
    """The single backends that were timed, each with its quickest options, quickest first."""
    timed = [Finalist(c, rows[c.name], times[c.name].median) for c in candidates if c.name in times and not c.pins]
    found: dict[str, Finalist] = {}
    for each in sorted(timed, key=lambda f: f.seconds):
        if not each.row.verdict and len(each.candidate.members) == 1:
            found.setdefault(each.candidate.backend, each)
    return list(found.values())


def chains(ranked: Sequence[Finalist]) -> list[Candidate]:
    """A chain for each backend that leaves something to torch, with the quickest complete one behind it."""
    compilers = [f for f in ranked if f.candidate.backend != EAGER]
    behind = next((f.candidate for f in compilers if f.row.share == 1.0), None)
    if behind is None:
        return []
    partial = [f.candidate for f in compilers if f.row.share is not None and f.row.share < 1.0]
    return [_shared([candidate, behind]) for candidate in partial[:MOST_CHAINS]]


def _shared(members: Sequence[Candidate], pins: dict[int, str] | None = None) -> Candidate:
    """One candidate of several."""
    options = {c.backend: c.options for c in members if c.options}
    if len(members) == 1:
        options = members[0].options
    specs = tuple(spec for c in members for spec in c.specs)
    return Candidate("+".join(c.backend for c in members), options, specs, pins or {})


class Split:
    """The search for a split of one graph.

    Args:
        strict: whether torch may run no part of it.
        training: whether it has a backward pass.
        referee: asks the process of eager.
        memory: bytes that the process of a candidate may take.
        ends: on the clock of ``time.monotonic``.
        check: called between steps, to end the search by an exception.
    """

    def __init__(
        self,
        folder: Path,
        referee: Callable[..., dict[str, Any]],
        ranked: Sequence[Finalist],
        *,
        strict: Any,
        training: bool,
        memory: int,
        ends: float,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder, self.referee, self.memory, self.check = folder, referee, memory, check
        self.training = training
        self.ends = time.monotonic() + (ends - time.monotonic()) * (1 - FOR_RACE)
        compilers = [f for f in ranked if f.candidate.backend != EAGER][:BACKENDS]
        eager = [f for f in ranked if f.candidate.backend == EAGER and not strict]
        self.finalists = {f.candidate.backend: f for f in (*compilers, *eager)}
        self.best = min(ranked, key=lambda f: f.seconds) if ranked else None
        self.words: dict[str, str] = {}  # what was predicted, by the names of candidates

    def search(self) -> Candidate | Row:
        """A split that promises a gain, or a row that says why there is none."""
        if self.best is None or len(self.finalists) < 2:
            return _row("there are no two backends to share the graph")
        compiling = sum(f.row.compile_seconds or 0.0 for f in self.finalists.values())
        left = self.ends - time.monotonic()
        if left < 2 * compiling:
            return _row(
                f"not considered: compiling the pieces takes {compiling:.0f} s or more, and then the split, "
                f"and {max(0.0, left):.0f} s of the budget were left"
            )
        try:
            answer = self.referee("cut", self.ends, to=str(self.folder), most=self._most(left, compiling))
            if "why" in answer:
                return _row(f"the graph stays whole: {answer['why']}")
            segments = [Segment(**told) for told in answer["segments"]]
            return self.choose(segments, answer["calls"], *self._measured(len(segments)))
        except Lost as lost:
            return _row(f"the pieces could not be measured: {lost}")

    def _most(self, left: float, compiling: float) -> int:
        """How many pieces there is time for, if each takes a second in each backend besides its share."""
        each = len(self.finalists) * (1.0 + TURNS * (TURN_S + PAUSE_S))
        return max(2, min(MOST_PIECES, int((left - compiling) / each)))

    def _measured(self, count: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """The seconds of each piece by backend, that of the graph that computes nothing last, and their errors."""
        seconds: dict[str, list[float]] = {name: [] for name in self.finalists}
        errors: dict[str, list[float]] = {name: [] for name in self.finalists}
        for number in range(count + 1):
            found = self._times(number)
            for name in self.finalists:
                turns = found.get(name, [])
                middle = statistics.median(turns) if turns else math.inf
                seconds[name].append(middle)
                around = statistics.median(abs(t - middle) for t in turns) if turns else 0.0
                errors[name].append(1.86 * around / math.sqrt(max(1, len(turns))))  # of a median, by Laplace's rule
        return seconds, errors

    def _times(self, number: int) -> dict[str, list[float]]:
        """The seconds of one piece in each turn, by backend."""
        candidates = [Candidate(EAGER), *(f.candidate for f in self.finalists.values() if f.candidate.backend != EAGER)]
        rows = {c.name: Row(c.name, c.backend, c.options, "") for c in candidates}
        folder = self.folder / f"piece{number}"
        budget = max(1.0, self.ends - time.monotonic())
        found: dict[str, list[float]] = {}
        self.check()
        with Admission(
            None, folder, rows, memory=self.memory, budget=budget, ends=self.ends, training=self.training
        ) as admitted:
            admitted.admit(candidates, after=lambda name: self.check())
            calls = dict.fromkeys(rows, 1)
            for _ in range(TURNS + 1):
                for candidate in candidates:
                    if candidate.name not in admitted.processes or candidate.backend not in self.finalists:
                        continue
                    self.check()
                    time.sleep(PAUSE_S)
                    try:
                        taken = admitted.time(candidate.name, calls[candidate.name], self.ends)
                    except Lost:
                        admitted.processes.pop(candidate.name)
                        found.pop(candidate.backend, None)
                        continue
                    middle = statistics.median(taken)
                    if calls[candidate.name] > 1 or middle >= TURN_S:
                        found.setdefault(candidate.backend, []).append(middle)
                    calls[candidate.name] = max(2, min(1000, int(TURN_S / max(middle, 1e-7))))
        for row in rows.values():
            if row.reason:
                log.info("auto: piece %d of the graph: %s: %s", number, row.candidate, row.reason)
        return found

    def choose(
        self,
        segments: Sequence[Segment],
        calls: Sequence[int],
        seconds: Mapping[str, list[float]],
        errors: Mapping[str, list[float]],
    ) -> Candidate | Row:
        """The assignment with the fewest crossings that is as quick as the best, if it promises a gain.

        Args:
            calls: the numbers of the nodes that compute something.
            seconds: of each segment by backend, and last of a graph that computes nothing.
            errors: the standard error of each.
        """
        assert self.best is not None
        usable = [name for name in self.finalists if not math.isinf(seconds[name][-1])]
        if len(usable) < 2:
            return _row("fewer than two backends can compute the pieces")
        costs = Costs(
            {name: seconds[name][:-1] for name in usable},
            {name: self.finalists[name].seconds for name in usable},
            {name: seconds[name][-1] for name in usable},
            [each.passed for each in segments[:-1]],
        )
        found = {n: assignment for n, assignment in costs.best().items() if n > 0}
        least = min(costs.predicted(a) for a in found.values())
        chosen = next(a for _, a in sorted(found.items()) if costs.predicted(a) <= least * (1 + TIE))
        predicted, single = costs.predicted(chosen), self.best.seconds
        noise = 2 * math.sqrt(sum(errors[b][i] ** 2 for i, b in enumerate(chosen)))
        against = f"{_ms(single)} of {self.best.candidate.name}"
        if single - predicted <= max(GAIN * single, noise):
            quickest = costs.quickest_pieces()
            apart = costs.alone(quickest)
            if len(set(quickest)) < 2:
                return _row(f"{quickest[0]} computes each of {len(segments)} pieces the quickest")
            crossing = costs.crossings(quickest)
            why = (
                f"each piece with its quickest backend ({_listed(quickest, segments)}) takes {_ms(apart)}, and the "
                f"crossings between them {_ms(crossing)}: {_ms(apart + crossing)} predicted, against {against}"
            )
            if single - apart - crossing > 0:
                why += f", which is no gain beyond {max(GAIN, noise / single):.0%}"
            elif chosen != quickest:
                why += f"; the best of all splits promises {_ms(predicted)}"
            return _row(why)
        work = {b: sum(seconds[b][i] for i, each in enumerate(chosen) if each == b) for b in set(chosen) - {EAGER}}
        members = sorted(work, key=lambda b: -work[b])  # the first decides how the graph is traced
        pins = {
            number: backend
            for segment, backend in zip(segments, chosen, strict=True)
            for number in calls
            if segment.first <= number < segment.last
        }
        candidate = _shared([self.finalists[name].candidate for name in members], pins)
        self.words[candidate.name] = (
            f"{_listed(chosen, segments)}; predicted {_ms(predicted)}, of which crossings "
            f"{_ms(costs.crossings(chosen))}, against {against}"
        )
        return candidate

    def explain(self, row: Row) -> None:
        """Put what was predicted beside what was measured end to end."""
        if row.candidate not in self.words:
            return
        measured = "" if row.milliseconds is None else f"; measured {row.milliseconds:.4g} ms end to end"
        lost = row.milliseconds is not None and row.verdict in ("slower", "unsettled", "tie")
        why = ": the crossings cost more than the pieces gain" if lost and row.verdict == "slower" else ""
        row.reason = f"{self.words[row.candidate]}{measured}{why}{f'; {row.reason}' if row.reason else ''}"


def _row(why: str) -> Row:
    return Row(NAME, NAME, {}, "refused", why)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _listed(assignment: Assignment, segments: Sequence[Segment]) -> str:
    """``openvino: convolution, pooling | native: elementwise``."""
    told: list[tuple[str, list[str]]] = []
    for backend, segment in zip(assignment, segments, strict=True):
        if not told or told[-1][0] != backend:
            told.append((backend, []))
        if segment.kind not in told[-1][1]:
            told[-1][1].append(segment.kind)
    return " | ".join(f"{backend}: {', '.join(kinds)}" for backend, kinds in told)
