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
        InvalidOption: a number is out of range.
    """

    precision: Literal["model", "tf32", "f16", "bf16"] = field(
        default="model",
        metadata={
            "help": "model: each operator runs in the dtype it has in torch. tf32: float32 products have 10 bits of "
            "mantissa. f16, bf16: TensorRT may also compute float32 operators in half precision"
        },
    )
    freeze: bool = freeze_option("which TensorRT folds and packs")
    workspace_size: int = field(
        default=0, metadata={"help": "bytes of scratch memory that the builder may use; 0: as much as the GPU has"}
    )
    min_block_size: int = field(
        default=5, metadata={"help": "the smallest number of operators for which a part of the graph gets an engine"}
    )
    optimization_level: int | None = field(
        default=None, metadata={"help": "0 to 5; higher levels take longer to build; None: TensorRT's default"}
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
            "help": "the largest size that an engine accepts for a dynamic dimension without a maximum from "
            "mark_dynamic; torch runs larger ones"
        },
    )

    def __post_init__(self) -> None:
        for name, least in (("workspace_size", 0), ("min_block_size", 1), ("largest_size", 2)):
            value = getattr(self, name)
            if value < least:
                raise InvalidOption(f"The option {name!r} of tensorrt must be at least {least}, not {value}.")
        level = self.optimization_level
        if level is not None and not 0 <= level <= 5:
            raise InvalidOption(f"The option 'optimization_level' of tensorrt must be between 0 and 5, not {level}.")
