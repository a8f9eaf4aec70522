"""Decisions: what was measured for one graph, what was chosen, and why; JSON in the artifact cache."""

from __future__ import annotations

import dataclasses
import json
import logging
import platform
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux.backends.common.cache.cache import default_cache
from torchmux.backends.common.cache.keys import text_key
from torchmux.backends.common.cache.listing import Unknown
from torchmux.backends.common.cache.recipes import described_graph, settings

log = logging.getLogger("torchmux.cache")

FORMAT = 1


@dataclass
class Row:
    """What became of one candidate."""

    candidate: str
    backend: str
    options: dict[str, Any]
    verdict: str  # chosen, tie, unsettled, slower, wrong, lost, partial, excluded, refused
    reason: str = ""
    compile_seconds: float | None = None
    milliseconds: float | None = None
    spread: float | None = None
    error: float | None = None
    memory: int | None = None
    share: float | None = None
    pins: dict[str, str] = field(default_factory=dict)  # the number of a node in the graph -> another backend


@dataclass
class Decision:
    """The choice for one graph."""

    backend: str
    options: dict[str, Any]
    reason: str
    rows: list[Row] = field(default_factory=list)
    seconds: float = 0.0
    machine: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @property
    def ranking(self) -> list[Row]:
        """The candidates that may run, best first."""
        usable = [row for row in self.rows if row.verdict in ("chosen", "tie", "unsettled", "slower")]
        return sorted(usable, key=lambda row: (row.verdict != "chosen", row.milliseconds or 0.0))

    def table(self) -> list[str]:
        """A line for each candidate."""
        head = ("candidate", "compile s", "ms", "+-", "error", "MiB", "verdict", "reason")
        lines = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
        return ["  ".join([*(c.ljust(w) for c, w in zip(line[:-1], widths, strict=True)), line[-1]]) for line in lines]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> Decision:
        told = json.loads(text)
        rows = [Row(**row) for row in told.pop("rows")]
        return cls(rows=rows, **told)


def machine() -> dict[str, str]:
    """What the times depend on besides the software."""
    return {
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
    }


def key_of(gm: GraphModule, inputs: Any, request: Any, field_of: str, asked: str) -> str | None:
    """The name of the decision on a graph with these candidates; None if the graph cannot be described."""
    try:
        graph = [settings(), *described_graph(gm, inputs)]
    except Unknown as why:
        log.debug("a decision is not kept: %s", why)
        return None
    return text_key(
        "decision", FORMAT, *graph, request.phase, request.strict, field_of, asked, sorted(machine().items())
    )


def load(key: str) -> Decision | None:
    """A decision of this or another process, if there is one."""
    cache = default_cache()
    content = cache.load(key) if cache is not None else None
    if content is None:
        return None
    try:
        found = Decision.from_json(content)
    except (ValueError, TypeError, KeyError) as error:
        log.warning("the decision %s cannot be read, and is made again: %s", key, error)
        return None
    return found if found.format == FORMAT else None


def keep(key: str, decision: Decision) -> None:
    """File a decision."""
    cache = default_cache()
    if cache is not None:
        cache.store(key, decision.to_json().encode())


def _cells(row: Row) -> tuple[str, ...]:
    def number(value: float | None, form: str) -> str:
        return "" if value is None or value != value else format(value, form)

    memory = "" if row.memory is None else str(row.memory >> 20)
    return (
        row.candidate,
        number(row.compile_seconds, ".2f"),
        number(row.milliseconds, ".4g"),
        "" if row.spread is None or row.spread != row.spread else f"{row.spread:.0%}",
        number(row.error, ".1e"),
        memory,
        row.verdict,
        row.reason,
    )


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return platform.processor()
