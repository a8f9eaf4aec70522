"""Files that are loaded as in a container: another user, no home, no compiler, a disk that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
import torch

NOBODY = "65534"

PROGRAM = """
    import os, shutil, sys, tempfile, torch, torchmux
    assert os.getuid() == int(sys.argv[1])
    assert shutil.which("g++") is None
    for folder in ("/tmp", os.path.dirname(sys.argv[2]), os.path.expanduser("~")):
        assert not os.access(folder, os.W_OK), folder
    loaded = torchmux.load(sys.argv[2])
    with torch.no_grad():
        found = loaded(torch.ones(3, 8))["y"]
    print(found.tolist())
"""


def can_isolate():
    """Whether this process may mount disks and become another user."""
    if os.getuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        return False
    command = ["unshare", "--mount", "sh", "-c", "mount -o remount,bind,ro /"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def as_user(user):
    """The options of ``setpriv`` for a user without privileges."""
    return [f"--reuid={user}", f"--regid={user}", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]


def another_user():
    """A user who owns nothing, or root without its privileges, if this Python is for root alone."""
    command = ["setpriv", *as_user(NOBODY), "env", sys.executable, "-c", "import torch"]
    return NOBODY if subprocess.run(command, capture_output=True, check=False).returncode == 0 else "0"


@pytest.fixture
def shared_folder():
    """A folder that other users may read."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "onnxrt", "openvino", "tvm", "aot_eager", ("onnxrt", "native")], ids=str)
def test_another_user_on_a_disk_that_only_reads(backend, saved, net, shared_folder):
    if not can_isolate():
        pytest.skip("this process may not mount disks")
    path, compiled = saved(backend)
    copy = shared_folder / "net.tmx"
    shutil.copyfile(path, copy)
    copy.chmod(0o644)
    with torch.no_grad():
        wanted = compiled(torch.ones(3, 8))["y"].tolist()
    user = another_user()
    script = f'mount -o remount,bind,ro / && cd / && exec {shutil.which("setpriv")} {" ".join(as_user(user))} "$@"'
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", "env", "-i", "HOME=/nonexistent", "PATH=/nonexistent",
         sys.executable, "-P", "-c", program, user, str(copy)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{wanted}\n"
