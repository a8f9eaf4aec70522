"""What was measured, as data; :func:`to_json` writes what docs/multiplexer.md describes."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import torchmux
from torchmux.multiplexer.decisions import machine

from .latency import Latency, Ratio

FORMAT = 1

KEPT = 400
"""Calls of a row whose times are kept one by one, for plots."""


@dataclass
class Row:
    """What became of one side; what was not reached is None or empty.

    * ``verdict``: ``right``; ``wrong``; ``unjudged`` if the program does not allow a judgement; ``lost`` if the side
      failed, hung, or ran out of its budget; ``excluded``; or ``interrupted``.  ``reason`` has the words.
    * ``cold_seconds``, ``warm_seconds``: the first call, compilation included, with empty caches, and in a second
      process with the caches that the first left.
    * ``speedup``: the baseline's time divided by this side's, with its 95 % confidence interval.
    * ``memory_bytes``: what the process takes after compilation and a few calls, beyond what it took before;
      ``peak_bytes``: the most meanwhile; ``accelerator_bytes``: the same for what torch reserves on an accelerator.
    * ``error``: the largest distance from float64 (or from eager, see ``Result.doubt``) as a share of the largest
      element; ``eager_error``: eager's own.
    * ``kinds``: shares of operators by kind; ``placed``: by backend; ``crossings``: values that pass between backends.
    * ``turns``: the median seconds of a call in each turn; ``sample``: the seconds of some calls.
    """

    side: str
    verdict: str
    reason: str = ""
    cold_seconds: float | None = None
    warm_seconds: float | None = None
    latency: Latency | None = None
    speedup: Ratio | None = None
    memory_bytes: int | None = None
    peak_bytes: int | None = None
    accelerator_bytes: int | None = None
    error: float | None = None
    eager_error: float | None = None
    kinds: dict[str, float] = field(default_factory=dict)
    placed: dict[str, float] = field(default_factory=dict)
    chosen: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    graphs: int | None = None
    breaks: int | None = None
    recompiles: int | None = None
    crossings: int | None = None
    crossing_bytes: int | None = None
    notes: list[str] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    sample: list[float] = field(default_factory=list)


@dataclass
class Result:
    """One program, with a row for each side.

    ``source`` says how to load it again.  ``doubt`` says why float64 is no reference here, or why differences from
    eager prove nothing.
    """

    program: str
    source: dict[str, Any]
    threads: int
    rows: list[Row] = field(default_factory=list)
    parameters: int = 0
    training: bool = False
    doubt: str = ""
    seconds: float = 0.0
    failed: str = ""
    interrupted: bool = False

    @property
    def title(self) -> str:
        """``bert, batch 8, bfloat16, training``."""
        more = [f"batch {self.source['batch']}"] if self.source.get("batch") else []
        more += [str(self.source["dtype"])] if self.source.get("dtype") else []
        more += [str(self.source["device"])] if self.source.get("device", "cpu") != "cpu" else []
        return ", ".join([self.program, *more, *(["training"] if self.training else [])])

    @property
    def timed(self) -> list[Row]:
        return [row for row in self.rows if row.latency is not None]


def environment() -> dict[str, str]:
    """The machine and the software."""
    versions = {"torch": torch.__version__, "torchmux": torchmux.__version__, "python": platform.python_version()}
    return {**machine(), **versions, "platform": platform.platform()}


def machine_in_words(threads: int, device: str = "cpu") -> str:
    """``AMD EPYC 9654, 16 threads``, or the name of the accelerator before that."""
    told = machine()
    parts = [told["gpu"]] if device != "cpu" and told["gpu"] else []
    return ", ".join([*parts, told["processor"] or platform.machine(), f"{threads} thread{'s' * (threads != 1)}"])


def to_json(results: Sequence[Result]) -> str:
    """All results as one JSON object: ``format``, ``environment`` and ``programs``."""
    programs = [_plain(dataclasses.asdict(result)) for result in results]
    return json.dumps({"format": FORMAT, "environment": environment(), "programs": programs}, indent=1) + "\n"


def from_json(text: str) -> list[Result]:
    """The results that :func:`to_json` wrote.

    Raises:
        ValueError: the text is not of this format.
    """
    told = json.loads(text)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError(f"this is not a result of torchmux bench in format {FORMAT}")
    return [_result(each) for each in told["programs"]]


def write(path: Path, results: Sequence[Result]) -> None:
    path.write_text(to_json(results), encoding="utf-8")


def _result(told: Mapping[str, Any]) -> Result:
    rows = []
    for each in told["rows"]:
        row = Row(**each)
        row.latency = None if row.latency is None else Latency(**each["latency"])
        if row.speedup is not None:
            found = each["speedup"]
            row.speedup = Ratio(found["ratio"], found["low"] or 0.0, _infinite(found["high"]))
        rows.append(row)
    return Result(**{**told, "rows": rows})


def _infinite(value: float | None) -> float:
    return float("inf") if value is None else value


def _plain(value: Any) -> Any:
    """JSON has neither nan nor infinities: they become null."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
