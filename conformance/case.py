"""A case: a small program that uses a backend and shows the results.

It is a function of one argument, a :class:`Trial`.  It runs three times: with a trial that compiles nothing, with one
that compiles nothing and computes in float64, and with one that compiles for the tested backend.  The last run must
return what the first run returned.  A case therefore returns everything that could differ: results, changed inputs,
gradients, buffers.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from .judging.calls import Called, Records, plain
from .judging.frontends import Frontend, OurFrontend
from .oracle import DRAWS, nudged

SEED = 20

PROCESS = "CONFORMANCE_PROCESS"
"""The environment variable that numbers the processes of one case from 1, as ``Trial.process``."""

END_OF_A_CASE = "torchmux.conformance: the case has ended"
"""A line that a worker writes to its errors before each result: what comes after it is not of the case."""

OWN_KERNELS = "own_kernels"
"""A possible need of a case: the backend's code computes by itself, without torch's operators."""


class Trial:
    """The argument of a case: it creates tensors, and compiles functions or leaves them in eager.

    ``records`` has what each call of them showed, and ``originals`` the function behind each compiled one.  ``backend``
    None means eager.  With ``wide`` every floating-point tensor is created in float64, from the same random numbers.  A
    ``draw`` other than 0 changes all tensors and
    parameters by up to one unit in the last place: within the dtype's precision this is the same problem, with
    different rounding errors.
    """

    def __init__(
        self,
        backend: Any = None,
        *,
        options: Any = None,
        wide: bool = False,
        device: str = "cpu",
        strict: bool = False,
        draw: int = 0,
        precision: torch.dtype | None = None,
        frontend: Frontend | None = None,
    ) -> None:
        self.backend = backend
        self._precision = precision
        self._jitter = torch.Generator().manual_seed(draw) if draw else None
        self.options = options
        self.wide = wide
        self.device = torch.device(device)
        self.strict = strict
        self.frontend = frontend or OurFrontend()
        self.process = int(os.environ.get(PROCESS, "1"))
        self.compiled: list[Any] = []
        self.originals: dict[int, Any] = {}
        self.records = Records()
        self.keep: Callable[[Any, Any, Any], None] = lambda function, args, keywords: None
        self.sample: int | None = None
        self.begins: Callable[[int], None] = lambda number: None
        self._generator = torch.Generator().manual_seed(SEED)

    def compile(self, function: Any, **keywords: Any) -> Any:
        """``function`` compiled by the frontend for the backend, or as it is under eager; its calls are recorded."""
        if self.backend is None:
            return Called(function, self.records, lambda: self.sample, self.device)
        given = {"options": self.options, "strict": self.strict, **keywords}
        compiled = self.frontend.compile(function, self.backend, given)
        self.compiled.append(compiled)
        self.originals[id(compiled)] = function
        return Called(compiled, self.records, lambda: self.sample, self.device, self.keep, function)

    def reports(self, compiled: Any) -> Any:
        """What became of each graph of what :meth:`compile` returned."""
        return self.frontend.reports(plain(compiled))

    def run(self, function: Any, *args: Any, **keywords: Any) -> Any:
        """Compile and call once."""
        return self.compile(function)(*args, **keywords)

    def reset(self) -> None:
        """Drop what the frontend has compiled; nothing under eager."""
        if self.backend is not None:
            self.frontend.reset()

    def stops_devices(self) -> None:
        """Say that the case gives indices out of range, or has assertions that fail.

        Raises:
            NotImplementedError: on the trial's device they end everything, in eager as well.
        """
        if self.device.type != "cpu":
            raise NotImplementedError(
                f"a wrong index or failed assertion stops devices such as {self.device}, also in eager"
            )

    def step(self, number: int) -> None:
        """Record which of its samples a case starts; what happens next is attributed to that sample."""
        self.sample = number
        self.begins(number)

    def given(self, value: Any) -> Any:
        """The given tensors, however nested: on the trial's device, in float64 if the trial is ``wide``.

        Tensors that share memory still do, unless they are converted.
        """

        def place(tensor: torch.Tensor) -> torch.Tensor:
            placed = self._jittered(tensor.detach()).to(self.device)
            return (widened(placed) if self.wide else placed).requires_grad_(tensor.requires_grad)

        return _pytree.tree_map_only(torch.Tensor, place, value)

    def tensor(
        self,
        *shape: int,
        dtype: torch.dtype = torch.float32,
        low: float | None = None,
        high: float | None = None,
        requires_grad: bool = False,
    ) -> torch.Tensor:
        """Random numbers, the same in every run of the case: normal, or uniform between ``low`` and ``high``."""
        if dtype is torch.bool:
            made = torch.randint(0, 2, shape, generator=self._generator).bool()
        elif not dtype.is_floating_point and not dtype.is_complex:
            bounds = (-9 if low is None else int(low), 10 if high is None else int(high))
            made = torch.randint(*bounds, shape, generator=self._generator, dtype=dtype)
        elif low is not None and high is not None:
            made = torch.rand(shape, generator=self._generator) * (high - low) + low
        else:
            made = torch.randn(shape, generator=self._generator)
        # The float64 run starts from the rounded numbers too.
        made = self._jittered(made.to(dtype)).to(self.device)
        if self.wide:
            made = widened(made)
        return made.requires_grad_(requires_grad)

    def module(self, module: torch.nn.Module) -> torch.nn.Module:
        """``module`` on the trial's device, in float64 if the trial is ``wide``."""
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(self._jittered(parameter))
        module = module.to(self.device)
        return module.double() if self.wide else module

    def _jittered(self, value: torch.Tensor) -> torch.Tensor:
        return value if self._jitter is None else nudged(value, self._jitter, self._precision)

    def collect(self) -> None:
        """Collect the garbage of a backend; eager leaves none, and its process takes long to look for it."""
        if self.backend is not None:
            gc.collect()

    def once(self, function: Any, *args: Any) -> Any:
        """Compile and call once, and keep nothing of it: neither the call nor what ran is compared or counted."""
        if self.backend is None:
            return function(*args)
        return self.frontend.compile(function, self.backend, {"options": self.options})(*args)

    @property
    def generator(self) -> torch.Generator:
        return self._generator


def widened(value: torch.Tensor) -> torch.Tensor:
    """The tensor in float64 or complex128 if it is floating-point or complex."""
    if value.is_floating_point():
        return value.double()
    return value.to(torch.complex128) if value.is_complex() else value


@dataclass(frozen=True)
class Case:
    """A named case.

    ``needs`` names what a backend must claim for it: ``training``, ``dynamic_shapes``, or a dtype such as ``float16``.
    ``quick`` cases are part of both levels.  ``reference`` says whether a run in float64 has the same meaning; without
    one, values are compared only with eager's.  ``draws`` is how many times eager's error is measured before a value is
    judged wrong: what eager does on one input may be exact by chance.  ``elementwise``: elements are computed apart, so
    that their errors are independent.  What ``cancels`` on the way, where inputs do not
    show it, is held to the unit of the largest element.  ``signs``: the signs of zeros count; ``subnormals``: so do
    subnormal numbers.  ``terms``: float32 and float64 sums of so many numbers may be added one after another, with
    errors that grow with the square root.  Numbers as large as ``around`` cancel on the way, for all inputs, and one
    unit of them is allowed.  ``computes`` says whether there is anything to capture.  ``precision`` is
    the dtype of its computations if its inputs have another.  ``processes`` is how many processes run it one after
    another, each of which then ends; 0 if it shares one with others.  ``source`` returns the case, or one of its
    samples, as Python text: the imports and a function ``case(trial)``.  Without it, a script requests the case from
    the suite by name.
    """

    id: str
    run: Callable[[Trial], Any]
    text: str = ""
    needs: frozenset[str] = frozenset()
    quick: bool = True
    reference: bool = True
    elementwise: bool = False
    cancels: bool = False
    strides: bool = True
    signs: bool = True
    subnormals: bool = True
    terms: int = 0
    around: float = 0.0
    draws: int = DRAWS
    computes: bool = True
    precision: torch.dtype | None = None
    processes: int = 0
    source: Callable[[int | None], str] | None = None

    @property
    def group(self) -> str:
        """The case's group in reports: its id without the last part."""
        return self.id.rpartition("/")[0]


class Collection:
    """Cases of one subject, which decorated functions fill; ids are ``subject/name``."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._cases: dict[str, Case] = {}

    def __call__(self, *needs: str, **fields: Any) -> Callable[[Callable[[Trial], Any]], Callable[[Trial], Any]]:
        def add(function: Callable[[Trial], Any]) -> Callable[[Trial], Any]:
            name = f"{self.subject}/{function.__name__}"
            if name in self._cases:
                raise ValueError(f"two cases have the name {name}")
            text = " ".join((function.__doc__ or "").split())
            if not text:
                raise ValueError(f"{name} has no docstring that says what must hold")
            self._cases[name] = Case(name, function, text, frozenset(needs), **fields)
            return function

        return add

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases.values())

    def __len__(self) -> int:
        return len(self._cases)
