"""What a later compilation needs to know of the inputs of a call, without keeping them."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchmux.torch_internals import is_fake, is_wrapper


class Gone(Exception):
    """A parameter is not there any more, so the graph cannot be called either; or a tensor that consists of others."""


class Remembered:
    """What a compilation needs to know of the inputs of a call, without keeping them.

    Parameters and buffers are remembered weakly, and so are tensors that consist of others, of which a geometry tells
    too little.  Of other tensors only the geometry is kept, and which of them share memory; numbers are kept.
    """

    def __init__(self, inputs: Sequence[Any], static: Sequence[int]) -> None:
        self._values: list[Any] = []
        self._storages: dict[int, int] = {}  # address -> bytes
        self._static: dict[int, int] = {}  # address -> position of the parameter in it
        for position, value in enumerate(inputs):
            if not isinstance(value, torch.Tensor):
                self._values.append(value)
                continue
            if not is_fake(value) and is_wrapper(value):
                self._values.append(weakref.ref(value))
                continue
            # What is compiled as a part of a chain has fake inputs, without addresses.
            address = 0 if is_fake(value) else value.untyped_storage().data_ptr()
            address = address or -position - 1
            if position in static:
                self._static.setdefault(address, position)
                self._values.append(weakref.ref(value))
            else:
                self._storages[address] = value.untyped_storage().nbytes()
                self._values.append(_Geometry.of(value, address))

    @property
    def shares_parameters(self) -> bool:
        """Whether another input shows the memory of a parameter."""
        return not self._static.keys().isdisjoint(self._storages)

    def make(self, *, filled: bool) -> list[Any]:
        """Inputs like those of the call: parameters themselves, and tensors of zeros, or of anything unless ``filled``.

        Raises:
            Gone: a parameter is no more.
        """
        made: list[Any] = [value() if isinstance(value, weakref.ref) else value for value in self._values]
        if any(value is None for value, was in zip(made, self._values, strict=True) if isinstance(was, weakref.ref)):
            raise Gone
        storages: dict[int, torch.UntypedStorage] = {
            address: made[position].untyped_storage() for address, position in self._static.items()
        }
        for position, value in enumerate(made):
            if isinstance(value, _Geometry):
                if value.address not in storages:
                    make = torch.zeros if filled else torch.empty
                    size = self._storages[value.address]
                    storages[value.address] = make(size, dtype=torch.uint8, device=value.device).untyped_storage()
                made[position] = value.on(storages[value.address])
        return made


@dataclass(frozen=True)
class _Geometry:
    """A tensor without its contents."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    address: int

    @classmethod
    def of(cls, value: torch.Tensor, address: int) -> _Geometry:
        place = tuple(value.shape), tuple(value.stride()), value.storage_offset()
        return cls(*place, value.dtype, value.device, value.requires_grad, address)

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        made = torch.empty(0, dtype=self.dtype, device=self.device)
        made.set_(storage, self.offset, self.shape, self.stride)
        return made.requires_grad_(self.requires_grad)
