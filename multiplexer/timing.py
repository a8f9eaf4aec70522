"""Which of several candidates is the quickest, from times that were taken in turns.

A sequential test on the logarithms of the ratios between a candidate and the best one in the same turn: a candidate
leaves when it is slower than the best beyond doubt, and the rest tie when a difference that counts is as unlikely.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

ERROR = 0.05
"""How likely it may be that a decision is wrong by more than ``TIE``."""

TIE = 0.02
"""Candidates that differ by less than this share of their time tie."""

FEWEST, MOST = 8, 60
"""Turns before a candidate may leave, and at most."""


@dataclass
class Times:
    """The seconds of one candidate: the median of each turn."""

    turns: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.turns) if self.turns else math.inf

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles, as a share of the median."""
        if len(self.turns) < 4:
            return math.nan
        low, middle, high = statistics.quantiles(self.turns, n=4)
        return (high - low) / 2 / middle


def compare(measured: Mapping[str, Times], left: Sequence[str]) -> tuple[str, list[str], list[str]]:
    """The best of those that are ``left``, those that are slower beyond doubt, and those that are neither.

    The last are as quick beyond doubt if the list is empty.
    """
    best = min(left, key=lambda name: measured[name].median)
    slower, open_ = [], []
    # Each look at the data, and each candidate, takes its part of the error.
    looks = max(1, MOST - FEWEST) * max(1, len(left) - 1)
    for name in left:
        if name == best:
            continue
        ratios = [math.log(a / b) for a, b in zip(measured[name].turns, measured[best].turns, strict=False)]
        if len(ratios) < FEWEST:
            open_.append(name)
            continue
        mean, error = statistics.fmean(ratios), statistics.stdev(ratios) / math.sqrt(len(ratios))
        times = student(1 - ERROR / looks, len(ratios) - 1)
        if mean - times * error > 0:
            slower.append(name)
        elif mean + times * error > math.log1p(TIE):
            open_.append(name)
    return best, slower, open_


def student(share: float, freedom: int) -> float:
    """The quantile of Student's distribution, from that of the normal one; it is nearly exact from 7 degrees on."""
    z = statistics.NormalDist().inv_cdf(share)
    n = float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def race(
    names: Sequence[str],
    time: Callable[[str], float | None],
    measured: dict[str, Times],
    is_over: Callable[[], bool],
    release: Callable[[str], None] = lambda name: None,
) -> list[str]:
    """Time candidates in turns until the ranking is settled or ``is_over``; those that are not slower, best first.

    ``time`` gives the seconds of a call in one turn, or None for a candidate that is lost.
    ``release`` is told of each that leaves because it is slower.
    """
    left = list(names)
    for turn in range(MOST):
        for name in list(left) if turn % 2 == 0 else list(reversed(left)):
            seconds = time(name)
            if seconds is None:
                left.remove(name)
            else:
                measured.setdefault(name, Times()).turns.append(seconds)
        if not left:
            return []
        if turn + 1 >= FEWEST:
            _, slower, undecided = compare(measured, left)
            left = [name for name in left if name not in slower]
            for name in slower:
                release(name)
            if not undecided:
                break
        if is_over():
            break
    return sorted(left, key=lambda name: measured[name].median)
