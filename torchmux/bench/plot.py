"""Results as a picture: the latencies of the sides as violins, and their speed-ups as bars.

Sides are told apart by position and label, and bars by hatching, so that a print without colours is as good.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .results import Result, Row, machine_in_words

SUFFIXES = (".png", ".svg")

_WIDTH, _ROW, _REST = 10.0, 0.42, 1.5  # inches
_FILL, _EDGE = "#bcd2e8", "#1f3b57"
_HATCHES = {"right": "", "unjudged": "//"}


class NoPlot(Exception):
    """There can be no plot; the message says why."""


def check(file: str) -> None:
    """Raise NoPlot if a plot cannot be drawn into a file of this name: before the work that it is for."""
    if Path(file).suffix.lower() not in SUFFIXES:
        raise NoPlot(f"{file} is neither .png nor .svg")
    if importlib.util.find_spec("matplotlib") is None:
        raise NoPlot('plots need matplotlib, which is not installed: python -m pip install "torchmux[plots]"')


def draw(results: Sequence[Result], file: Path) -> None:
    """One line of two panels for each program that was timed.

    Raises:
        NoPlot: nothing was timed.
        OSError: the file cannot be written.
    """
    timed = [result for result in results if result.timed]
    if not timed:
        raise NoPlot("nothing was timed, so there is nothing to draw")
    import matplotlib

    # Names are names, whatever signs they have.  In an SVG, text stays text: it can be searched, and is drawn with the
    # reader's fonts.
    with matplotlib.rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
        _figure(timed).savefig(file, dpi=150)


def _figure(results: Sequence[Result]) -> Any:
    from matplotlib.figure import Figure  # not pyplot, which keeps figures and looks for a screen

    heights = [_REST + _ROW * len(result.timed) for result in results]
    figure = Figure(figsize=(_WIDTH, sum(heights)), layout="constrained")
    parts = figure.subfigures(len(results), 1, height_ratios=heights, squeeze=False)
    for (part,), result in zip(parts, results, strict=True):
        device = str(result.source.get("device", "cpu"))
        part.suptitle(f"{result.title}\n{machine_in_words(result.threads, device)}", fontsize="medium")
        left, right = part.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        _latencies(left, result.timed)
        _speedups(right, result.timed)
    return figure


def _latencies(axes: Any, rows: Sequence[Row]) -> None:
    """Violins of the middle 95 % of the calls, with a bar from quartile to quartile and a line at the median."""
    from matplotlib.ticker import FuncFormatter

    places = range(len(rows))
    samples = [_middle([second * 1e3 for second in row.sample]) for row in rows]
    # The estimate of a density needs numbers that differ.
    varied = [(sample, place) for sample, place in zip(samples, places, strict=True) if len(set(sample)) > 2]
    if varied:
        drawn = axes.violinplot(
            [sample for sample, _ in varied], [place for _, place in varied], orientation="horizontal", widths=0.8,
            showextrema=False,
        )  # fmt: skip
        for body in drawn["bodies"]:
            body.set(facecolor=_FILL, edgecolor=_EDGE, alpha=1.0)
    axes.boxplot(
        samples, positions=list(places), orientation="horizontal", widths=0.2, showfliers=False, whis=(0, 100),
        manage_ticks=False, medianprops={"color": "black", "linewidth": 2},
    )  # fmt: skip
    axes.set_yticks(list(places), [row.side for row in rows])
    axes.invert_yaxis()
    low, high = min(map(min, samples)), max(map(max, samples))
    if high > 10 * low:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("milliseconds per call")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _speedups(axes: Any, rows: Sequence[Row]) -> None:
    """Bars with confidence intervals; a line where the baseline is."""
    for place, row in enumerate(rows):
        if row.speedup is None or row.speedup.ratio != row.speedup.ratio:
            continue
        ratio, low, high = row.speedup.ratio, row.speedup.low, min(row.speedup.high, 2 * row.speedup.ratio)
        axes.barh(place, ratio, 0.6, facecolor=_FILL, edgecolor=_EDGE, hatch=_HATCHES.get(row.verdict, ""))
        axes.errorbar(ratio, place, xerr=[[ratio - low], [high - ratio]], color="black", capsize=3)
        axes.annotate(
            f"{ratio:.2f}", (max(ratio, high), place), xytext=(4, 0), textcoords="offset points", va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )  # fmt: skip
    axes.axvline(1.0, color="black", linestyle="--", linewidth=1)
    axes.margins(x=0.15)
    axes.set_xlim(left=0)
    axes.set_xlabel(f"times as fast as {rows[0].side}")
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _middle(values: list[float]) -> list[float]:
    """Without the extremes: calls that the machine interrupted would stretch the axis."""
    ordered = sorted(values)
    cut = len(ordered) // 40
    return ordered[cut : len(ordered) - cut]
