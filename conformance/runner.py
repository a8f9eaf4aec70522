"""Running many cases in processes of their own, with time limits, in a way that can be interrupted and gone on with."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .outcome import Outcome, Result

START_SECONDS = 180.0
"""How long a worker may take to import torch and collect the cases."""


class Journal:
    """Results on disk, a line each, written as they come: what is there need not run again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                with contextlib.suppress(ValueError, TypeError, KeyError):  # a line that was being written
                    result = Result.from_json(json.loads(line))
                    self.results[result.case] = result

    def add(self, result: Result) -> None:
        self.results[result.case] = result
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps(result.to_json()) + "\n")


def run(
    names: Sequence[str],
    *,
    backend: str,
    level: str = "quick",
    requirements: str = "",
    seconds: float = 120.0,
    workers: int = 1,
    journal: Journal | None = None,
    progress: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Run the cases with these ids, except those that the journal has, and return all results in order.

    Args:
        requirements: ``module:Class`` of the :class:`Requirements`; empty: what the backend's description claims.
        seconds: how long one case may take before its process is ended and it counts as a timeout.
        workers: processes at once.
        progress: called with each new result, from several threads.
    """
    journal = journal or Journal(None)
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        if name not in journal.results:
            waiting.put(name)
    # A worker imports torch's samples only if a case asks for one.
    subjects = sorted({name.partition("/")[0] for name in names})
    head = {
        "backend": backend,
        "level": level,
        "requirements": requirements,
        "path": [os.getcwd()],
        "patterns": [f"{subject}/*" for subject in subjects],
    }
    lock, stop = threading.Lock(), threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for result in _worked_off(waiting, head, seconds, stop):
                with lock:
                    journal.add(result)
                progress(result)
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
    return [journal.results[name] for name in names if name in journal.results]


def _worked_off(
    waiting: queue.SimpleQueue[str], head: dict[str, Any], seconds: float, stop: threading.Event
) -> Iterator[Result]:
    """Results of waiting cases, by one worker at a time, and a new one for each that dies."""
    worker: _Worker | None = None
    try:
        while not stop.is_set():
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            if worker is None:
                worker = _Worker(head)
            result = worker.run(name, seconds)
            if not worker.alive:
                worker.close()
                worker = None
            yield result
    finally:
        if worker is not None:
            worker.close()


class _Worker:
    """One process; dead after a case that killed it or took too long."""

    def __init__(self, head: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "torchmux.conformance.worker"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.alive = True
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        self._send(head)
        if self._next(time.monotonic() + START_SECONDS) is None:
            self.close()
            raise RuntimeError(f"a worker of the conformance suite does not start:\n{self._said()}")

    def run(self, name: str, seconds: float) -> Result:
        self._errors.clear()
        begun = time.monotonic()
        self._send({"case": name})
        while True:
            message = self._next(begun + seconds)
            if message is None:
                self.alive = False
                took = time.monotonic() - begun
                if took >= seconds:
                    return Result(name, Outcome.TIMEOUT, f"not finished after {seconds:.0f} s", seconds=took)
                return Result(name, Outcome.CRASH, self._death(), seconds=took, details={"stderr": self._said()})
            if "result" in message:
                return Result.from_json(message["result"])

    def close(self) -> None:
        """End the process and whatever it started."""
        self.alive = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for reader in self._readers:
            reader.join(timeout=5)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # it has died, which the missing answer tells
            self.process.stdin.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def _next(self, until: float) -> dict[str, Any] | None:
        """The next message; None when there is none by then, or never will be."""
        try:
            line = self._lines.get(timeout=max(0.01, until - time.monotonic()))
        except queue.Empty:
            return None
        return None if line is None else json.loads(line)

    def _read_output(self) -> None:
        for line in self.process.stdout:  # type: ignore[union-attr]
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        for line in self.process.stderr:  # type: ignore[union-attr]
            self._errors.append(line)
            del self._errors[:-200]

    def _said(self) -> str:
        return "".join(self._errors)[-4000:]

    def _death(self) -> str:
        code = self.process.wait()
        if code < 0:
            return f"its process was ended by {signal.Signals(-code).name}"
        return f"its process ended with exit status {code}"
