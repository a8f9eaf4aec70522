"""Chooses the code for a convolution with a constant weight on this machine: oneDNN's or torchmux's, measured once for
each shape.

The kernels take about the same time.  However, torch looks up for each call how oneDNN performs the convolution.  This
touches so much memory that it takes longer between other steps of a model than between calls of the same convolution.
Each is therefore timed with its data out of the processor's cache, as in a model.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchmux import progress

from . import build, libraries, packing
from .choosing import fastest

BY_LIBRARY, BY_TILES = 1, 2
LEAST_PIXELS = 4
"""A tile of fewer would read the weight for too little."""

CHANNELS = 32
"""Our kernel wants a multiple of so many, or fewer on narrower vectors."""

_MARGIN = 0.85
"""Ours is left for what takes at most so much of its time: a call of the library ends a piece of code and begins
another, which is in the time of neither."""

_CACHE_BYTES = 8 << 20


@dataclass(frozen=True)
class Shape:
    """A convolution of images of ``sizes`` with a weight of ``kernel``, to images of ``results``."""

    sizes: tuple[int, ...]
    kernel: tuple[int, ...]
    results: tuple[int, ...]
    stride: tuple[int, int]
    padding: tuple[int, int]
    relu: bool
    adds: bool


def is_own_faster(shape: Shape) -> bool:
    """Whether ``convolution.h`` runs it, unless the library takes clearly less time.

    Raises:
        CompilationFailed: our kernel cannot be compiled in order to be timed.
    """
    pixels = shape.results[0] * shape.results[2] * shape.results[3]
    if shape.kernel[0] % CHANNELS or pixels < LEAST_PIXELS or 0 in shape.sizes:
        return False
    runs = functools.partial(_runs, shape)
    sizes = "x".join(map(str, shape.sizes))
    with progress.waiting(f"measuring the convolution of {sizes}"):
        return fastest(("convolution", shape), (BY_TILES, BY_LIBRARY), runs, _empty_cache, _MARGIN) == BY_TILES


def _runs(shape: Shape) -> Mapping[int, Callable[[], object]]:
    x, result, addend = (
        torch.ones(sizes).contiguous(memory_format=torch.channels_last)
        for sizes in (shape.sizes, shape.results, shape.results)
    )
    weight, bias = torch.ones(shape.kernel), torch.ones(shape.kernel[0])
    settings = (shape.padding, shape.stride, (1, 1), 1)
    packed = packing.kernel(packing.PackedKernel("", *settings, shape.sizes), weight)
    unary = "relu" if shape.relu else "none"

    def by_library() -> object:
        if shape.adds:
            in_place = torch.ops.mkldnn._convolution_pointwise_.binary
            return in_place(addend, x, packed, bias, *settings, "add", None, unary, [], None)
        return torch.ops.mkldnn._convolution_pointwise.default(x, packed, bias, *settings, unary, [], "")

    own, function = _own(x.shape[0] * result.shape[2] * result.shape[3])
    tiled = packing.weight_by(own, weight)
    held = (result, addend if shape.adds else None, x, tiled, bias)
    addresses = tuple(tensor.data_ptr() if tensor is not None else None for tensor in held)
    numbers = (*shape.results, *shape.sizes[1:], *shape.kernel[2:], *shape.stride, *shape.padding)
    arguments = (*addresses, *numbers, shape.relu)
    by_tiles = functools.partial(_call, function, held, arguments)
    return {BY_TILES: by_tiles, BY_LIBRARY: by_library}


def _call(function: Any, held: tuple[Any, ...], arguments: tuple[Any, ...]) -> None:
    """Call with the addresses of what is held."""
    function(*arguments)


def _empty_cache() -> None:
    _other_things().add_(1)


@functools.cache
def _other_things() -> torch.Tensor:
    return torch.zeros(_CACHE_BYTES // 4)


def _own(pixels: int) -> tuple[Any, Any]:
    """A library and its function, our kernel for so many pixels."""
    # The same for all numbers of pixels that are divided into the same tiles, of 14 pixels at most or of 6.
    alike = tuple(-(-pixels // -(-pixels // most)) for most in (14, 6))
    if alike not in _libraries:
        library = libraries.load(build.compile_source(_SOURCE % pixels))
        function = library.convolve
        function.argtypes = (*(ctypes.c_void_p,) * 5, *(ctypes.c_int64,) * 13, ctypes.c_bool)
        function.restype = None
        _libraries[alike] = library, function
    return _libraries[alike]


_libraries: dict[tuple[int, ...], tuple[Any, Any]] = {}

_SOURCE = """
#include "kernels.h"
#include "convolution.h"
extern "C" void convolve(
    f32* out, const f32* addend, const f32* x, const f32* weight, const f32* bias,
    i64 count, i64 n, i64 height, i64 width,
    i64 channels, i64 rows, i64 columns, i64 ky, i64 kx, i64 sy, i64 sx, i64 py, i64 px, bool relu) {
  Image image = {x, rows, columns, channels};
  Windows windows = {ky, kx, sy, sx, py, px};
  convolution<tile_pixels(%dl)>(out, addend, count, height, width, n, image, windows, weight, bias, relu);
}
"""
