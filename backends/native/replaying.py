"""``cudagraphs``: what compiled code launches on a GPU is recorded once and then replayed.

The mechanism is that of the backend ``cudagraphs`` (``backends/cudagraphs``), with native's code in place of torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchmux import logs
from torchmux.registry.spec import ToolFile

from ..cudagraphs.function import CudagraphsFunction
from ..cudagraphs.options import CudagraphsOptions
from ..cudagraphs.pool import pool_of
from .runtime import NativeFunction


class Replayed(CudagraphsFunction):
    """A compiled graph, called by recordings; what cannot be recorded is launched kernel by kernel."""

    def __init__(
        self, function: NativeFunction, device: torch.device, *, symbolic: bool, writes: Sequence[int]
    ) -> None:
        super().__init__(
            function,
            device.index,
            CudagraphsOptions(),
            pool_of(device.index),
            symbolic=symbolic,
            strict=False,  # without a recording the code is the same
            writes=writes,
        )
        self.function = function
        self.notes = function.notes
        self.cache_hit = function.cache_hit
        self.output_code = function.output_code
        self.kernel_seconds = function.kernel_seconds
        self.artifact: str | None = None
        self.library_positions = function.library_positions
        self.library_calls = function.library_calls
        self.kernel_positions = function.kernel_positions
        self.kernels = function.kernels

    def files(self) -> list[ToolFile]:
        return self.function.files()

    def _run_plainly(self, args: Sequence[Any], reason: str, *, placed: bool = False) -> Sequence[torch.Tensor]:
        if not self._told:
            self._told = True
            words = f"native launches kernels one by one in calls of a graph: {reason}"
            logs.emit("perf_hints", "native", words)
            if self._report is not None:
                self._report.notes.append(words)
        return self.function(*args)
