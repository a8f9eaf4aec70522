"""Each command of README runs as it stands, in a folder that has the program which README shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from torchmux.cli.main import parser

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)[3:] for line in re.findall(r"^    (python -m torchmux .*)$", README, re.MULTILINE)
]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
(PROGRAM,) = [text for text in BLOCKS if "def make" in text]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_command_is_understood(folder):
    assert len(COMMANDS) >= 12
    for command in COMMANDS:
        parser().parse_args(command)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_runs(command, folder):
    done = subprocess.run(
        [sys.executable, "-P", "-m", "torchmux", *command], cwd=folder, capture_output=True, text=True, timeout=1200
    )
    # Nothing fails, so there is nothing to reduce.
    wanted = 1 if command[0] == "minify" else 0
    assert done.returncode == wanted, done.stdout[-3000:] + done.stderr[-3000:]
