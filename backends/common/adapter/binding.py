"""A runtime's bound inputs and outputs: the parts of a call that can be prepared ahead of time."""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .results import Result


@dataclass(frozen=True)
class Input:
    """What is known of an input: its position among the arguments of a call, its dtype, and its shape if that is fixed.

    A number has no dtype.
    """

    position: int
    dtype: torch.dtype | None
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, position: int, value: Any) -> Input:
        """What the fake tensor or symbolic number ``value`` determines."""
        if not isinstance(value, torch.Tensor):
            return cls(position, None, ())
        fixed = all(type(size) is int for size in value.shape)
        return cls(position, value.dtype, tuple(value.shape) if fixed else None)

    def to_json(self) -> list[Any]:
        return [self.position, str(self.dtype).removeprefix("torch.") if self.dtype else None, self.shape]

    @classmethod
    def from_json(cls, told: list[Any]) -> Input:
        position, dtype, shape = told
        return cls(position, getattr(torch, dtype) if dtype else None, None if shape is None else tuple(shape))


class Binding(abc.ABC):
    """One set of bound inputs and outputs, used by one call at a time; a runtime says how to bind and to run.

    An input stays bound from call to call while it is at the same address with the same shape, which parameters are.
    Results are written to memory that torch has just allocated; small ones, where the runtime says that binding takes
    longer than copying (:meth:`keep_small`), to memory that stays bound.  Copies live until the call is over.

    Args:
        inputs: what the runtime takes; what is known of it decides what has to be looked at in a call.
        results: what is known of the outputs.
    """

    __slots__ = (
        "_addresses",
        "_arranged",
        "_known",
        "_numbers",
        "_numbers_at",
        "_shapes",
        "_small",
        "_tensors",
        "_unknown",
        "_varying",
        "results",
    )

    def __init__(self, inputs: Sequence[Input], results: Sequence[Result]) -> None:
        self.results = tuple(results)
        tensors: list[tuple[int, int]] = []
        varying: list[tuple[int, int]] = []
        numbers: list[tuple[int, int]] = []
        for port, given in enumerate(inputs):
            kind = numbers if given.dtype is None else varying if given.shape is None else tensors
            kind.append((port, given.position))
        self._tensors, self._varying, self._numbers = tuple(tensors), tuple(varying), tuple(numbers)
        self._addresses: list[Any] = [None] * len(inputs)
        self._numbers_at: dict[int, torch.Tensor] = {}
        self._shapes: dict[int, torch.Size] = {}
        self._known = tuple((at, r.shape, r.dtype, r.device) for at, r in enumerate(results) if r.shape is not None)
        self._small: dict[int, torch.Tensor] = {}
        self._unknown = tuple(at for at, r in enumerate(results) if r.shape is None)
        self._arranged = tuple((at, r) for at, r in enumerate(results) if not r.is_usual)

    def keep_small(self, limit: int) -> None:
        """Bind outputs of known shape and up to ``limit`` bytes once, and copy what is written there after each run."""
        small = [k for k in self._known if math.prod(k[1]) * k[2].itemsize <= limit]
        for port, shape, dtype, device in small:
            self._small[port] = torch.empty(shape, dtype=dtype, device=device)
            self.bind_output(port, self._small[port])
        self._known = tuple(k for k in self._known if k[0] not in self._small)

    # --- what a runtime does ------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def bind_input(self, port: int, value: torch.Tensor) -> None:
        """Let input ``port`` be read at the memory of the contiguous ``value``."""

    @abc.abstractmethod
    def bind_output(self, port: int, value: torch.Tensor) -> None:
        """Let output ``port`` be written to the memory of ``value``."""

    @abc.abstractmethod
    def release_output(self, port: int) -> None:
        """Let the runtime allocate output ``port``, whose shape is not known."""

    @abc.abstractmethod
    def take_output(self, port: int) -> torch.Tensor:
        """The output that the runtime has allocated, without a copy."""

    @abc.abstractmethod
    def run(self) -> None:
        """Run with what is bound."""

    # --- what is the same for all ---------------------------------------------------------------------------------

    def _bind_number(self, port: int, value: int) -> None:
        """Let input ``port`` be a size: models take an int64 scalar, which is always at the same address."""
        scalar = self._numbers_at.get(port)
        if scalar is None:
            scalar = self._numbers_at[port] = torch.empty((), dtype=torch.int64)
            self.bind_input(port, scalar)
        scalar.fill_(value)

    # --- a call -------------------------------------------------------------------------------------------------------

    def __call__(self, args: Sequence[Any]) -> Sequence[torch.Tensor]:
        held, addresses = [], self._addresses
        for port, position in self._tensors:
            value = args[position]
            if not value.is_contiguous():
                value = value.contiguous()
                held.append(value)
            address = value.data_ptr()
            if addresses[port] != address:
                self.bind_input(port, value)
                addresses[port] = address
        for port, position in self._varying:
            value = args[position]
            if not value.is_contiguous():
                value = value.contiguous()
                held.append(value)
            address = value.data_ptr()
            if addresses[port] != address or self._shapes[port] != value.shape:
                self.bind_input(port, value)
                addresses[port], self._shapes[port] = address, value.shape
        for port, position in self._numbers:
            self._bind_number(port, args[position])
        results: list[Any] = [None] * len(self.results)
        for port, shape, dtype, device in self._known:
            results[port] = made = torch.empty(shape, dtype=dtype, device=device)
            self.bind_output(port, made)
        for port in self._unknown:
            self.release_output(port)
        self.run()
        for port, written in self._small.items():
            results[port] = written.clone()
        for port in self._unknown:
            results[port] = self.take_output(port)
        for port, result in self._arranged:
            results[port] = result.arrange(results[port])
        return results
