"""What a target's code is once it is loaded; imported wherever compiled graphs run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Loaded:
    """Code that can be called.

    ``names`` are what the function ``run`` refers to beyond those of :mod:`..runtime` and the constants.
    ``take_times`` returns the seconds that each timed step has taken since it was last asked.  ``around`` makes of
    ``run`` what is called instead.
    """

    names: Mapping[str, Any]
    take_times: Callable[[], Sequence[float]] | None = None
    around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None


Loader = Callable[[Mapping[str, Any], bytes, Mapping[str, torch.Tensor]], Loaded]
"""``load(own, built, constants)``: the code of :meth:`.target.Target.build`, ready to run in this process.

``own`` is the module's; ``constants`` are the graph's, by its attributes.  Choices that are left are measured here,
once for each machine.
"""
