"""How many candidates are tried at the same time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchmux.multiplexer import admission


@pytest.mark.parametrize(("cores", "threads", "at_once"), [(1, 1, 1), (6, 2, 3), (2, 4, 1)])
def test_as_many_compile_as_the_process_has_cores_for_their_threads(
    tmp_path: Path, monkeypatch, cores: int, threads: int, at_once: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(admission.torch, "get_num_threads", lambda: threads)
    tried = admission.Admission(None, tmp_path, {}, memory=1, budget=1.0, ends=0.0, training=False)
    assert tried._at_once() == at_once


def test_as_many_compile_as_the_memory_has_room_for(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(admission.torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(admission, "free_memory", lambda: 500)
    tried = admission.Admission(None, tmp_path, {}, memory=200, budget=1.0, ends=0.0, training=False)
    assert tried._at_once() == 2
