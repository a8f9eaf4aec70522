"""Where the seconds of a compilation go, by stage.

``with collecting(seconds, "aot"):`` opens a clock whose time goes to the stage ``aot``; ``with stage("compiler"):``
inside of it stops that one while it lasts.  No second counts twice, so the stages add up to the whole.  Each thread has
clocks of its own; without one, :func:`stage` does nothing.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

STAGES = ("capture", "AOT", "lowering", "code", "compiler", "load")
"""In the order in which a graph passes them.

* ``capture``: the frontend follows the bytecode, and writes guards and code.
* ``AOT``: the graph is traced to ATen operators, differentiated, decomposed, and split among backend and torch.
* ``lowering``: the backend translates a part to its own form, and optimizes it there.
* ``code``: the backend fuses, plans and prints code.
* ``compiler``: a compiler or runtime makes machine code or a plan of it; all of a backend that tells no stages.
* ``load``: what was compiled is loaded, from the cache as well.
"""


class _Clock(threading.local):
    def __init__(self) -> None:
        self.seconds: dict[str, float] | None = None
        self.stage = ""
        self.since = 0.0

    def switch(self, seconds: dict[str, float] | None, stage: str) -> None:
        """Book the time since the last switch, and run for another stage."""
        now = time.perf_counter()
        if self.seconds is not None:
            self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self.since
        self.seconds, self.stage, self.since = seconds, stage, now


_clock = _Clock()


@contextlib.contextmanager
def collecting(seconds: dict[str, float], stage: str) -> Iterator[None]:
    """Add the time of the block to ``seconds``: to ``stage``, unless a stage inside of it takes it."""
    found = _clock.seconds, _clock.stage
    _clock.switch(seconds, stage)
    try:
        yield
    finally:
        _clock.switch(*found)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Book the time of the block to another stage of what is being compiled."""
    if _clock.seconds is None:
        yield
        return
    with collecting(_clock.seconds, name):
        yield


def in_words(seconds: dict[str, float]) -> str:
    """``capture 0.02 s, compiler 0.81 s``: the stages in order; those that took no time are left out."""
    order = {name: at for at, name in enumerate(STAGES)}
    known = sorted(seconds.items(), key=lambda item: order.get(item[0], len(order)))
    return ", ".join(f"{name} {spent:.3f} s" for name, spent in known if spent >= 0.0005)
