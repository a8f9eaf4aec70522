"""What the process shares, before and after: a function that somebody else than torch replaced is a change."""

from __future__ import annotations

import os

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
