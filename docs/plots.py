"""The plots of ``performance.md``; ``python docs/plots.py`` draws them from ``data/bench.json``, as SVG and PNG.

``python docs/tables.py RUN.json ...`` renews the data.  Backends are told apart by the shape of their marks as well as
by color, so that a print without colors is as good.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchmux.bench import results

DOCS = Path(__file__).parent
DATA = DOCS / "data" / "bench.json"
FILES = {suffix: DOCS / "plots" / f"backends.{suffix}" for suffix in ("svg", "png")}

_WIDTH, _HEIGHT = 10.0, 5.2  # inches
# Colors that people with any kind of color blindness can tell apart, after Okabe and Ito.
_MARKS = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))


def digest() -> str:
    """What the plots were drawn from; each file has it in its metadata."""
    return hashlib.sha256(DATA.read_bytes()).hexdigest()


def draw() -> None:
    """Write all files."""
    import matplotlib

    text = DATA.read_text()
    head, measured = json.loads(text), results.from_json(text)
    where = head["environment"]
    told = f"torchmux bench, {head['date'].rstrip(',')}, {where['processor']}, torch {where['torch']}"
    # Text stays text; the same data give the same file.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "torchmux", "text.parse_math": False}):
        figure = _figure(measured, told)
        for suffix, file in FILES.items():
            file.parent.mkdir(exist_ok=True)
            about = {"Title": "Backends side by side", "Description": digest()}
            figure.savefig(file, dpi=110, metadata={**about, "Date": None} if suffix == "svg" else about)


def _figure(measured: list[results.Result], told: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    figure.suptitle(told, fontsize="medium")
    left, right = figure.subplots(1, 2, sharey=True)
    sides = list(dict.fromkeys(row.side for each in measured for row in each.rows if row.side != "eager"))
    _panel(left, measured, sides, lambda row: row.speedup.ratio if row.speedup is not None else None)
    _panel(right, measured, sides, lambda row: row.cold_seconds)
    left.set_xlabel("times as fast as eager")
    left.axvline(1.0, color="black", linestyle="--", linewidth=1)
    right.set_xlabel("seconds of the first call, with empty caches")
    left.set_yticks(range(len(measured)), [each.title for each in measured])
    left.invert_yaxis()
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=len(sides), frameon=False)
    return figure


def _panel(
    axes: Any, measured: list[results.Result], sides: list[str], value: Callable[[results.Row], float | None]
) -> None:
    from matplotlib.ticker import FuncFormatter

    for number, side in enumerate(sides):
        color, mark = _MARKS[number % len(_MARKS)]
        rows = [next((row for row in each.rows if row.side == side), None) for each in measured]
        places = [
            (found, place)
            for place, row in enumerate(rows)
            if row is not None and row.verdict == "right" and (found := value(row)) is not None
        ]
        axes.plot(
            [found for found, _ in places], [place for _, place in places], linestyle="", marker=mark, markersize=8,
            markerfacecolor=color, markeredgecolor="black", markeredgewidth=0.5, label=side,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)


if __name__ == "__main__":
    draw()
