"""``torchmux.precompile``: several sizes in processes of their own, of which each may fail alone."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.config import config

PROGRAMS = Path(__file__).with_name("precompiled_programs.py")


@pytest.fixture
def model(monkeypatch):
    """Of a module that other processes find, too."""
    monkeypatch.syspath_prepend(str(PROGRAMS.parent))
    return importlib.import_module(PROGRAMS.stem).model


def test_an_error_of_one_size_does_not_lose_the_others(model, tmp_path, capfd):
    inputs = [torch.ones(2, 4), {"x": torch.ones(5, 4)}]
    with pytest.warns(UserWarning, match=r"inputs\[1\] is not compiled: ValueError: five rows"):
        found = torchmux.precompile(model, inputs, backend="aot_eager", path=tmp_path / "file")
    assert [row.error for row in found.rows] == [None, "ValueError: five rows"]
    assert found.failed == [found.rows[1]]
    with torch.no_grad():
        x = torch.randn(2, 4)
        torch.testing.assert_close(torchmux.load(found.path)(x), model(x))
    assert capfd.readouterr().err == ""  # it is no terminal


@pytest.mark.slow
def test_sizes_have_code_of_their_own_from_the_cache(model, tmp_path):
    inputs = [torch.ones(n, 4) for n in (2, 3, 6, 7)]
    with pytest.warns(UserWarning, match=r"inputs\[2\] is not compiled: its process was killed by signal 9"):
        found = torchmux.precompile(model, inputs, backend="native", path=tmp_path / "file", workers=2)
    reports = [graph.report for graph in torchmux.report(found.compiled).graphs]
    assert [report.cache_hits for report in reports] == [1, 1, 1]
    loaded = torchmux.load(found.path)
    assert len(loaded.entries) == 3
    with torch.no_grad():
        for n in (2, 3, 7):
            x = torch.randn(n, 4)
            torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.slow
def test_the_command(model, tmp_path):
    file = tmp_path / "file"
    command = [sys.executable, "-m", "torchmux", "precompile", f"{PROGRAMS}:sizes", "--backend", "aot_eager", "--json"]
    done = subprocess.run([*command, "--output", str(file)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    told = {row["name"]: row["error"] for row in json.loads(done.stdout)}
    assert told == {"of 2": None, "of 3": None, "of 5": "ValueError: five rows"}
    with torch.no_grad():
        torch.testing.assert_close(torchmux.load(file)(torch.ones(3, 4)), model(torch.ones(3, 4)))


def children_of(pid):
    """The commands of the processes that a process has started and that run."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in task.joinpath("children").read_text().split():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{child}/cmdline").read_text())
    return " ".join(found)


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_and_nothing_else_is_told(tmp_path):
    """As Ctrl-C at a terminal, which reaches all of them."""
    command = [sys.executable, "-m", "torchmux", "precompile", f"{PROGRAMS}:sizes", "--output", str(tmp_path / "file")]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    until = time.monotonic() + 120
    while "spawn_main" not in children_of(process.pid):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    told, _ = process.communicate(timeout=120)
    assert (process.returncode, told) == (130, "")
    with pytest.raises(ProcessLookupError):
        for _ in range(300):  # what Python starts beside the processes ends by itself
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    assert not (tmp_path / "file").exists()


def test_what_is_refused_before_anything_is_compiled(model):
    x = torch.ones(2, 4)
    with pytest.raises(TypeError, match="a tensor, a tuple of positional arguments"):
        torchmux.precompile(model, [[x]])
    with pytest.raises(ValueError, match="needs inputs"):
        torchmux.precompile(model, [])
    with pytest.raises(ValueError, match="workers must be at least 1"):
        torchmux.precompile(model, [x], workers=0)
    with pytest.raises(torchmux.UnknownBackend):
        torchmux.precompile(model, [x], backend="no such backend")
    with pytest.raises(TypeError, match="python -m torchmux precompile"):
        torchmux.precompile(lambda x: x, [x])
    with config.patch(cache_enabled=False), pytest.raises(torchmux.CompilationFailed, match="cache_enabled"):
        torchmux.precompile(model, [x])
