"""The command as users start it: by module and by name, with pipes that close, and misused."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import torchmux
from torchmux.__main__ import main


def start(*arguments: str, **keywords) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "torchmux", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **keywords)


def test_version(tmp_path):
    done = start("--version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"torchmux {torchmux.__version__} (torch {importlib.metadata.version('torch')}, ")


def test_the_installed_command_is_the_same():
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="torchmux")
    assert entry.load() is main


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["backends", "--nonsense"], ["demo", "--models", "gpt5"]])
def test_misuse(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        main(arguments)
    assert exit.value.code == 2
    assert "usage: torchmux" in capsys.readouterr().err


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as exit:
        main(["--help"])
    assert exit.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in ("backends", "explain", "breaks", "demo"))


def test_a_reader_that_has_enough(tmp_path):
    """No traceback when the reader of a pipe goes away."""
    code = (
        "import os, sys\nfrom torchmux.__main__ import main\nread, write = os.pipe()\nos.close(read)\n"
        "os.dup2(write, 1)\nsys.exit(main(['backends', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ""
