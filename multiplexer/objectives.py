"""What a choice is for, and the limits that it keeps.

* ``latency``: the median seconds of a call, made by one thread.
* ``throughput``: calls per second of all callers together.  There are as many callers as torch's threads fit into the
  cores of the process, which is one where torch uses all of them.
* ``memory``: what compiling and calling add to the memory of a process at one time, at most.
* ``compile_time``: the seconds of a compilation with empty caches, among the candidates that are quicker than eager.
  If none is, eager runs the graph.

Two figures tie if they differ by less than a share that is about their own noise.  Ties go to the simpler candidate,
and with ``compile_time`` to the quicker one.  A training graph is measured with its backward pass.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from .candidates import EAGER
from .decisions import Row
from .options import AutoOptions
from .timing import TIE, Times

MEBI = 1 << 20

_MEMORY_TIE = 0.02
_MEMORY_FLOOR = 4 * MEBI  # allocators and page tables make as much of a difference
_COMPILE_TIE = 0.1


@dataclass(frozen=True)
class Objective:
    """What is wanted.

    Args:
        name: ``latency``, ``throughput``, ``memory`` or ``compile_time``.
        max_memory: the limit of ``Row.memory``, in bytes.
        max_error: the limit of ``Row.error``: the largest distance of a result from eager's in float64.
    """

    name: str = "latency"
    max_memory: int | None = None
    max_error: float | None = None

    @classmethod
    def of(cls, options: AutoOptions) -> Objective:
        """What the options of ``auto`` ask for."""
        most = None if options.max_memory is None else int(options.max_memory * MEBI)
        return cls(options.objective, most, options.max_error)

    @property
    def callers(self) -> int:
        """How many threads call at once while a candidate is timed."""
        if self.name != "throughput":
            return 1
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // torch.get_num_threads())

    @property
    def is_cold(self) -> bool:
        """Whether candidates compile with empty caches."""
        return self.name == "compile_time"

    def broken(self, row: Row) -> str:
        """Which limit a candidate breaks, in words; empty if it keeps them."""
        if self.max_error is not None and row.error is not None and row.error > self.max_error:
            return f"its error is {row.error:.1e}, and max_error is {self.max_error:.1e}"
        if self.max_memory is not None and row.memory is not None and row.memory > self.max_memory:
            return f"it takes {row.memory / MEBI:.0f} MiB, and max_memory is {self.max_memory / MEBI:.0f} MiB"
        return ""

    def figure(self, row: Row, times: Times) -> float:
        """The number that the best candidate has least of."""
        if self.name == "memory":
            return float(row.memory or 0)
        if self.name == "compile_time":
            return 0.0 if row.backend == EAGER else row.compile_seconds or 0.0
        return times.median

    def ties(self, best: float, other: float) -> bool:
        """Whether two figures are as good as each other; ``best`` is the lower one."""
        if self.name == "memory":
            return other <= max(best * (1 + _MEMORY_TIE), best + _MEMORY_FLOOR)
        return other <= best * (1 + (_COMPILE_TIE if self.name == "compile_time" else TIE))


@dataclass(frozen=True)
class Choice:
    """Who is chosen among those that were timed, and why; ``ties`` are as good, ``order`` has all, best first."""

    chosen: str
    reason: str
    ties: tuple[str, ...]
    order: tuple[str, ...]


def choose(
    objective: Objective,
    rows: Mapping[str, Row],
    times: Mapping[str, Times],
    ranked: Sequence[str],
    simplest: Sequence[str],
) -> Choice | None:
    """The choice, or None if nobody is left.

    Args:
        rows: what is known of each candidate.
        times: of those that were timed.
        ranked: those that the race could not tell to be slower, best first.
        simplest: all names, simplest first.
    """
    left = [name for name in (*ranked, *(n for n in times if n not in ranked)) if rows[name].verdict in ("", "slower")]
    if objective.name in ("latency", "throughput"):
        quickest = [name for name in left if name in ranked]
        if not quickest:
            return None
        return _least(objective, rows, times, quickest, left, simplest)
    if objective.name == "compile_time":
        eager = next((times[name].median for name in left if rows[name].backend == EAGER), None)
        quicker = [n for n in left if rows[n].backend != EAGER and (eager is None or _beats(times[n].median, eager))]
        if not quicker:
            if eager is None:
                return None
            return Choice(EAGER, "no candidate is quicker than eager", (EAGER,), tuple(left))
        return _least(objective, rows, times, quicker, left, simplest)
    return _least(objective, rows, times, left, left, simplest) if left else None


def _beats(seconds: float, eager: float) -> bool:
    return seconds * (1 + TIE) < eager


_WORDS = {
    "latency": ("is the quickest beyond doubt", "are as quick", "was the quickest when the budget was spent"),
    "throughput": ("makes the most calls per second", "make as many calls per second", "made the most when it ended"),
    "memory": ("takes the least memory", "take as little memory", ""),
    "compile_time": ("compiles in the least time of those that are quicker than eager", "compile as quickly", ""),
}


def _least(
    objective: Objective,
    rows: Mapping[str, Row],
    times: Mapping[str, Times],
    able: Sequence[str],
    left: Sequence[str],
    simplest: Sequence[str],
) -> Choice:
    figures = {name: objective.figure(rows[name], times[name]) for name in left}
    best = min(figures[name] for name in able)
    # Those that the race has told to be slower, but by less than counts, tie as well.
    others = [] if objective.name == "compile_time" else [name for name in left if name not in able]
    ties = [name for name in (*able, *others) if objective.ties(best, figures[name])]
    if objective.name == "compile_time":
        chosen = min(ties, key=lambda name: times[name].median)
    else:
        chosen = min(ties, key=simplest.index)
    alone, several, unsettled = _WORDS[objective.name]
    if len(ties) > 1:
        most = "quickest" if objective.name == "compile_time" else "simplest"
        reason = f"it is the {most} of {len(ties)} that {several}"
    elif unsettled and len(able) > 1:
        reason = f"it {unsettled}"
    else:
        reason = f"it {alone}"
    order = sorted(left, key=lambda name: (name not in able, figures[name]))
    return Choice(chosen, reason, tuple(ties), tuple(order))
