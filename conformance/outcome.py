"""What can become of a case.  Outcomes are never merged: "right, but by torch" is not "passed"."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
from typing import Any


class Outcome(enum.Enum):
    """How a backend did on one case."""

    PASS = "pass"
    """Right, and the backend ran every operator of it."""

    FALLBACK = "fallback"
    """Right, but torch ran some operators; the share says how many the backend ran."""

    UNSUPPORTED = "unsupported"
    """The backend said, with a reason, that it does not do this; torch ran all of it, or nothing ran."""

    MISMATCH = "mismatch"
    """Something differs from eager: a value, a dtype, a stride, who shares memory, an exception, a side effect."""

    CRASH = "crash"
    """It raised where eager does not, or its process died."""

    TIMEOUT = "timeout"
    """It had not finished when its time was up."""

    XFAIL = "xfail"
    """It failed as the backend's requirements say it does."""

    XPASS = "xpass"
    """It is expected to fail, and did not: the expectation is stale."""

    SKIPPED = "skipped"
    """The case cannot run here at all, under eager either, or is about what the backend does not claim to be."""

    @property
    def is_failure(self) -> bool:
        """Whether a run with this outcome among its results has failed."""
        return self in (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.XPASS)


@dataclass(frozen=True)
class Result:
    """What became of one case; ``share`` is the part of its operators, 0 to 1, that the backend ran."""

    case: str
    outcome: Outcome
    reason: str = ""
    share: float = 1.0
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Result:
        return cls(**{**stored, "outcome": Outcome(stored["outcome"])})
