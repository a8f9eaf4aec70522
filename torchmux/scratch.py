"""Temporary folders that are removed even if the process that made them was killed.

A process holds a lock on each of its folders.  Before it makes its first one, it removes the folders of its user that
no process has locked: leftovers of killed processes.  When it ends, it removes those of threads that have not come to
the end of their block.  Everything in torchmux that needs a temporary folder uses this.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "torchmux-scratch-"
_IN_MEMORY = "/dev/shm"
_open: set[tuple[int, Path]] = set()  # with the process, as a forked one has no part in them


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder for the block.

    Raises:
        OSError: there is no room for it.
    """
    place = _place()
    _purge(place)
    folder, lock = _made(place)
    _open.add(own := (os.getpid(), folder))
    try:
        yield folder
    finally:
        # Processes that the block started may still write here after an interrupt; the next process removes that.
        if own[0] == os.getpid():  # in a forked process, a block may end that is another's
            shutil.rmtree(folder, ignore_errors=True)
        _open.discard(own)
        os.close(lock)


@atexit.register
def _remove_open() -> None:
    for process, folder in list(_open):
        if process == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


def _place() -> str:
    """Where temporary folders go: in memory where no disk can be written to, as in a container that only reads."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        if os.access(_IN_MEMORY, os.W_OK | os.X_OK):
            return _IN_MEMORY
        raise


def _made(place: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        lock = _locked(folder)
        if lock is not None and folder.exists():
            return folder, lock
        if lock is not None:  # another process removed the folder before it was locked
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None if another process has it, or the folder is gone."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


@functools.cache
def _purge(folder: str) -> None:
    """Remove the leftovers in a folder, once per process."""
    _remove_unlocked(folder)


def remove_leftovers() -> None:
    """Remove the folders of processes that were killed, such as those of a candidate that took too long."""
    _remove_unlocked(_place())


def _remove_unlocked(folder: str) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if not entry.name.startswith(_PREFIX):
                continue
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                    continue
            lock = _locked(Path(entry.path))
            if lock is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(lock)
