"""The options of the native backend, named as in ``torch.compile`` where that has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..common.adapter.options import freeze_option


@dataclass(frozen=True)
class NativeOptions:
    """How graphs are compiled."""

    fusion: bool = field(default=True, metadata={"help": "run statements of a graph together in one loop"})
    epilogue_fusion: bool = field(
        default=True,
        metadata={"help": "let what uses the result of a reduction join its kernel"},
    )
    max_autotune: bool = field(
        default=False,
        metadata={
            "help": "make the code in several ways, time each on made-up inputs, and keep the fastest; compiling takes "
            "several times as long"
        },
    )
    matmul: Literal["measured", "library"] = field(
        default="measured",
        metadata={
            "help": "'measured' runs a large matrix product of float32, and a convolution of a frozen graph, by "
            "torch's library or by a kernel of torchmux, whichever was faster for that size on this machine when it "
            "was first compiled; 'library' always by the library"
        },
    )
    keep_scratch: bool = field(
        default=False,
        metadata={"help": "keep the memory for intermediate results from call to call, once for each thread"},
    )
    shape_padding: bool = field(
        default=False,
        metadata={
            "help": "begin the rows of what is written for a matrix product at multiples of 64 bytes that are not "
            "multiples of 4096"
        },
    )
    fallback_random: bool = field(
        default=False,
        metadata={"help": "draw the random numbers that eager draws; on the CPU that is so in any case"},
    )
    precision: Literal["model", "bf16"] = field(
        default="model",
        metadata={
            "help": "'model' computes float32 in float32; 'bf16' computes matrix products and convolutions of float32 "
            "in bfloat16, which gives up accuracy for speed where the processor has instructions for it, as you asked"
        },
    )
    freeze: bool = freeze_option("so that what depends on them alone is computed ahead and weights are packed")
    optimize: Literal["O1", "O2", "O3"] = field(
        default="O2", metadata={"help": "what the C++ compiler is asked for; the kernels are vectorized in any case"}
    )
    trace_enabled: bool = field(
        default=False,
        metadata={
            "name": "trace.enabled",
            "help": "write the graph, the kernels and the code into a folder that the report's notes name",
        },
    )
    trace_graph_diagram: bool = field(
        default=False,
        metadata={"name": "trace.graph_diagram", "help": "draw the fused graph into that folder, as graph.svg"},
    )
    trace_debug_dir: Path | None = field(
        default=None,
        metadata={
            "name": "trace.debug_dir",
            "help": "where these folders are made; None: in torchmux.config.cache_dir",
        },
    )

    @property
    def traces(self) -> bool:
        """Whether files are written."""
        return self.trace_enabled or self.trace_graph_diagram


MODES: Mapping[str, Mapping[str, Any]] = {
    "reduce-overhead": {"keep_scratch": True},
    "max-autotune": {"max_autotune": True, "keep_scratch": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
"""torch's modes: what there is to save between calls of CPU code is its scratch memory, where a GPU has CUDA graphs."""
