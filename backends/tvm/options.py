"""The options of the tvm backend, with TVM's own names where it has them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Literal

from torchmux.registry.errors import InvalidOption

from ..common.adapter.options import check_option

MODES = {"max-autotune": {"tuning_trials": 64}}


@dataclass(frozen=True)
class TvmOptions:
    """How a graph is compiled.

    Raises:
        InvalidOption: a target is not a JSON object or has another kind, or a number is out of range.
    """

    library: Literal["torch", "none"] = field(
        default="torch",
        metadata={
            "help": "what runs matrix products, convolutions and attention: torch's own kernels, called from Relax on "
            "shared memory, or code that TVM generates, which is many times slower unless it is tuned"
        },
    )
    target: str | None = field(
        default=None,
        metadata={
            "help": 'a TVM target as JSON, such as \'{"kind": "llvm", "mcpu": "znver4"}\', of kind llvm for tensors on '
            "the CPU, or cuda for tensors on a GPU; None: this processor or GPU"
        },
    )
    opt_level: int = field(default=3, metadata={"help": "TVM's optimization level, 0 to 3"})
    shape_limit: int = field(
        default=8,
        metadata={
            "help": "how many shapes a part is compiled for, one artifact each, if TVM needs to know the sizes; torch "
            "runs the shapes that come after"
        },
    )
    tuning_trials: int = field(
        default=0,
        metadata={
            "help": "how many schedules MetaSchedule tries for each kernel, besides torchmux's own; the artifact cache "
            "keeps the results. Only on the CPU; 0 turns tuning off. The mode 'max-autotune' tries 64"
        },
    )
    tuning_seconds: float = field(
        default=300.0,
        metadata={
            "help": "the time limit for tuning a graph's kernels, in seconds; the slowest come first, and results "
            "found before the limit are used"
        },
    )
    check: bool = check_option("code", "operators that TVM's importer translates incorrectly go to torch")

    def __post_init__(self) -> None:
        if not 0 <= self.opt_level <= 3:
            raise InvalidOption(f"The option 'opt_level' of tvm must be between 0 and 3, not {self.opt_level}.")
        if self.shape_limit < 1:
            raise InvalidOption(f"The option 'shape_limit' of tvm must be at least 1, not {self.shape_limit}.")
        if self.tuning_trials < 0:
            raise InvalidOption(f"The option 'tuning_trials' of tvm must not be negative, but is {self.tuning_trials}.")
        if not 0 < self.tuning_seconds < math.inf:
            raise InvalidOption(
                f"The option 'tuning_seconds' of tvm must be greater than 0, not {self.tuning_seconds}."
            )
        if self.target is not None:
            _check_target(self.target)


def _check_target(text: str) -> None:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or "kind" not in parsed:
        raise InvalidOption(
            f'The option \'target\' of tvm takes a JSON object with a "kind", such as \'{{"kind": "llvm"}}\', '
            f"not {text!r}."
        )
    if parsed["kind"] not in ("llvm", "cuda"):
        raise InvalidOption(
            f"The option 'target' of tvm takes targets of kind 'llvm', for tensors on the CPU, or 'cuda', not "
            f"{parsed['kind']!r}."
        )
