"""Chooses the code for a matrix product on this machine: measured once for each size, and kept in the artifact cache.

The library (MKL, in torch's builds for x86-64) and the kernel of ``gemm.h`` differ by up to a factor of two in either
direction, depending on the processor, the size and which operand is transposed.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux import progress, torch_internals as internals

from ....common.cache.cache import default_cache
from ....common.cache.keys import text_key
from ... import fingerprint
from ...ir.index import Index

BY_MKL, BY_TILES = 1, 2
"""As in ``gemm.h``."""

LEAST_WORK = 1 << 20
"""Multiplications of a product that is worth a choice; below, the library's call is as fast as anything."""

_RUNS = 3
"""How often each way is timed; the least time counts."""

_MARGIN = 0.95
"""The library is left for what takes at most so much of its time: the same bits as eager's are worth something."""

_UNKNOWN_SIZE = 128
"""The assumed value of a symbolic size."""

_LARGEST = {"m": 256, "n": 1536, "k": 1024, "batch": 8}
"""Sizes are cut to these where they are measured: beyond, which way is faster changes no more."""


@dataclass(frozen=True)
class Shape:
    """``batch`` products of m by k with k by n matrices, as far as a choice depends on it."""

    m: int
    n: int
    k: int
    batch: int
    left_transposed: bool
    right_transposed: bool


def shape_of(m: Index, n: Index, k: Index, batch: Index, left_transposed: bool, right_transposed: bool) -> Shape | None:
    """What is measured for a product; None if it is too small to be worth it."""
    m, n, k, batch = (size if type(size) is int else _UNKNOWN_SIZE for size in (m, n, k, batch))
    if m * n * k < LEAST_WORK:
        return None
    m, n, k, batch = (min(v, _LARGEST[name]) for v, name in ((m, "m"), (n, "n"), (k, "k"), (batch, "batch")))
    return Shape(m, n, k, batch, left_transposed, right_transposed)


def choose(shapes: Sequence[Sequence[Any]], library: Any) -> None:
    """Tell a loaded library which way each of its products goes; ``shapes`` has the fields of each :class:`Shape`."""
    ways = (ctypes.c_ubyte * len(shapes)).in_dll(library, "way")
    with progress.waiting("measuring matrix products"):
        for at, fields in enumerate(shapes):
            progress.step(f"measuring matrix products, {at + 1}/{len(shapes)}")
            ways[at] = _way(Shape(*fields), library)


def _way(shape: Shape, library: Any) -> int:
    def runs() -> Mapping[int, Callable[[], object]]:
        size, address = ctypes.c_int64, ctypes.c_void_p
        left, right = torch.ones(shape.batch, shape.m * shape.k), torch.ones(shape.batch, shape.k * shape.n)
        out = torch.empty(shape.batch, shape.m * shape.n)
        x = left.data_ptr(), shape.m if shape.left_transposed else shape.k, shape.left_transposed
        y = right.data_ptr(), shape.k if shape.right_transposed else shape.n, shape.right_transposed
        extents = shape.m, shape.n, shape.k, shape.batch, shape.m * shape.k, shape.k * shape.n
        found = {}
        for kind, function in ((BY_MKL, library.library_product), (BY_TILES, library.tiled_product)):
            function.argtypes = (address, address, size, size, address, *(size,) * 8)
            function.restype = None
            found[kind] = functools.partial(_call, function, (left, right, out), (out.data_ptr(), *x, *y, *extents))
        return found

    return fastest(("product", shape), (BY_MKL, BY_TILES), runs)


def _call(function: Any, held: tuple[torch.Tensor, ...], arguments: tuple[Any, ...]) -> None:
    """Call with the addresses of what is held."""
    function(*arguments)


def fastest(
    what: object,
    kinds: Sequence[int],
    runs: Callable[[], Mapping[int, Callable[[], object]]],
    before: Callable[[], object] | None = None,
    margin: float = _MARGIN,
) -> int:
    """The kind that took the least time on this machine; the first of them if none takes at most ``margin`` of its.

    ``what`` names the question; ``runs`` gives what to time, and is asked only if the answer is not known.  ``before``
    is done before each run, and is not timed.
    """
    if len(kinds) == 1:
        return kinds[0]
    key = text_key("the fastest", _this_machine(), torch.get_num_threads(), what, tuple(kinds))
    if key in _decided:
        return _decided[key]
    cache = default_cache()
    stored = cache.load(key) if cache is not None else None
    if stored is not None and stored.decode() in map(str, kinds):
        _decided[key] = int(stored)
        return _decided[key]
    with internals.without_modes():  # a backward pass is compiled among fake tensors, which have no memory
        _decided[key] = _measured(runs(), before, margin)
    if cache is not None:
        cache.store(key, str(_decided[key]).encode())
    return _decided[key]


def _measured(
    runs: Mapping[int, Callable[[], object]], before: Callable[[], object] | None = None, margin: float = _MARGIN
) -> int:
    # The time of one thread does not count what other programs take.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(_RUNS):
        for kind, run in runs.items():
            if before is not None:
                before()
            start = clock()
            run()
            best[kind] = min(best[kind], clock() - start)
    usual = next(iter(runs))
    quickest = min(runs, key=best.__getitem__)
    return quickest if best[quickest] <= margin * best[usual] else usual


_decided: dict[str, int] = {}


@functools.cache
def _this_machine() -> str:
    return fingerprint()
