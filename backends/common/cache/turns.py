"""One process compiles, the others wait for its artifact: ranks of a distributed job, or workers that start at once.

A process that finds no artifact takes a lock of its name.  Others that want the same artifact wait until it is there,
or until the lock is free.  The kernel frees the lock of a process that dies, and nobody waits for longer than
``config.compilation_wait_s``, so a process that hangs costs the others time and never stops them.  Ranks do not talk to
each other for that, so ranks that compile different graphs do not wait for each other at all.

All locks are those of bytes in one file, one byte for each name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import struct
import time
from collections.abc import Iterator

from torchmux.config import config

from .cache import ArtifactCache, CarriedCache, default_cache

log = logging.getLogger("torchmux.cache")

_FILE = "turns.lock"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.05  # seconds between two looks


@contextlib.contextmanager
def turn(key: str) -> Iterator[None]:
    """Within, this thread is the only one that compiles the artifact ``key``, or the artifact is in the cache.

    The block looks for the artifact itself, and compiles and stores it if there is none.  Without a cache, or where its
    folder allows no locks, nobody waits.
    """
    cache = default_cache()
    if cache is None or isinstance(cache, CarriedCache) or not config.compilation_wait_s or cache.has(key):
        yield
        return
    handle = _opened(cache)
    if handle is None:
        yield
        return
    try:
        _wait(handle, cache, key)
        yield
    finally:
        _free(handle, key)
        os.close(handle)


@contextlib.contextmanager
def turn_without_waiting(key: str) -> Iterator[bool]:
    """Whether no other process compiles the artifact ``key``; if so, none begins to within."""
    cache = default_cache()
    handle = None if cache is None or isinstance(cache, CarriedCache) else _opened(cache)
    if handle is None:
        yield True
        return
    taken = False
    try:
        taken = _is_taken(handle, key)
        yield taken
    finally:
        if taken:
            _free(handle, key)
        os.close(handle)


def _opened(cache: ArtifactCache) -> int | None:
    try:
        cache.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(
            cache.folder.parent / _FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        log.debug("processes do not wait for each other's artifacts in %s: %s", cache.folder, error)
        return None


def _wait(handle: int, cache: ArtifactCache, key: str) -> None:
    """Return when the lock is taken, the artifact is there, or it took too long."""
    until, pause = time.monotonic() + config.compilation_wait_s, _FIRST_PAUSE
    while not _is_taken(handle, key):
        if cache.has(key):
            return
        if time.monotonic() > until:
            log.warning(
                "another process has been compiling the artifact %s for more than %d s; this process compiles it too "
                "(config.compilation_wait_s)",
                key,
                config.compilation_wait_s,
            )
            return
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _is_taken(handle: int, key: str) -> bool:
    """Whether the lock of ``key`` is this descriptor's now; also where the file system has no locks."""
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _byte_of(key, fcntl.F_WRLCK))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        log.debug("no lock for the artifact %s: %s", key, error)
    return True


def _free(handle: int, key: str) -> None:
    """Free the lock, also if a process that was forked meanwhile has the descriptor as well."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _byte_of(key, fcntl.F_UNLCK))


def _byte_of(key: str, kind: int) -> bytes:
    """The ``struct flock`` of the byte that stands for ``key``."""
    return struct.pack("hhqqi0q", kind, os.SEEK_SET, int(key[:15], 16), 1, 0)
