"""A case: a small program that uses a backend and shows the results.

It is a function of one argument, a :class:`Trial`.  It runs three times: with a trial that compiles nothing, with one
that compiles nothing and computes in float64, and with one that compiles for the tested backend.  The last run must
return what the first run returned.  A case therefore returns everything that could differ: results, changed inputs,
gradients, buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree

from .judging.frontends import Frontend, OurFrontend

SEED = 20

OWN_KERNELS = "own_kernels"
"""A possible need of a case: the backend's code computes by itself, without torch's operators."""


class Trial:
    """The argument of a case: it creates tensors, and compiles functions or leaves them in eager.

    ``backend`` None means eager.  With ``wide`` every floating-point tensor is created in float64, from the same random
    numbers.  A ``draw`` other than 0 changes the results of :meth:`given` and :meth:`module` by up to one unit in the
    last place: within the dtype's precision this is the same problem, with different rounding errors.
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
        frontend: Frontend | None = None,
    ) -> None:
        self.backend = backend
        self._jitter = torch.Generator().manual_seed(draw) if draw else None
        self.options = options
        self.wide = wide
        self.device = torch.device(device)
        self.strict = strict
        self.frontend = frontend or OurFrontend()
        self.compiled: list[Any] = []
        self.sample: int | None = None
        self.begins: Callable[[int], None] = lambda number: None
        self._generator = torch.Generator().manual_seed(SEED)

    def compile(self, function: Any, **keywords: Any) -> Any:
        """``function`` compiled by the frontend for the backend; the function itself under eager."""
        if self.backend is None:
            return function
        given = {"options": self.options, "strict": self.strict, **keywords}
        compiled = self.frontend.compile(function, self.backend, given)
        self.compiled.append(compiled)
        return compiled

    def run(self, function: Any, *args: Any, **keywords: Any) -> Any:
        """Compile and call once."""
        return self.compile(function)(*args, **keywords)

    def reset(self) -> None:
        """Drop what the frontend has compiled; nothing under eager."""
        if self.backend is not None:
            self.frontend.reset()

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
        made = made.to(dtype).to(self.device)  # the float64 run starts from the rounded numbers too
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
        if self._jitter is None or not value.is_floating_point():
            return value
        steps = torch.rand(value.shape, generator=self._jitter, dtype=torch.float64) * 2 - 1
        return (value.double() * (1 + torch.finfo(value.dtype).eps * steps)).to(value.dtype)

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
    judged wrong: once for a few operators, more often where a network amplifies a chance error.  ``computes`` says
    whether there is anything to capture.  ``source`` returns the case, or one of its samples, as Python text: the
    imports and a function ``case(trial)``.  Without it, a script requests the case from the suite by name.
    """

    id: str
    run: Callable[[Trial], Any]
    text: str = ""
    needs: frozenset[str] = frozenset()
    quick: bool = True
    reference: bool = True
    elementwise: bool = False
    strides: bool = True
    draws: int = 1
    computes: bool = True
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
