"""The gradient of max pooling on a GPU, from little memory.

torch's operator takes the images, of which it reads nothing but their sizes, and the places of the largest elements in
64 bits.  Both would be saved for it, and are among the largest tensors that training a convolutional network saves.
``torchmux::max_pool2d_backward`` takes the sizes, and what is saved of a place is which element of its window it is, in
one byte.  Inductor saves as little (``_low_memory_max_pool_with_offsets`` there).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

from .pipeline.saved import Split

_aten = torch.ops.aten
_library = torch.library.Library("torchmux", "FRAGMENT")
_library.define(
    "max_pool2d_backward(Tensor gradient, int[] sizes, bool channels_last, int[] window, int[] stride, "
    "int[] padding, int[] dilation, bool ceil_mode, Tensor places) -> Tensor"
)

MAX_POOL_BACKWARD = torch.ops.torchmux.max_pool2d_backward.default
"""The gradient of images of these ``sizes``; ``places`` are those of the largest elements, each in its image."""

_MOST = 256
"""So many elements of a window are told apart by one byte."""
_DEVICE = "cuda"
"""It was not measured on a CPU, where dividing the places takes longer."""
_LARGEST = 2**31
"""So many elements of an image are counted by 32 bits."""


def _images(gradient: Tensor, sizes: list[int], channels_last: bool) -> Tensor:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return torch.empty(sizes, dtype=gradient.dtype, device=gradient.device, memory_format=layout)


def _max_pool2d_backward(
    gradient: Tensor,
    sizes: list[int],
    channels_last: bool,
    window: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    places: Tensor,
) -> Tensor:
    images = _images(gradient, sizes, channels_last)
    settings = (window, stride, padding, dilation, ceil_mode)
    return _aten.max_pool2d_with_indices_backward.default(gradient, images, *settings, places)


_library.impl("max_pool2d_backward", _max_pool2d_backward, "CompositeExplicitAutograd")
torch.library.register_fake(
    "torchmux::max_pool2d_backward",
    lambda gradient, sizes, channels_last, *_: _images(gradient, sizes, channels_last),
    lib=_library,
)


class _Windows(NamedTuple):
    """The arguments of pooling, for rows and columns."""

    window: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @staticmethod
    def of(window: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1) -> _Windows:
        return _Windows(_pair(window), _pair(stride or window), _pair(padding), _pair(dilation))


def _pair(numbers: int | Sequence[int]) -> tuple[int, int]:
    return (numbers, numbers) if isinstance(numbers, int) else (numbers[0], numbers[-1])


def offsets_saved(split: Split) -> Split:
    """A partition function that saves of max pooling what its gradient needs, where that is on a GPU."""

    def split_with_offsets(joint: GraphModule, *args: Any, **more: Any) -> tuple[GraphModule, GraphModule]:
        nodes = joint.graph.find_nodes(op="call_function", target=_aten.max_pool2d_with_indices_backward.default)
        for node in nodes:
            if (windows := _windows(node)) is not None:
                _replace(node, windows)
        if nodes:
            joint.recompile()
        return split(joint, *args, **more)

    return split_with_offsets


def _windows(node: Node) -> _Windows | None:
    """How ``node`` pools, if its places are those that the same pooling has found, and memory can be saved."""
    _, images, *settings, ceil_mode, places = node.args
    pooling = places.args[0] if places.target is operator.getitem and places.args[1] == 1 else None
    if pooling is None or pooling.target is not _aten.max_pool2d_with_indices.default or pooling.args[0] is not images:
        return None
    found = _Windows.of(*settings)
    given = [*pooling.args[1:], *((), 0, 1, False)[len(pooling.args) - 2 :]]
    if _Windows.of(*given[:-1]) != found or given[-1] != ceil_mode:
        return None
    image, place = images.meta["val"], places.meta["val"]
    is_known = all(type(n) is int for n in (*image.shape, *place.shape))
    if image.device.type != _DEVICE or not is_known or found.window[0] * found.window[1] > _MOST:
        return None
    return found if image.shape[-2] * image.shape[-1] < _LARGEST else None


def _replace(node: Node, windows: _Windows) -> None:
    gradient, images, *_, ceil_mode, places = node.args
    image = images.meta["val"]
    with node.graph.inserting_before(node):
        by = _Writer(node, windows, image.shape[-1])
        is_last = internals.suggested_layout(image) is torch.channels_last
        settings = (list(image.shape), is_last, *map(list, windows), ceil_mode)
        made = by(MAX_POOL_BACKWARD, gradient, *settings, by.places(by.offsets(places)))
    node.replace_all_uses_with(made)
    node.graph.erase_node(node)


class _Writer:
    """Writes operators into a graph, with fake results, in front of ``node``."""

    def __init__(self, node: Node, windows: _Windows, width: int) -> None:
        self.graph, self.windows, self.width = node.graph, windows, width
        place = node.args[-1].meta["val"]
        self.mode = place.fake_mode
        rows, columns = (self._corners(d, place) for d in (0, 1))
        self.rows, self.columns = self(_aten.unsqueeze.default, rows, 1), columns

    def __call__(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        node = self.graph.call_function(op, args, kwargs)
        with self.mode:
            node.meta["val"] = op(*(a.meta["val"] if isinstance(a, Node) else a for a in args), **kwargs)
        return node

    def offsets(self, places: Node) -> Node:
        """Which element of its window each place is."""
        place = self._as(torch.int32, places)
        (_, across), (down_by, across_by) = self.windows.window, self.windows.dilation
        down = self(_aten.sub.Tensor, self._divided(place, self.width), self.rows)
        right = self(_aten.sub.Tensor, self(_aten.remainder.Scalar, place, self.width), self.columns)
        whole = self(_aten.mul.Tensor, self._divided(down, down_by), across)
        return self._as(torch.uint8, self(_aten.add.Tensor, whole, self._divided(right, across_by)))

    def places(self, offsets: Node) -> Node:
        """Where in its image each of these elements is."""
        offset = self._as(torch.int32, offsets)
        (_, across), (down_by, across_by) = self.windows.window, self.windows.dilation
        down = self(_aten.mul.Tensor, self._divided(offset, across), down_by)
        right = self(_aten.mul.Tensor, self(_aten.remainder.Scalar, offset, across), across_by)
        row = self(_aten.mul.Tensor, self(_aten.add.Tensor, down, self.rows), self.width)
        return self._as(torch.int64, self(_aten.add.Tensor, row, self(_aten.add.Tensor, right, self.columns)))

    def _corners(self, dim: int, place: Tensor) -> Node:
        """The rows or the columns where windows begin."""
        windows = self.windows
        first, step = -windows.padding[dim], windows.stride[dim]
        end = first + step * place.shape[dim - 2]
        return self(_aten.arange.start_step, first, end, step, dtype=torch.int32, device=place.device)

    def _divided(self, node: Node, by: int) -> Node:
        return node if by == 1 else self(_aten.div.Tensor_mode, node, by, rounding_mode="trunc")

    def _as(self, dtype: torch.dtype, node: Node) -> Node:
        return self(_aten._to_copy.default, node, dtype=dtype)
