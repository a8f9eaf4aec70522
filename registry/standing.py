"""The published conformance results of a backend, and the order in which backends are preferred.

The default backend is the first in this order that runs here and supports the device.  ``list_backends()`` has the same
order.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from dataclasses import dataclass
from typing import Any

from .spec import ANY

_LEVELS = ("full", "quick")
_UNDECLARED = ("mismatch", "crash", "timeout", "xpass")


@dataclass(frozen=True)
class Standing:
    """The outcome of a published run: how many cases, failures that the backend does not declare, and declared ones."""

    cases: int
    failures: int
    declared: int = 0

    def words(self) -> str:
        if not self.failures:
            declared = f", and {self.declared} are declared ones" if self.declared else ""
            return f"none of its {self.cases} published conformance results is an undeclared failure{declared}"
        return f"{self.failures} of its {self.cases} published conformance results are undeclared failures"


@functools.cache
def _published() -> tuple[dict[str, Any], ...]:
    folder = importlib.resources.files("torchmux.conformance") / "results"
    if not folder.is_dir():
        return ()
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in folder.iterdir() if file.name.endswith(".json")]
    return tuple(sorted(runs, key=lambda run: (-int(run["suite"]), _LEVELS.index(run["level"]))))


def standing(backend: str, device: str = "cpu") -> Standing | None:
    """The published results of a backend that comes with torchmux; None if there are none for this device."""
    for run in _published():
        if run["backend"] == backend and run.get("device", "cpu") == device:
            totals = run["totals"]
            failures = sum(totals.get(name, 0) for name in _UNDECLARED)
            return Standing(sum(totals.values()), failures, totals.get("xfail", 0))
    return None


def preference(row: Any, device: str = "cpu") -> tuple[int, int, int, str]:
    """A sort key, best backend first.

    Undeclared conformance failures come last, then priority decides, then the number of declared failures.
    """
    found = standing(row.name, device) if row.distribution == "torchmux" else None
    failures, declared = (found.failures, found.declared) if found is not None else (0, 0)
    return (int(failures > 0), -row.priority, declared, row.name)


def takes(row: Any, device: str) -> bool:
    """Whether a backend supports a device, as its description says."""
    return ANY in row.devices or device in row.devices


def reason(row: Any, device: str) -> str:
    """Why a backend is preferred, in words."""
    found = standing(row.name, device) if row.distribution == "torchmux" else None
    judged = "no conformance results are published for it" if found is None else found.words()
    return f"it runs on {device}, {judged}, and its priority is {row.priority}"
