"""Many tensors of float32 rounded to half precision in one call: what autocast makes of weights.

Torch's own copy reads some two thirds as many bytes in a second.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchmux.registry.errors import TorchmuxError

from ....common.cache import turns
from ....common.cache.cache import default_cache
from . import build
from .libraries import load

log = logging.getLogger("torchmux.cache")

SOURCE = """#include "kernels.h"
template <class F> static void all(i64 count, const f32* const* from, u16* const* to, const i64* sizes, F rounded) {
  for (i64 n = 0; n < count; n++) {
    const f32* f = from[n];
    u16* t = to[n];
    parallel(sizes[n], 32768, [=](i64 first, i64 last) {
      sweep(first, last, [=](i64 at, auto lanes) INLINE_LAMBDA {
        __builtin_prefetch(f + at + 1024);  // a processor's own prefetching ends with each page
        write(t + at, rounded(read<f32v>(f + at, lanes)), lanes);
      });
    });
  }
}
extern "C" void cast_all(i64 count, const f32* const* from, u16* const* to, const i64* sizes, i64 is_bf16) {
  if (is_bf16) all(count, from, to, sizes, [](f32v x) INLINE_LAMBDA { return narrow_bf16(x); });
  else all(count, from, to, sizes, [](f32v x) INLINE_LAMBDA { return narrow_f16(x); });
}
"""

_DTYPES = (torch.bfloat16, torch.float16)


@functools.cache
def casting(fingerprint: str) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None] | None:
    """As ``torch._foreach_copy_`` for dense float32 and half precision in one layout; None without a compiler.

    ``fingerprint`` is what compiled code depends on.
    """
    try:
        function = load(_compiled(hashlib.sha256(f"{fingerprint} casts {SOURCE}".encode()).hexdigest())).cast_all
    except TorchmuxError as error:
        log.warning("casts of weights are left to torch: %s", error)
        return None
    function.argtypes = (ctypes.c_int64, *[ctypes.c_void_p] * 3, ctypes.c_int64)
    function.restype = None

    def cast(to: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> None:
        for dtype in _DTYPES:
            pairs = [(w, t) for w, t in zip(weights, to, strict=True) if t.dtype is dtype and w.stride() == t.stride()]
            if pairs:
                addresses: Any = ctypes.c_void_p * len(pairs)
                function(
                    len(pairs),
                    addresses(*[w.data_ptr() for w, _ in pairs]),
                    addresses(*[t.data_ptr() for _, t in pairs]),
                    (ctypes.c_int64 * len(pairs))(*[w.numel() for w, _ in pairs]),
                    dtype is torch.bfloat16,
                )
        for weight, other in zip(weights, to, strict=True):
            if other.dtype not in _DTYPES or weight.stride() != other.stride():
                other.copy_(weight)

    return cast


def _compiled(key: str) -> bytes:
    cache = default_cache()
    with turns.turn(key):
        found = cache.load(key) if cache is not None else None
        if found is None:
            found = build.compile_source(SOURCE)
            if cache is not None:
                cache.store(key, found)
    return found
