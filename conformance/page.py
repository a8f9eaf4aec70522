"""Runs as one HTML page: a matrix overview, the details of cases, and a comparison of two runs.

The page is a single self-contained file: ``page.html`` with the results in it.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from typing import Any

from .report import group_of

_PLACE = "{{runs}}"
_KEPT = ("differences", "traceback", "stderr", "reproducer", "sample", "fallbacks", "outcome")


def html(runs: Sequence[dict[str, Any]]) -> str:
    """The page of some runs, each in the form that :func:`report.to_json` returns.

    Raises:
        ValueError: there is no run.
    """
    if not runs:
        raise ValueError("a page needs at least one run")
    template = (importlib.resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    # The text of a result may contain "</script>", so every "<" that could end the script is escaped.
    data = json.dumps([_slim(run) for run in runs], separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_PLACE, data)


def _slim(run: dict[str, Any]) -> dict[str, Any]:
    """The parts of a run that the page shows."""
    results = [
        {
            "case": result["case"],
            "group": group_of(result["case"]),
            "outcome": result["outcome"],
            "reason": result["reason"],
            "share": result["share"],
            "seconds": round(result["seconds"], 3),
            "details": {name: result["details"][name] for name in _KEPT if result["details"].get(name) is not None},
        }
        for result in run["results"]
    ]
    head = {name: run.get(name, "") for name in ("backend", "fingerprint", "level", "suite", "date", "environment")}
    if run.get("frontend", "torchmux") == "torch":
        head["backend"] += " under torch.compile"
    return {**head, "results": results}
