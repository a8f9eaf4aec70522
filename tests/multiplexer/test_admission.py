"""How many candidates are tried at the same time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from torchmux.multiplexer import admission
from torchmux.multiplexer.candidates import EAGER, Candidate
from torchmux.multiplexer.decisions import Row


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


@pytest.mark.parametrize(("cores", "at_once"), [(1, 2), (6, 3), (64, admission.ON_DEVICE)])
def test_for_an_accelerator_compilers_need_not_wait_for_the_threads_of_torch(
    tmp_path: Path, monkeypatch, cores: int, at_once: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    tried = admission.Admission(None, tmp_path, {}, memory=1, budget=1.0, ends=0.0, training=False, on_device=True)
    assert tried._at_once() == at_once


@pytest.mark.parametrize("on_device", [False, True])
def test_without_a_referee_nobody_waits_forever(tmp_path: Path, on_device: bool) -> None:
    """The file of the parcel is missing, so no process can begin."""
    candidates = [Candidate(EAGER), Candidate("native")]
    rows = {c.name: Row(c.name, c.backend, c.options, "") for c in candidates}
    ends = time.monotonic() + 60
    with admission.Admission(
        None, tmp_path, rows, memory=1 << 34, budget=60.0, ends=ends, training=False, on_device=on_device
    ) as tried:
        tried.admit(candidates)
    assert not tried.processes
    assert [row.verdict for row in rows.values()] == ["lost", "lost"]
