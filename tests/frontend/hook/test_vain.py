"""What could not be captured is not tried again while nothing that the attempt read has changed."""

from __future__ import annotations

import re

import pytest
import torch

import torchmux
from torchmux.frontend.hook import frames, vain


@pytest.fixture
def attempts(monkeypatch):
    """The names of the functions that are captured, once for each attempt."""
    names = []

    def counting(frame, *args, **kwargs):
        names.append(frame.f_code.co_name)
        return capture(frame, *args, **kwargs)

    capture = frames.capture
    monkeypatch.setattr(frames, "capture", counting)
    return names


def helper(n):
    return [int(c) for c in str(n)]


def with_helper(x, n):
    print(end="")
    digits = helper(n)
    print(end="")
    return x + sum(digits)


def kept(x):
    """A generator's frame cannot be resumed: nothing of this one is captured."""

    def parts():
        try:
            yield x
        finally:
            print(end="")

    return next(parts()) + 1


def raises(x, n):
    if n < 100:
        raise ValueError(n)
    return x + n


def catches(x, n):
    print(end="")
    try:
        return raises(x, n)
    except ValueError as error:
        return x * error.args[0]


@pytest.mark.parametrize(("function", "args"), [(with_helper, (123,)), (kept, ()), (catches, (7,))])
def test_calls_after_the_first_try_nothing(function, args, attempts):
    compiled, x = torchmux.compile(function, backend="eager"), torch.ones(3)
    expected = function(x, *args)
    assert torch.equal(compiled(x, *args), expected)
    tried = len(attempts)
    assert tried
    for _ in range(5):
        assert torch.equal(compiled(x, *args), expected)
    assert len(attempts) == tried


MODE = "nothing"


def depends(x):
    if MODE == "nothing":
        return None
    if MODE == "raises":
        raise KeyError("now")
    return x * 2 + 1


def asks(x):
    print(end="")
    try:
        return depends(x)
    except KeyError:
        return "raised"


@pytest.mark.parametrize("first", ["nothing", "raises"])
def test_it_is_captured_when_what_was_read_changes(first, monkeypatch):
    monkeypatch.setitem(globals(), "MODE", first)
    compiled, x = torchmux.compile(asks, backend="eager"), torch.ones(3)
    for _ in range(3):
        assert compiled(x) == (None if first == "nothing" else "raised")
    before = torchmux.report(compiled).graph_count
    monkeypatch.setitem(globals(), "MODE", "computes")
    assert torch.equal(compiled(x), x * 2 + 1)
    assert torchmux.report(compiled).graph_count == before + 1
    monkeypatch.setitem(globals(), "MODE", first)
    assert compiled(x) == (None if first == "nothing" else "raised")


def refuses(x, text):
    if text != "yes":
        raise ValueError(text)
    return x + 1


def test_attempts_become_rare_and_go_on(attempts, monkeypatch):
    monkeypatch.setattr(vain, "FIRST_WAIT", 4)
    compiled, x = torchmux.compile(refuses, backend="eager"), torch.ones(3)
    tried = []
    for n in range(60):
        with pytest.raises(ValueError, match=f"^{n}$"):
            compiled(x, str(n))
        tried.append(len(attempts))
    assert tried[vain.MOST] == tried[vain.MOST + 4] == vain.MOST + 1  # the last of them begins the wait
    assert tried[vain.MOST + 5] == tried[vain.MOST + 13] == vain.MOST + 2  # the next wait is twice as long
    assert tried[-1] == vain.MOST + 4
    attempts.clear()
    for _ in range(100):
        assert torch.equal(compiled(x, "yes"), x + 1)
    assert len(attempts) == 1  # the graph that came of it is used


def test_calls_that_run_in_eager_are_counted():
    compiled, x = torchmux.compile(kept, backend="eager"), torch.ones(3)
    for _ in range(5):
        compiled(x)
    text = str(torchmux.report(compiled))
    assert "calls of kept: 0 compiled, 5 in eager" in text


def test_cells_defaults_and_packed_arguments_reach_the_code_that_runs_alone(attempts):
    scale = 3

    def nothing(a, *rest, key=2, **named):
        nonlocal scale
        a = [a, *rest]
        total = lambda: len(a) + scale + key + len(named)  # noqa: E731
        return total(), locals()["rest"]

    def run(x):
        print(end="")
        found = nothing(1, 2, 3, other=4)
        print(end="")
        return x + found[0], found

    compiled, x = torchmux.compile(run, backend="eager"), torch.ones(3)
    expected = run(x)
    for _ in range(4):
        found = compiled(x)
        assert torch.equal(found[0], expected[0])
        assert found[1] == expected[1]
    scale = 5
    assert compiled(x)[1] == run(x)[1]


def test_steps_of_generators_are_counted_until_nobody_asks_any_more(monkeypatch):
    monkeypatch.setattr(vain, "COUNTED", 20)

    def parts(x):
        for number in range(5):
            yield x + number

    def run(x):
        pending = parts(x)
        first = next(pending)
        print(end="")
        return first + sum(pending)

    x = torch.ones(3)
    for _ in range(2):  # a second callable counts anew
        compiled = torchmux.compile(lambda x: run(x), backend="eager")
        for _ in range(10):
            assert torch.equal(compiled(x), run(x))
        text = str(torchmux.report(compiled))
        assert "20 or more in eager (a generator" in text


def test_functions_of_no_tensors_are_counted_until_nobody_asks_any_more(monkeypatch):
    """They run right all the same, whatever changes, and what they call is captured."""
    monkeypatch.setattr(vain, "COUNTED", 20)

    x = torch.ones(3)

    class Timer:
        calls = 0
        function = staticmethod(torch.sin)

        def __enter__(self):
            print(end="")
            self.calls += 1
            return self

        def __exit__(self, *_):
            print(end="")
            self.result = apply(self.function, self.calls)

    def apply(function, calls):
        return function(x + calls) * 2 + 1

    def run(x, timer):
        with timer:
            y = x * 2 + 1
        return y * timer.calls

    for _ in range(2):  # a second callable counts anew
        timers = Timer(), Timer()
        compiled = torchmux.compile(lambda x, timer: run(x, timer), backend="eager")
        for call in range(30):
            for timer in timers:
                timer.function = torch.sin if call < 25 else torch.cos
            assert torch.equal(compiled(x, timers[0]), run(x, timers[1]))
            assert torch.equal(timers[0].result, timers[1].result)
        text = str(torchmux.report(compiled))
        assert re.search(r"Timer.__enter__: 0 compiled, 2[01] or more in eager \(too few operators", text)
        assert "apply: 30 compiled" in text


def test_the_limit_leaves_compiled_code_in_use(monkeypatch):
    monkeypatch.setattr(torchmux.config, "recompile_limit", 2)
    compiled, x = torchmux.compile(lambda x, text: x + len(text) if text != "" else x, backend="eager"), torch.ones(3)
    for _ in range(3):
        for text in ("a", "b", "c", "d"):
            assert torch.equal(compiled(x, text), x + 1)
    calls = str(torchmux.report(compiled))
    assert "6 compiled, 6 in eager (recompile_limit reached)" in calls
