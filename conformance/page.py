"""Runs as one page for a browser: a matrix to look over, cases to look into, two runs to compare.

The page is a single file that loads nothing: ``page.html`` with the results in it.
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
    """The page of some runs, each as :func:`report.to_json` made it.

    Raises:
        ValueError: there is no run.
    """
    if not runs:
        raise ValueError("a page needs at least one run")
    template = (importlib.resources.files(__package__) / "page.html").read_text(encoding="utf-8")
    # A results' text may hold "</script>": no "<" is left that the browser could take for the end.
    data = json.dumps([_slim(run) for run in runs], separators=(",", ":")).replace("<", "\\u003c")
    return template.replace(_PLACE, data)


def _slim(run: dict[str, Any]) -> dict[str, Any]:
    """A run with what the page shows of it."""
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
    return {**head, "results": results}
