"""The options of ``auto``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torchmux.registry.errors import InvalidOption
from torchmux.registry.resolve import known_spec


@dataclass(frozen=True)
class AutoOptions:
    """How a choice is made, and what is watched afterwards."""

    budget_s: float = field(default=60.0, metadata={"help": "seconds for measuring the candidates of one graph"})
    memory_mb: int | None = field(
        default=None, metadata={"help": "memory for the process of a candidate; None: half of what is free"}
    )
    wait: bool = field(
        default=False, metadata={"help": "wait for the decision instead of running the best candidate so far meanwhile"}
    )
    freeze: bool = field(
        default=False,
        metadata={"help": "also try backends' own freeze, on the promise that their documentation asks for"},
    )
    allow: list[str] | None = field(default=None, metadata={"help": "the backends to measure; None: all"})
    forbid: list[str] = field(default_factory=list, metadata={"help": "backends not to measure"})
    objective: Literal["latency", "throughput", "memory", "compile_time"] = field(
        default="latency",
        metadata={"help": "what is best: quick calls, many calls, little memory, quick to compile"},
    )
    max_memory: float | None = field(
        default=None, metadata={"help": "most memory in MB that a candidate may add; None: any"}
    )
    max_error: float | None = field(
        default=None, metadata={"help": "largest distance of a result from eager's in float64; None: any that passes"}
    )
    buckets: list[int] | None = field(
        default=None,
        metadata={"help": "largest sizes of the ranges that have decisions of their own; None: powers of two"},
    )
    drift: float | None = field(
        default=None, metadata={"help": "measure again when calls take so many times as long as measured; None: never"}
    )
    also_mode: str | None = field(
        default=None,
        metadata={"help": "also try backends in this mode of theirs (max-autotune: in each); the modes of auto set it"},
    )

    def __post_init__(self) -> None:
        for name, least in (("budget_s", 0.0), ("max_memory", 0.0), ("max_error", 0.0), ("drift", 1.0)):
            value = getattr(self, name)
            if value is not None and not value > least:
                raise InvalidOption(f"The option {name!r} of auto must be more than {least:g}, not {value}.")
        if self.buckets is not None and any(bound < 1 for bound in self.buckets):
            raise InvalidOption(f"The option 'buckets' of auto takes sizes of at least 1, not {self.buckets}.")
        for backend in (*(self.allow or ()), *self.forbid):
            known_spec(backend)  # a misspelled name would leave everything to eager

    @property
    def asked(self) -> dict[str, Any]:
        """What a decision depends on, by name."""
        names = ("freeze", "allow", "forbid", "objective", "max_memory", "max_error", "also_mode")
        return {name: getattr(self, name) for name in names}


MODES: dict[str, dict[str, Any]] = {
    "max-autotune": {"budget_s": 300.0, "also_mode": "max-autotune"},
    "max-autotune-no-cudagraphs": {"budget_s": 300.0, "also_mode": "max-autotune-no-cudagraphs"},
    "reduce-overhead": {"also_mode": "reduce-overhead"},
}
"""The modes of ``torch.compile``: backends are also tried in their own mode of this name, and ``max-autotune`` includes
the others."""
