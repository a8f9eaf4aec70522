"""Starts the program in processes with their own cache and temporary folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("program.py")


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path: Path, temporary: Path) -> Callable[..., subprocess.Popen]:
    """``start(count, NAME=value, ...)`` starts the program; ``before`` is a command that runs another."""

    def begin(
        count: int = 3, backend: str = "native", before: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen:
        given = {
            "TORCHMUX_CACHE_DIR": str(tmp_path / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),  # which torch creates among temporary files if unset
            "TMPDIR": str(temporary),
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.Popen(
            [*before, sys.executable, str(PROGRAM), str(count), backend],
            env={**os.environ, **given, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin


@pytest.fixture
def finish() -> Callable[[subprocess.Popen], str]:
    """``finish(process)`` waits, checks that no result was wrong, and returns the process's stderr."""

    def end(process: subprocess.Popen) -> str:
        out, errors = process.communicate(timeout=540)
        assert process.returncode == 0, errors
        told = json.loads(out.splitlines()[-1])
        assert told["checked"] > 0
        assert told["wrong"] == 0, told
        return errors

    return end
