"""The possible outcomes of a case.  Outcomes are never merged: "right, but by torch" is not "passed"."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass, field
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
