"""What calls run while a decision is made and after it, and where compilations happen."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch

import torchmux
from torchmux.multiplexer.decisions import Row

from .conftest import decision, report_of, until


def f(x):
    return x.sin() + 1


def test_the_leader_runs_until_the_decision_falls_and_threads_compile(backend, decide) -> None:
    slow, quick = backend("slow"), backend("quick")
    led, go_on = threading.Event(), threading.Event()

    def make(lead, check):
        assert lead(Row("slow", "slow", {}, ""))
        led.set()
        assert go_on.wait(60)
        return decision("quick", "slow", "eager")

    decide(make)
    compiled = torchmux.compile(f, backend="auto")
    x = torch.randn(8)
    assert torch.equal(compiled(x), f(x))
    assert led.wait(60)
    before = slow.calls
    assert torch.equal(compiled(x), f(x))
    assert slow.calls == before + 1
    assert report_of(compiled).backend == "slow"
    assert "slow, the best so far, runs the graph meanwhile" in report_of(compiled).notes[0]
    go_on.set()
    until(lambda: report_of(compiled).backend == "quick")
    before = quick.calls
    assert torch.equal(compiled(x), f(x))
    assert quick.calls == before + 1
    notes = report_of(compiled).notes
    assert len(notes) == 1
    assert notes[0].startswith("auto chose quick: the test says so")
    for each in (slow, quick):
        assert [thread is not threading.current_thread() for thread in each.compiled_by] == [True]


def test_who_waits_has_it_compiled_in_the_call_on_the_inputs_of_the_call(backend, decide) -> None:
    own = backend("own")
    decide("own")
    compiled = torchmux.compile(f, backend="auto", options={"wait": True})
    x = torch.randn(8)
    compiled(x)
    assert own.calls == 1
    assert own.compiled_by == [threading.current_thread()]
    assert own.inputs[0][0] is x


def test_inputs_are_not_kept_and_parameters_are_themselves(backend, decide) -> None:
    own = backend("own")
    go_on = threading.Event()

    def make(lead, check):
        assert go_on.wait(60)
        return decision("own")

    decide(make)
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    compiled = torchmux.compile(model, backend="auto")
    x = torch.randn(3, 4).t().contiguous().t()
    compiled(x)
    kept = weakref.ref(x)
    stride = x.stride()
    del x
    gc.collect()
    assert kept() is None
    go_on.set()
    until(lambda: report_of(compiled).backend == "own")
    found = {tuple(value.shape): value for value in own.inputs[0]}
    assert found[4, 4] is model.weight
    assert found[3, 4].stride() == stride


def test_code_is_tried_out_but_beside_a_process_group(backend, decide, monkeypatch) -> None:
    """FSDP frees the memory of parameters between their uses; code that reads it meanwhile ends the process."""
    for distributed, tried in ((False, 1), (True, 0)):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda answer=distributed: answer)
        torchmux.reset()
        own = backend(f"own{tried}")
        decide(f"own{tried}")
        compiled = torchmux.compile(torch.nn.Linear(4, 4), backend="auto")
        compiled(torch.randn(3, 4))
        until(lambda compiled=compiled, name=f"own{tried}": report_of(compiled).backend == name)
        assert own.trials == tried


def test_a_graph_that_is_gone_is_not_compiled(backend, decide) -> None:
    own = backend("own")
    go_on, done = threading.Event(), threading.Event()

    def make(lead, check):
        assert go_on.wait(60)
        try:
            check()
        finally:
            done.set()
        return decision("own")

    decide(make)

    def program() -> None:
        compiled = torchmux.compile(lambda x: x.cos() * 3, backend="auto")
        compiled(torch.randn(8))

    program()
    torchmux.reset()
    gc.collect()
    go_on.set()
    assert done.wait(60)
    assert own.compiled_by == []


def test_verification_is_of_what_was_chosen(backend, decide) -> None:
    own = backend("own")
    decide("own")
    with torchmux.config.patch(verify_correctness=True):
        compiled = torchmux.compile(f, backend="auto")
        compiled(torch.randn(8))
    assert own.calls == 2  # verified, and the call itself
    assert report_of(compiled).backend == "own"


def test_a_compilation_waits_for_the_settings_of_the_capture(backend, decide, default_dtype) -> None:
    own = backend("own")
    changed = threading.Event()

    def make(lead, check):
        assert changed.wait(60)
        assert not lead(Row("own", "own", {}, ""))  # not now
        return decision("own")

    decide(make)
    compiled = torchmux.compile(f, backend="auto")
    x = torch.randn(8)
    compiled(x)
    torch.set_default_dtype(torch.float64)
    changed.set()
    until(lambda: any("auto chose" in note or "not decided" in note for note in report_of(compiled).notes))
    assert own.compiled_by == []
    torch.set_default_dtype(torch.float32)
    until(lambda: report_of(compiled).backend == "own")
    assert torch.equal(compiled(x), f(x))


def test_under_autocast_the_first_call_after_the_decision_compiles(backend, decide) -> None:
    own = backend("own")
    decide("own")
    compiled = torchmux.compile(f, backend="auto")
    x = torch.randn(8)
    for _ in range(2):
        with torch.autocast("cpu"):
            compiled(x)

    def called() -> bool:
        with torch.autocast("cpu"):
            assert torch.equal(compiled(x), f(x))
        return own.calls > 0

    until(called)
    assert own.compiled_by == [threading.current_thread()]


def test_a_measurement_that_fails_leaves_eager(backend, decide) -> None:
    def make(lead, check):
        raise OSError("no room")

    decide(make)
    compiled = torchmux.compile(f, backend="auto")
    x = torch.randn(8)
    compiled(x)
    until(lambda: "auto could not measure: OSError: no room" in report_of(compiled).notes)
    assert torch.equal(compiled(x), f(x))


def test_the_next_is_taken_where_the_chosen_one_does_not_compile(backend, decide, compiler_errors_fall_back) -> None:
    class Failing:
        def __call__(self, gm, inputs):
            raise ValueError("not here")

    torchmux.register_backend(Failing(), name="failing")
    backend("own")
    decide("failing", "own")
    compiled = torchmux.compile(f, backend="auto")
    compiled(torch.randn(8))
    until(lambda: report_of(compiled).backend == "own")
    assert any("failing was to run it, but: failing raised ValueError" in note for note in report_of(compiled).notes)


def test_strict_waits_and_refuses_eager(backend, decide) -> None:
    own = backend("own")
    decide("own", "eager")
    x = torch.randn(8)
    torchmux.compile(f, backend="auto", strict=True)(x)
    assert own.compiled_by == [threading.current_thread()]
    decide("eager")
    with pytest.raises(torchmux.FallbackRefused, match="auto has no candidate but eager"):
        torchmux.compile(lambda x: x.cos(), backend="auto", strict=True)(x)


def test_training_is_compiled_in_the_grad_mode_of_the_capture(backend, decide) -> None:
    modes = []
    backend("own", lambda number, args: modes.append(torch.is_grad_enabled()))
    decide("own")
    weight = torch.nn.Parameter(torch.randn(8))
    compiled = torchmux.compile(lambda x: (x * weight).sum(), backend="auto")
    x = torch.randn(8)
    compiled(x)
    until(lambda: report_of(compiled).backend == "own")
    compiled(x).backward()
    torch.testing.assert_close(weight.grad, x)
    assert set(modes) == {True}


_MEASURING = """
import time, torch, torchmux
from torchmux.multiplexer import births
compiled = torchmux.compile(lambda x: x.sin() + 1, backend="auto", options={"allow": ["native"], "budget_s": 500.0})
compiled(torch.randn(100))
while not births._nurseries:
    time.sleep(0.01)
time.sleep(WAIT)
print("ends")
"""
_COMPILING = """
import threading, time, torch, torchmux
from torchmux.multiplexer import auto
from torchmux.multiplexer.decisions import Decision, Row
from torchmux.multiplexer.running.chosen import Pending
begun = threading.Event()
def slow(gm, inputs):
    begun.set()
    while True:
        time.sleep(0.01)
torchmux.register_backend(slow, name="slow")
decided = Decision("slow", {}, "", [Row("slow", "slow", {}, "chosen")])
auto.decider = lambda *_: lambda *_: Pending(lambda lead, check: decided)
torchmux.compile(lambda x: x.sin() + 1, backend="auto")(torch.randn(100))
begun.wait()
print("ends")
"""


@pytest.mark.parametrize(
    "program",
    [
        _MEASURING.replace("WAIT", "0"),
        pytest.param(_MEASURING.replace("WAIT", "3"), marks=pytest.mark.slow),
        _COMPILING,
    ],
    ids=["while_processes_start", "while_candidates_compile", "while_the_winner_compiles"],
)
def test_programs_end_without_noise_while_auto_works(run_python, program) -> None:
    silent = f"import sys, os\nos.dup2(1, 2)\n{program}"
    assert run_python(silent) == "ends\n"
