"""What goes wrong around a compilation: disks, processes, folders.  Nothing wrong is ever loaded, and each is told."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys

import pytest
import torch

from torchmux.backends.common.cache.cache import ArtifactCache, UnsafeCache
from torchmux.backends.native.targets.cpu import build
from torchmux.config import config
from torchmux.registry import CompilationFailed

X = torch.randn(4, 50)


def function(x):
    return (x * 3).softmax(-1) + 1


@contextlib.contextmanager
def largest_file(size: int):
    """As if the disk were full: no file that this process or its children write gets larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def compile_and_check(capture, folder) -> torch.fx.GraphModule:
    with config.patch(cache_dir=folder):
        captured = capture(function, X)
        compiled = captured.compile("native", strict=True)
        torch.testing.assert_close(captured.run(compiled, X), function(X))
    return compiled.report


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


# --- disks ------------------------------------------------------------------------------------------------------------


def test_no_room_for_the_source(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path), largest_file(100):
        captured = capture(function, X)
        with pytest.raises(CompilationFailed, match="cannot write its code to a temporary file.*set TMPDIR"):
            captured.compile("native", strict=True)
    assert not [path for path in files(tmp_path) if "artifacts" in path.parts]
    assert compile_and_check(capture, tmp_path).cache_hits == 0


def test_no_room_for_what_the_compiler_makes(capture, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(build, "_empty_libraries", {})  # what an earlier test has made would be written first
    with config.patch(cache_dir=tmp_path), largest_file(3000):
        captured = capture(function, X)
        with pytest.raises(CompilationFailed, match=r"the C\+\+ compiler .* failed"):
            captured.compile("native", strict=True)
    assert compile_and_check(capture, tmp_path).cache_hits == 0


def test_no_room_in_the_cache(capture, caplog, monkeypatch, tmp_path) -> None:
    def no_room(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torchmux.backends.common.cache.cache.os.replace", no_room)
    with caplog.at_level(logging.WARNING, "torchmux.cache"):
        compile_and_check(capture, tmp_path)
    assert "cannot store an artifact" in caplog.text
    assert "No space left on device" in caplog.text
    assert not [path for path in files(tmp_path) if "artifacts" in path.parts]


def test_an_entry_that_is_cut_off_while_it_is_written(caplog, tmp_path) -> None:
    cache = ArtifactCache(tmp_path / "artifacts")
    key = "ab" * 32
    with largest_file(100), caplog.at_level(logging.WARNING, "torchmux.cache"):
        cache.store(key, bytes(1000))
    assert "cannot store an artifact" in caplog.text
    assert cache.load(key) is None
    assert not files(tmp_path)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_no_folder_can_be_made(capture, caplog, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING, "torchmux.cache"):
        compile_and_check(capture, tmp_path / "file" / "cache")
    assert "cannot read artifacts" in caplog.text


def test_a_folder_that_others_may_write_to(capture, tmp_path) -> None:
    compile_and_check(capture, tmp_path)
    (tmp_path / "artifacts").chmod(0o777)
    with config.patch(cache_dir=tmp_path), pytest.raises(UnsafeCache, match="is open to other users.*move it away"):
        capture(function, X).compile("native", strict=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_somebody_else(capture, tmp_path) -> None:
    compile_and_check(capture, tmp_path)
    os.chown(tmp_path / "artifacts", 12345, -1)
    with config.patch(cache_dir=tmp_path), pytest.raises(UnsafeCache, match="belongs to user 12345, not to you"):
        capture(function, X).compile("native", strict=True)


# --- entries ----------------------------------------------------------------------------------------------------------


def test_entries_that_are_damaged_anywhere(capture, caplog, tmp_path) -> None:
    compile_and_check(capture, tmp_path)
    assert compile_and_check(capture, tmp_path).cache_hits == 1
    entries = {path: path.read_bytes() for path in files(tmp_path) if path.name != "turns.lock"}
    assert len(entries) == 2  # the code, and how it is put together
    largest = max(entries, key=lambda path: len(entries[path]))
    damages = [
        lambda content: content[: len(content) // 2],
        lambda content: b"",
        lambda content: content[:10] + bytes([content[10] ^ 1]) + content[11:],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: content[:100] + bytes(50) + content[150:],
    ]
    for damage in damages:
        for path, content in entries.items():
            path.write_bytes(damage(content))
            caplog.clear()
            report = compile_and_check(capture, tmp_path)
            assert report.cache_hits == (path != largest)
            assert "is damaged and will be rebuilt" in caplog.text
            assert path.read_bytes() == content or path == largest  # a compiler's output may differ in a time


def test_an_entry_under_the_name_of_another(caplog, tmp_path) -> None:
    cache = ArtifactCache(tmp_path / "artifacts")
    cache.store("ab" * 32, b"one")
    cache.store("cd" * 32, b"two")
    one, two = (cache.folder / name / (name * 31) for name in ("ab", "cd"))
    shutil.copy(one, two)
    assert cache.load("cd" * 32) is None
    assert "is damaged" in caplog.text
    assert cache.load("ab" * 32) == b"one"


# --- compilers --------------------------------------------------------------------------------------------------------


def test_a_compiler_that_goes_away(capture, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(build, "compiler_command", lambda: [str(tmp_path / "gone")])
    with config.patch(cache_dir=tmp_path), pytest.raises(CompilationFailed, match="could not run the C\\+\\+ compiler"):
        capture(function, X).compile("native", strict=True)


@pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++")
def test_the_other_compiler(capture, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CXX", "clang++")
    compile_and_check(capture, tmp_path)


# --- processes --------------------------------------------------------------------------------------------------------

PROGRAM = """
import sys, torch, torchmux
from torchmux.config import config

torch.manual_seed(0)
x = torch.randn(4, 50)
compiled = torchmux.compile(lambda x: (x * 3).softmax(-1) + 1, backend="native", strict=True)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), (x * 3).softmax(-1) + 1)
print(torchmux.report(compiled).graphs[0].report.cache_hits)
"""


def start(folder, **more) -> subprocess.Popen:
    environment = {**os.environ, "TORCHMUX_CACHE_DIR": str(folder), **more}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def compiler(path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_compiles(tmp_path) -> None:
    real = shutil.which("g++") or shutil.which("clang++")
    # The same compiler for both, which kills the process that called it as long as a file is there.
    deadly = compiler(tmp_path / "c++", f'[ -e {tmp_path}/kill ] && kill -9 $PPID; exec {real} "$@"')
    (tmp_path / "kill").touch()
    first = start(tmp_path / "cache", CXX=deadly)
    first.communicate(timeout=240)
    assert first.returncode == -signal.SIGKILL
    assert not files(tmp_path / "cache")
    (tmp_path / "kill").unlink()
    for hits in ("0", "1"):
        out, errors = start(tmp_path / "cache", CXX=deadly).communicate(timeout=240)
        assert out.strip() == hits, errors


@pytest.mark.slow
def test_two_processes_with_the_same_graph(tmp_path) -> None:
    real = shutil.which("g++") or shutil.which("clang++")
    slow = compiler(tmp_path / "c++", f'sleep 2; exec {real} "$@"')
    both = [start(tmp_path / "cache", CXX=slow) for _ in range(2)]
    for process in both:
        out, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    assert not [path for path in files(tmp_path / "cache") if "partial" in path.name]
    out, errors = start(tmp_path / "cache", CXX=slow).communicate(timeout=240)
    assert out.strip() == "1", errors
