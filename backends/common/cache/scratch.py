"""Temporary folders that go with the process that made them, however it ended.

A folder is locked as long as its process lives.  A process that makes its first one removes those of its user that
nobody holds a lock on: what was left by processes that were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "torchmux-scratch-"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A private folder for the block.

    Raises:
        OSError: there is no room for it.
    """
    _purge(tempfile.gettempdir())
    folder, lock = _made()
    try:
        yield folder
    finally:
        # What the block started may still write when it was interrupted; the next process removes that.
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _made() -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _locked(folder)
        if lock is not None and folder.exists():
            return folder, lock
        if lock is not None:  # another process was faster, and took it for one that was left
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """A descriptor that holds the lock of a folder; None if somebody else has it, or the folder is gone."""
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
    """Remove what was left in a folder; once in a process."""
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
