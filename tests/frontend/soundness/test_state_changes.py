"""Compiled functions follow state that changes between calls: random programs."""

from __future__ import annotations

import contextlib
import math
import time
import types
from typing import Any

import pytest
import torch

import torchmux

from .differ import _look
from .state_grammar import Program, program


def _run(each: Program, backend: str | None) -> list[Any]:
    names: dict[str, Any] = {"__name__": "state", "torch": torch, "math": math, "types": types}
    exec(compile(each.text, "<state>", "exec", dont_inherit=True), names)
    f = names["f"] if backend is None else torchmux.compile(names["f"], backend=backend)
    seen = []
    for change in ("", "", *each.changes, ""):
        with contextlib.suppress(Exception):
            exec(change, names)
        try:
            seen.append((change, _look(f(torch.ones(2)))))
        except Exception as error:
            seen.append((change, type(error).__name__))
    return seen


def _difference(seed: int, backend: str = "eager") -> str:
    torchmux.reset()
    each = program(seed)
    for want, got in zip(_run(each, None), _run(each, backend), strict=True):
        if want != got:
            return f"seed {seed}: eager {want}, compiled {got}\n{each.text}"
    return ""


@pytest.mark.parametrize("shard", range(10))
def test_states_change_at_random(shard: int) -> None:
    found = [_difference(seed) for seed in range(shard * 12, shard * 12 + 12)]
    assert [each for each in found if each] == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_more_states_change_at_random(backend: str) -> None:
    start = int(time.time())
    found = [_difference(seed, backend) for seed in range(start, start + (2_000 if backend == "eager" else 200))]
    assert [each for each in found if each] == []
