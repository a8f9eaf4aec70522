"""The rows of ``distributed.py`` in their file, and as tables."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
from pathlib import Path
from typing import Any

PEER = "torch.compile"
HOWS = ("shared", "apart", "alone")


def rows_wanted(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows that are asked for and not in the file yet.  A row that failed is run again."""
    done = {_name(row) for row in _read(options.out) if "failed" not in row}
    found = []
    for kind, model, way, name in itertools.product(options.kinds, options.models, options.ways, options.compilers):
        row = {"kind": kind, "model": model, "way": way, "compiler": name, "size": options.size,
               "dtype": options.dtype, "steps": options.steps, "rounds": options.rounds}  # fmt: skip
        if _name(row) not in done and (kind, name) != ("cold", "eager"):
            found.append(row)
    return found


def _name(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("kind", "model", "way", "compiler", "size", "dtype"))


def _read(file: str) -> list[dict[str, Any]]:
    """The rows of a file; a last line that was cut off is none."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in Path(file).read_text().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                found.append(json.loads(line))
    return found


def _beside_peer(rows: dict[tuple[Any, ...], dict[str, Any]], name: tuple[Any, ...]) -> str:
    """How many times as long the peer takes: the median over the rounds in which both had a turn."""
    row, peer = rows[name], rows.get((*name[:3], PEER, *name[4:]), {})
    if not row.get("together") or row["together"] != peer.get("together"):
        return ""
    pairs = zip(row["rounds_ms"], peer["rounds_ms"], strict=True)
    return f"{statistics.median(theirs / ours for ours, theirs in pairs):.2f}"


def table(file: str) -> str:
    """The rows as Markdown; the last of each name counts."""
    rows = {_name(row): row for row in _read(file)}
    titles = ["model", "way", "compiler", "ms a step", f"{PEER} takes", "busy, ms", "host, ms", "MiB", "hidden", "sent",
              "losses from eager's", "first step, s"]  # fmt: skip
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, row in rows.items():
        if row["kind"] != "step":
            continue
        eager = rows.get(("step", row["model"], row["way"], "eager", row["size"], row["dtype"]), {}).get("losses")
        if "failed" in row:
            cells: list[Any] = [f"failed: {row['failed'].strip().splitlines()[-1][:80]}", *[""] * 8]
        else:
            apart = max((abs(a - b) for a, b in zip(row["losses"], eager, strict=True)), default=0) if eager else "?"
            host = " + ".join(f"{part:.1f}" for part in row.get("host_ms", ()))
            cells = [row["ms"], _beside_peer(rows, name), row.get("busy_ms", ""), host, row["memory_mib"],
                     row["hidden"], row.get("sent", ""),
                     apart if apart == "?" else f"{apart:.1e}", row.get("first_step_s", "")]  # fmt: skip
        lines.append("| " + " | ".join(map(str, (*name[1:4], *cells))) + " |")
    lines += ["", "| model | way | compiler | first step, cache shared | one each | one rank alone |",
              "|---|---|---|---|---|---|"]  # fmt: skip
    for name, row in rows.items():
        if row["kind"] == "cold":
            cells = [row.get(f"{how}_s") for how in HOWS]
            lines.append("| " + " | ".join(map(str, (*name[1:4], *cells))) + " |")
    return "\n".join(lines)
