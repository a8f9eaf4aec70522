"""What a target's code is once it is loaded; imported wherever compiled graphs run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Sooner(Protocol):
    """What stands in for ``run`` in a process that has what it takes, or will have it later."""

    @property
    def is_there(self) -> bool:
        """Whether :meth:`__call__` returns it now."""

    @property
    def why_not(self) -> str | None:
        """Why it never will, in this process."""

    def __call__(self, run: Callable[..., Any], names: Mapping[str, Any]) -> Callable[..., Any] | None:
        """What calls the code of ``run``, which has these names, and ``run`` itself for all that is unusual.

        None if there is nothing yet.
        """


@dataclass
class Loaded:
    """Code that can be called.

    ``names`` are what the function ``run`` refers to beyond those of :mod:`..runtime` and the constants.
    ``take_times`` returns the seconds that each timed step has taken since it was last asked.  ``around`` makes of
    ``run`` what is called instead.  ``sooner`` does the same in less time, once it can.
    """

    names: Mapping[str, Any]
    take_times: Callable[[], Sequence[float]] | None = None
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    sooner: Sooner | None = None


Loader = Callable[[Mapping[str, Any], bytes, Mapping[str, torch.Tensor]], Loaded]
"""``load(own, built, constants)``: the code of :meth:`.target.Target.build`, ready to run in this process.

``own`` is the module's; ``constants`` are the graph's, by its attributes.  Choices that are left are measured here,
once for each machine.
"""
