"""Temporary folders: gone when their process ends, in whatever way, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from torchmux.scratch import remove_leftovers

IN_A_THREAD = """
import os, threading, time
from torchmux.scratch import scratch_folder

inside = threading.Event()

def work():
    with scratch_folder() as folder:
        (folder / "file").touch()
        inside.set()
        time.sleep(600)

threading.Thread(target=work, daemon=True).start()
inside.wait()
print(len(os.listdir(os.environ["TMPDIR"])))
"""

IN_A_FORK = """
import atexit, os
from torchmux.scratch import scratch_folder

with scratch_folder() as folder:
    child = os.fork()
    if not child:
        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(child, 0)
    print(len(os.listdir(os.environ["TMPDIR"])))
"""


def run(program: str, temporary: Path) -> str:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    return subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_a_thread_that_the_end_of_the_program_stops_leaves_no_folder(tmp_path):
    assert run(IN_A_THREAD, tmp_path) == "1\n"
    assert not os.listdir(tmp_path)


def test_a_forked_process_that_ends_leaves_the_folders_of_its_parent(tmp_path):
    assert run(IN_A_FORK, tmp_path) == "1\n"
    assert not os.listdir(tmp_path)


def test_leftovers_of_killed_processes_are_removed_when_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "torchmux-scratch-of_nobody").mkdir()
    (tmp_path / "of_another_program").mkdir()
    remove_leftovers()
    assert os.listdir(tmp_path) == ["of_another_program"]
