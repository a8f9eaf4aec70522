"""``auto``: who is chosen, who is not and why, what runs meanwhile, and the next process."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.registry import BackendSpec
from torchmux.registry.options import FreeOptions

HERE = Path(__file__).parent


def steps(x):
    return (x.sin().cos() + x.exp(),)


@pytest.fixture
def bad(own_catalog, monkeypatch):
    """``bad("wrong", ...)`` registers functions of ``bad_backends`` as backends."""
    monkeypatch.syspath_prepend(str(HERE))

    def register(*names: str) -> list[str]:
        for name in names:
            torchmux.register_backend(
                BackendSpec(name, "for tests", f"bad_backends:{name}", training=True, dtypes=("*",), fingerprint=str)
            )
        return list(names)

    return register


def decided(options, function=steps, x=None, **more):
    """The compiled function, and the rows of its decision by backend."""
    x = torch.randn(64) if x is None else x
    compiled = torchmux.compile(function, backend="auto", options={"wait": True, **options}, **more)
    torch.testing.assert_close(compiled(x), function(x))
    (captured,) = torchmux.report(compiled).graphs
    return compiled, captured.report


FAULTS = {
    "wrong": r"on the inputs of the call: \['results'\]\[0\]: \S+ is off by",
    "wrong_elsewhere": "on inputs like those of the call",
    "wrong_later": "in the second call with the same inputs",
    "wrong_in_threads": "when another thread calls it",
    "overwriting": "in the results of the first call once others follow: their memory is used again",
    "writing": "it writes to input 0, unlike eager, on the inputs of the call",
    "crashing": r"its process died \(signal 11\)",
    "crashing_later": r"its process died \(signal 11\)",
    "lingering": r"its process died \(signal 9\)",
    "raising": "raised ValueError.*no such loop",
    "leaking": "it takes too much memory",
    "leaking_slowly": r"it leaks memory: 0\.2\d+ MiB more with each call",
    "threading_on": "it leaks threads: 1 more with each call",
    "printing": "it prints: I am the fastest",
    "chatty": "it writes to the standard error in each call: one more call",
    "changing": "it changes torch's default dtype",
    "casting": "it changes torch's autocast",
    "drawing": "it draws other random numbers than eager on the inputs of the call",
    "drawing_in_python": "it changes the random numbers of Python",
    "handling": "it changes the signal handlers",
    "filtering": "it changes the filters of warnings",
    "importing": "it changes the path of imports",
    "littering": "it changes the working directory, where it leaves dump.txt",
    "moving": "it changes the working directory",
    "exporting": "it changes the environment",
    "refusing": "it leaves everything to torch: not today",
}
"""The backends that nobody should choose, with what the report says of each."""


def test_none_is_chosen_that_should_not_be(bad, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LINGERING", str(tmp_path / "pid"))
    bad("good", *FAULTS)
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    _, report = decided({"allow": ["good", *FAULTS], "budget_s": 400.0, "memory_mb": 500})
    text = "\n".join(report.notes)
    assert report.backend in ("eager", "good")
    for name, words in FAULTS.items():
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{name} ")]
        assert re.search(words, line), (words, line)
    assert (threads, dtype) == (torch.get_num_threads(), torch.get_default_dtype())
    with pytest.raises(ProcessLookupError):  # what it had started has ended with it
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("is_a_mode", [True, False])
def test_results_are_overwritten_only_in_a_mode_that_the_user_has_asked_for(bad, is_a_mode) -> None:
    options = {"reuse": True}
    settings = {"modes": {"reduce-overhead": options}} if is_a_mode else {"tries": (options,)}
    load = "bad_backends:overwriting_if_asked"
    torchmux.register_backend(
        BackendSpec("over", "for tests", load, options=FreeOptions, dtypes=("*",), fingerprint=str, **settings)
    )
    asked = {"budget_s": 100.0, **({"also_mode": "reduce-overhead"} if is_a_mode else {})}
    _, report = decided({"allow": ["over"], **asked})
    (line,) = [line for line in report.notes[0].splitlines() if "over(reuse=True)" in line]
    assert (FAULTS["overwriting"] in line) is not is_a_mode


@pytest.mark.slow
def test_one_that_hangs_costs_its_budget_only(bad) -> None:
    began = time.monotonic()
    _, report = decided({"allow": bad("hanging"), "budget_s": 15.0})
    assert report.backend == "eager"
    assert "it hangs, or is too slow for the budget: compile took over" in report.notes[0]
    assert time.monotonic() - began < 400  # of which processes take most to start


@pytest.mark.slow
def test_native_wins_where_it_fuses_and_the_next_process_knows(run_python, request) -> None:
    program = """
import json, torch, torchmux

def f(x):
    for _ in range(12):
        x = (x * 1.01).relu() + 0.5
    return x

x = torch.randn(200000)
compiled = torchmux.compile(f, backend="auto", options={"wait": True, "allow": ["native"], "budget_s": 100.0})
torch.testing.assert_close(compiled(x), f(x))
(entry,) = torchmux.report(compiled).graphs
print(json.dumps([entry.report.backend, entry.report.notes, entry.report.cache_hits]))
"""
    first, second = (json.loads(run_python(program).splitlines()[-1]) for _ in range(2))
    assert first[0] == second[0] == "native", (first, second)
    assert first[2] and second[2]  # what the candidate's process has compiled
    assert "(a measurement," in first[1][-1]
    assert "(an earlier measurement," in second[1][-1]


def test_calls_run_in_eager_until_the_decision_falls() -> None:
    def f(x):
        for _ in range(12):
            x = (x * 1.01).relu() + 0.25
        return x

    x = torch.randn(200000)
    compiled = torchmux.compile(f, backend="auto", options={"allow": ["native"], "budget_s": 100.0})
    torch.testing.assert_close(compiled(x), f(x))
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.backend == "eager"
    assert entry.report.notes == ["auto has not decided yet; eager runs the graph meanwhile"]
    until = time.monotonic() + 500
    while torchmux.report(compiled).graphs[0].report.backend == "eager" and time.monotonic() < until:
        torch.testing.assert_close(compiled(x), f(x))
        time.sleep(0.2)
    report = torchmux.report(compiled).graphs[0].report
    assert report.backend == "native", report.notes
    torch.testing.assert_close(compiled(x * 2), f(x * 2))


@pytest.mark.slow
def test_training_is_measured_forward_and_backward() -> None:
    weight = torch.nn.Parameter(torch.randn(32, 32))

    def f(x):
        return torch.tanh(x @ weight).square().sum()

    x = torch.randn(16, 32)
    compiled = torchmux.compile(f, backend="auto", options={"wait": True, "allow": ["native"], "budget_s": 20.0})
    compiled(x).backward()
    got, weight.grad = weight.grad, None
    f(x).backward()
    torch.testing.assert_close(got, weight.grad)
    note = torchmux.report(compiled).graphs[0].report.notes[-1]
    assert "native " in note and "not support training" not in note


@pytest.mark.slow
def test_a_dynamic_graph_is_measured_at_the_sizes_of_the_call(bad) -> None:
    def f(x):
        return (x.sin() * x.shape[0],)

    options = {"wait": True, "allow": bad("good", "wrong"), "budget_s": 100.0}
    compiled = torchmux.compile(f, backend="auto", dynamic=True, options=options)
    for n in (3, 5):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), f(x))
    (entry,) = torchmux.report(compiled).graphs
    assert re.search(r"wrong .*on the inputs of the call: \['results'\]", entry.report.notes[0])


def test_a_graph_that_cannot_be_measured_goes_to_the_first_backend() -> None:
    @torch.library.custom_op("torchmux_auto_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice = torch.ops.torchmux_auto_test.twice.default
    compiled = torchmux.compile(lambda x: twice(x.sin()), backend="auto")
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x), x.sin() * 2)
    notes = torchmux.report(compiled).graphs[0].report.notes
    assert any("the graph cannot be measured, since the graph calls torchmux_auto_test" in note for note in notes)


def test_options_are_checked_at_once() -> None:
    with pytest.raises(torchmux.InvalidOption, match="budget_s"):
        torchmux.compile(steps, backend="auto", options={"budget_s": 0.0})
    for option in ("allow", "forbid"):
        with pytest.raises(torchmux.UnknownBackend, match="no backend 'nativ'. Did you mean 'native'"):
            torchmux.compile(steps, backend="auto", options={option: ["nativ"]})
    with pytest.raises(torchmux.InvalidOption, match="Did you mean 'wait'"):
        torchmux.compile(steps, backend="auto", options={"wiat": True})
