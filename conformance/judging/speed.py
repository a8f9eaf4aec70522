"""Whether compiled code is slow: the last call of each compiled function, beside the same call in eager.

Both run on copies of the same inputs, by turns, and their shortest times count: other work on the machine lengthens
times, and shortens none.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .silence import Call, gradients_of

LEAST = 1e-3
"""Seconds that a call must take in eager: what is shorter measures the cost of a call."""

TIMES = 3.0
"""So many times eager's time is slow."""

LONG = 0.1
"""Seconds beside which what only a first call does is little."""

_ROUNDS, _MORE, _LONGEST = 3, 7, 20.0


def slowest(calls: Iterable[tuple[Callable[..., Any], Call]]) -> tuple[float, float] | None:
    """How many times eager's time the slowest function takes, and eager's time in seconds; None if all are short.

    ``calls`` has eager's function and the call of the compiled one for each.
    """
    found: tuple[float, float] | None = None
    # Named, because torch warns of several GPUs that are not, once in a process, where the program may ask as well.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        for original, call in calls:
            with contextlib.suppress(Exception):  # a case may end with a call that eager refuses as well
                told = _beside(original, call)
                found = max(filter(None, (found, told)), default=None)
    return found


def _beside(original: Callable[..., Any], call: Call) -> tuple[float, float] | None:
    theirs = call.prepared(original)
    eager = _seconds(theirs)
    if eager < LONG:
        eager = min(eager, _seconds(theirs) if eager >= LEAST else 0.0)
    if eager < LEAST:
        return None
    ours = call.prepared(call.function)
    if 2 * (compiled := _seconds(ours)) <= TIMES * eager:  # not even its first call here is slow
        return compiled / eager, eager
    compiled = float("inf")
    for number in range(_ROUNDS + _MORE):
        eager, compiled = min(eager, _seconds(theirs)), min(compiled, _seconds(ours))
        settled = compiled <= TIMES * eager if number + 1 >= _ROUNDS else 2 * compiled <= TIMES * eager
        if settled or (number + 1) * (eager + compiled) > _LONGEST:
            break
    return (compiled / eager, eager) if eager >= LEAST else None


def _seconds(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    gradients_of(work())
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return time.perf_counter() - began
