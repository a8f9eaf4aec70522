"""What a program of ``micro.py`` is, and the words in which its tables are written.

A table adds programs by the line: ``infer("name", function, inputs...)``, ``train(...)``, ``module(...)``, or
``case(...)`` for what needs state of its own.  Inputs are described (:class:`T`) and made when the program is built,
once for each engine from the same seed, so that engines share no memory and a program may write to what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
i8, u8, i32, i64 = torch.int8, torch.uint8, torch.int32, torch.int64


class T:
    """A tensor to be made: normal numbers, integers from ``low`` to ``high``, or uniform floats between them.

    Layouts: ``contiguous``, ``transposed`` (the last two dimensions lie the other way round), ``channels_last``,
    ``sliced`` (a part of wider rows), ``strided`` (every other element of a row).
    """

    def __init__(
        self,
        *shape: int,
        dtype: torch.dtype = f32,
        layout: str = "contiguous",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        self.shape, self.dtype, self.layout, self.low, self.high = shape, dtype, layout, low, high

    def make(self) -> torch.Tensor:
        shape = list(self.shape)
        if self.layout == "transposed":
            shape[-2:] = shape[-1], shape[-2]
        elif self.layout == "sliced":
            shape[-1] += 24
        elif self.layout == "strided":
            shape[-1] *= 2
        made = self._numbers(shape)
        if self.layout == "transposed":
            return made.transpose(-1, -2)
        if self.layout == "channels_last":
            return made.to(memory_format=torch.channels_last)
        if self.layout == "sliced":
            return made[..., 8:-16]
        return made[..., ::2] if self.layout == "strided" else made

    def _numbers(self, shape: list[int]) -> torch.Tensor:
        if self.dtype is torch.bool:
            return torch.rand(shape) < 0.5
        if self.dtype.is_complex:
            return torch.randn(shape, dtype=self.dtype)
        if not self.dtype.is_floating_point:
            least = torch.iinfo(self.dtype).min if self.low is None else int(self.low)
            most = torch.iinfo(self.dtype).max if self.high is None else int(self.high)
            if self.low is None and self.dtype in (i32, i64):
                least, most = -1000, 1000
            return torch.randint(least, most + 1, shape, dtype=self.dtype)
        if self.low is not None and self.high is not None:
            return (torch.rand(shape) * (self.high - self.low) + self.low).to(self.dtype)
        return torch.randn(shape).to(self.dtype)


@dataclass
class Case:
    """A program, ready to run: ``function`` is what is compiled, and ``state`` what it changes beyond its inputs."""

    function: Any
    inputs: tuple[Any, ...] = ()
    training: bool = False
    state: Callable[[], list[torch.Tensor]] = list
    leaves: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Program:
    """What to build and how to compile and judge it.

    ``random`` programs draw numbers, which need not be eager's; ``tolerance`` is relative to the largest number;
    ``dynamic`` programs are compiled with symbolic sizes.
    """

    name: str
    build: Callable[[], Case]
    random: bool = False
    tolerance: float | None = None
    fullgraph: bool = True
    dynamic: bool | None = None


PROGRAMS: dict[str, Program] = {}


def case(
    name: str,
    build: Callable[[], Case],
    *,
    random: bool = False,
    tolerance: float | None = None,
    fullgraph: bool = True,
    dynamic: bool | None = None,
) -> None:
    assert name not in PROGRAMS, name
    PROGRAMS[name] = Program(name, build, random, tolerance, fullgraph, dynamic)


def infer(name: str, function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """A function of tensors, without gradients."""
    case(name, lambda: Case(function, tuple(_made(inputs))), **options)


def train(name: str, function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """A function forward and backward; all its floating inputs get gradients."""

    def build() -> Case:
        made = tuple(_made(inputs))
        leaves = [x.detach().requires_grad_() for x in made if isinstance(x, torch.Tensor) and x.is_floating_point()]
        rest = iter(leaves)
        given = (next(rest) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in made)
        return Case(function, tuple(given), training=True, leaves=leaves)

    case(name, build, **options)


def module(
    name: str,
    make: Callable[[], nn.Module],
    *inputs: Any,
    training: bool = False,
    dtype: torch.dtype = f32,
    channels_last: bool = False,
    autocast: torch.dtype | None = None,
    **options: Any,
) -> None:
    """A module: inference, or forward and backward with gradients of its parameters; perhaps under autocast."""

    def build() -> Case:
        made = make().to(dtype).train(training)
        if channels_last:
            made = made.to(memory_format=torch.channels_last)
        if not training:
            made.requires_grad_(False)
        function: Any = made if autocast is None else under_autocast(made, autocast)
        leaves = [p for p in made.parameters() if p.requires_grad]
        return Case(function, tuple(_made(inputs)), training, lambda: list(made.buffers()), leaves)

    case(name, build, **options)


def under_autocast(function: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    device = torch.get_default_device().type

    def cast(*inputs: Any) -> Any:
        with torch.autocast(device, dtype):
            return function(*inputs)

    return cast


def boxes(count: int) -> torch.Tensor:
    """So many rectangles: the corners with the least and with the largest coordinates."""
    corner = torch.rand(count, 2)
    return torch.cat((corner, corner + torch.rand(count, 2) + 0.1), 1)


def _made(inputs: tuple[Any, ...]) -> Iterator[Any]:
    device = torch.get_default_device()
    for x in inputs:
        yield x.make() if isinstance(x, T) else x.to(device) if isinstance(x, torch.Tensor) else x
