"""How long calls take: a distribution, and how two that were timed in turns compare."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchmux.multiplexer.timing import student

CONFIDENCE = 0.95
"""Of the intervals around ratios."""

_FOR_P90, _FOR_P99 = 10, 100  # calls below which a percentile would only be the largest of them


@dataclass(frozen=True)
class Latency:
    """Milliseconds of ``calls`` calls; a percentile of too few calls is None."""

    calls: int
    min: float
    median: float
    mean: float
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """From the seconds of one call or more."""
        ordered = sorted(each * 1e3 for each in seconds)
        return cls(
            len(ordered),
            ordered[0],
            statistics.median(ordered),
            statistics.fmean(ordered),
            percentile(ordered, 0.9) if len(ordered) >= _FOR_P90 else None,
            percentile(ordered, 0.99) if len(ordered) >= _FOR_P99 else None,
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that a share of the sorted values does not exceed, between neighbours."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True)
class Ratio:
    """A ratio of times with its confidence interval, which is infinitely wide for fewer than two turns."""

    ratio: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Half of the interval, on a logarithmic scale: 0.01 is one percent."""
        return (math.log(self.high) - math.log(self.low)) / 2 if self.low > 0 else math.inf


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """How many times as long the first takes, from the medians of the turns that both had.

    A geometric mean over pairs of turns with Student's interval.  What slows the machine for a while slows both of a
    pair, and cancels.
    """
    pairs = min(len(numerator), len(denominator))
    logs = [math.log(a / b) for a, b in zip(numerator[:pairs], denominator[:pairs], strict=True)]
    if not logs:
        return Ratio(math.nan, 0.0, math.inf)
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return Ratio(math.exp(mean), 0.0, math.inf)
    off = student((1 + CONFIDENCE) / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(mean), math.exp(mean - off), math.exp(mean + off))
