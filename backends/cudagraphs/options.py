"""The options of the cudagraphs backend."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchmux.registry.errors import InvalidOption


@dataclass(frozen=True)
class CudagraphsOptions:
    """When kernels are recorded.

    Raises:
        InvalidOption: a number is out of range.
    """

    warmup: int = field(
        default=1,
        metadata={"help": "calls that run in torch before the kernels are recorded, so that libraries can initialize"},
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
            "help": "how many times one shape is recorded again because memory it reads moved or memory it wrote is "
            "still in use; after that, all inputs and outputs that might do so are copied"
        },
    )

    def __post_init__(self) -> None:
        for name in ("warmup", "shape_limit", "record_limit"):
            value = getattr(self, name)
            if value < 1:
                raise InvalidOption(f"The option {name!r} of cudagraphs must be at least 1, not {value}.")
