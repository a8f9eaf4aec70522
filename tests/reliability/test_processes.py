"""Processes that are killed, and processes that share one cache; more of both with ``-m slow``."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.tiers import slow_but


@pytest.mark.parametrize("kills", slow_but([2, 40, 60], 2))
def test_kills(kills, start, finish, tmp_path, temporary):
    """Killed or interrupted at random moments: the cache stays right, and the next process removes the leftovers."""
    numbers = random.Random(kills)
    for number in range(kills):
        process = start(200)
        process.stdout.readline()
        time.sleep(numbers.uniform(0.0, 1.0 if kills == 2 else 2.5))
        process.send_signal(signal.SIGINT if number % 2 else signal.SIGKILL)
        process.communicate(timeout=60)
    finish(start(2 if kills == 2 else 20))
    finish(start(1))  # compilers that outlived their process may have written after the first look
    assert os.listdir(temporary) == []


@pytest.mark.slow
def test_kills_of_tvm(start, finish, temporary):
    """TVM's own compiler writes to temporary folders, which the next process that compiles removes as well."""
    pytest.importorskip("tvm")
    numbers = random.Random(0)
    for _ in range(6):
        process = start(200, backend="tvm")
        process.stdout.readline()
        time.sleep(numbers.uniform(2.0, 5.0))
        process.kill()
        process.communicate(timeout=60)
    finish(start(2, backend="tvm"))
    finish(start(1, backend="tvm"))
    assert os.listdir(temporary) == []


@pytest.mark.slow
@pytest.mark.parametrize("count", slow_but([2, 16], 2))
def test_many_processes_on_one_cache(count, start, finish, tmp_path):
    running = [start(2 if count == 2 else 20) for _ in range(count)]
    for process in running:
        finish(process)
    left = [name for _, _, names in os.walk(tmp_path / "cache") for name in names]
    assert left
    assert not [name for name in left if name.startswith(".partial")]
