"""A wait of more than two seconds says on a terminal what it is for, and nothing anywhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from torchmux import progress

PROGRAM = """
import sys, time
import torch
import torchmux
from torchmux import progress

progress.PATIENCE_S = 0.2

@torchmux.register_backend(name="slow")
def slow(gm, example_inputs):
    progress.step("compiling, piece 1/2")
    time.sleep(1.5)
    return gm.forward

def double(x):
    return x * 2

before = sys.stdout, sys.stderr
assert torchmux.compile(double, backend="slow")(torch.ones(2)).sum() == 4
assert (sys.stdout, sys.stderr) == before
print("done", file=sys.stderr)
"""


def test_on_a_terminal():
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM], stdin=follower, stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        said = b""
        try:
            while chunk := os.read(leader, 4096):
                said += chunk
        except OSError:  # the other end is closed
            pass
    os.close(leader)
    text = said.decode()
    assert process.returncode == 0, text
    assert "torchmux: double: compiling, piece 1/2" in text
    assert "\x1b[2K" in text, "the line stays"
    assert text.rstrip().endswith("done")


def test_silent_in_a_pipe(capsys):
    with progress.waiting("something"), progress.waiting("its part"):
        progress.step("half of it")
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")
    assert progress._wait is None


class Terminal:
    def isatty(self):
        return True


def test_blocks_and_threads(monkeypatch):
    """The innermost words of the thread that began; nothing is left behind, and a short wait shows nothing."""
    import threading

    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.waiting("f"):
        with progress.waiting("compiling"):
            progress.step("compiling, 3/4")
            other = threading.Thread(target=lambda: progress.step("another thread's"))
            other.start()
            other.join()
            assert progress._wait.words == ["f", "compiling, 3/4"]
        assert progress._wait.words == ["f"]
    assert progress._wait is None
    with progress.shown_elsewhere(), progress.waiting("f"):
        assert progress._wait is None
