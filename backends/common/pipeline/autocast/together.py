"""Casts of the weights on a GPU, all made together, in memory that is used again in each region.

Eager launches a kernel for each weight, at its first use.  Here a few kernels round all weights of a graph.  Each
weight has memory that outlives regions, so that the casts of the next region are where those of the last one were, and
a CUDA graph reads them there.  The memory is left alone while a tensor of an earlier region is still there, and on
another stream than the one that it was made on: then the casts are in memory of their own.

Graphs share the casts of a region.  Eager code in the same region makes its own, because handing each to torch takes
longer than all kernels.  So it sees a weight as it is then, even if a graph has used it before and it has been changed
since.  Casts that eager has made before are used (``regions``).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from .memory import Memory, memory_for

_lock = threading.Lock()


class Together:
    """The memory for the casts of weights that one graph reads under autocast."""

    def __init__(self, wanted: Sequence[tuple[int, torch.dtype]], *, is_symbolic: bool) -> None:
        self._wanted, self._is_symbolic = wanted, is_symbolic
        self._memory: list[Memory | None] = [None] * len(wanted)

    def casts(self, args: Sequence[Any], missing: Sequence[int]) -> dict[int, torch.Tensor]:
        """The casts of weights that torch has not cast in this region, of the positions ``missing`` in ``wanted``."""
        plain: tuple[list[torch.Tensor], list[torch.Tensor]] = [], []
        answer = {}
        stream = _stream(args[self._wanted[0][0]])
        if stream is None:
            return {}
        with _lock, torch.inference_mode(False), torch.no_grad():
            for n in missing:
                weight = args[self._wanted[n][0]]
                if internals.weak_count(weight) != 1:
                    continue
                memory = self._memory[n]
                if memory is None or memory.weight() is not weight or self._is_symbolic:
                    memory = self._memory[n] = memory_for(weight, self._wanted[n][1])
                cast = memory.lend() if memory.stream in (None, stream) else None
                if cast is None:
                    cast = torch.empty_like(memory.tensor)
                else:
                    memory.stream = stream
                answer[n] = cast
                if cast.stride() == weight.stride():
                    plain[0].append(cast)
                    plain[1].append(weight)
                else:
                    cast.copy_(weight)
            if plain[0]:
                torch._foreach_copy_(*plain)
        return answer


def _stream(weight: torch.Tensor) -> int | None:
    """The stream that computes with a weight now; None while the program records a CUDA graph of its own."""
    if weight.device.type != "cuda":
        return 0
    if torch.cuda.is_current_stream_capturing():
        return None
    return int(torch.cuda.current_stream(weight.device).cuda_stream)
