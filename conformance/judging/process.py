"""What Linux and the C library say of this process: signals, limits, files, children, how it is scheduled."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

SET_BY_TORCH = (
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH", "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
)  # fmt: skip
"""torch sets these when it imports what AOTAutograd needs, and before it compiles with Triton or C++."""

_KEPT_BY_TORCH = (os.path.join("_inductor", "compile_worker"),)
"""Processes with this in their command line: torch keeps them for the next compilations."""

_ON_LINUX = sys.platform == "linux"


@functools.cache
def libc() -> Any:
    """The C library of this process."""
    return ctypes.CDLL(None)


def signals() -> dict[int, Any]:
    """What Python does at each signal."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def actions() -> list[tuple[int | None, int]]:
    """What Linux calls at each signal, and what else it is to do: whether a system call goes on, among others."""
    found = []
    for number in signal.valid_signals() if _ON_LINUX else ():
        action = ctypes.create_string_buffer(256)  # a handler, 1,024 bits of signals, the flags
        libc().sigaction(number, None, action)
        flags = ctypes.c_int.from_buffer(action, ctypes.sizeof(ctypes.c_void_p) + 128).value
        found.append((ctypes.c_void_p.from_buffer(action).value, flags))
    return found


def limits() -> list[Any]:
    """The limits of resources."""
    import resource

    names = ("AS", "CORE", "STACK", "NOFILE", "CPU", "DATA", "NPROC", "MEMLOCK", "FSIZE", "RSS", "NICE", "SIGPENDING")
    return [resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in names]


def status(*fields: str) -> list[str]:
    """Lines of what Linux says of this process."""
    return [line for line in _told("status").splitlines() if line.startswith(fields)]


def standing() -> list[str]:
    """What else Linux keeps for the process: who ends first without memory, what a dump has, timers, what is pinned."""
    return [*map(_told, ("oom_score_adj", "coredump_filter", "timers")), *status("VmLck", "Seccomp")]


def _told(of: str) -> str:
    with contextlib.suppress(OSError), open(f"/proc/self/{of}", encoding="ascii") as file:
        return file.read()
    return ""


def scheduling() -> list[Any]:
    """Which policy the process runs by, and which group and session it is part of."""
    return [os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None, os.getpgid(0), os.getsid(0)]


def environment_of_c(left_out: Iterable[str]) -> dict[bytes, bytes | None]:
    """What libraries see of the environment otherwise than Python: set past ``os.environ``, changed or taken away."""
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(libc(), "environ")
    seen, place = {}, 0
    while (entry := entries[place]) is not None:
        name, _, text = entry.partition(b"=")
        seen[name] = text
        place += 1
    ours = {os.fsencode(name): os.fsencode(text) for name, text in os.environ.items()}
    others = {name for name in {*seen, *ours} if seen.get(name) != ours.get(name)}
    hidden = {os.fsencode(name) for name in (*left_out, *SET_BY_TORCH)}
    return {name: seen.get(name) for name in others - hidden if not name.startswith(b"__KMP")}


def standard_files() -> list[Any]:
    """Which files standard input and errors are; output is the suite's own meanwhile.  How all of them are used."""
    which = [(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in (0, 2)]
    return [which, *((fcntl.fcntl(n, fcntl.F_GETFL), fcntl.fcntl(n, fcntl.F_GETFD)) for n in (0, 1, 2))]


def children(declared: Iterable[str]) -> list[str]:
    """The processes that this one started and that are there, but for those that a compiler keeps, as declared."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [child for child in file.read().split() if not _is_kept(child, declared)]


def _is_kept(process: str, declared: Iterable[str]) -> bool:
    command = ""
    with contextlib.suppress(OSError):
        for _ in range(20):  # one that has just begun has no command line yet; one that has ended has none any more
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    break
            with open(f"/proc/{process}/cmdline", "rb") as file:
                command = os.fsdecode(file.read())
            if command:
                break
            time.sleep(0.001)
    return any(part in command for part in (*_KEPT_BY_TORCH, *declared))


def controls() -> list[int]:
    """What a process asks of Linux for itself: dumps, slow timers, no new rights, orphans, large pages, its end."""
    if not _ON_LINUX:
        return []
    return [libc().prctl(which, 0, 0, 0, 0) for which in (3, 30, 39, 42)] + [_asked(37), _asked(2)]


def _asked(which: int) -> int:
    found = ctypes.c_int()
    libc().prctl(which, ctypes.byref(found), 0, 0, 0)
    return found.value


_IO_PRIORITY = {"x86_64": 252, "aarch64": 31}
"""The number of the system call that tells it."""


def io_priority() -> int | None:
    """How Linux orders what the process reads and writes; None where its number is not known."""
    number = _IO_PRIORITY.get(platform.machine()) if _ON_LINUX else None
    return None if number is None else int(libc().syscall(number, 1, 0))


def wakeup(main: Callable[[], bool]) -> int:
    """The file that is told of signals; only the main thread may ask."""
    if not main():
        return -1
    number = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(number, warn_on_full_buffer=False)
    return number
