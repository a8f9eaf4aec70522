"""One decision from several measurements of one graph, each with eager, on machines of one kind.

A candidate's figure is the mean of the logarithms of its ratios to eager.  Each ratio is of one turn on one worker, so
what differs between workers, and what changes with time, cancels.  Two candidates of different jobs are compared with
Welch's test (Welch, Biometrika 34, 1947), whose error is divided by the number of comparisons.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..candidates import EAGER
from ..decisions import Decision, Fingerprint, Row
from ..timing import ERROR, FEWEST, TIE, student


@dataclass(frozen=True)
class Figure:
    """What is known of a candidate's time beside eager's."""

    mean: float  # of the logarithms of the ratios
    error: float  # of that mean; infinite if there are too few ratios to tell
    count: int
    spread: float | None  # half of the distance between the quartiles

    @classmethod
    def of(cls, logs: Sequence[float]) -> Figure:
        mean = statistics.fmean(logs)
        if len(logs) < FEWEST:
            return cls(mean, math.inf, len(logs), None)
        low, _, high = statistics.quantiles(logs, n=4)
        return cls(mean, statistics.stdev(logs) / math.sqrt(len(logs)), len(logs), (high - low) / 2)

    @property
    def ratio(self) -> float:
        return math.exp(self.mean)


def difference(one: Figure, other: Figure, share: float) -> tuple[float, float]:
    """The bounds of ``one.mean - other.mean``, each of which is wrong with the probability ``share``."""
    middle = one.mean - other.mean
    if math.isinf(one.error) or math.isinf(other.error):
        return -math.inf, math.inf
    squares = one.error**2, other.error**2
    if not sum(squares):
        return middle, middle  # eager beside itself
    parts = sum(s * s / (f.count - 1) for s, f in zip(squares, (one, other), strict=True) if f.count > 1)
    freedom = sum(squares) ** 2 / parts
    width = student(1 - share, int(freedom)) * math.sqrt(sum(squares))
    return middle - width, middle + width


def join(
    fingerprint: Fingerprint, results: Sequence[Mapping[str, Any]], order: Sequence[str], excluded: Mapping[str, str]
) -> Decision:
    """The decision.

    Args:
        results: what :func:`.job.measure` returned, or ``{"rows": ...}`` with what became of candidates otherwise.
        order: the names of the candidates, simplest first.
    """
    rows: dict[str, Row] = {}
    logs: dict[str, list[float]] = {}
    for result in results:
        for told in result["rows"]:
            row = Row(**told)
            if row.candidate not in rows or row.candidate != EAGER:
                rows[row.candidate] = row
        for name, values in result.get("ratios", {}).items():
            logs.setdefault(name, []).extend(values)
    turns = [seconds for result in results for seconds in result.get("eager", ())]
    figures = {name: Figure.of(values) for name, values in logs.items() if values and _may_run(rows[name])}
    if turns:
        figures[EAGER] = Figure(0.0, 0.0, len(turns), None)
    for name in order:
        rows.setdefault(name, Row(name, name.partition("(")[0], {}, "lost", "it was not measured"))
    decision = _decided(rows, figures, order, statistics.median(turns) if turns else math.nan)
    decision.rows += [Row(name, name, {}, "excluded", why) for name, why in excluded.items()]
    decision.fingerprint = fingerprint
    decision.seconds = sum(result.get("seconds", 0.0) for result in results)
    decision.machine = dict(fingerprint.machine)
    return decision


def _decided(rows: dict[str, Row], figures: Mapping[str, Figure], order: Sequence[str], eager: float) -> Decision:
    place = {name: number for number, name in enumerate(order)}
    ranked = sorted(figures, key=lambda name: figures[name].mean)
    chosen = EAGER
    if ranked:
        best = figures[ranked[0]]
        share = ERROR / max(1, len(ranked) - 1)
        bounds = {name: difference(figures[name], best, share) for name in ranked}
        open_ = [name for name in ranked if name == ranked[0] or bounds[name][0] <= 0]
        as_quick = [name for name in open_ if figures[name].mean - best.mean <= math.log1p(TIE)]
        chosen = min(as_quick, key=place.__getitem__)
        for name in ranked:
            row, figure = rows[name], figures[name]
            row.milliseconds, row.spread = eager * figure.ratio * 1e3, figure.spread
            if name == chosen:
                row.verdict, row.reason = "chosen", ""
            else:
                is_tie = name in as_quick
                row.verdict = "tie" if is_tie else "unsettled" if name in open_ else "slower"
                row.reason = "" if is_tie else f"{figure.ratio / figures[chosen].ratio:.2f} times the time of {chosen}"
            if name != EAGER:
                row.reason = "; ".join(filter(None, [row.reason, f"{figure.ratio:.3f} of eager"]))
        settled = len(open_) == 1 or all(bounds[name][1] <= math.log1p(TIE) for name in open_ if name != ranked[0])
        reason = (
            "it is the quickest beyond doubt"
            if len(open_) == 1
            else f"it is the simplest of {len(as_quick)} that are as quick"
            if len(as_quick) > 1
            else "it was the quickest when the budget was spent"
        )
        reason += "" if settled else ", though the ranking is not settled"
    else:
        reason = "no candidate could be timed"
    position = {name: number for number, name in enumerate(ranked)}
    listed = sorted(
        rows.values(), key=lambda r: (r.candidate != chosen or not ranked, position.get(r.candidate, len(ranked)))
    )
    row = rows[chosen]
    return Decision(row.backend, row.options, reason, listed)


def _may_run(row: Row) -> bool:
    return row.verdict in ("chosen", "tie", "unsettled", "slower")
