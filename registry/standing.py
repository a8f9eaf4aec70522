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
    """The outcome of a published run: the number of cases, and of failures that the backend does not declare."""

    cases: int
    failures: int

    def words(self) -> str:
        if not self.failures:
            return f"none of its {self.cases} published conformance results is an undeclared failure"
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
            return Standing(sum(totals.values()), sum(totals.get(name, 0) for name in _UNDECLARED))
    return None


def preference(row: Any, device: str = "cpu") -> tuple[int, int, str]:
    """A sort key, best backend first: undeclared conformance failures come last, then priority decides."""
    found = standing(row.name, device) if row.distribution == "torchmux" else None
    return (int(found is not None and found.failures > 0), -row.priority, row.name)


def takes(row: Any, device: str) -> bool:
    """Whether a backend supports a device, as its description says."""
    return ANY in row.devices or device in row.devices


def reason(row: Any, device: str) -> str:
    """Why a backend is preferred, in words."""
    found = standing(row.name, device) if row.distribution == "torchmux" else None
    judged = "no conformance results are published for it" if found is None else found.words()
    return f"it runs on {device}, {judged}, and its priority is {row.priority}"
