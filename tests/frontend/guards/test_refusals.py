"""One check in the place of many: it says no only where all of them do, and reads nothing that they would not."""

import pytest
import torch

import torchmux
from torchmux.frontend.guards.refusals import refusal

X = torch.ones(3)


class Log(list):
    """Of which nobody may ask anything."""

    def __len__(self):
        raise AssertionError("asked")


def guards_of(function, *calls, limit=8):
    compiled = torchmux.compile(function, backend="eager", dynamic=False, recompile_limit=limit)
    for call in calls:
        compiled(*call)
    return compiled, [entry.guards for entry in compiled._torchmux_session.states.get(function.__code__).entries]


def by_length(x, log):
    return x * len(log)


def test_lists_of_other_lengths():
    _, guards = guards_of(by_length, *((X, [0] * n) for n in range(2, 6)))
    refuses = refusal(guards)
    for log in ([0] * n for n in range(9)):
        frame = {"x": X, "log": log}
        assert refuses(frame) is not any(each.check(frame) for each in guards)
    assert refuses({"x": X, "log": (0, 0)})
    assert refuses({"x": X, "log": Log([0, 0])})
    assert not refuses({"x": X})


def test_what_differs_is_all_that_may_differ():
    """Entries that have other guards in another order are asked one by one."""

    def function(x, log, flag):
        return x * len(log) if flag else x * log[0]

    _, guards = guards_of(function, (X, [1, 2], True), (X, [1, 2], False), (X, [1], True))
    refuses = refusal(guards)
    for log in ([1, 2], [1], [3], []):
        for flag in (True, False):
            frame = {"x": X, "log": log, "flag": flag}
            assert refuses is None or not refuses(frame) or not any(each.check(frame) for each in guards)


def test_a_single_entry_and_tensors_have_none():
    assert refusal(guards_of(by_length, (X, [0]))[1]) is None
    assert refusal(guards_of(lambda x: x * 2, (X,), (X.double(),))[1]) is None

    def marked(x):
        return x * x.mark

    first, second = X + 0, X + 1
    first.mark, second.mark = 1, 2
    assert refusal(guards_of(marked, (first,), (second,))[1]) is None


@pytest.mark.parametrize("grows", [list, dict])
def test_calls_beyond_the_limit(grows):
    """The compiled code stays in use, and what changes is seen."""
    log = grows()

    def function(x):
        if grows is list:
            log.append(1)
        else:
            log[len(log)] = 1
        return x * len(log)

    compiled = torchmux.compile(function, backend="eager", dynamic=False, recompile_limit=4)
    for size in range(1, 15):
        assert torch.equal(compiled(X), X * size)
    for size in (2, 3, 9, 1):
        log.clear()
        log.extend([1] * size) if grows is list else log.update(dict.fromkeys(range(size)))
        assert torch.equal(compiled(X), X * (size + 1))
    assert [graph.calls for graph in torchmux.report(compiled).graphs] == [1, 2, 2, 2]
