"""The registry of functions whose sizes and numbers change from call to call.

A case is a function and the arguments of its calls, in order. Every call must give what eager gives, and the whole
series must take no more compilations than torch's own Dynamo takes; ``compiles`` is that number where it was seen.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

CASES: dict[str, Case] = {}


@dataclass(frozen=True)
class Case:
    name: str
    function: Any
    # The arguments of each call, made anew for each run.
    calls: Callable[[], list[tuple]]
    compiles: int
    # Whether all of it is one graph, so that it is compiled with fullgraph=True.
    whole: bool
    dynamic: bool | None


def case(calls, compiles=2, whole=True, dynamic=None):
    """Register a function as a case."""

    def register(function):
        name = function.__name__
        assert name not in CASES, f"two cases are named {name}"
        CASES[name] = Case(name, function, calls, compiles, whole, dynamic)
        return function

    return register


def load():
    """All cases, by name."""
    for path in sorted(pathlib.Path(__file__).parent.glob("cases_*.py")):
        importlib.import_module(f"{__package__}.{path.stem}")
    return CASES


def filled(*shape):
    """A tensor of distinct, small, exact values."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32).reshape(shape) - count // 2) / 4


def batches(*sizes, width=6):
    """Calls with one matrix whose first dimension is each of ``sizes``."""
    return lambda: [(filled(n, width),) for n in sizes]


# Enough sizes to go from static to dynamic and to meet even, odd and large ones.
ANY_BATCH = batches(4, 6, 9, 33, 10)


def numbers(*values, shape=(6, 6)):
    """Calls with a matrix and each of ``values``."""
    return lambda: [(filled(*shape), n) for n in values]
