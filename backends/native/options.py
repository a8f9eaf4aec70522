"""The options of the native backend, named as in ``torch.compile`` where that has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class NativeOptions:
    """How graphs are compiled."""

    fusion: bool = field(default=True, metadata={"help": "run statements of a graph together in one loop"})
    freeze: bool = field(
        default=False,
        metadata={
            "help": "in inference, take parameters and buffers for constants, so that what depends on them alone is "
            "computed ahead and weights are packed; you promise that their values do not change"
        },
    )
    optimize: Literal["O1", "O2", "O3"] = field(
        default="O2", metadata={"help": "what the C++ compiler is asked for; the kernels are vectorized in any case"}
    )
