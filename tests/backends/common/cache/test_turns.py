"""One process compiles an artifact, and the others wait for it, but never for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from torchmux.backends.common.cache import turns
from torchmux.backends.common.cache.cache import ArtifactCache, default_cache
from torchmux.backends.common.cache.keys import text_key
from torchmux.config import config

KEY = text_key("an artifact")
# Takes the turn and says so.
HOLDER = f"""
import sys, time
from torchmux.backends.common.cache import turns
from torchmux.backends.common.cache.cache import default_cache
with turns.turn({KEY!r}):
    print("mine", flush=True)
    time.sleep(float(sys.argv[1]))
    if sys.argv[2] == "stores":
        default_cache().store({KEY!r}, b"theirs")
"""


@pytest.fixture
def holder(tmp_path):
    """Starts a process that has its turn for so many seconds, and then stores the artifact or not."""
    started = []

    def start(seconds, then):
        environment = {**os.environ, "TORCHMUX_CACHE_DIR": str(tmp_path)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", HOLDER, str(seconds), then], env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "mine\n"
        return process

    with config.patch(cache_dir=tmp_path):
        yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_an_artifact_is_waited_for(holder):
    holder(0.5, "stores")
    with turns.turn(KEY):
        assert default_cache().load(KEY) == b"theirs"


def test_a_process_that_fails_or_dies_is_not_waited_for(holder, caplog):
    dying = holder(100, "stores")
    dying.kill()
    began = time.monotonic()
    with turns.turn(KEY):
        assert default_cache().load(KEY) is None
    assert time.monotonic() - began < 30
    assert not caplog.records


def test_a_process_that_hangs_is_waited_for_as_long_as_the_setting_says(holder, caplog):
    hanging = holder(100, "stores")
    hanging.send_signal(signal.SIGSTOP)
    with config.patch(compilation_wait_s=1):
        began = time.monotonic()
        with turns.turn(KEY):
            assert time.monotonic() - began >= 1
    assert "compilation_wait_s" in caplog.text


def test_other_artifacts_and_no_waiting(holder):
    holder(100, "stores")
    began = time.monotonic()
    with turns.turn(text_key("another artifact")), turns.turn(text_key("a third")):
        pass
    with config.patch(compilation_wait_s=0), turns.turn(KEY):
        pass
    with config.patch(cache_enabled=False), turns.turn(KEY):
        pass
    assert time.monotonic() - began < 30


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """There are no locks then, and nobody waits."""
    (tmp_path / "file").touch()
    with config.patch(cache_dir=tmp_path / "file" / "below"), turns.turn(KEY):
        pass
    cache = ArtifactCache(tmp_path / "artifacts")
    assert not cache.has(KEY)
    cache.store(KEY, b"mine")
    assert cache.has(KEY)
