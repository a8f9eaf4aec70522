"""Compiling the kernels of a graph to machine code, all at once, in processes that stay for the next graph.

What is made holds the code of each kernel for one kind of GPU and how it is launched: :func:`packed` makes bytes of
it, which the artifact cache keeps, and :func:`unpacked` reads them.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchmux.registry.errors import CompilationFailed

_MOST_WORKERS = 16
_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Job:
    """A kernel to compile: ``source`` defines the function ``name``; ``signature`` are the types of its arguments, and
    ``constants`` the values of the others; ``options`` are Triton's."""

    name: str
    source: str
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel: its code, the name of the function there, and what each launch of it takes."""

    symbol: str
    shared: int
    threads: int
    code: bytes


def compile_all(jobs: Sequence[Job], capability: int) -> list[Cubin]:
    """The code of ``jobs`` for GPUs of this compute capability (90 for 9.0), in order.

    Raises:
        CompilationFailed: Triton refused a kernel, or a worker ended.
    """
    return list(_pool().map(lambda job: _compiled(job, capability), jobs))


def attempt_all(jobs: Sequence[Job], capability: int) -> list[Cubin | None]:
    """As :func:`compile_all`; None for what Triton refuses."""

    def attempted(job: Job) -> Cubin | None:
        with contextlib.suppress(CompilationFailed):
            return _compiled(job, capability)
        return None

    return list(_pool().map(attempted, jobs))


def warm_up() -> None:
    """Start the processes: they take as long to start as a small graph to be lowered."""
    for _ in range(_count()):
        _pool().submit(_start_worker)


def _count() -> int:
    return max(1, min(_MOST_WORKERS, len(os.sched_getaffinity(0))))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """A thread for each process."""
    return ThreadPoolExecutor(_count(), "torchmux-triton")


_mine = threading.local()
_workers: list[tuple[int, subprocess.Popen[str]]] = []  # each with the process that started it


@atexit.register
def _end_workers() -> None:
    """They would end by themselves, but only once they have imported Triton or compiled what nobody waits for."""
    mine = [worker for process, worker in _workers if process == os.getpid()]
    for worker in mine:
        worker.kill()
    for worker in mine:
        worker.wait()


def _start_worker() -> subprocess.Popen[str]:
    """The process of this thread."""
    found: subprocess.Popen[str] | None = getattr(_mine, "worker", None)
    if found is None or found.poll() is not None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        environment.pop("TRITON_INTERPRET", None)
        command = [sys.executable, "-P", str(_WORKER)]
        pipe = subprocess.PIPE
        found = _mine.worker = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)
        _workers.append((os.getpid(), found))
    return found


def _compiled(job: Job, capability: int) -> Cubin:
    file = f"<torchmux native {hashlib.sha256(job.source.encode()).hexdigest()[:16]}>"
    text = json.dumps({**asdict(job), "file": file, "capability": capability}) + "\n"
    answer = _asked(text) or _asked(text)  # a worker may just have ended for want of work
    if not answer:
        raise CompilationFailed(f"native: the process that compiles kernels ended while it compiled {job.name}.")
    told = json.loads(answer)
    if "error" in told:
        last = told["error"].strip().splitlines()[-1]
        raise CompilationFailed(
            f"native: Triton cannot compile {job.name}: {last}\n{told['error']}\nThe kernel:\n{job.source}"
        )
    return Cubin(told["symbol"], told["shared"], told["threads"], base64.b64decode(told["cubin"]))


def _asked(text: str) -> str:
    """The answer of this thread's worker; empty if it has ended."""
    worker = _start_worker()
    assert worker.stdin is not None and worker.stdout is not None
    with contextlib.suppress(OSError):
        worker.stdin.write(text)
        worker.stdin.flush()
        return worker.stdout.readline()
    worker.kill()
    return ""


# --- as bytes ---------------------------------------------------------------------------------------------------------


def packed(cubins: Mapping[str, Cubin], capability: int) -> bytes:
    """The kernels by name, compiled for this compute capability."""
    told = {name: [c.symbol, c.shared, c.threads, len(c.code)] for name, c in cubins.items()}
    head = json.dumps({"capability": capability, "kernels": told}).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *(c.code for c in cubins.values())])


def unpacked(built: bytes) -> tuple[int, dict[str, Cubin]]:
    """What :func:`packed` was given: the compute capability and the kernels."""
    size = int.from_bytes(built[:8], "little")
    head = json.loads(built[8 : 8 + size])
    return head["capability"], dict(_sliced(head["kernels"], built[8 + size :]))


def _sliced(told: Mapping[str, Sequence[Any]], codes: bytes) -> Iterator[tuple[str, Cubin]]:
    at = 0
    for name, (symbol, shared, threads, length) in told.items():
        yield name, Cubin(symbol, shared, threads, codes[at : at + length])
        at += length
