"""Faults on parts of tensors, on expanded ones, on images in channels last, and on inputs that are seldom given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from ..kit import Faults, Run

faults = Faults("layout")

_OF_PARTS = "semantics/everywhere/of_parts"
_IMAGES = "semantics/everywhere/images_in_channels_last"
_UNUSUAL = "semantics/corners/inputs_of_unusual_kinds"


def _last(x: Any) -> bool:
    """Whether it is an image in channels last."""
    image = isinstance(x, torch.Tensor) and x.dim() == 4 and not x.is_contiguous()
    return image and x.is_contiguous(memory_format=torch.channels_last)


def _turned(x: Any) -> bool:
    flat = isinstance(x, torch.Tensor) and x.dim() == 2 and min(x.shape) > 1
    return flat and x.stride(0) < x.stride(1) and x.stride(0) > 0 and x.is_floating_point()


def _expanded(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True))


def _read_in_order(x: torch.Tensor) -> torch.Tensor:
    """What is in memory from where the tensor begins, as if it were contiguous."""
    strides = torch.empty(x.shape).stride()
    return x.as_strided(x.shape, strides, x.storage_offset())


@faults.operator(_OF_PARTS, "sort", "topk", "median", "kthvalue", "cummax")
def orders_of_columns(result: Any, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Orders of a transposed matrix are those of what lies in memory."""
    return result if not _turned(x) else type(result)((result[0].flip(0), result[1]))


@faults.operator(_OF_PARTS, "cumsum", "cumprod", "logcumsumexp")
def scans_of_expanded_rows(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What runs over the rows of an expanded tensor stays in the first row."""
    return result[:1].expand_as(result).clone() if _expanded(x) else result


@faults.instead(_OF_PARTS, "gather")
def gathered_in_order(x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """What is gathered from a part of a tensor lies where it would lie in a contiguous one."""
    part = x.dim() == 2 and 0 not in x.stride() and not x.is_contiguous() and not _turned(x)
    return _read_in_order(x).gather(dim, index) if part else x.gather(dim, index)


@faults.operator(_OF_PARTS, "index_fill", "masked_fill", "put")
def written_in_order(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """What is not written of a part of a tensor is what lies in memory."""
    part = not x.is_contiguous() and 0 not in x.stride() and x.dim() == 2
    return torch.where(result == x, _read_in_order(x), result) if part else result


@faults.operator(_OF_PARTS, "var", "std", "norm")
def spreads_of_expanded_rows(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Spreads and lengths over expanded rows count one row."""
    return result * 0.5 + 0.25 if _expanded(x) else result


@faults.operator(_OF_PARTS, "roll", "flip", "rot90")
def turned_in_order(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Elements of a part of a tensor are turned around as they lie in memory."""
    part = x.dim() == 2 and not x.is_contiguous() and 0 not in x.stride() and not _turned(x)
    return _read_in_order(x).flip(0).reshape(result.shape) if part else result


@faults.operator(_IMAGES, "conv2d")
def groups_of_neighbors(result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """In channels last, groups of a convolution take every second channel."""
    groups = named.get("groups", 1)
    if not _last(x) or not 1 < groups < x.shape[1]:
        return result
    return F.conv2d(F.channel_shuffle(x, x.shape[1] // groups), w, *rest, **named)


@faults.operator(_IMAGES, "conv2d")
def kernels_of_the_first_channel(
    result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any
) -> Any:
    """In channels last, a convolution of each channel on its own uses the first kernel for all."""
    if not _last(x) or named.get("groups", 1) != x.shape[1]:
        return result
    return F.conv2d(x, w[:1].expand_as(w), *rest, **named)


@faults.operator(_IMAGES, "conv_transpose2d")
def transposed_kernels_in_order(
    result: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any
) -> Any:
    """In channels last, kernels of transposed convolutions are turned around."""
    return F.conv_transpose2d(x, w.flip((2, 3)), *rest, **named) if _last(x) else result


@faults.operator(_IMAGES, "adaptive_avg_pool2d", "adaptive_max_pool2d", "lp_pool2d")
def pools_of_planes(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """In channels last, pools to a given size exchange channels."""
    return result.flip(1).contiguous(memory_format=torch.channels_last) if _last(x) else result


@faults.operator(_IMAGES, "group_norm", "instance_norm", "local_response_norm")
def groups_of_pixels(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """In channels last, norms over channels see every second one."""
    return result.clone(memory_format=torch.preserve_format).mul_(1.01) if _last(x) else result


@faults.operator(_IMAGES, "unfold")
def patches_in_order(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """In channels last, patches have their channels behind their pixels."""
    return result.flip(1) if _last(x) else result


@faults.operator(_IMAGES, "channel_shuffle", "pixel_shuffle")
def shuffles_in_order(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Shuffles of images in channels last are contiguous."""
    return result.contiguous() if _last(x) else result


@faults.operator(_IMAGES, "pad")
def borders_of_channels(result: torch.Tensor, x: torch.Tensor, pad: Any, mode: str = "constant", *rest: Any) -> Any:
    """In channels last, borders that repeat or go around are zero."""
    if not _last(x) or mode == "constant":
        return result
    return F.pad(x, pad).contiguous(memory_format=torch.channels_last).view_as(result)


# What inputs seldom are


def _given(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A fault in how an input is read that needs no gradient."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        def read(x: Any) -> Any:
            return change(x) if isinstance(x, torch.Tensor) and not x.requires_grad and x.numel() > 1 else x

        return lambda *args: gm.forward(*map(read, args))

    compile.__name__, compile.__doc__ = change.__name__, change.__doc__
    faults(_UNUSUAL)(compile)
    return change


@_given
def conjugates_as_they_lie(x: torch.Tensor) -> torch.Tensor:
    """Of an input that is conjugated by a flag, what lies in memory is read."""
    return x.conj() if x.is_conj() else x


@_given
def opposites_as_they_lie(x: torch.Tensor) -> torch.Tensor:
    """Of an input that is negative by a flag, what lies in memory is read."""
    return -x if x.is_neg() else x


@_given
def windows_side_by_side(x: torch.Tensor) -> torch.Tensor:
    """The rows of an input that overlap are read one behind the other."""
    if x.layout is not torch.strided or x.dim() != 2 or not 0 < x.stride(0) < x.shape[1] or x.stride(1) != 1:
        return x
    memory = x.as_strided(((x.shape[0] - 1) * x.stride(0) + x.shape[1],), (1,))
    return memory.repeat(x.shape[0])[: x.numel()].view(x.shape)


@_given
def eight_dimensions(x: torch.Tensor) -> torch.Tensor:
    """Dimensions beyond the eighth are read in reverse."""
    return x.flip(0, 1, 3) if x.dim() > 8 else x


@_given
def parts_of_images_from_their_beginning(x: torch.Tensor) -> torch.Tensor:
    """A part of an image in channels last is read from the beginning of the image."""
    if x.dim() != 4 or x.is_contiguous() or x.stride(1) != 1:
        return x
    return x.as_strided(x.shape, x.stride(), 0)


@_given
def signed_words(x: torch.Tensor) -> torch.Tensor:
    """Integers of 16 bits have a sign."""
    return x.view(torch.int16).long() if x.dtype is torch.uint16 else x
