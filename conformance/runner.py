"""Runs many cases in separate processes, with time limits; a run can be interrupted and resumed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import life
from .case import END_OF_A_CASE, PROCESS
from .judging.state import ERRORS
from .outcome import Journal, Outcome, Result, parsed
from .requirements import requirements_from

START_SECONDS = 180.0
"""How long a worker may take to import torch and collect the cases."""

END_SECONDS = 30.0
"""How long a process may take to end after its last case."""

PATIENCE = {
    "models": 5.0, "semantics/slopes": 5.0, "semantics/attributes": 5.0, "semantics/orders": 5.0,
    "semantics/joins": 5.0, "semantics/unusual": 5.0, "semantics/patterns": 5.0, "semantics/counts": 5.0,
    "semantics/kinds": 5.0, "semantics/circumstances": 5.0,
}  # fmt: skip
"""Multiples of the time limit for the cases of a group: models and programs of many calls have more to compile."""

_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""For cases on a CPU.  A worker forks eager's process, and CUDA works in no copy of a process; autograd asks it there
how many GPUs there are, unless the answer is known before."""

FRESH_AFTER = 500
"""How many cases one process runs: loaded code stays mapped, and Linux allows a process 65,530 mappings."""


_CACHES = ("torchinductor_", "torchmux-cache", ".ses")
"""What stays among temporary files on purpose: caches, which the next process uses; ONNX Runtime's file of sessions."""

_CACHES_AT_HOME = (".cache", ".triton", ".nv", ".config")
"""Where programs keep caches and settings in the home folder."""

_SHARED_MEMORY = "/dev/shm"


class Job:
    """Cases for one backend; ``results`` has those of the journal, and all when the job has been run."""

    def __init__(
        self,
        names: Sequence[str],
        *,
        backend: str,
        level: str = "quick",
        requirements: str = "",
        frontend: str = "",
        options: Mapping[str, Any] | None = None,
        device: str = "",
        seconds: float = 120.0,
        journal: Journal | None = None,
        progress: Callable[[Result], None] = lambda result: None,
    ) -> None:
        """The arguments of :func:`run`."""
        self.names, self.seconds, self.progress = names, seconds, progress
        self.journal = journal or Journal(None)
        # A worker imports torch's samples only if a case needs them.
        subjects = sorted({name.partition("/")[0] for name in names})
        self.head: dict[str, Any] = {
            "backend": backend,
            "level": level,
            "requirements": requirements,
            "frontend": frontend,
            "options": dict(options or {}),
            "device": device or requirements_from(requirements, backend, options).device,
            "path": [os.getcwd()],
            "patterns": [f"{subject}/*" for subject in subjects],
        }

    @property
    def left(self) -> list[str]:
        return [name for name in self.names if name not in self.journal.results]

    @property
    def results(self) -> list[Result]:
        return [self.journal.results[name] for name in self.names if name in self.journal.results]


def run(names: Sequence[str], *, workers: int = 1, client: Any = None, **keywords: Any) -> list[Result]:
    """Run the cases with these ids, except those that the journal has, and return all results in order.

    Args:
        backend: its name.
        level: "quick" or "full".
        requirements: ``module:Class`` of the :class:`Requirements`; empty: the claims of the backend's description.
        frontend: what captures, "torchmux" or "torch"; empty: what the requirements say.
        options: added to those of the requirements; those of a chain are by member.
        device: where cases create their tensors, such as "cuda"; empty: what the requirements say.
        seconds: the time limit of one case; after it, its process is ended and the case counts as a timeout.
        workers: the number of parallel processes.
        client: of a Dask cluster, whose workers then run the cases.
        progress: called with each new result, from several threads.
    """
    job = Job(names, **keywords)
    run_all([job], workers=workers, client=client)
    return job.results


def run_all(jobs: Sequence[Job], *, workers: int = 1, client: Any = None) -> None:
    """Run several jobs one after another; those on a CPU share eager's answers, which are drawn once."""
    if client is not None:
        from . import spread

        for job in jobs:
            for result in spread.results(client, job.left, job.head, job.seconds):
                job.journal.add(result)
                job.progress(result)
        return
    with contextlib.ExitStack() as stack:
        if len(jobs) > 1:
            answers = stack.enter_context(tempfile.TemporaryDirectory(prefix="torchmux-conformance-"))
            for job in jobs:
                job.head["answers"] = answers
        _run_here(jobs, workers)


def _run_here(jobs: Sequence[Job], workers: int) -> None:
    waiting: queue.SimpleQueue[tuple[Job, str]] = queue.SimpleQueue()
    for job in jobs:
        for name in job.left:
            waiting.put((job, name))
    lock, stop = threading.Lock(), _Stop()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for job, result in _worked_off(waiting, stop):
                with lock:
                    job.journal.add(result)
                job.progress(result)
        except BaseException as error:
            failures.append(error)
            stop.set()

    threads = [threading.Thread(target=work) for _ in range(max(1, workers))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _absolute(requirements: str) -> str:
    """``path/to/file.py:Class`` with the whole path: workers have a current folder of their own."""
    path, colon, name = requirements.rpartition(":")
    return f"{os.path.abspath(path)}{colon}{name}" if path.endswith(".py") else requirements


class _Stop:
    """Ends a run at once: threads that wait for a worker see it die."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._workers: set[Worker] = set()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._lock:
            self._is_set = True
            for worker in self._workers:
                worker.kill()

    def watch(self, worker: Worker) -> None:
        with self._lock:
            self._workers.add(worker)
            if self._is_set:
                worker.kill()

    def forget(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)


def _worked_off(waiting: queue.SimpleQueue[tuple[Job, str]], stop: _Stop) -> Iterator[tuple[Job, Result]]:
    """Run waiting cases in one worker at a time."""
    runner: CaseRunner | None = None
    try:
        while not stop.is_set():
            try:
                job, name = waiting.get_nowait()
            except queue.Empty:
                return
            runner = runner or CaseRunner(job.head, stop)
            runner.turn_to(job.head)
            result = runner.run(name, job.seconds)
            if stop.is_set():
                return  # this looks like a crash, but the run is ending
            yield job, result
    finally:
        if runner is not None:
            runner.close()


class CaseRunner:
    """Runs cases one after another in a worker, and has it begin anew when it dies."""

    def __init__(self, head: dict[str, Any], stop: _Stop | None = None) -> None:
        self._head = head
        self._stop = stop or _Stop()
        self._worker: Worker | None = None
        self._ran = 0  # cases since it began

    def turn_to(self, head: dict[str, Any]) -> None:
        """Run cases of another job from now on."""
        if head is not self._head:
            if head["device"] != self._head["device"]:
                self.close()
            self._end()
            self._head = head

    def run(self, name: str, seconds: float) -> Result:
        """The result of one case; a case that killed its process also has a reproducer."""
        if number := life.PROCESSES.get(name):
            return self._in_processes(name, number, seconds)
        if self._ran >= FRESH_AFTER:
            self._end()
        result = self._in_worker(name, seconds)
        if "eager" in result.details:
            # Its process is gone for the cases that follow.  What ran before may be why: only alone is it eager's.
            alone = self._ran == 1
            self._end()
            if not alone:
                result = self._in_worker(name, seconds)
                self._end()
        if self._ended_if_dead():
            if not self._stop.is_set():
                result = self._started().told_of(result)
                self._ended_if_dead()
        return result

    def _in_worker(self, name: str, seconds: float) -> Result:
        self._ran += 1
        patience = max(times for group, times in (*PATIENCE.items(), ("", 1.0)) if name.startswith(group))
        return self._started().run({"case": name}, seconds * patience)

    def _in_processes(self, name: str, number: int, seconds: float) -> Result:
        """The result of a case in processes of its own, which end after it; they share a cache that was empty."""
        # Eager's answers differ from process to process as well.
        head = {**self._head, "answers": "", "patterns": [f"{name.partition('/')[0]}/*"]}
        took = 0.0
        with tempfile.TemporaryDirectory(prefix="torchmux-conformance-") as cache:
            for process in range(1, number + 1):
                temporary, home = (os.path.join(cache, f"{kind}{process}") for kind in ("tmp", "home"))
                os.mkdir(temporary)
                os.mkdir(home)
                own = {PROCESS: str(process), "TORCHMUX_CACHE_DIR": cache, "TMPDIR": temporary, "HOME": home}
                worker = Worker(head, self._stop, own)
                try:
                    result = worker.run({"case": name}, seconds)
                    if worker.alive and not result.outcome.is_failure and (wrong := worker.finish()):
                        result = dataclasses.replace(result, outcome=wrong[0], reason=wrong[1])
                finally:
                    self._stop.forget(worker)
                    worker.close()
                took += result.seconds
                if result.outcome.is_failure:
                    which = f"process {process} of {number}: " if number > 1 else ""
                    result = dataclasses.replace(result, reason=which + result.reason)
                    break
        return dataclasses.replace(result, seconds=took)

    def judge_program(self, program: str, seconds: float) -> Result:
        """The result of a program text, which may kill its process."""
        result = self._started().run({"program": program}, seconds)
        self._ended_if_dead()
        return result

    def _ended_if_dead(self) -> bool:
        if self._worker is None or self._worker.alive or self._worker.idle:
            return False
        self._end()
        return True

    def _end(self) -> None:
        """End the process that runs cases; the next case begins in a new one."""
        self._ran = 0
        if self._worker is not None and not self._worker.end_copy():
            self.close()

    def close(self) -> None:
        """End the worker."""
        self._ran = 0
        if self._worker is not None:
            self._stop.forget(self._worker)
            self._worker.close()
            self._worker = None

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self._head, self._stop)
        elif self._worker.idle:
            self._worker.begin(self._head)
        return self._worker


_STEADY = {"PYTHONHASHSEED": "0"}
"""Some of torch's samples come in the order of a set of strings, which has to be one for the backend and for eager."""


def _seen(device: str) -> dict[str, str]:
    """What a worker is told of GPUs."""
    return _NO_GPU if device == "cpu" else {}


class Worker:
    """One process for cases, which is dead after one that killed it or took too long.

    On a CPU it has imported everything, and runs cases in a copy of itself, so that the next copy, after a death or for
    another backend, begins at once.  With an ``environment`` of its own it is a process as any other.
    """

    def __init__(self, head: dict[str, Any], stop: _Stop, environment: Mapping[str, str] | None = None) -> None:
        self.folder = tempfile.mkdtemp(prefix="torchmux-conformance-")
        # -P: it imports what this process would, not modules in the current folder.
        command = [sys.executable, "-P", "-m", "torchmux.conformance.worker"]
        path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, cwd=self.folder,
            env={**os.environ, **_STEADY, **_seen(head["device"]), "PYTHONPATH": path, **(environment or {})},
        )  # fmt: skip
        self._copies = environment is None and head["device"] == "cpu"
        self._copy = 0  # the id of the copy that runs cases
        self._ended = 0  # its exit status
        self._stop = stop
        self._temporary, self._home = (environment or {}).get("TMPDIR"), (environment or {}).get("HOME")
        self._shared = _in_shared_memory()
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._ends = threading.Semaphore(0)
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        stop.watch(self)
        self.begin(head)

    def begin(self, head: dict[str, Any]) -> None:
        """Get ready for cases.

        Raises:
            RuntimeError: it ended instead; the message has what it wrote.
        """
        self._errors.clear()
        self.alive, self.idle = True, False
        asked = {**head, "requirements": _absolute(head["requirements"]), "parent": os.getpid()}
        self._send({**asked, "copies": self._copies})
        began = self._next(time.monotonic() + START_SECONDS) if self._copies else {"copy": 0}
        self._copy = 0 if began is None else began["copy"]
        ready = None if began is None else self._next(time.monotonic() + START_SECONDS)
        if ready is None:
            self.close()
            if self._stop.is_set():
                return
            raise RuntimeError(f"a worker of the conformance suite failed to start:\n{self._said()}")
        self._files = tuple(ready["files"])

    def end_copy(self) -> bool:
        """End the copy that runs cases; False if there are no copies, or the process that makes them is gone."""
        self.alive, self.idle = False, True
        if not self._copies:
            return False
        self._kill_copy()
        until = time.monotonic() + END_SECONDS
        while self._copy and self._next(until) is not None:
            pass  # what it wrote before
        gone = not self._copy
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.remove(path)
        while self._ends.acquire(blocking=False):
            pass
        return gone and self.process.poll() is None

    def run(self, asked: dict[str, str], seconds: float) -> Result:
        self._errors.clear()
        begun, name = time.monotonic(), asked.get("case", "program")
        self._send(asked)
        details: dict[str, Any] = {"sample": None}
        while True:
            message = self._next(begun + seconds)
            if message is None:
                self.alive = False
                took = time.monotonic() - begun
                if took >= seconds:
                    words = f"not finished after {seconds:.0f} s"
                    return Result(name, Outcome.TIMEOUT, words, seconds=took, details=details)
                details["stderr"] = self._said()
                return Result(name, Outcome.CRASH, self._death(), seconds=took, details=details)
            if "result" in message:
                if "case" in asked:
                    self._ends.acquire(timeout=5)
                return Result.from_json(message["result"])
            if "sample" in message:
                details["sample"] = message["sample"]

    def told_of(self, died: Result) -> Result:
        """The result of a case in which another process died, with a reproducer, and whether that is expected."""
        self._send({"died": died.to_json()})
        message = self._next(time.monotonic() + START_SECONDS)
        if message is None:
            self.alive = False
            return died
        return Result.from_json(message["result"])

    def finish(self) -> tuple[Outcome, str] | None:
        """Let the process end as programs do, and say what is wrong with its end, if anything is."""
        self._errors.clear()
        self.alive = False
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome.TIMEOUT, f"its process does not end: it was still there {END_SECONDS:.0f} s after its work"
        for reader in self._readers:
            reader.join(timeout=5)
        if code:
            return Outcome.CRASH, f"at its end, {self._death()}: {self._said()[-300:]}"
        if said := self._said().strip():
            return Outcome.MISMATCH, f"its process prints at its end: {said[:300]}"
        if left := sorted(os.listdir(self.folder)):
            return Outcome.MISMATCH, f"its process leaves files in the current folder: {', '.join(left)[:300]}"
        kept = (*_CACHES, *self._files)
        if left := sorted(name for name in os.listdir(self._temporary or self.folder) if not name.startswith(kept)):
            return Outcome.MISMATCH, f"its process leaves temporary files: {', '.join(left)[:300]}"
        at_home = (*_CACHES_AT_HOME, *self._files)
        if left := sorted(name for name in os.listdir(self._home or self.folder) if name not in at_home):
            return Outcome.MISMATCH, f"its process leaves files in the home folder: {', '.join(left)[:300]}"
        if left := self._left_in_shared_memory():
            return Outcome.MISMATCH, f"its process leaves shared memory: {', '.join(left)[:300]}"
        if self._has_children() or (self._temporary and _running_with(self._temporary)):
            return Outcome.MISMATCH, "its process leaves processes behind"
        return None

    def _has_children(self) -> bool:
        """Whether any process of the group is there a second after the first one ended."""
        for _ in range(10):
            try:
                os.killpg(self.process.pid, 0)
            except (ProcessLookupError, PermissionError):
                return False
            time.sleep(0.1)
        return True

    def _left_in_shared_memory(self) -> list[str]:
        """What is new in shared memory, stays there, and is used by no process: that of others, which run, is."""
        for _ in range(10):
            new = _in_shared_memory() - self._shared
            if not new:
                return []
            time.sleep(0.1)
        left = new - _mapped(new)
        return sorted(left & _in_shared_memory())  # without that of a process which has ended since

    def kill(self) -> None:
        """End the process and everything it started."""
        self._kill_copy()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _kill_copy(self) -> None:
        if copy := self._copy:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(copy, signal.SIGKILL)

    def close(self) -> None:
        """End the process, and release its resources."""
        self.alive = False
        self.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        for reader in self._readers:
            reader.join(timeout=5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it died; the missing answer shows this
            self.process.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def _next(self, until: float) -> dict[str, Any] | None:
        """The next message; None if there is none in time, or if the process or its copy ended."""
        try:
            line = self._lines.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            return None
        if line is None:
            self._copy = 0
            return None
        message: dict[str, Any] = json.loads(line)
        if "ended" in message:
            self._copy, self._ended = 0, message["ended"]
            return None
        return message

    def _read_output(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            if parsed(line):  # a process may die in the middle of one
                self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            if line.rstrip().endswith(END_OF_A_CASE):
                self._ends.release()
                continue
            self._errors.append(line)
            del self._errors[:-200]

    def _said(self) -> str:
        said = "".join(self._errors)
        with contextlib.suppress(OSError):  # it is there if the process died in a case
            said += Path(self.folder, ERRORS).read_text(errors="replace")
        return said[-4000:]

    def _death(self) -> str:
        code = self._ended if self.process.poll() is None and self._copies else self.process.wait()
        if code < 0:
            return f"its process was killed by {signal.Signals(-code).name}"
        return f"its process ended with exit status {code}"


def _in_shared_memory() -> set[str]:
    """This user's files of shared memory."""
    found = set()
    with contextlib.suppress(OSError), os.scandir(_SHARED_MEMORY) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                    found.add(entry.name)
    return found


def _running_with(temporary: str) -> list[str]:
    """The processes that have this folder for temporary files: also those that left the group."""
    mark, found = b"TMPDIR=" + os.fsencode(temporary) + b"\0", []
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark in Path("/proc", process, "environ").read_bytes():
                found.append(process)
    return found


def _mapped(names: set[str]) -> set[str]:
    """Those files of shared memory that some process has mapped or open."""
    found: set[str] = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        said = ""
        with contextlib.suppress(OSError):
            said += Path("/proc", process, "maps").read_text(errors="replace")
        with contextlib.suppress(OSError):
            for each in os.scandir(f"/proc/{process}/fd"):
                said += os.readlink(each.path) + "\n"
        found |= {name for name in names if f"{_SHARED_MEMORY}/{name}" in said}
    return found
