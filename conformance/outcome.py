"""The possible outcomes of a case, and where results are kept.

Outcomes are never merged: "right, but by torch" is not "passed".
"""

from __future__ import annotations

import enum
import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


class Outcome(enum.Enum):
    """How a backend did on one case."""

    PASS = "pass"
    """Correct, and the backend ran every operator."""

    SLOW = "slow"
    """Correct, and the backend ran every operator, but in more than three times eager's time."""

    FALLBACK = "fallback"
    """Correct, but torch ran some operators; the share says how many the backend ran."""

    UNSUPPORTED = "unsupported"
    """The backend refused the case with a reason; torch ran all of it, or nothing ran."""

    MISMATCH = "mismatch"
    """Something differs from eager: a value, a dtype, a stride, shared memory, an exception, a side effect."""

    CRASH = "crash"
    """The case raised an exception that eager does not raise, or its process died."""

    TIMEOUT = "timeout"
    """The case did not finish in time."""

    XFAIL = "xfail"
    """The case failed, as the backend's requirements predict."""

    XPASS = "xpass"
    """The case was expected to fail and did not: the expectation is stale."""

    SKIPPED = "skipped"
    """Eager does not run the case on this machine either, or the backend does not claim what it tests."""

    @property
    def is_failure(self) -> bool:
        """Whether a run with this outcome among its results fails."""
        return self in (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.XPASS)


@dataclass(frozen=True)
class Result:
    """The result of one case.

    ``share`` is the share of its operators, from 0 to 1, that the backend ran; ``kinds`` counts them by kind, as
    :class:`torchmux.GraphReport` does: own code, library kernels that the backend called, and what was left to torch.
    """

    case: str
    outcome: Outcome
    reason: str = ""
    share: float = 1.0
    seconds: float = 0.0
    kinds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Result:
        return cls(**{**stored, "outcome": Outcome(stored["outcome"])})


class OtherRun(ValueError):
    """A journal that belongs to another backend, other versions, or another level."""


class Journal:
    """Results on disk, one line each, written as they arrive; cases with a result do not run again.

    ``key`` has what the results depend on.  It is the first line, and a journal with another key is refused.  Several
    processes may write to one file: each line is written in one step, under a lock.
    """

    def __init__(self, path: Path | None, key: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        key = dict(key or {})
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            if not lines:
                file.write(json.dumps({"key": key}) + "\n")
            elif not lines[-1].endswith("\n"):
                file.write("\n")  # the previous writer was interrupted in the middle of a line
        if lines and (found := parsed(lines[0]).get("key")) != key:
            changed = sorted(k for k in {**key, **(found or {})} if (found or {}).get(k) != key.get(k))
            raise OtherRun(f"{path} has results of another run, which differs in {', '.join(changed) or 'everything'}")
        for line in lines[1:]:
            stored = parsed(line)
            if stored:
                result = Result.from_json(stored)
                self.results[result.case] = result

    def add(self, result: Result) -> None:
        self.results[result.case] = result
        if self.path is not None:
            with self.path.open("a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write(json.dumps(result.to_json()) + "\n")


def parsed(line: str) -> dict[str, Any]:
    """A line of JSON that a process wrote; empty if it is incomplete."""
    try:
        return json.loads(line)
    except ValueError:
        return {}
