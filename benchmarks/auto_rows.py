"""Many rows of ``auto.py`` at a time: a process for each, pinned to a core of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchmux.bench.results import Result, from_json
from torchmux.scratch import scratch_folder

POLL_S = 0.2
FOR_ENDING = 20.0
"""Seconds of the whole time that are kept for rows that end late."""

FOR_AUTO = 0.35
"""The share of a row's time that auto's decision may take."""

TAIL = 2000


@dataclass
class _Started:
    name: str
    core: int
    process: subprocess.Popen[bytes]
    file: Path
    errors: Path
    began: float = field(default_factory=time.monotonic)


def spread(
    names: Sequence[str], *, jobs: int, within: float, arguments: Sequence[str], done: Callable[[Result], None]
) -> dict[str, str]:
    """Measure the rows, ``jobs`` at a time, longest first; ``done`` is called with each result.

    A row gets an equal share of the time that is left when it begins.  One that is not ready after ``within`` seconds
    is ended.

    Args:
        names: of rows, those that take longest first.
        jobs: rows at a time.
        within: seconds for all.
        arguments: of ``auto.py``, for each row.

    Returns:
        For each row without a result, why.

    Raises:
        ValueError: the process may not run on so many cores.
    """
    cores = sorted(os.sched_getaffinity(0))
    if jobs > len(cores):
        raise ValueError(f"--jobs {jobs}: this process may run on {len(cores)} cores")
    free, waiting, running = cores[:jobs], list(names), list[_Started]()
    ends = time.monotonic() + within
    failed: dict[str, str] = {}
    with scratch_folder() as folder:
        try:
            while waiting or running:
                while free and waiting:
                    rounds = -(-len(waiting) // jobs)
                    cap = (ends - FOR_ENDING - time.monotonic()) / rounds
                    name = waiting.pop(0)
                    if cap < FOR_ENDING:
                        failed[name] = "the time was spent before its turn"
                        continue
                    running.append(_start(name, free.pop(0), cap, folder, arguments))
                time.sleep(POLL_S)
                for each in [r for r in running if r.process.poll() is not None or time.monotonic() > ends]:
                    running.remove(each)
                    free.append(each.core)
                    if why := _end(each, done):
                        failed[each.name] = why
        finally:
            for each in running:
                _kill(each.process)
    return failed


def _start(name: str, core: int, cap: float, folder: Path, arguments: Sequence[str]) -> _Started:
    stem = name.replace(" ", "-")
    file, errors = folder / f"{stem}.json", folder / f"{stem}.err"
    command = [
        sys.executable, str(Path(__file__).with_name("auto.py")), "--rows", name, "--json", str(file),
        "--cap", f"{cap:.0f}", "--auto-budget", f"{cap * FOR_AUTO:.0f}", *arguments,
    ]  # fmt: skip
    own = folder / f"{stem}.tmp"
    own.mkdir()
    with errors.open("wb") as told:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=told, start_new_session=True,
            env={**os.environ, "TMPDIR": str(own), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    os.sched_setaffinity(process.pid, {core})  # before it starts threads or processes of its own, which inherit it
    print(f"{name}: core {core}, {cap:.0f} s", file=sys.stderr, flush=True)
    return _Started(name, core, process, file, errors)


def _end(each: _Started, done: Callable[[Result], None]) -> str:
    """Take the result of a row; or why there is none."""
    ended = each.process.poll()
    _kill(each.process)
    seconds = time.monotonic() - each.began
    try:
        (result,) = from_json(each.file.read_text())
    except (OSError, ValueError):
        if ended is None:
            return f"it was ended after {seconds:.0f} s"
        return f"its process ended with {ended}: {each.errors.read_text(errors='replace')[-TAIL:].strip()}"
    print(f"{each.name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    done(result)
    return ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a row's process and those that it started; they are in a session of their own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
