"""Runs a program as the ranks of one job, on this machine, over gloo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def start(program: Path, arguments: Sequence[str], cache: Path, ranks: int, **environment: str) -> list:
    """The processes of a job, which share a cache folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    return [
        subprocess.Popen(
            [sys.executable, str(program), *arguments],
            cwd=cache.parent,
            env={**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank), "PYTHONPATH": path,
                 "TORCHMUX_CACHE_DIR": str(cache), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def finish(processes: Sequence, seconds: float = 240) -> list[str]:
    """What the ranks printed.  A rank that fails fails the job; one that hangs is killed, and fails it."""
    until = time.monotonic() + seconds
    printed = []
    try:
        for process in processes:
            text, _ = process.communicate(timeout=max(until - time.monotonic(), 1))
            assert process.returncode == 0, text
            printed.append(text)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return printed


def run(name: str, *arguments: str, cache: Path, ranks: int = 2, seconds: float = 240, **environment: str) -> list[str]:
    """What each rank of the program ``name`` in this folder printed."""
    return finish(start(HERE / name, arguments, cache, ranks, **environment), seconds)
