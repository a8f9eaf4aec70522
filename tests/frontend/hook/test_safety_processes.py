"""Other processes: forked ones, workers of a DataLoader, two on one cache, and one that ends."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset

import torchmux


def scale(x):
    y = x * 2
    torchmux.graph_break()
    return y + 1


COMPILED = torchmux.compile(scale, backend="eager")


def child(queue):
    queue.put([float(COMPILED(torch.ones(n))[0]) for n in (3, 7)])


def in_fork():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    try:
        return queue.get(timeout=60)
    finally:
        process.join(10)
        process.kill()


def test_fork_after_compiling():
    COMPILED(torch.ones(3))
    assert in_fork() == [3.0, 3.0]


def test_fork_while_another_thread_compiles():
    COMPILED(torch.ones(3))
    compiling, go_on = threading.Event(), threading.Event()

    def slow(gm, example_inputs):
        compiling.set()
        assert go_on.wait(120)
        return gm.forward

    thread = threading.Thread(target=torchmux.compile(lambda x: x - 1, backend=slow), args=(torch.ones(2),))
    thread.start()
    assert compiling.wait(60)
    try:
        assert in_fork() == [3.0, 3.0]
    finally:
        go_on.set()
        thread.join(60)


class Numbers(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return COMPILED(torch.full((3,), float(index)))


def test_workers_of_a_data_loader():
    sums = [[float(batch.sum()) for batch in DataLoader(Numbers(), 2, num_workers=workers)] for workers in (0, 2)]
    assert sums[0] == sums[1] == [12.0, 36.0]


ENDING = """
import atexit, threading, time, torch, torchmux
done = torchmux.compile(lambda x: x + 1, backend="eager")
done(torch.ones(2))
late = torchmux.compile(lambda x: x * 2, backend="eager")
never = torchmux.compile(torch.nn.Linear(2, 2), backend="eager")
atexit.register(lambda: print("atexit", float(late(torch.ones(3))[0]), float(done(torch.ones(5))[0])))
thread = threading.Thread(target=lambda: (time.sleep(0.2), print("thread", float(never(torch.ones(1, 2)).numel()))))
thread.start()
"""


def test_a_process_that_ends(tmp_path):
    command = [sys.executable, "-c", ENDING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["thread 2.0", "atexit 2.0 2.0"]
    assert done.stderr == ""


TWO = """
import sys, torch, torchmux
from torchmux.backends.common.cache.cache import default_cache
from torchmux.backends.common.cache.keys import text_key
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
with torch.no_grad():
    for p in net.parameters():
        p.fill_(0.5)
    for n in range(2, 6):
        x = torch.ones(n, 8)
        compiled = torchmux.compile(net, backend=sys.argv[1], dynamic=False)
        torch.testing.assert_close(compiled(x), net(x))
cache = default_cache()
for i in range(200):
    cache.store(text_key(i % 20), bytes([i % 20]) * 1000)
    found = cache.load(text_key((i * 7) % 20))
    assert found is None or found == bytes([(i * 7) % 20]) * 1000
print("fine")
"""


def test_two_processes_share_a_cache(tmp_path):
    environment = {**os.environ, "TORCHMUX_CACHE_DIR": str(tmp_path / "cache")}
    started = [
        subprocess.Popen(
            [sys.executable, "-c", TWO, "eager"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in started:
        out, err = process.communicate(timeout=200)
        assert out == "fine\n", err
