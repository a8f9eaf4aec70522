"""What the process shares, before and after: a function that somebody else than torch replaced is a change."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from torchmux.conformance.judging import state

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


@pytest.mark.parametrize(("named", "told"), [(os.path.join("_inductor", "compile_worker"), False), ("other", True)])
def test_a_process_that_stays_is_told_unless_torch_keeps_it_to_compile(named, told):
    before = state.snapshot()
    process = subprocess.Popen([sys.executable, "-c", "input()", named], stdin=subprocess.PIPE)
    try:
        assert ("child processes" in state.changes(before, state.snapshot())) is told
    finally:
        process.communicate()


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
