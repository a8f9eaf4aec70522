"""How long each stage of a compilation takes.

``with collecting(seconds, "aot"):`` starts a clock for the stage ``aot``.  ``with stage("compiler"):`` inside it counts
the time of its block for the stage ``compiler`` instead.  No second counts twice, so the stages add up to the whole.
Each thread has its own clock; without one, :func:`stage` does nothing.

A :class:`Seconds` keeps the spans as well: when each stage began and ended, and how much memory the process took, for
drawings.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from . import events, progress

STAGES = ("capture", "AOT", "lowering", "code", "compiler", "load")
"""The stages, in the order in which a graph passes through them.

* ``capture``: the frontend follows the bytecode, and writes guards and code.
* ``AOT``: the graph is traced to ATen operators, differentiated, decomposed, and split between backend and torch.
* ``lowering``: the backend translates a part to its own representation, and optimizes it.
* ``code``: the backend fuses, plans and prints code.
* ``compiler``: a compiler or runtime makes machine code or an execution plan.  A backend that reports no stages spends
  all its time here.
* ``load``: compiled code is loaded, just built or from the cache.
"""


_WORDS = {
    "capture": "capturing",
    "AOT": "tracing to ATen operators",
    "lowering": "lowering",
    "code": "writing code",
    "compiler": "compiling",
    "load": "loading",
}
"""What a terminal shows of a stage that takes long."""


class Span(NamedTuple):
    """A stage from its beginning to its end, stages inside of it included; seconds since 1970.

    ``depth`` is how many stages of its thread were running around it.  ``resident`` is the memory of the whole process
    at the beginning and at the end, in bytes; 0 where the system does not tell.
    """

    stage: str
    begin: float
    end: float
    depth: int
    resident: tuple[int, int] = (0, 0)


class Seconds(dict[str, float]):
    """Seconds by stage, and the spans that they add up."""

    def __init__(self, *args: object, **kwargs: float) -> None:
        super().__init__(*args, **kwargs)
        self.spans: list[Span] = []


# The clock that measures intervals never goes back; this is where it stands to that of the calendar.
_SINCE_1970 = time.time() - time.perf_counter()


class _Clock(threading.local):
    def __init__(self) -> None:
        self.seconds: dict[str, float] | None = None
        self.stage = ""
        self.since = 0.0
        self.depth = 0

    def switch(self, seconds: dict[str, float] | None, stage: str) -> None:
        """Count the time since the last switch for the current stage, and continue with another."""
        now = time.perf_counter()
        if self.seconds is not None:
            self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self.since
        self.seconds, self.stage, self.since = seconds, stage, now


_clock = _Clock()


@contextlib.contextmanager
def collecting(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time of the block to ``seconds[stage]``, less the time of stages inside it."""
    found = _clock.seconds, _clock.stage
    _clock.switch(seconds, stage)
    begin, depth = _clock.since, _clock.depth
    resident = _resident()
    _clock.depth += 1
    try:
        with progress.waiting(_WORDS.get(stage, stage)):
            yield
    finally:
        _clock.switch(*found)
        _clock.depth = depth
        if isinstance(seconds, Seconds) or events.is_traced():
            span = Span(stage, begin + _SINCE_1970, _clock.since + _SINCE_1970, depth, (resident, _resident()))
            if isinstance(seconds, Seconds):
                seconds.spans.append(span)
            events.note(
                "stage", name=span.stage, begin=span.begin, end=span.end, depth=span.depth, resident=span.resident
            )  # fmt: skip


def _resident() -> int:
    """Bytes of memory that the process holds; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Count the time of the block for another stage of the current compilation."""
    if _clock.seconds is None:
        yield
        return
    with collecting(_clock.seconds, name):
        yield


def in_words(seconds: dict[str, float]) -> str:
    """``capture 0.020 s, compiler 0.810 s``: the stages in order, without those that took no time."""
    order = {name: at for at, name in enumerate(STAGES)}
    known = sorted(seconds.items(), key=lambda item: order.get(item[0], len(order)))
    return ", ".join(f"{name} {spent:.3f} s" for name, spent in known if spent >= 0.0005)
