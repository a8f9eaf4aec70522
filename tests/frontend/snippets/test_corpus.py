"""The snippets themselves: each runs eagerly, does the same every time, and what compares two runs sees differences."""

import collections

import pytest
import torch

from .corpus import assert_alike, assert_same, load
from .not_yet import NOT_YET

CASES = load()


@pytest.mark.parametrize("name", CASES)
def test_snippet_is_deterministic(name):
    case = CASES[name]
    assert_alike(case, case.function)


def test_there_are_enough_snippets():
    assert len(CASES) >= 150


def test_not_yet_names_snippets_of_one_graph():
    assert not {name for name in NOT_YET if name not in CASES or not CASES[name].one_graph}


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


ONE = torch.ones(2)
SHARED = [1]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1, True),
        (1, 2),
        (0.0, -0.0),
        ([1], (1,)),
        ([1], [1, 2]),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1}, {2}),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.ones(2), torch.ones(2, requires_grad=True)),
        (torch.ones(2), torch.nn.Parameter(torch.ones(2))),
        (torch.zeros(2), -torch.zeros(2)),
        (torch.ones(2, 2), torch.ones(2, 2).t()),
        ([ONE, ONE], [ONE, ONE.clone()]),
        ([ONE, ONE.view(2, 1)], [ONE, torch.ones(2, 1)]),
        ([SHARED, SHARED], [[1], [1]]),
        ([[1], [1]], [SHARED, SHARED]),
        (Thing(a=1), Thing(a=2)),
        (Thing(a=1), Thing()),
        (ValueError("a"), ValueError("b")),
        (ValueError("a"), KeyError("a")),
        (torch.nn.Linear(1, 1), torch.nn.Linear(1, 1).eval()),
        (collections.deque([1]), collections.deque([2])),
        (lambda: 0, lambda: 1),
    ],
)
def test_a_difference_is_seen(a, b):
    with pytest.raises(AssertionError):
        assert_same(a, b)


def test_alike_values_are_the_same():
    def make():
        shared = [torch.ones(2)]
        return {"a": shared, "b": (shared, Thing(x=float("nan"))), "c": torch.full((2,), float("nan"))}

    assert_same(make(), make())
