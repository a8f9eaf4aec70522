"""The options of the native backend, with ``torch.compile``'s names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..common.adapter.options import freeze_option


@dataclass(frozen=True)
class NativeOptions:
    """How graphs are compiled."""

    fusion: bool = field(default=True, metadata={"help": "run several statements of a graph in one loop"})
    epilogue_fusion: bool = field(
        default=True,
        metadata={
            "help": "fuse operators that use the result of a reduction, or on a GPU of a product, into its kernel"
        },
    )
    max_autotune: bool = field(
        default=False,
        metadata={
            "help": "generate the code in several ways, time each on generated inputs, and keep the fastest; "
            "compilation takes several times as long"
        },
    )
    matmul: Literal["measured", "library"] = field(
        default="measured",
        metadata={
            "help": "'measured' runs large float32 matrix products and the convolutions of a frozen graph either with "
            "torch's library or with a torchmux kernel, whichever was faster for that size on this machine at the "
            "first compilation, and on a GPU products of half precision with what follows them in one kernel where a "
            "model, or with max_autotune a measurement, finds this faster; 'library' always uses the library"
        },
    )
    keep_scratch: bool = field(
        default=False,
        metadata={"help": "keep the memory for intermediate results between calls, one copy for each thread"},
    )
    cudagraphs: bool = field(
        default=False,
        metadata={
            "help": "on a GPU, record what a graph launches and replay the recording, so that a call takes no longer "
            "than the GPU does; has no effect on a CPU"
        },
    )
    shape_padding: bool = field(
        default=False,
        metadata={
            "help": "start the rows of a buffer that is written for a matrix product at multiples of 64 bytes that are "
            "not multiples of 4096"
        },
    )
    fallback_random: bool = field(
        default=False,
        metadata={"help": "draw the random numbers that eager draws; on the CPU this is always the case"},
    )
    precision: Literal["model", "bf16"] = field(
        default="model",
        metadata={
            "help": "'model' computes float32 in float32; 'bf16' computes matrix products and convolutions of float32 "
            "in bfloat16, for speed at the cost of accuracy, where the processor has instructions for it"
        },
    )
    freeze: bool = freeze_option(
        "so that values that depend only on them are computed ahead of time and weights are packed"
    )
    optimize: Literal["O1", "O2", "O3"] = field(
        default="O2", metadata={"help": "the optimization level of the C++ compiler; the kernels are always vectorized"}
    )
    trace_enabled: bool = field(
        default=False,
        metadata={
            "name": "trace.enabled",
            "help": "write the graph, the kernels and the code to a folder that the report's notes name",
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
            "help": "where these folders are created; None: in torchmux.config.cache_dir",
        },
    )

    @property
    def traces(self) -> bool:
        """Whether files are written."""
        return self.trace_enabled or self.trace_graph_diagram


MODES: Mapping[str, Mapping[str, Any]] = {
    "reduce-overhead": {"keep_scratch": True, "cudagraphs": True},
    "max-autotune": {"max_autotune": True, "keep_scratch": True, "cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True},
}
"""torch's modes.  Between calls, code for a CPU saves its scratch memory, and code for a GPU its launches."""
