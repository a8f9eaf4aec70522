"""Processes for candidates, seen from the program: what they are asked, how long they may take, how they end."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import select
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from torchmux.config import config
from torchmux.scratch import remove_leftovers

from . import births

_POLL = 0.05
_TAIL = 300
_PATIENCE_S = 5.0


class Lost(Exception):
    """A worker is gone, or its candidate is not to be had; the message says why."""


_ended = threading.Event()


def end_all() -> None:
    """Kill all workers, and start no more: the program ends.  Threads that wait for an answer see that they died."""
    _ended.set()
    births.kill_all()


class Process:
    """One worker.  It ends with the block, when it breaks a limit, or with the program.

    Args:
        folder: where its files are.
        memory: bytes that it may take beyond those that it begins with.
        training: whether what it compiles has a backward pass.
        cold: whether it has empty caches.

    Raises:
        Lost: the program ends.
    """

    def __init__(self, folder: Path, name: str, memory: int, *, training: bool, cold: bool = False) -> None:
        if _ended.is_set():
            raise Lost("the program ends")
        self.name = name
        self._folder = folder
        self._memory = memory
        self._cold = cold
        self._errors = folder / f"{name}.err"
        self._child = births.born(folder / f"{name}.out", self._errors, training=training)
        self._began_with = 0
        self._has_ended = False
        self._one = threading.Lock()  # questions of several threads, each of which reads its own answer

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.end()

    def open(self, until: float, **more: Any) -> None:
        """Have it take the place of the program, and take up what it works on."""
        settings = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
        environment = dict(os.environ)
        if self._cold:
            own = self._folder / f"{self.name}.cache"
            own.mkdir()
            environment.update(dict.fromkeys(("TORCHMUX_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR"), str(own)))
            settings["cache_dir"] = own
        self.ask(
            "open",
            until,
            folder=str(self._folder),
            path=[os.path.abspath(folder) for folder in sys.path],
            environment=environment,
            config=pickle.dumps(settings).hex(),
            **more,
        )
        self._began_with = self._taken()

    def ask(self, what: str, until: float, **more: Any) -> dict[str, Any]:
        """The answer to a question, before ``until`` on the clock of ``time.monotonic``.

        While another thread waits for an answer, ``until`` moves on.

        Raises:
            Lost: it died, took too long or too much memory, or the candidate raised an exception.
        """
        asked = time.monotonic()
        with self._one:
            until += time.monotonic() - asked
            if self._has_ended:
                raise Lost("its process has ended")
            try:
                os.write(self._child.requests, json.dumps({"do": what, **more}).encode() + b"\n")
            except OSError:  # it has died, or was ended by another thread
                raise Lost(self._death()) from None
            answer: dict[str, Any] = json.loads(self._line(what, until))
        if "raised" in answer:
            raise Lost(answer["raised"])
        if answer.get("changed"):
            raise Lost(f"it changes {', '.join(answer['changed'])}")
        if answer.get("printed"):
            raise Lost(f"it prints: {' '.join(answer['printed'].split())[:_TAIL]}")
        return answer

    def said(self) -> str:
        """What it has written to its standard error, in one line."""
        with contextlib.suppress(OSError):
            return " ".join(self._errors.read_text(errors="replace").split())
        return ""

    def end(self) -> None:
        """Kill it, and what it has started."""
        self._end(0.0)

    def _end(self, patience: float) -> int:
        self._has_ended = True
        status = self._child.end(patience)
        if status < 0:
            remove_leftovers()
        return status

    def _line(self, what: str, until: float) -> bytes:
        found = b""
        began = time.monotonic()
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self._child.answers], [], [], _POLL)
            if ready:
                more = os.read(self._child.answers, 1 << 16)
                if not more:
                    raise Lost(self._death())
                found += more
            if time.monotonic() > until:
                self.end()
                raise Lost(
                    f"it hangs, or is too slow for the budget: {what} took over {time.monotonic() - began:.1f} s"
                )
            if (used := self._taken() - self._began_with) > self._memory:
                self.end()
                raise Lost(f"it takes too much memory: {used >> 20} MiB, of {self._memory >> 20} MiB allowed")
        return found

    def _taken(self) -> int:
        """Bytes of its own, those that it has not written to since it was forked included; no mapped files."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            resident, shared = Path(f"/proc/{self._child.pid}/statm").read_text().split()[1:3]
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def _death(self) -> str:
        code = self._end(_PATIENCE_S)
        last = self._errors.read_text(errors="replace").strip().splitlines()[-1:]
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        return f"its process died ({how}){f': {last[0][:_TAIL]}' if last else ''}"
