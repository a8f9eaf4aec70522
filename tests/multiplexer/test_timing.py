"""The race: who leaves, who ties, and that noise alone settles nothing wrongly."""

from __future__ import annotations

import random

import pytest

from torchmux.multiplexer.timing import ERROR, FEWEST, MOST, Times, compare, race


def run(speeds, *, noise=0.05, seed=0, lost=None):
    draw, measured, turns = random.Random(seed), {}, []

    def time(name):
        turns.append(name)
        if name == lost and turns.count(name) == 3:
            return None
        return speeds[name] * draw.lognormvariate(0, noise)

    return race(list(speeds), time, measured, lambda: False), measured, turns


def test_the_quickest_is_found_in_few_turns() -> None:
    ranked, measured, _ = run({"a": 3.0, "b": 1.0, "c": 2.0})
    assert ranked == ["b"]
    assert len(measured["a"].turns) <= FEWEST + 2


@pytest.mark.parametrize("speeds", [{"a": 1.05, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}])
def test_noise_settles_no_more_than_the_stated_error(speeds) -> None:
    """With 20% noise the slower of two may stay; the quicker, and what is as quick, leaves as rarely as stated."""
    quickest = {name for name, speed in speeds.items() if speed == 1.0}
    wrong = sum(not quickest <= set(run(speeds, noise=0.2, seed=seed)[0]) for seed in range(60))
    assert wrong / 60 <= ERROR


def test_equal_ones_tie_and_end_the_race() -> None:
    ranked, measured, _ = run({"a": 1.0, "b": 1.0, "c": 4.0}, noise=0.005)
    assert sorted(ranked) == ["a", "b"]
    assert len(measured["a"].turns) < MOST


def test_a_candidate_that_is_lost_leaves() -> None:
    ranked, measured, _ = run({"a": 1.0, "b": 2.0}, lost="a")
    assert ranked == ["b"]
    assert len(measured["a"].turns) == 2


def test_the_budget_ends_the_race_with_what_is_known() -> None:
    measured: dict[str, Times] = {}
    ranked = race(["a", "b"], {"a": 2.0, "b": 1.0}.get, measured, lambda: True)
    assert ranked == ["b", "a"]
    assert len(measured["a"].turns) == 1


def test_too_few_turns_say_nothing() -> None:
    measured = {"a": Times([1.0] * (FEWEST - 1)), "b": Times([2.0] * (FEWEST - 1))}
    assert compare(measured, ["a", "b"]) == ("a", [], ["b"])
