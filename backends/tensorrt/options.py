"""The options of the tensorrt backend, with torch_tensorrt's own names where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from torchmux.registry.errors import InvalidOption

from ..common.adapter.options import freeze_option


@dataclass(frozen=True)
class TensorrtOptions:
    """How engines are built.

    Raises:
        InvalidOption: a number out of its range.
    """

    precision: Literal["model", "tf32", "f16", "bf16"] = field(
        default="model",
        metadata={
            "help": "model: each operator in the dtype it has in torch. tf32: float32 products with 10 bits of "
            "mantissa. f16, bf16: TensorRT may also compute float32 operators in half precision"
        },
    )
    freeze: bool = freeze_option("which TensorRT folds and packs")
    workspace_size: int = field(
        default=0, metadata={"help": "bytes that the builder may use for scratch memory; 0: as much as the GPU has"}
    )
    min_block_size: int = field(
        default=5, metadata={"help": "operators that a part of the graph needs to be worth an engine"}
    )
    optimization_level: int | None = field(
        default=None, metadata={"help": "0 to 5, higher levels build longer; None: TensorRT's default"}
    )
    max_aux_streams: int | None = field(default=None, metadata={"help": "auxiliary streams of an engine"})
    hardware_compatible: bool = field(
        default=False, metadata={"help": "build engines that also run on other GPUs from Ampere on"}
    )
    version_compatible: bool = field(
        default=False, metadata={"help": "build engines that later versions of TensorRT can load"}
    )
    largest_size: int = field(
        default=1024,
        metadata={
            "help": "the size up to which an engine takes a dynamic dimension that mark_dynamic gave no maximum; torch "
            "runs larger ones"
        },
    )

    def __post_init__(self) -> None:
        for name, least in (("workspace_size", 0), ("min_block_size", 1), ("largest_size", 2)):
            value = getattr(self, name)
            if value < least:
                raise InvalidOption(f"The option {name!r} of tensorrt takes a number from {least}, not {value}.")
        level = self.optimization_level
        if level is not None and not 0 <= level <= 5:
            raise InvalidOption(f"The option 'optimization_level' of tensorrt takes a number from 0 to 5, not {level}.")
