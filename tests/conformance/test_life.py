"""Cases that ask whether memory grows are neither fooled nor alarmed by what else happens in the process."""

from __future__ import annotations

import pytest
import torch

from torchmux.conformance import life
from torchmux.conformance.case import Trial

BOUND = 12 << 20


def _grows(sizes, monkeypatch):
    given = iter(sizes)
    monkeypatch.setattr(life, "_resident", lambda: next(given) << 20)
    memory = life._Memory(Trial("eager"))
    for _ in sizes:
        memory.measure()
    return memory.grows(BOUND)


@pytest.mark.parametrize(
    "sizes",
    [
        (300, 310, 320, 330),
        (300, 310, 120, 130),  # others released 200
        (300, 100, 110, 120),
    ],
)
def test_memory_that_grows(sizes, monkeypatch):
    assert _grows(sizes, monkeypatch)


@pytest.mark.parametrize(
    "sizes",
    [
        (300, 300, 301, 302),
        (300, 300, 500, 500),  # allocated once
        (300, 500, 300, 301),
        (500, 400, 300, 200),
    ],
)
def test_memory_that_stays(sizes, monkeypatch):
    assert not _grows(sizes, monkeypatch)


@pytest.mark.parametrize("kept", [True, False])
def test_memory_from_what_is_free_already(kept):
    parts = [torch.ones(1 << 14) for _ in range(1600)]  # 100 MB; the last one keeps it from the system
    last, memory, made = parts.pop(), life._Memory(Trial("eager")), []
    del parts
    for _ in range(4):
        memory.measure()
        made += [torch.ones(1 << 14) for _ in range(160)]
        if not kept:
            made.clear()
    assert memory.grows(BOUND) is kept
    assert last.numel()


def test_eager_itself_is_not_asked(monkeypatch):
    monkeypatch.setattr(life, "_resident", iter(range(0, 1 << 40, 1 << 30)).__next__)
    memory = life._Memory(Trial())
    for _ in range(4):
        memory.measure()
    assert not memory.grows(BOUND)
