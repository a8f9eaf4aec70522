"""Work off the program's calls: threads that measure and compile while the program runs, and end with it.

A graph that was captured in one thread is compiled in another.  Much of what a compilation depends on belongs to a
thread, such as the grad mode and the fake mode of the capture; :class:`Setting` has it.  The rest belongs to the
process and may have changed since: the compilation waits until it is again as it was.  What torch traces, and whether
it traces, is kept in globals of the process, so compilations exclude each other and captures.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - it registers what waits for its threads; ours comes before it
import contextlib
import ctypes
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from torchmux import torch_internals as internals
from torchmux.backends.common.cache.listing import Unknown
from torchmux.backends.common.cache.recipes import named_settings
from torchmux.compile_lock import shared
from torchmux.torch_internals.tracer_stand_in import tracer_stand_in

from .. import workers

log = logging.getLogger("torchmux")

T = TypeVar("T")

_POLL_S = 0.1
_LAST_S = 5.0
"""How long the end of the program waits for a thread."""

_MOMENT_S = 3.0
"""How long a thread waits for the lock of captures at a time."""


class Ended(BaseException):
    """The program ends, or nobody needs the result any more."""


# --- threads ----------------------------------------------------------------------------------------------------------


class Job(threading.Thread):
    """One piece of work.  The end of the program ends it."""

    def __init__(self, work: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self.compiles = False  # whether it is where only an exception can end it

    def run(self) -> None:
        try:
            self._work()
        except Ended:
            return
        except Exception:
            if not _ending.is_set():
                log.exception("auto: what runs stays as it is, since its thread has failed")


_jobs: weakref.WeakSet[Job] = weakref.WeakSet()
_ending = threading.Event()
_one = threading.Lock()


def start(work: Callable[[], None], name: str = "torchmux-auto") -> None:
    """Do this in a thread of its own, unless the program ends."""
    if _ending.is_set():
        return
    _end_with_the_program()
    job = Job(work, name)
    _jobs.add(job)
    job.start()


@functools.cache
def _end_with_the_program() -> None:
    # The interpreter waits for the threads of pools before it calls what atexit has, and a measurement has a pool.
    register: Callable[[Callable[[], None]], Any] = getattr(threading, "_register_atexit", atexit.register)
    register(_end)


def check() -> None:
    """Raise :class:`Ended` if the program ends."""
    if _ending.is_set():
        raise Ended


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """For measurements, which disturb each other."""
    lock = _one
    while not lock.acquire(timeout=_POLL_S):
        check()
    try:
        yield
    finally:
        lock.release()


def _end() -> None:
    """End all work: a thread that outlives the interpreter may take the process down with it."""
    _ending.set()
    workers.end_all()
    until = time.monotonic() + _LAST_S
    for job in list(_jobs):
        if job.is_alive() and job.compiles and job.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(job.ident), ctypes.py_object(Ended))
    for job in list(_jobs):
        if job.is_alive():
            job.join(max(0.0, until - time.monotonic()))


def _forked() -> None:
    """In a forked process: the threads are not there, and the locks that they held are not released."""
    global _one
    _jobs.clear()
    _one = threading.Lock()


os.register_at_fork(after_in_child=_forked)


# --- compilations -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What the thread of a capture has set, and what the process had set at that time.

    ``of_process`` is None where this cannot be told, or not be had in another thread: under autocast and modes.
    """

    grad: bool
    inference: bool
    of_process: dict[str, str] | None

    @classmethod
    def now(cls) -> Setting:
        try:
            found: dict[str, str] | None = _settings()
        except Unknown:
            found = None
        return cls(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), found)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """The same in this thread."""
        with torch.inference_mode(self.inference), torch.set_grad_enabled(self.grad):
            yield

    def is_here(self) -> bool:
        """Whether the settings of the process are those of the capture."""
        if self.of_process is None:
            return True
        try:
            return _settings() == self.of_process
        except Unknown:
            return False


def _settings() -> dict[str, str]:
    """What a compilation depends on.  Modules of torch's register kernels when they are imported, at any time."""
    return {name: value for name, value in named_settings().items() if name != "python_kernels"}


class NotNow(Exception):
    """The settings of the process are not those of the capture."""


def compile_here(setting: Setting, build: Callable[[], T], *, wait: bool) -> T:
    """Compile in this thread, in the setting of a capture.

    Args:
        wait: until this is possible; otherwise for a moment only.  Who waits for a measurement may hold the lock of
            captures, so the thread of a measurement must not wait for that.

    Raises:
        NotNow: it is not possible now, and ``wait`` is not set.
        Ended: the program ends meanwhile.
    """
    job = threading.current_thread()
    while True:
        check()
        with _alone() as is_alone:
            if is_alone:
                with setting.active():
                    if setting.is_here():
                        if isinstance(job, Job):
                            job.compiles = True
                        try:
                            with tracer_stand_in():
                                made = build()
                        finally:
                            if isinstance(job, Job):
                                job.compiles = False
                        if setting.is_here():  # otherwise a thread has changed them meanwhile
                            return made
        if not wait:
            raise NotNow
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _alone() -> Iterator[bool]:
    """The lock of captures, and that of torch's own tracer if it is there; whether both could be had.

    That tracer may compile for us and we may compile under it: neither lock is waited for while the other is held.
    """
    lock = shared.lock
    if not lock.acquire(timeout=_MOMENT_S):
        yield False
        return
    try:
        theirs = internals.tracer_lock()
        if theirs is None:
            yield True
        elif theirs.acquire(blocking=False):
            try:
                yield True
            finally:
                theirs.release()
        else:
            yield False
    finally:
        lock.release()
