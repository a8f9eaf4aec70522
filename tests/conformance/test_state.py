"""What the process shares, before and after: a function that somebody else than torch replaced is a change."""

from __future__ import annotations

import dataclasses
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from torchmux.conformance.case import Case, Trial
from torchmux.conformance.judging import namespaces, process, state
from torchmux.conformance.judging.shown import differences, observe

TORCH = os.path.dirname(torch.__file__)


def _function_of(file: str):
    return eval(compile("lambda *args, **named: None", file, "eval"))


@pytest.mark.parametrize(
    ("file", "told"),
    [(f"{TORCH}/_inductor/wrap.py", False), (f"{TORCH}mux/backends/wrap.py", True), (f"{TORCH}_tensorrt/x.py", True)],
)
def test_a_replaced_function_is_told_unless_torch_replaced_it(monkeypatch, file, told):
    before = state.snapshot()
    monkeypatch.setattr(torch.nn.functional, "gelu", _function_of(file))
    assert bool(state.changes(before, state.snapshot())) is told


def test_all_of_the_state_can_be_read_here():
    """What cannot be read never changes."""
    unread = {name: value for name, value in state.snapshot().items() if value in ("AttributeError", "RuntimeError")}
    assert unread == {}


@pytest.mark.parametrize(("named", "told"), [(os.path.join("_inductor", "compile_worker"), False), ("other", True)])
def test_a_process_that_stays_is_told_unless_torch_keeps_it_to_compile(named, told):
    before = state.snapshot()
    begun = subprocess.Popen([sys.executable, "-c", "input()", named], stdin=subprocess.PIPE)
    try:
        assert ("child processes" in state.changes(before, state.snapshot())) is told
    finally:
        begun.communicate()


@pytest.mark.parametrize(
    ("home", "name", "told"),
    [(torch.nn.Linear, "forward", "functions of torch.nn.Linear (forward)"), (torch, "mine", "names of torch (mine)")],
)
def test_what_was_replaced_or_added_is_told_by_name(monkeypatch, home, name, told):
    before = state.snapshot()
    monkeypatch.setattr(home, name, _function_of("elsewhere.py"), raising=False)
    assert list(state.changes(before, state.snapshot()).values()) == [told]


@pytest.mark.parametrize(
    ("home", "name", "value", "told"),
    [
        (shutil, "rmtree", _function_of("elsewhere.py"), "functions of shutil (rmtree)"),
        (torch, "half", torch.bfloat16, "functions of torch (half)"),
        (
            torch.nn.functional.gumbel_softmax,
            "__defaults__",
            (),
            "code of functions (torch.nn.functional.gumbel_softmax)",
        ),
        (tempfile, "template", "compiled", "aids to find errors"),
        (logging.getLogger("concurrent.futures"), "disabled", True, "logging (concurrent.futures)"),
    ],
)
def test_what_all_of_a_process_shares_is_told(monkeypatch, home, name, value, told):
    before = state.snapshot()
    monkeypatch.setattr(home, name, value)
    assert list(state.changes(before, state.snapshot()).values()) == [told]
    monkeypatch.undo()
    assert not state.changes(before, state.snapshot())


def test_a_filter_of_warnings_is_told_unless_it_is_of_one_library():
    before = state.snapshot()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.tensor is old")
        assert not state.changes(before, state.snapshot())
        warnings.filterwarnings("ignore", message=".*deprecated.*")
        assert state.changes(before, state.snapshot()) == {"warning filters": "warning filters"}


def test_determinism_is_put_back_only_if_it_changed(monkeypatch):
    before, told = state.snapshot(), []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *how, **named: told.append(how))
    state.restore(before, before)
    assert told == [], "to be told, torch imports its compilers"
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    state.restore(before, before)
    assert told == [(False,)]


def test_a_process_that_has_ended_is_not_waited_for(monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # nobody has asked how it ended: it stays in the list
    monkeypatch.setattr(process.time, "sleep", lambda seconds: pytest.fail("it waits for a command line"))
    try:
        assert str(ended.pid) in state.snapshot()["child processes"]
    finally:
        ended.wait()


def test_a_thread_that_stays_is_told_unless_it_is_of_an_executor():
    before, end = state.snapshot(), threading.Event()
    with ThreadPoolExecutor(1, "of-a-compiler") as pool:
        pool.submit(end.wait)
        assert "threads of Python" not in state.changes(before, state.snapshot())
        thread = threading.Thread(target=end.wait)
        thread.start()
        assert "threads of Python" in state.changes(before, state.snapshot())
        end.set()
        thread.join()


def test_what_is_written_to_standard_errors_is_a_difference_unless_it_is_declared_or_torchs(monkeypatch):
    case = Case("chatter", lambda trial: trial.run(lambda x: x + 1, trial.tensor(3)))
    eager = observe(case, Trial())
    found = observe(case, Trial())
    torchs = "[W1126 01:42:21.973080745 TensorAdvancedIndexing.cpp:1523] Warning: index_reduce() is in beta\n"
    assert not differences(dataclasses.replace(found, said=torchs), [(eager, None)], case)
    told = dataclasses.replace(found, said=f"{torchs}fused 3 operators\n")
    (difference,) = differences(told, [(eager, None)], case)
    assert "fused 3 operators" in difference.words
    assert "index_reduce" not in difference.words
    head = "[W1126 15:03:02.927820794 BucketizationUtils.h:38] Warning: "
    lines = f"{head}an operator is old.\nUse this one\ninstead. (function operator())\n"
    assert not differences(dataclasses.replace(found, said=lines + torchs), [(eager, None)], case)
    (difference,) = differences(dataclasses.replace(found, said=f"{torchs}mine\n{lines}"), [(eager, None)], case)
    assert "mine" in difference.words
    assert "instead" not in difference.words
    monkeypatch.setattr(state, "declared_words", ("fused",))
    assert not differences(told, [(eager, None)], case)


def test_the_first_optimizer_of_a_class_changes_no_code() -> None:
    class Still(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            pass

    was = namespaces._own(vars(Still)["step"])
    Still([torch.zeros(1, requires_grad=True)], lr=0.1)
    assert vars(Still)["step"] is not was
    assert namespaces._own(vars(Still)["step"]) is was
