"""Type checkers understand a user's program, and find its mistakes."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_code.py")
MISTAKES = """
import torch
import torchmux

compiled = torchmux.compile(torch.nn.Linear, no_such_argument=True)
torchmux.report()
torchmux.no_such_name
"""


def test_the_program_runs(run_python):
    run_python(f"import runpy; runpy.run_path({str(PROGRAM)!r})")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The packages under the names that they have when installed, whatever this installation looks like."""
    folder = tmp_path_factory.mktemp("installed")
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    mapping = [line.replace(" ", "").split("=") for line in parser["options"]["package_dir"].splitlines() if line]
    (folder / "torchmux").mkdir()
    for package, source in mapping:
        name = package.partition(".")[2]
        if name:
            (folder / "torchmux" / name).symlink_to(ROOT / source)
        else:
            for entry in (ROOT / source).iterdir():
                (folder / "torchmux" / entry.name).symlink_to(entry)
    return folder


def checked(command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> subprocess.CompletedProcess[str]:
    monkeypatch.setenv("MYPYPATH", str(folder))
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=600)


@pytest.mark.slow
def test_mypy(installed, tmp_path, monkeypatch):
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "setup.cfg"), "--follow-imports", "silent"]
    done = checked([*mypy, str(PROGRAM)], installed, monkeypatch)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = checked([*mypy, str(tmp_path / "mistakes.py")], installed, monkeypatch)
    assert done.returncode == 1
    assert done.stdout.count("error:") >= 3, done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pyright") is None, reason="needs pyright")
def test_pyright(installed, tmp_path, monkeypatch):
    (installed / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{installed}"], "include": ["program"]}}')
    (installed / "program").mkdir()
    shutil.copy(PROGRAM, installed / "program" / "user_code.py")
    command = ["pyright", "--project", str(installed), "--pythonpath", sys.executable]
    done = checked(command, installed, monkeypatch)
    assert done.returncode == 0, done.stdout + done.stderr
