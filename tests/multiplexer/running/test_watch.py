"""Backends that fail in a call: the call is right all the same, and the next of the ranking takes over."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import torchmux
from torchmux.multiplexer.running import watch
from torchmux.multiplexer.running.effects import MOST_COPIED

from .conftest import report_of, until


def fails_at(least):
    def does(number, args):
        if number >= least:
            raise ValueError("the device is lost")

    return does


def compiled_with(decide, function, *names, **options):
    decide(*names)
    return torchmux.compile(function, backend="auto", options={"wait": True, **options})


def f(x):
    return x.sin() + 1


def test_a_failing_backend_is_replaced_and_the_call_is_right(backend, decide, caplog) -> None:
    backend("bad", fails_at(2))
    good = backend("good")
    compiled = compiled_with(decide, f, "bad", "good")
    x = torch.randn(8)
    with caplog.at_level(logging.WARNING, "torchmux"):
        for _ in range(3):
            assert torch.equal(compiled(x), f(x))
    until(lambda: report_of(compiled).backend == "good")
    before = good.calls
    assert torch.equal(compiled(x), f(x))
    assert good.calls == before + 1
    (said,) = [r.getMessage() for r in caplog.records if "is replaced" in r.getMessage()]
    assert "bad raised ValueError: the device is lost" in said
    report = report_of(compiled)
    assert report.replaced == 1
    assert "bad was replaced: ValueError: the device is lost" in report.notes
    assert "replaced 1 time" in str(torchmux.report(compiled))


def test_what_eager_raises_as_well_is_the_programs_own_error(backend, decide) -> None:
    def does(number, args):
        if any(isinstance(a, torch.Tensor) and a.dtype is torch.int64 and a.max() > 3 for a in args):
            raise RuntimeError("kernel fault 17")

    backend("own", does)
    table = torch.randn(4, 2)
    compiled = compiled_with(decide, lambda i: torch.nn.functional.embedding(i, table), "own")
    compiled(torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 9]))
    assert report_of(compiled).backend == "own"
    assert report_of(compiled).replaced == 0


def half_changed(number, args):
    if number > 1:
        with torch.no_grad():
            for value in args:
                value.mul_(7)
        raise ValueError("half done")


def test_inputs_that_a_failing_call_has_changed_are_as_eager_leaves_them(backend, decide) -> None:
    backend("bad", half_changed)

    def g(x, y):
        x.add_(y)
        return x * 2

    compiled = compiled_with(decide, g, "bad")
    for _ in range(2):
        ours, theirs, y = torch.arange(4.0), torch.arange(4.0), torch.ones(4)
        # What the graph does not change is the backend's to leave alone; here it is told to change all.
        assert torch.equal(compiled(ours, y.clone()), g(theirs, y)) or report_of(compiled).replaced
    ours, theirs = torch.arange(4.0), torch.arange(4.0)
    assert torch.equal(compiled(ours, y), g(theirs, y))
    assert torch.equal(ours, theirs)
    assert report_of(compiled).replaced == 1


def test_what_cannot_be_made_right_is_an_error(backend, decide) -> None:
    backend("bad", half_changed)

    def g(x):
        return x.add_(1)

    compiled = compiled_with(decide, g, "bad")
    large = torch.zeros(MOST_COPIED // 4 + 1)
    compiled(large)
    with pytest.raises(torchmux.CallFailed, match=r"bad, which auto chose, raised ValueError: half done\..*too large"):
        compiled(large)
    large.zero_()
    assert torch.equal(compiled(large), torch.ones_like(large))


@torch.library.custom_op("torchmux_tests_running::noted", mutates_args=())
def noted(x: torch.Tensor) -> torch.Tensor:
    _noted.append(1)
    for error in _to_raise:
        raise error
    return x.clone()


@noted.register_fake
def _(x):
    return torch.empty_like(x)


_noted: list[int] = []
_to_raise: list[Exception] = []


def test_operators_of_the_program_do_not_run_twice(backend, decide) -> None:
    class After:
        def __call__(self, gm, inputs):
            def run(*args):
                gm.forward(*args)
                raise ValueError("too late")

            return run

    torchmux.register_backend(After(), name="after")
    compiled = compiled_with(decide, lambda x: torch.ops.torchmux_tests_running.noted(x) + 1, "after")
    _noted.clear()
    with pytest.raises(torchmux.CallFailed, match="may do anything"):
        compiled(torch.ones(2))
    assert _noted == [1]
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


class TooMany(Exception):
    pass


def test_what_operators_of_the_program_raise_is_no_failure_of_a_backend(backend, decide) -> None:
    backend("good")
    compiled = compiled_with(decide, lambda x: torch.ops.torchmux_tests_running.noted(x) + 1, "good")
    compiled(torch.ones(2))
    raised = TooMany("noted", 3)
    _to_raise.append(raised)
    try:
        with pytest.raises(TooMany) as told:
            compiled(torch.ones(2))
    finally:
        _to_raise.clear()
    assert told.value is raised
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert report_of(compiled).backend == "good"
    assert report_of(compiled).replaced == 0


def test_the_random_numbers_of_a_failing_call_are_drawn_again(backend, decide) -> None:
    def does(number, args):
        if number > 1:
            torch.rand(100)
            raise ValueError("no")

    backend("bad", does)

    def g(x):
        return torch.nn.functional.dropout(x, 0.5)

    compiled = compiled_with(decide, g, "bad")
    x = torch.ones(100)
    compiled(x)
    torch.manual_seed(3)
    ours = compiled(x), torch.rand(1)
    torch.manual_seed(3)
    theirs = g(x), torch.rand(1)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert report_of(compiled).replaced == 1


def test_a_backward_pass_that_fails_names_the_backend(own_catalog, backend, decide) -> None:
    def failing_backward(gm, inputs):
        backward = any(n.name.startswith("tangents") for n in gm.graph.find_nodes(op="placeholder"))

        def run(*args):
            if backward:
                raise ValueError("no gradients today")
            return gm.forward(*args)

        return run

    torchmux.register_backend(
        failing_backward, name="bad", graph="aten", training=True, dtypes=("*",), dynamic_shapes=True
    )
    backend("good")
    weight = torch.nn.Parameter(torch.randn(8))
    compiled = compiled_with(decide, lambda x: (x * weight).sin().sum(), "bad", "good")
    loss = compiled(torch.ones(8))
    with pytest.raises(torchmux.CallFailed, match=r"bad, which auto chose, raised ValueError: no gradients today"):
        loss.backward()
    weight.grad = None
    until(lambda: report_of(compiled).backend == "good")
    compiled(torch.ones(8)).backward()
    torch.testing.assert_close(weight.grad, weight.detach().cos())


def test_under_strict_the_next_backend_answers_and_not_eager(backend, decide) -> None:
    backend("bad", fails_at(2))
    good = backend("good")
    decide("bad", "good", "eager")
    compiled = torchmux.compile(f, backend="auto", strict=True)
    x = torch.randn(8)
    for _ in range(2):
        assert torch.equal(compiled(x), f(x))
    assert good.calls >= 1
    assert report_of(compiled).backend == "good"


def test_eight_threads_while_the_decision_falls_and_its_winner_fails(backend, decide) -> None:
    bad, good = backend("bad", fails_at(40)), backend("good")
    go_on = threading.Event()

    def make(lead, check):
        assert go_on.wait(60)
        from .conftest import decision

        return decision("bad", "good")

    decide(make)

    def g(x, steps):
        steps.add_(1)
        return x.sin() + steps

    compiled = torchmux.compile(g, backend="auto")
    x = torch.randn(64)
    compiled(x, torch.zeros(1))
    together = threading.Barrier(8)

    def work(seed):
        own, steps, count = x + seed, torch.zeros(1), 0
        together.wait()
        go_on.set()
        while count < 50 or (report_of(compiled).backend != "good" and count < 100_000):
            count += 1
            got = compiled(own, steps)
            if not torch.equal(got, own.sin() + count) or steps.item() != count:
                return f"call {count} is wrong"
        return ""

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [""] * 8
    compiled(x, torch.zeros(1))  # the last call of all may have been the one that found the replacement
    assert bad.calls >= 40
    assert good.calls > 0
    assert report_of(compiled).replaced == 1


def test_calls_that_become_slow_are_measured_again_once(backend, decide, monkeypatch) -> None:
    backend("own")
    given = decide("own")
    monkeypatch.setattr(watch, "WINDOW", 2)
    monkeypatch.setattr(watch, "EVERY", 3)
    clock = {"step": 0.001, "now": 0.0}

    def perf_counter() -> float:
        clock["now"] += clock["step"]
        return clock["now"]

    monkeypatch.setattr(watch.time, "perf_counter", perf_counter)
    compiled = torchmux.compile(f, backend="auto", options={"wait": True, "drift": 2.0})
    x = torch.randn(8)

    def calls(number):
        for _ in range(number):
            compiled(x)

    calls(12)
    assert len(given.asked) == 1
    clock["step"] = 0.005  # measured: 1 ms
    calls(6)
    assert len(given.asked) == 2
    assert any("measured again: own took 5 ms a call, not 1" in note for note in report_of(compiled).notes)


def test_graphs_whose_sizes_depend_on_data(backend, decide) -> None:
    backend("own", fails_at(2))

    def g(x):
        return x[x > 0].sum() + x.max().item()

    compiled = compiled_with(decide, g, "own")
    with torchmux.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        for x in (torch.arange(-3.0, 4.0), torch.arange(-5.0, 2.0), torch.ones(7)):
            torch.testing.assert_close(compiled(x), g(x))
    assert report_of(compiled).replaced == 1
