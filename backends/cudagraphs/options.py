"""The options of the cudagraphs backend."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchmux.registry.errors import InvalidOption


@dataclass(frozen=True)
class CudagraphsOptions:
    """When to record.

    Raises:
        InvalidOption: a number out of its range.
    """

    warmup: int = field(
        default=1,
        metadata={"help": "calls that run in torch before the kernels are recorded, so that libraries set up"},
    )
    shape_limit: int = field(
        default=8,
        metadata={
            "help": "how many shapes a graph with symbolic sizes is recorded for, one recording each; torch runs the "
            "shapes that come after"
        },
    )
    record_limit: int = field(
        default=8,
        metadata={
            "help": "how often one shape is recorded again because memory it reads has moved or memory it wrote is "
            "still in use; after that inputs and outputs are copied wherever they might"
        },
    )

    def __post_init__(self) -> None:
        for name in ("warmup", "shape_limit", "record_limit"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidOption(f"The option {name!r} of cudagraphs takes a number from 1, not {value}.")
