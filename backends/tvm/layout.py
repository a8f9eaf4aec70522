"""The memory layout of tensors in torch, and in TVM, where every tensor is contiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..common.adapter.results import gaps_of, hint_of, with_gaps
from .sizes import is_symbolic


def memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dimensions from the slowest to the fastest, if ``value`` fills its memory without gaps; else None."""
    order = _by_stride(value)
    return order if _fills(value, order) else None


def is_contiguous(value: torch.Tensor) -> bool:
    """Whether ``value`` fills its memory in the order of its dimensions; asking guards on no symbolic size."""
    return _fills(value, tuple(range(value.dim())))


def _by_stride(value: torch.Tensor) -> tuple[int, ...]:
    strides = [hint_of(s) for s in value.stride()]
    return tuple(sorted(range(value.dim()), key=lambda d: (-strides[d], d)))


def _fills(value: torch.Tensor, order: Sequence[int]) -> bool:
    expected: Any = 1
    for dim in reversed(order):
        if type(value.shape[dim]) is not int or value.shape[dim] != 1:
            if not _equal(value.stride(dim), expected):
                return False
            expected = _expression(value.shape[dim]) * expected
    return True


def _equal(one: Any, other: Any) -> bool:
    if type(one) is int and type(other) is int:
        return one == other
    difference = _expression(one) - _expression(other)
    return bool(difference == 0 or difference.expand() == 0)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


@dataclass(frozen=True)
class Layout:
    """A tensor that is handed over: its shape and dtype in torch, and how the other side stores it.

    A size that is known only when the graph runs is symbolic in ``shape``, and -1 once the code is made.

    ``order`` lists torch's dimensions as they are stored, from the slowest to the fastest; None: in their own order.
    ``wanted`` is the order of strides that torch's own result would have, None if that is the stored one; ``gaps`` are
    its strides if they leave gaps.
    """

    shape: tuple[Any, ...]
    dtype: torch.dtype
    order: tuple[int, ...] | None = None
    wanted: tuple[int, ...] | None = None
    gaps: tuple[int, ...] | None = None

    @classmethod
    def of(cls, value: torch.Tensor) -> Layout:
        """Stored as torch stores it, where that is without gaps."""
        order = memory_order(value)
        usual = tuple(range(value.dim()))
        if order is None or order == usual:
            return cls.usual(value)
        return cls(tuple(value.shape), value.dtype, order)

    @classmethod
    def usual(cls, value: torch.Tensor) -> Layout:
        """Stored in the order of the dimensions, whatever torch does.

        Raises:
            TypeError: torch leaves gaps between elements, and how large they are depends on the call.
        """
        usual = tuple(range(value.dim()))
        order = _by_stride(value)
        if is_symbolic(value) and not _fills(value, order):
            raise TypeError("a tensor whose sizes depend on the call has gaps in torch's memory")
        return cls(tuple(value.shape), value.dtype, None, None if order == usual else order, gaps_of(value))

    def to_json(self) -> list[Any]:
        shape = [-1 if isinstance(size, torch.SymInt) else size for size in self.shape]
        return [shape, str(self.dtype).removeprefix("torch."), self.order, self.wanted, self.gaps]

    @classmethod
    def from_json(cls, value: list[Any]) -> Layout:
        shape, dtype, *others = value
        tuples = [None if v is None else tuple(v) for v in others]
        return cls(tuple(shape), getattr(torch, dtype), *tuples)

    @property
    def is_usual(self) -> bool:
        return self.order is None and self.wanted is None and self.gaps is None

    @property
    def stored_shape(self) -> list[Any]:
        return [self.shape[d] for d in self.order] if self.order is not None else list(self.shape)

    @property
    def back(self) -> list[int]:
        """The permutation from the stored order of dimensions to torch's."""
        return _inverse(self.order) if self.order is not None else list(range(len(self.shape)))

    def is_memory_of(self, value: torch.Tensor) -> bool:
        """Whether the bytes of ``value``, from its start, are the stored ones."""
        return value.storage_offset() == 0 and memory_order(value) is not None

    def hand_over(self, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` in its storage layout; copied only if it has another layout."""
        stored = tensor if self.order is None else tensor.permute(self.order)
        return stored if stored.is_contiguous() else stored.contiguous()

    def take_back(self, stored: torch.Tensor) -> torch.Tensor:
        """The tensor that torch would have made."""
        if self.order is not None:
            return stored.permute(self.back)
        if self.gaps is not None:
            return with_gaps(stored, self.gaps)
        if self.wanted is not None:
            return stored.permute(self.wanted).contiguous().permute(_inverse(self.wanted))
        return stored


def _inverse(order: Any) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
