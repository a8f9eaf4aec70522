"""Distributions and ratios."""

from __future__ import annotations

import math
import random

import pytest

from torchmux.bench.latency import Latency, percentile, ratio


def test_a_distribution():
    found = Latency.of([second / 1e3 for second in range(101)])
    assert (found.calls, found.min, found.median, found.mean) == (101, 0, 50, 50)
    assert (found.p90, found.p99) == (pytest.approx(90), pytest.approx(99))


def test_a_percentile_of_few_calls_is_not_told():
    assert Latency.of([1.0] * 99).p99 is None
    assert Latency.of([1.0] * 9).p90 is None


def test_percentiles_lie_between_neighbours():
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([3.0], 0.99) == 3.0


def test_what_slows_both_of_a_pair_cancels():
    slow = [1.0, 5.0, 1.0, 3.0, 1.0, 2.0, 1.0, 9.0]
    found = ratio([2 * each for each in slow], slow)
    assert found.ratio == pytest.approx(2) and found.width == pytest.approx(0, abs=1e-9)


def test_the_interval_holds_the_ratio_as_often_as_it_says():
    """Of 95 % intervals around 1.5, from 8 to 20 pairs of turns; the seed is fixed."""
    draw = random.Random(1)
    held = 0
    for _ in range(1000):
        turns = draw.randint(8, 20)
        one = [1.5 * math.exp(draw.gauss(0, 0.1)) for _ in range(turns)]
        found = ratio(one, [math.exp(draw.gauss(0, 0.1)) for _ in range(turns)])
        held += found.low <= 1.5 <= found.high
    assert 925 <= held <= 975


def test_one_turn_tells_no_interval():
    found = ratio([2.0], [1.0])
    assert (found.ratio, found.low, found.high, found.width) == (2.0, 0.0, math.inf, math.inf)
    assert math.isnan(ratio([], []).ratio)
