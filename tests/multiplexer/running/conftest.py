"""Programs under ``auto`` whose decisions are given, so that no candidate is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torchmux
from torchmux.multiplexer import auto
from torchmux.multiplexer.decisions import Decision, Row
from torchmux.multiplexer.running import background
from torchmux.multiplexer.running.chosen import Pending


class Backend:
    """Compiles to the captured graph, and knows the threads in which it was compiled and called.

    ``does`` is called with the number of the call and its inputs, and may raise an exception.  The call with which
    auto warms up what it has compiled in a thread is none of the program's; ``trials`` counts those.
    """

    def __init__(self, does: Callable[..., Any] = lambda number, args: None) -> None:
        self.does = does
        self.compiled_by: list[threading.Thread] = []
        self.inputs: list[Any] = []
        self.calls = self.trials = 0
        self.lock = threading.Lock()

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.compiled_by.append(threading.current_thread())
        self.inputs.append(inputs)

        def run(*args: Any) -> Any:
            if isinstance(threading.current_thread(), background.Job):
                self.trials += 1
                return gm.forward(*args)
            with self.lock:
                self.calls += 1
                number = self.calls
            self.does(number, args)
            return gm.forward(*args)

        return run


def decision(*names: str) -> Decision:
    """The first is chosen, the others follow in this order."""
    rows = [Row(n, n, {}, "slower" if i else "chosen", milliseconds=i + 1.0) for i, n in enumerate(names)]
    return Decision(names[0], {}, "the test says so", rows)


class Given:
    """Decides as the test says: ``make`` is called as in ``Pending``; ``asked`` has the buckets that were asked for."""

    def __init__(self, make: Callable[..., Decision]) -> None:
        self.make = make
        self.asked: list[str] = []

    def __call__(self, gm: Any, request: Any, options: Any) -> Any:
        def decide(inputs: Any, bucket: str, anew: bool) -> Any:
            self.asked.append(bucket)
            return Pending(self.make)

        return decide


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Equal compile() calls share what they have compiled; those of two tests do not."""
    torchmux.reset()
    yield
    torchmux.reset()


@pytest.fixture
def backend(own_catalog: Any) -> Callable[..., Backend]:
    """``backend(name, does)`` registers a backend for this test."""

    def register(name: str, does: Callable[..., Any] = lambda number, args: None, **fields: Any) -> Backend:
        made = Backend(does)
        told = {"training": True, "dynamic_shapes": True, "dtypes": ("*",), **fields}
        torchmux.register_backend(made, name=name, **told)
        return made

    return register


@pytest.fixture
def decide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Given]:
    """``decide("a", "b")`` decides for a, ``decide(make)`` as the function does; in a thread unless the call waits."""

    def given(*names: Any) -> Given:
        make = names[0] if callable(names[0]) else lambda lead, check: decision(*names)
        found = Given(make)
        monkeypatch.setattr(auto, "decider", found)
        return found

    return given


def until(holds: Callable[[], Any]) -> None:
    """Wait for a thread of auto; that it takes over a minute is a failure on any machine."""
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.fixture
def default_dtype() -> Iterator[None]:
    yield
    torch.set_default_dtype(torch.float32)


def report_of(compiled: Any) -> Any:
    return torchmux.report(compiled).graphs[-1].report
