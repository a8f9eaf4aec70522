"""The cost model: what it says of single backends, and its search against all assignments."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from torchmux.multiplexer.sharing.costs import Costs


def crossings(assignment):
    return sum(a != b for a, b in itertools.pairwise(assignment))


@pytest.mark.parametrize("whole", [5.0, 6.5, 9.0], ids=["ends cost", "only calls cost", "caches warm the pieces"])
def test_a_backend_alone_takes_what_was_measured(whole) -> None:
    costs = Costs({"a": [2.0, 3.0, 2.5], "b": [1.0, 1.0, 1.0]}, {"a": whole, "b": 2.5}, {"a": 0.5, "b": 0.1}, [10, 30])
    assert costs.predicted(("a", "a", "a")) == pytest.approx(whole)
    assert costs.predicted(("b", "b", "b")) == pytest.approx(2.5)
    assert costs.crossings(("a", "a", "a")) == 0


def test_a_crossing_costs_a_call_and_its_bytes() -> None:
    # Cut in three, a loses 4 s beyond two calls of 1 s, with 40 bytes at its ends; b loses nothing.
    costs = Costs({"a": [5.0, 5.0, 6.0], "b": [3.0, 3.0, 3.0]}, {"a": 10.0, "b": 7.0}, {"a": 1.0, "b": 1.0}, [30, 10])
    assert costs.crossings(("a", "b", "b")) == pytest.approx(1.0 + 0.1 / 2 * 30)
    assert costs.crossings(("a", "a", "b")) == pytest.approx(1.0 + 0.1 / 2 * 10)
    assert costs.crossings(("a", "b", "a")) == pytest.approx(2.0 + 0.1 / 2 * 40)


def test_the_search_finds_the_best_of_all_assignments() -> None:
    draw = random.Random(5)
    for _ in range(30):
        backends, count = "abc", 5
        pieces = {b: [draw.uniform(1, 9) for _ in range(count)] for b in backends}
        pieces["c"][2] = math.inf  # it does not have this piece
        whole = {b: sum(t for t in pieces[b] if t < math.inf) * draw.uniform(0.6, 1.2) for b in backends}
        call = {b: draw.uniform(0.1, 1.5) for b in backends}
        costs = Costs(pieces, whole, call, [draw.randrange(1000) for _ in range(count - 1)])
        found = costs.best()
        for number, assignment in found.items():
            every = (a for a in itertools.product(backends, repeat=count) if crossings(a) == number)
            assert crossings(assignment) == number
            assert costs.predicted(assignment) == pytest.approx(min(map(costs.predicted, every)))
        assert set(found) == set(range(count))


def test_the_quickest_pieces_may_lose_as_a_whole() -> None:
    costs = Costs({"a": [2.0, 3.0, 2.0], "b": [3.0, 2.0, 3.0]}, {"a": 5.0, "b": 6.0}, {"a": 1.0, "b": 1.0}, [8, 8])
    quickest = costs.quickest_pieces()
    assert quickest == ("a", "b", "a")
    assert costs.alone(quickest) < 5.0 < costs.predicted(quickest)
