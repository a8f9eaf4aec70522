"""Calls of compiled code, watched: those that raise although eager does not, and those that have become slow."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .effects import Effects

Run = Callable[..., Sequence[Any]]

# Called with the error, the inputs, and what has to be undone before the call can be made again.
Failed = Callable[[Exception, Sequence[Any], Any], Sequence[Any]]

EVERY = 32
"""One call in so many is timed, if drift is watched."""

WINDOW = 16
"""So many timed calls make one judgment."""


def guarded(run: Run, effects: Effects, failed: Failed) -> Run:
    """``run``, whose exceptions go to ``failed``, which answers with the results of the call or raises."""
    if effects.are_kept:
        remember = effects.remember

        def call(*args: Any) -> Sequence[Any]:
            before = remember(args)
            try:
                return run(*args)
            except Exception as error:
                return failed(error, args, before)

    else:

        def call(*args: Any) -> Sequence[Any]:
            try:
                return run(*args)
            except Exception as error:
                return failed(error, args, None)

    return call


class Drift:
    """Notices when calls take longer than they did, by a factor, for a whole window of timed calls.

    Args:
        usual: seconds of a call as measured; None if they are not comparable: those of the first window count then.
        drifted: called with the inputs of a call, and the seconds that calls take now and took then.
    """

    def __init__(
        self, factor: float, usual: float | None, drifted: Callable[[Sequence[Any], float, float], None]
    ) -> None:
        self.factor = factor
        self.usual = usual
        self.drifted = drifted
        self.seen: list[float] = []

    def watching(self, run: Run, devices: Sequence[torch.device]) -> Run:
        """``run``, with one call in :data:`EVERY` timed; work on a GPU is waited for in these calls."""
        number = itertools.count(1)

        def call(*args: Any) -> Sequence[Any]:
            if next(number) % EVERY:
                return run(*args)
            _wait(devices)
            before = time.perf_counter()
            results = run(*args)
            _wait(devices)
            self.note(time.perf_counter() - before, args)
            return results

        return call

    def note(self, seconds: float, args: Sequence[Any]) -> None:
        """A call took so long."""
        self.seen.append(seconds)
        if len(self.seen) < WINDOW:
            return
        seen, self.seen = self.seen, []
        median = statistics.median(seen)
        if self.usual is None:
            self.usual = median
        elif median > self.usual * self.factor:
            # Found to be usual now, it is reported once; a change of the machine may make it slower still.
            usual, self.usual = self.usual, median
            self.drifted(args, median, usual)


def _wait(devices: Sequence[torch.device]) -> None:
    for device in devices:
        torch.cuda.synchronize(device)
