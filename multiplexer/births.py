"""How the process of a candidate comes into the world: forked by the program's nursery, or started where that fails."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

log = logging.getLogger("torchmux")

START_S = 120.0
"""How long a nursery may take to import torch."""

_PACKET = 1 << 16
_AT_LOAD = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "ATEN_", "TORCH", "PYTORCH_", "CUDA_",
            "NVIDIA_", "LD_", "MALLOC_", "GLIBC_", "PYTHON")  # fmt: skip
"""Environment variables that torch, Python and their libraries read when they are loaded."""


class _Gone(Exception):
    """The nursery does not answer; the message says why."""


class _Unsafe(Exception):
    """The nursery must not fork; the message says why."""


class Child:
    """A process that has just begun, with the pipes to it."""

    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid = pid
        self.requests = requests
        self.answers = answers
        self._status: int | None = None

    def end(self, patience: float = 0.0) -> int:
        """Its exit status, as ``subprocess`` has them; it and what it has started are killed after some seconds."""
        if self._status is None:
            for handle in (self.requests, self.answers):
                os.close(handle)
            self._status = self._ended(patience)
        return self._status

    def _ended(self, patience: float) -> int:
        raise NotImplementedError


class _Forked(Child):
    def __init__(self, pid: int, requests: int, answers: int, nursery: _Nursery) -> None:
        super().__init__(pid, requests, answers)
        self._nursery = nursery

    def _ended(self, patience: float) -> int:
        try:
            return self._nursery.end(self.pid, patience)
        except _Gone:  # all that it had forked ended with it
            return -signal.SIGKILL


class _Started(Child):
    def __init__(self, process: subprocess.Popen[bytes], requests: int, answers: int) -> None:
        super().__init__(process.pid, requests, answers)
        self._process = process
        _started.add(self)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _ended(self, patience: float) -> int:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()
        return self._process.wait()


class _Nursery:
    """The process that forks workers, as the program sees it."""

    def __init__(self, loaded_with: Mapping[str, str]) -> None:
        self.loaded_with = dict(loaded_with)
        self.program = os.getpid()
        self.workers: set[int] = set()
        self._lock = threading.Lock()
        self._asked = 0  # questions so far
        # A packet holds a whole message: two threads of the program cannot mix theirs.
        self._calls, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._calls.settimeout(START_S)
        self._errors = os.fdopen(os.memfd_create("torchmux-nursery"), "r+b")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torchmux.multiplexer.nursery", str(theirs.fileno()), str(self.program)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                # numpy's library for matrices would start threads, with which nothing may be forked
                env={**_environment(), "OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        _nurseries.add(self)

    def fork(self, handles: list[int], training: bool) -> int:
        """The id of a new worker.

        Raises:
            _Gone, _Unsafe: there is none.
        """
        answer = self.ask({"training": training}, handles)
        if "why" in answer:
            raise _Unsafe(answer["why"])
        pid: int = answer["pid"]
        self.workers.add(pid)
        return pid

    def end(self, pid: int, patience: float) -> int:
        """The exit status of a worker that ends now.

        Raises:
            _Gone: the nursery ended, and its workers with it.
        """
        status: int = self.ask({"pid": pid, "patience": patience})["status"]
        self.workers.discard(pid)
        if not self.workers and self is not _nursery:  # another has taken its place
            self.close()
        return status

    def ask(self, asked: dict[str, Any], handles: list[int] | None = None) -> dict[str, Any]:
        with self._lock:
            self._asked += 1
            try:
                packet = json.dumps({**asked, "number": self._asked}).encode()
                socket.send_fds(self._calls, [packet], handles or [])
                while True:
                    packet = self._calls.recv(_PACKET)
                    if not packet:
                        raise _Gone(self._death("it has ended"))
                    answer: dict[str, Any] = json.loads(packet)
                    # Ctrl-C may have come while an earlier question waited for its answer.
                    if answer.pop("number") == self._asked:
                        return answer
            except OSError as error:
                raise _Gone(self._death(str(error))) from None

    def kill(self) -> None:
        """Kill it, and its workers, whatever other threads ask of it now."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._process.kill()

    def close(self) -> None:
        """Let it end; its workers end with it."""
        self._calls.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            self._process.kill()
        self._process.wait()

    def _death(self, how: str) -> str:
        self._errors.seek(0)
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
        return f"the process that forks workers does not answer: {'; '.join([how, *last])}"


_lock = threading.Lock()
_nursery: _Nursery | None = None
_nurseries: weakref.WeakSet[_Nursery] = weakref.WeakSet()  # with those that still have workers
_started: weakref.WeakSet[_Started] = weakref.WeakSet()


def kill_all() -> None:
    """Kill all workers of this process, without waiting for locks that other threads hold."""
    for nursery in list(_nurseries):
        if nursery.program == os.getpid():
            nursery.kill()
    for child in list(_started):
        child.kill()


os.register_at_fork(after_in_child=_started.clear)  # they belong to the parent


def prepare() -> None:
    """Have the nursery begin to import torch, while the program does something else."""
    if _can_fork():
        _of_program()


def born(out: Path, errors: Path, *, training: bool) -> Child:
    """A process that runs :mod:`.worker`.

    Args:
        out, errors: where its standard output and error go.
        training: whether what it compiles has a backward pass.
    """
    with open(out, "w+b") as out_file, open(errors, "w+b") as errors_file:
        theirs_requests, requests = os.pipe()
        answers, theirs_answers = os.pipe()
        handles = [theirs_requests, theirs_answers, out_file.fileno(), errors_file.fileno()]
        try:
            if (forked := _forked(handles, training)) is not None:
                pid, nursery = forked
                return _Forked(pid, requests, answers, nursery)
            return _Started(_process(handles), requests, answers)
        except BaseException:
            os.close(requests)
            os.close(answers)
            raise
        finally:
            os.close(theirs_requests)
            os.close(theirs_answers)


def _can_fork() -> bool:
    return sys.platform == "linux"


def _forked(handles: list[int], training: bool) -> tuple[int, _Nursery] | None:
    """The id of a forked worker, and the nursery that is its parent; None if a worker has to be started."""
    why = f"nothing is forked on {sys.platform}"
    if _can_fork():
        for _ in range(2):  # a nursery ends when it has nothing to do, which may be now
            nursery = _of_program()
            try:
                return nursery.fork(handles, training), nursery
            except _Unsafe as unsafe:
                why = str(unsafe)
                break
            except _Gone as gone:
                why = str(gone)
                _forget(nursery)
    log.debug("auto: a worker is started and not forked, which takes seconds: %s", why)
    return None


def _of_program() -> _Nursery:
    """The nursery of this process, whose libraries were loaded under the present environment."""
    global _nursery
    wanted = {name: value for name, value in os.environ.items() if name.startswith(_AT_LOAD)}
    with _lock:
        found = _nursery
        if found is not None and found.program == os.getpid():
            if found.loaded_with == wanted:
                return found
            log.debug("auto: the environment has changed: another process forks workers from now on")
        _nursery = _Nursery(wanted)
        if found is not None and found.program == os.getpid() and not found.workers:
            found.close()
        return _nursery


def _forget(nursery: _Nursery) -> None:
    global _nursery
    with _lock:
        if _nursery is nursery:
            _nursery = None
    nursery.close()


def _process(handles: list[int]) -> subprocess.Popen[bytes]:
    requests, answers, out, errors = handles
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "torchmux.multiplexer.worker", str(requests), str(answers), str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=errors,
        env=_environment(),
        pass_fds=[requests, answers],
        start_new_session=True,
    )


def _environment() -> dict[str, str]:
    """That of the program, with the folders from which it imports."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in sys.path)}
