"""Processes for candidates, seen from the program: what they are asked, how long they may take, how they end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

_POLL = 0.05
_TAIL = 300


class Lost(Exception):
    """A worker is gone, or its candidate is not to be had; the message says why."""


_living: weakref.WeakSet[Process] = weakref.WeakSet()
_ended = threading.Event()


def end_all() -> None:
    """Kill all workers, and start no more: the program ends."""
    _ended.set()
    for process in list(_living):
        process.end()


os.register_at_fork(after_in_child=_living.clear)  # they belong to the parent


class Process:
    """One worker.  It ends with the block, when it breaks a limit, or with the program.

    ``cold`` gives it empty caches.

    Raises:
        Lost: the program ends.
    """

    def __init__(self, folder: Path, name: str, memory: int, *, cold: bool = False) -> None:
        if _ended.is_set():
            raise Lost("the program ends")
        self._memory = memory
        self._errors = folder / f"{name}.err"
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        if cold:
            own = folder / f"{name}.cache"
            own.mkdir()
            environment.update(dict.fromkeys(("TORCHMUX_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(own)))
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "torchmux.multiplexer.worker", str(folder / f"{name}.out")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        _living.add(self)
        if _ended.is_set():
            self.end()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def ask(self, what: str, until: float, **more: Any) -> dict[str, Any]:
        """The answer to a question, before ``until`` on the clock of ``time.monotonic``.

        Raises:
            Lost: it died, took too long or too much memory, or the candidate raised an exception.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **more}).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # it has died, or was ended by another thread
            raise Lost(self._death()) from None
        line = self._line(what, until)
        answer: dict[str, Any] = json.loads(line)
        if "raised" in answer:
            raise Lost(answer["raised"])
        if answer.get("changed"):
            raise Lost(f"it changes {', '.join(answer['changed'])}")
        if answer.get("printed"):
            raise Lost(f"it prints: {' '.join(answer['printed'].split())[:_TAIL]}")
        return answer

    def end(self) -> None:
        """Kill it, and what it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _line(self, what: str, until: float) -> bytes:
        stream = self._process.stdout
        assert stream is not None
        found = b""
        began = time.monotonic()
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([stream], [], [], _POLL)
            if ready:
                more = os.read(stream.fileno(), 1 << 16)
                if not more:
                    raise Lost(self._death())
                found += more
            if time.monotonic() > until:
                self.end()
                raise Lost(
                    f"it hangs, or is too slow for the budget: {what} took over {time.monotonic() - began:.1f} s"
                )
            if (used := self._resident()) > self._memory:
                self.end()
                raise Lost(f"it takes too much memory: {used >> 20} MiB, of {self._memory >> 20} MiB allowed")
        return found

    def _resident(self) -> int:
        try:
            fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        except (OSError, IndexError):
            return 0
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0

    def _death(self) -> str:
        code = self._process.wait()
        last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"its process died ({how}){f': {last[0][:_TAIL]}' if last else ''}"
