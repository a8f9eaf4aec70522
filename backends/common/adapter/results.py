"""What is known about a compiled part's outputs, and how they get eager's strides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..pipeline import aliasing

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Result:
    """What is known of an output.

    ``shape`` is None if it depends on the call; ``order`` lists the dimensions from the largest stride to the
    smallest, or is None for the usual order.  ``strides`` are eager's where these leave gaps or repeat elements, as
    those of a slice or of an expanded tensor do.
    """

    dtype: torch.dtype
    shape: tuple[int, ...] | None
    order: tuple[int, ...] | None
    device: torch.device = _CPU
    strides: tuple[int, ...] | None = None

    @classmethod
    def of(cls, value: torch.Tensor) -> Result:
        """The metadata of the fake tensor ``value``; a result gets eager's order of strides, because views are taken of
        it.
        """
        shape = tuple(value.shape) if all(type(s) is int for s in value.shape) else None
        strides: list[Any] = [hint_of(s) for s in value.stride()]
        usual = tuple(range(len(strides)))
        order = usual if None in strides else tuple(sorted(usual, key=lambda d: (-strides[d], d)))
        return cls(value.dtype, shape, None if order == usual else order, value.device, gaps_of(value))

    def to_json(self) -> list[Any]:
        return [str(self.dtype).removeprefix("torch."), self.shape, self.order, str(self.device), self.strides]

    @classmethod
    def from_json(cls, told: list[Any]) -> Result:
        dtype, shape, order, device, strides = told
        shape, order, strides = (None if v is None else tuple(v) for v in (shape, order, strides))
        return cls(getattr(torch, dtype), shape, order, torch.device(device), strides)

    @property
    def is_usual(self) -> bool:
        return self.order is None and self.strides is None

    def arrange(self, tensor: torch.Tensor) -> torch.Tensor:
        """The contiguous ``tensor``, or the same values laid out as eager's."""
        if self.strides is not None:
            return with_gaps(tensor, self.strides)
        if self.order is None:
            return tensor
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tensor.permute(self.order).contiguous().permute(back)


def gaps_of(value: torch.Tensor) -> tuple[int, ...] | None:
    """The strides of ``value`` if they leave gaps or repeat elements, and are known; None of what is dense."""
    sizes, strides = list(value.shape), list(value.stride())
    if not all(type(n) is int for n in (*sizes, *strides)):
        return None
    return tuple(strides) if _leave_gaps(sizes, strides) else None


def leaves_gaps_by_sizes(node: Node) -> bool:
    """Whether ``node`` makes a tensor with gaps between its elements, and where they are depends on the call.

    A few operators keep the strides of an argument that is a part of a tensor.
    """
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or aliasing.is_view(node):
        return False
    if all(type(n) is int for n in (*value.shape, *value.stride())):
        return False
    sizes, strides = ([hint_of(n) for n in told] for told in (value.shape, value.stride()))
    return None not in (*sizes, *strides) and _leave_gaps(sizes, strides)


def _leave_gaps(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether there are gaps, or elements are repeated; windows that overlap do not count: nobody writes to these."""
    if 0 in sizes:
        return False
    reach, dense = 1, True
    for stride, size in sorted((s, n) for s, n in zip(strides, sizes, strict=True) if n > 1):
        if 0 < stride < reach:
            return False
        dense = dense and stride == reach
        reach = stride * size if stride else reach
    return not dense


def with_gaps(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The values of ``tensor`` in memory with these ``strides``; a stride of 0 repeats elements that are equal."""
    firsts = tensor
    for dim, stride in enumerate(strides):
        if not stride and tensor.shape[dim] > 1:
            firsts = firsts.narrow(dim, 0, 1)
    made = torch.empty_strided(firsts.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(firsts).expand(tensor.shape)


def hint_of(size: Any) -> Any:
    """A size, or the one that a symbolic size had in the first call; None if it depends on data."""
    return size if type(size) is int else size.node.hint
