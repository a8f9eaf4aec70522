"""A compiled function gives the same answers as eager after the state that it read has changed.

The slow test uses a new seed in each run.  A failure names the world, the question and the change.
"""

from __future__ import annotations

import time

import pytest
import torch

import torchmux

from .differ import combinations, difference, sample

_IN_CI = 720
_SHARDS = 24


@pytest.fixture(autouse=True)
def settings_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own test library, once imported, forbids the process to change settings of its backends."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_what_an_answer_was_read_from_changes(shard: int) -> None:
    found = []
    for combination in sample(_IN_CI, seed=1)[shard::_SHARDS]:
        torchmux.reset()
        found.append(difference(*combination))
    assert [each for each in found if each] == []


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_what_an_answer_was_read_from_changes_under_a_compiler(backend: str) -> None:
    found = []
    for combination in sample(150, seed=2):
        torchmux.reset()
        found.append(difference(*combination, backend))
    assert [each for each in found if each] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_what_an_answer_was_read_from_changes_at_random(backend: str) -> None:
    seed = int(time.time())
    found = []
    for combination in sample(6_000, seed):
        torchmux.reset()
        found.append(difference(*combination, backend))
    assert [each for each in found if each] == [], f"seed {seed}"


def test_there_are_many() -> None:
    assert len(combinations()) > 70_000


def test_a_difference_is_found() -> None:
    """The harness detects a compiled function that returns an outdated answer."""
    from . import differ

    class Stale:
        def __init__(self, function: object, backend: str) -> None:
            self.function, self.answer = function, None

        def __call__(self, x: object) -> object:
            self.answer = self.answer or self.function(x)  # type: ignore[operator]
            return self.answer

    kept, differ.torchmux.compile = torchmux.compile, Stale
    try:
        (world,) = [w for w in differ.WORLDS if w.name == "instance"]
        assert "o.mine = 66" in difference(world, "o.mine", "o.mine = 66")
    finally:
        differ.torchmux.compile = kept
