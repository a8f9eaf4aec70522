"""The garbage collector during a compilation and after it."""

from __future__ import annotations

import gc
import threading

import pytest
import torch

import torchmux
from torchmux.garbage import full_collections_wait


def test_thresholds_are_as_before() -> None:
    before = gc.get_threshold()
    seen = []

    def compiler(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        seen.append(gc.get_threshold())
        return gm.forward

    torchmux.compile(torch.sin, backend=compiler)(torch.ones(2))
    assert seen[0][:2] == before[:2] and seen[0][2] > 10**9
    assert gc.get_threshold() == before


def test_they_are_as_before_after_an_error() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyError), full_collections_wait():
        raise KeyError
    assert gc.get_threshold() == before


def test_the_last_of_several_threads_restores_them() -> None:
    before = gc.get_threshold()
    begun, ends = threading.Event(), threading.Event()

    def other() -> None:
        with full_collections_wait():
            begun.set()
            ends.wait()

    thread = threading.Thread(target=other)
    with full_collections_wait():
        thread.start()
        begun.wait()
    assert gc.get_threshold() != before
    ends.set()
    thread.join()
    assert gc.get_threshold() == before


def test_what_the_program_sets_stays() -> None:
    before = gc.get_threshold()
    try:
        with full_collections_wait():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
    finally:
        gc.set_threshold(*before)
