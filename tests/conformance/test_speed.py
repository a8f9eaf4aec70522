"""When a call counts as slow: few calls say so where they settle it, and else the shortest of several."""

from __future__ import annotations

import itertools

import pytest

from torchmux.conformance.judging import speed


class Prepared:
    """A call of ``ours``, in whose place eager runs ``theirs``."""

    function = "ours"

    @staticmethod
    def prepared(function):
        return function


@pytest.fixture
def told(monkeypatch):
    """What two lists of seconds say, of which the last one goes on, and how many of them were asked for."""

    def tell(theirs, ours):
        asked = {"theirs": 0, "ours": 0}
        seconds = {
            "theirs": itertools.chain(theirs, itertools.repeat(theirs[-1])),
            "ours": itertools.chain(ours, itertools.repeat(ours[-1])),
        }

        def took(which):
            asked[which] += 1
            return next(seconds[which])

        monkeypatch.setattr(speed, "_seconds", took)
        found = speed.slowest([("theirs", Prepared())])
        return (None if found is None else round(found[0], 3)), asked["theirs"], asked["ours"]

    return tell


def test_few_calls_settle_what_is_not_slow(told):
    assert told([0.002], [0.0025]) == (1.25, 2, 1)
    assert told([0.2], [0.25]) == (1.25, 1, 1)


def test_a_short_call_is_not_timed(told):
    assert told([0.0005], [9.0]) == (None, 1, 0)
    assert told([0.009, 0.0005], [9.0]) == (None, 2, 0)


def test_what_is_slow_is_slow_in_each_call(told):
    ratio, *_ = told([0.002], [0.02])
    assert ratio == 10.0
    assert told([0.03, 0.002], [0.02])[0] == 10.0, "the first call of eager does more"
    assert told([0.002], [0.5, 0.003])[0] == 1.5, "the first call of the compiled function compiles"
