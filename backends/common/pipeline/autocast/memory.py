"""Memory for the casts of weights that outlives regions of autocast; all graphs that use a weight share it."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from torchmux import torch_internals as internals

_all: weakref.WeakValueDictionary[tuple[int, torch.dtype], Memory] = weakref.WeakValueDictionary()


class Memory:
    """Memory for the cast of one weight to one dtype; to be used by one thread at a time."""

    def __init__(self, weight: torch.Tensor, dtype: torch.dtype) -> None:
        with torch.inference_mode(False):
            self.tensor = torch.empty_like(weight, dtype=dtype, requires_grad=False)  # laid out like the cast
        self.weight = weakref.ref(weight)
        self.stream: int | None = None  # of a GPU, on which it is used
        self._shape, self._strides = weight.shape, weight.stride()
        self._storage = self.tensor.untyped_storage()
        self._unused = internals.storage_use_count(self._storage)

    def fits(self, weight: torch.Tensor) -> bool:
        is_same = self.weight() is weight
        return is_same and self._shape == weight.shape and self._strides == weight.stride()

    def lend(self) -> torch.Tensor | None:
        """A tensor in this memory, unless there is one already; its elements are those of an earlier region."""
        if internals.storage_use_count(self._storage) != self._unused:
            return None
        return self.tensor.detach()


def memory_for(weight: Any, dtype: torch.dtype) -> Memory:
    """That of the weight, made now if there is none for its sizes and strides."""
    found = _all.get((id(weight), dtype))
    if found is None or not found.fits(weight):
        found = _all[id(weight), dtype] = Memory(weight, dtype)
    return found
