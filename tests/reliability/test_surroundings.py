"""Unusual surroundings: no home folder, full disks, ``noexec``, entries that another user planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import torchmux


def can_mount() -> bool:
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


mounts = pytest.mark.skipif(not can_mount(), reason="only root can mount folders")
ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run ``command`` as a user that the system's database does not have."""
    drop = ("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups")
    return subprocess.run([*drop, *command], capture_output=True, text=True, **more)


def on_tmpfs(folder, options: str) -> tuple[str, ...]:
    """A command that runs another with ``folder`` as a file system of its own."""
    folder.mkdir(exist_ok=True)
    return "unshare", "-m", "sh", "-c", f'mount -t tmpfs -o {options} tmpfs {folder} && exec "$@"', "sh"


def test_import_touches_no_disk(run_python, tmp_path):
    """Nor is the cache folder determined."""
    code = (
        "import os, pathlib\n"
        "def no(*args, **more): raise AssertionError('the disk was touched')\n"
        "for name in ('mkdir', 'makedirs', 'chmod'): setattr(os, name, no)\n"
        "pathlib.Path.expanduser = no\n"
        "import torchmux\n"
        "assert 'cache_dir' not in vars(torchmux.config)\n"
        "print('fine')"
    )
    assert run_python(code) == "fine\n"


@pytest.fixture
def public_folder():
    """A folder that every user can reach; each process of pytest closes its own folders to others again."""
    folder = Path(tempfile.mkdtemp(prefix="tests-of-torchmux-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@ONLY_ROOT
@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken by another user"])
def test_without_a_home_folder(public_folder, taken):
    """A user without an entry in the system's database, as in containers."""
    place = public_folder
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv")
    folder = Path(torchmux.__file__).parent
    if as_nobody("test", "-r", str(folder), cwd=place).returncode:
        pytest.skip(f"other users cannot read {folder}")
    own = place / "torchmux-cache-54321"
    if taken:
        own.mkdir(mode=0o777)
    dropped = ("HOME", "XDG_CACHE_HOME", "TORCHMUX_CACHE_DIR")
    environment = {k: v for k, v in os.environ.items() if k not in dropped}
    code = (
        "import os, stat, torchmux; folder = torchmux.config.cache_dir; found = os.stat(folder)\n"
        "assert found.st_uid == 54321 and stat.S_IMODE(found.st_mode) == 0o700\n"
        "from torchmux.backends.common.cache.cache import default_cache\n"
        "default_cache().store('ab' * 32, b'x'); assert default_cache().load('ab' * 32) == b'x'; print(folder)"
    )
    done = as_nobody(
        sys.executable, "-c", code, env={**environment, "TMPDIR": str(place), "PYTHONDONTWRITEBYTECODE": "1"}, cwd=place
    )
    assert done.returncode == 0, done.stderr
    assert (done.stdout.strip() == str(own)) is not taken
    assert ("not a private folder of yours" in done.stderr) is taken
    assert [path.name for path in place.iterdir()] == ["torchmux-cache-54321"]


@ONLY_ROOT
def test_a_cache_that_may_not_be_read(run_python, tmp_path):
    """Neither a question about an entry nor waiting for another process fails."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    code = (
        "import os, torchmux\n"
        "from torchmux.backends.common.cache import turns\n"
        "from torchmux.backends.common.cache.cache import default_cache\n"
        f"torchmux.config.cache_dir = {str(closed / 'x' / 'cache')!r}\n"
        "cache, key = default_cache(), 'ab' * 32\n"
        "os.setgroups([]); os.setresgid(54321, 54321, 54321); os.setresuid(54321, 54321, 54321)\n"
        "assert not cache.has(key)\n"
        "with turns.turn(key):\n"
        "    cache.store(key, b'x'); print(cache.load(key))"
    )
    assert run_python(code) == "None\n"


@mounts
@pytest.mark.slow
def test_temporary_files_that_cannot_run(start, finish, temporary):
    """On a ``noexec`` file system, code is loaded from memory."""
    errors = finish(start(3, before=on_tmpfs(temporary, "noexec")))
    assert "torch runs" not in errors
    assert "cannot load" not in errors


@mounts
def test_no_room_in_the_cache(start, finish, tmp_path):
    """The code is used without the cache, and there is one warning."""
    errors = finish(start(3, before=on_tmpfs(tmp_path / "cache", "mode=700,size=16k")))
    assert errors.count("No space left on device") == 1


@mounts
@pytest.mark.slow
def test_no_room_for_temporary_files(start, temporary):
    """Compilation fails, and the error says why."""
    out, errors = start(1, before=on_tmpfs(temporary, "mode=700,size=16k")).communicate(timeout=240)
    assert "CompilationFailed" in errors
    assert "No space left on device" in errors
    assert out == "begins\n"


@ONLY_ROOT
def test_entries_that_another_user_planted(start, finish, tmp_path):
    """Entries of another user are not run even if the folder is private by now."""
    finish(start(1))
    entries = [path for path in (tmp_path / "cache" / "artifacts").rglob("*") if path.is_file()]
    for path in entries:
        os.chown(path, 54321, 54321)
    errors = finish(start(1))
    assert errors.count("is not a file of yours alone") >= 1
    assert all(path.stat().st_uid == os.geteuid() for path in entries)


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_a_compile_leaves_torchs_surroundings_alone(run_python, tmp_path, backend):
    """No folder among the temporary files, no variable in the environment, no tracer of torch's own.

    The imports of torch._dynamo and of a module of Inductor create a folder and set a variable.
    """
    temporary = tmp_path / "empty"
    temporary.mkdir()
    code = (
        "import os, sys, tempfile\n"
        f"tempfile.tempdir = {str(temporary)!r}\n"
        "os.environ.pop('TORCHINDUCTOR_CACHE_DIR', None)\n"
        "import torch, torchmux\n"
        f"torchmux.config.cache_dir = {str(tmp_path / 'cache')!r}\n"
        "before, path = dict(os.environ), list(sys.meta_path)\n"
        "def f(x): return torch.nn.functional.layer_norm(x, (3,)).softmax(-1)\n"
        "def g(x): x.add_(1); return x.sin()\n"
        "for function in (f, g):\n"
        f"    compiled = torchmux.compile(function, backend={backend!r})\n"
        "    with torch.no_grad(): assert torch.allclose(compiled(torch.ones(2, 3)), function(torch.ones(2, 3)))\n"
        "assert os.environ == before and sys.meta_path == path\n"
        "print([m for m in sys.modules if m.startswith('torch._inductor')])\n"
        "print([m for m in sys.modules if m.startswith('torch._dynamo')])\n"
    )
    assert run_python(code).splitlines() == ["[]", "['torch._dynamo.config']"]
    assert os.listdir(temporary) == []
