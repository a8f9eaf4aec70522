"""Processes of candidates: forked where that is safe, with nothing of the program but what they are told, and gone in
time."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchmux.config import config
from torchmux.multiplexer import births
from torchmux.multiplexer.births import Child
from torchmux.multiplexer.leaks import FEWEST, LEAST_BYTES, WARM, Growth
from torchmux.multiplexer.workers import Process

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int, seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_alive(pid)


def answer(child: Child, **asked: object) -> dict[str, object]:
    os.write(child.requests, json.dumps(asked).encode() + b"\n")
    found = b""
    while not found.endswith(b"\n"):
        found += os.read(child.answers, 1 << 16) or b"\n"
    told: dict[str, object] = json.loads(found)
    return told


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@linux_only
def test_workers_are_forked_by_one_process_that_touches_neither_threads_nor_the_program(tmp_path) -> None:
    first, second = (births.born(tmp_path / f"{n}.out", tmp_path / f"{n}.err", training=False) for n in "ab")
    try:
        forker = parent_of(first.pid)
        assert parent_of(second.pid) == forker != os.getpid()
        assert len(os.listdir(f"/proc/{forker}/task")) == 1
        assert "raised" in answer(first, do="open")  # it answers, though this is no question
        first.end()
        assert not is_alive(first.pid) and is_alive(second.pid)
    finally:
        first.end()
        second.end()


@linux_only
def test_a_worker_that_ends_by_itself_tells_how(tmp_path) -> None:
    child = births.born(tmp_path / "out", tmp_path / "err", training=False)
    os.kill(child.pid, signal.SIGSEGV)
    assert child.end(patience=60.0) == -signal.SIGSEGV


@linux_only
@pytest.mark.parametrize("how", [pytest.param("exit", marks=pytest.mark.slow), "kill"])
def test_no_process_outlives_the_program(tmp_path, how) -> None:
    program = f"""
import os, signal, sys
from pathlib import Path
from torchmux.multiplexer import births
folder = Path({str(tmp_path)!r})
child = births.born(folder / "out", folder / "err", training=False)
forker = int(Path(f"/proc/{{child.pid}}/stat").read_text().rpartition(")")[2].split()[1])
print(child.pid, forker, flush=True)
if {how!r} == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_where_nothing_can_be_forked_a_worker_is_started_and_the_log_says_so(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(births, "_can_fork", lambda: False)
    with caplog.at_level(logging.DEBUG, logger="torchmux"):
        child = births.born(tmp_path / "out", tmp_path / "err", training=False)
    try:
        assert "a worker is started and not forked" in caplog.text
        assert "raised" in answer(child, do="open")
    finally:
        child.end()
    assert gone(child.pid)


def test_each_of_several_threads_gets_its_own_answer(tmp_path, monkeypatch) -> None:
    """Eager's process judges one candidate while it is timed against another."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with Process(tmp_path, "echo", 1 << 30, training=False) as process, ThreadPoolExecutor(4) as pool:
        process.open(time.monotonic() + 60, worker="bad_backends:Echo")

        def ask(number: int) -> bool:
            return process.ask("echo", time.monotonic() + 60, number=number)["number"] == number

        assert all(pool.map(ask, range(100)))


def test_a_killed_worker_leaves_no_temporary_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "torchmux-scratch-of_the_worker"
    left.mkdir()
    with Process(tmp_path, "killed", 1 << 30, training=False) as process:
        os.kill(process._child.pid, signal.SIGKILL)
    assert not left.exists()


def test_a_leak_is_growth_that_goes_on() -> None:
    step = LEAST_BYTES

    def fault(sizes: list[int], kind: str = "memory") -> str:
        growth, empty = Growth(), {"memory": 0, "threads": 0, "processes": 0}
        return next((words for size in sizes if (words := growth.fault(2, {**empty, kind: size}))), "")

    turns = WARM + FEWEST + 3
    assert fault([n * step for n in range(turns)]) == "it leaks memory: 1 MiB more with each call"
    assert fault(list(range(turns)), "threads") == "it leaks threads: 0.5 more with each call"
    assert not fault(list(range(turns)))  # too little
    assert not fault([min(n, 3) * step for n in range(turns)])  # it ends
    assert not fault([n * step for n in range(WARM + 1)])  # it has only begun
    assert not fault([10 * step - n for n in range(turns)])


def test_the_settings_of_the_program_are_plain_data() -> None:
    """They are sent to workers, which set each by its name."""
    told = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    assert pickle.loads(pickle.dumps(told)) == told
