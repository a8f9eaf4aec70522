"""Casts of large weights on a CPU, in memory that is used again in each region of autocast.

Torch makes each cast in fresh memory, and drops it when the region is left.  For large weights, the page faults of that
take longer than the conversions.  Here a weight has a buffer that outlives regions, and takes its cast again as soon as
no tensor of an earlier region is there any more.  The cast is put into torch's own cache, where eager finds it: a mode
answers with it when autocast asks for the conversion.

Whether torch has a cast of a weight already is read from the count of weak references to the weight: the cache holds
one for each of its casts.  A weight that something else refers to weakly is left to torch.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from .memory import Memory, memory_for

Copies = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None]
"""Writes tensors, rounded, into others, as ``torch._foreach_copy_`` does."""

LARGE = 1 << 14
"""Elements of a weight from which on its cast is made here: smaller ones cost less than the calls that hand them on."""

_product = torch.ops.aten.mm.default
_cast = torch.ops.aten._to_copy.default

_lock = threading.Lock()


class Buffers:
    """The buffers of the weights that one graph reads under autocast, all of them on the CPU."""

    def __init__(self, wanted: Sequence[tuple[int, torch.dtype]], casting: Callable[[], Copies | None]) -> None:
        self._wanted, self._casting = wanted, casting
        self._buffers: list[Memory | None] = [None] * len(wanted)

    def fill(self, args: Sequence[Any]) -> dict[int, torch.Tensor]:
        """Casts of large weights of which torch's cache had none and now has these, by positions in ``wanted``."""
        if not torch.is_autocast_cache_enabled() or not weak_references_tell():
            return {}
        weights, casts = {}, {}
        for n, (at, dtype) in enumerate(self._wanted):
            weight = args[at]
            if weight.numel() >= LARGE and internals.weak_count(weight) == 1:
                with _lock:
                    cast = self._buffer(n, weight, dtype).lend()
                if cast is not None:
                    weights[n], casts[n] = weight, cast
        if not casts:
            return {}
        with torch.no_grad():
            self._copies([*casts.values()], [*weights.values()])
        return _handed_on(weights, casts)

    @functools.cached_property
    def _copies(self) -> Copies:
        return self._casting() or torch._foreach_copy_

    def _buffer(self, n: int, weight: torch.Tensor, dtype: torch.dtype) -> Memory:
        found = self._buffers[n]
        if found is None or not found.fits(weight):
            found = self._buffers[n] = memory_for(weight, dtype)
        return found


class _Answers(internals.TorchDispatchMode):
    """Gives autocast a cast that is there, and computes no product; ``is_taken`` if autocast hands the cast on."""

    def __init__(self) -> None:
        super().__init__()
        self.cast = self._nothing = torch.empty(())
        self.is_taken = False

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is _cast and (kwargs or {}).get("dtype") is self.cast.dtype:
            return self.cast
        if function is not _product:
            return function(*args, **(kwargs or {}))
        self.is_taken = args[0] is self.cast
        return self._nothing


def _handed_on(weights: dict[int, torch.Tensor], casts: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """The casts that autocast keeps and uses when it is asked for those of the weights."""
    answer = {}
    with _Answers() as answers:
        for n, weight in weights.items():
            answers.cast = casts[n]
            torch.mm(weight, weight)
            if answers.is_taken:
                answer[n] = casts[n]
    return answer


@functools.cache
def weak_references_tell() -> bool:
    """Whether a weight has one weak reference more while torch keeps a cast of it, and it keeps the one it is given."""
    dtype = torch.get_autocast_dtype("cpu")
    with torch.inference_mode(False), torch.enable_grad(), internals.without_modes(), torch.autocast("cpu", dtype):
        weight, cast = torch.ones(2, 2, requires_grad=True), torch.full((2, 2), 3.0, dtype=dtype)
        before = internals.weak_count(weight)
        taken = _handed_on({0: weight}, {0: cast})
        product = torch.mm(torch.ones(1, 2), weight)
        return (before, internals.weak_count(weight)) == (1, 2) and bool(taken) and product.tolist() == [[6.0, 6.0]]
