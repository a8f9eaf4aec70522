"""The options of ``auto``."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchmux.registry.errors import InvalidOption


@dataclass(frozen=True)
class AutoOptions:
    """How a choice is made."""

    budget_s: float = field(default=60.0, metadata={"help": "seconds for measuring the candidates of one graph"})
    memory_mb: int | None = field(
        default=None, metadata={"help": "memory for the process of a candidate; None: half of what is free"}
    )
    wait: bool = field(default=False, metadata={"help": "wait for the decision instead of running in eager meanwhile"})
    freeze: bool = field(
        default=False,
        metadata={"help": "also try backends' own freeze, on the promise that their documentation asks for"},
    )
    allow: list[str] | None = field(default=None, metadata={"help": "the backends to measure; None: all"})
    forbid: list[str] = field(default_factory=list, metadata={"help": "backends not to measure"})

    def __post_init__(self) -> None:
        if self.budget_s <= 0:
            raise InvalidOption(f"The option 'budget_s' of auto must be positive, not {self.budget_s}.")
