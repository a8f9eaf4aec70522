"""What is known of a compiled part's outputs, and giving them the strides of eager."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Result:
    """What is known of an output.

    ``shape`` is None if it depends on the call; ``order`` lists the dimensions from the largest stride to the
    smallest, or is None for the usual order.
    """

    dtype: torch.dtype
    shape: tuple[int, ...] | None
    order: tuple[int, ...] | None
    device: torch.device = _CPU

    @classmethod
    def of(cls, value: torch.Tensor) -> Result:
        """What the fake tensor ``value`` tells; a result gets eager's order of strides, since views are taken of it."""
        shape = tuple(value.shape) if all(type(s) is int for s in value.shape) else None
        strides: list[Any] = [hint_of(s) for s in value.stride()]
        usual = tuple(range(len(strides)))
        order = usual if None in strides else tuple(sorted(usual, key=lambda d: (-strides[d], d)))
        return cls(value.dtype, shape, None if order == usual else order, value.device)

    def to_json(self) -> list[Any]:
        return [str(self.dtype).removeprefix("torch."), self.shape, self.order, str(self.device)]

    @classmethod
    def from_json(cls, told: list[Any]) -> Result:
        dtype, shape, order, device = told
        shape, order = (None if v is None else tuple(v) for v in (shape, order))
        return cls(getattr(torch, dtype), shape, order, torch.device(device))

    def arrange(self, tensor: torch.Tensor) -> torch.Tensor:
        """The contiguous ``tensor``, or the same values with the dimensions laid out in ``order``."""
        if self.order is None:
            return tensor
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return tensor.permute(self.order).contiguous().permute(back)


def hint_of(size: Any) -> Any:
    """A size, or the one that a symbolic size had in the first call; None if it depends on data."""
    return size if type(size) is int else size.node.hint
