"""The programs of ``corpus/`` do compiled what they do in eager, whatever changes between two calls."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .programs import CORPUS, Program, difference, programs

_FILES = sorted(path.name for path in CORPUS.glob("*.txt"))


def _run(file: str, backend: str, first: int = 0, step: int = 1) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", str(CORPUS.parent / "programs.py"), file, backend, str(first), str(step)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("first", (0, 1))
@pytest.mark.parametrize("file", _FILES)
def test_programs(file: str, first: int) -> None:
    done = _run(file, "eager", first, 2)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("file", _FILES)
def test_programs_under_a_compiler(file: str, backend: str) -> None:
    done = _run(file, backend)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_there_are_many() -> None:
    assert sum(len(programs(CORPUS / file)) for file in _FILES) > 300


def test_a_difference_is_found() -> None:
    """A function that can tell whether it is being traced differs, so what the runner compares is what it ran."""
    told = Program("told", "def f(x): return x * (2 if torch.compiler.is_compiling() else 3)", [])
    assert "told" in difference(told, "eager")
