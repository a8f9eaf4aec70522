"""Processes that are killed, and processes that share one cache.  ``-m slow`` does more of the same."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from tests.tiers import slow_but


@pytest.mark.parametrize("kills", slow_but([3, 40], 3))
def test_kills(kills, start, finish, tmp_path, temporary):
    """At any moment; what is left is right, and the next process takes away the temporary files."""
    numbers = random.Random(kills)
    for number in range(kills):
        process = start(200)
        process.stdout.readline()
        time.sleep(numbers.uniform(0.0, 2.5))
        process.send_signal(signal.SIGINT if number % 2 else signal.SIGKILL)
        process.communicate(timeout=60)
    finish(start(5))
    finish(start(5))
    assert os.listdir(temporary) == []


@pytest.mark.parametrize("count", slow_but([3, 16], 3))
def test_many_processes_on_one_cache(count, start, finish, tmp_path):
    running = [start(3 if count == 3 else 20) for _ in range(count)]
    for process in running:
        finish(process)
    left = [name for _, _, names in os.walk(tmp_path / "cache") for name in names]
    assert left
    assert not [name for name in left if name.startswith(".partial")]
