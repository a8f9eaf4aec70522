"""The artifact cache: compiled artifacts of every backend in one folder, by content.

An entry's name is a hash of everything that determines it (``keys``).  An entry is written to a temporary file and
renamed, so another process sees all of it or nothing.  It starts with a checksum of its name and content, so a damaged
or misplaced entry is detected, dropped and rebuilt.

A cached shared object is code.  The folder must belong to the user and be closed to others (mode 0700); any other
folder is refused.  Someone who could write to the folder in the past may have left files in it, so each entry is
checked too, through its open descriptor: it must be a regular file that belongs to the user and that only the user may
write to.

This module imports no torch: the command line uses it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path

from torchmux.config import config
from torchmux.registry.errors import TorchmuxError

log = logging.getLogger("torchmux.cache")

_MAGIC = b"tmx2"
_DIGEST = hashlib.sha256
_SIZE = _DIGEST().digest_size
_PARTIAL = ".partial-"
_BESIDE = ("failed", "reproducers", "traces")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking, because opening a pipe would wait for a writer.
_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_used: dict[Path, set[str]] = {}  # folder -> entries that this process has read or written
_allowance: dict[Path, int] = {}  # folder -> bytes that this process may write before it measures the folder again
_warned: set[tuple[Path, str]] = set()  # folders and kinds of failure that were warned of


class UnsafeCache(TorchmuxError):
    """The cache folder could be written by someone else."""


class ArtifactCache:
    """A folder of artifacts.

    Together, its files and those of the folders ``beside`` take at most ``limit`` bytes, by default
    ``config.cache_size_limit``, plus what processes write between two measurements.  If an entry cannot be read or
    written (full disk, no permission), one warning is logged and the artifact is compiled without the cache.
    """

    def __init__(self, folder: Path, limit: int | None = None, beside: Sequence[Path] = ()) -> None:
        self.folder = folder
        self.limit = config.cache_size_limit if limit is None else limit
        self.beside = tuple(beside)

    def load(self, key: str) -> bytes | None:
        """The artifact; None if it is missing, unreadable, damaged, or another user's.

        Raises:
            UnsafeCache: the folder belongs to someone else, or others may write to it.
        """
        try:
            content = self._read(key)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn_once("read", "cannot read artifacts in %s; they will be rebuilt: %s", self.folder, error)
            return None
        if content is None:
            return None
        head = len(_MAGIC) + _SIZE
        payload = content[head:]
        if content[: len(_MAGIC)] != _MAGIC or content[len(_MAGIC) : head] != _checksum(key, payload):
            log.warning("the cached artifact %s is damaged and will be rebuilt", self._path(key))
            self.drop(key)
            return None
        with contextlib.suppress(OSError):
            os.utime(self._path(key))  # recently used
        _used.setdefault(self.folder, set()).add(key)
        return payload

    def has(self, key: str) -> bool:
        """Whether there is an entry; :meth:`load` tells whether it is one that may be used."""
        try:
            return self._path(key).exists()
        except OSError:  # of a folder that this user may not read
            return False

    def store(self, key: str, payload: bytes) -> None:
        """Store an artifact; an entry of the same name is replaced.

        Raises:
            UnsafeCache: as :meth:`load`.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(key[:2], 0o700, dir_fd=folder)
                with _opened_shelf(key, folder) as shelf:
                    _write(shelf, key[2:], _MAGIC + _checksum(key, payload), payload)
            _used.setdefault(self.folder, set()).add(key)
            self._trim_when_due(len(payload))
        except OSError as error:
            self._warn_once("write", "cannot store an artifact in %s: %s", self.folder, error)

    def drop(self, key: str) -> None:
        """Remove an entry, if it is there."""
        with contextlib.suppress(OSError):
            self._path(key).unlink(missing_ok=True)

    def entries(self) -> dict[str, os.stat_result]:
        """The names of all entries, and their status in the file system."""
        return {
            path.parent.name + path.name: found
            for path, found in _files(self.folder)
            if path.parent.parent == self.folder and not path.name.startswith(_PARTIAL)
        }

    def clear(self) -> tuple[int, int]:
        """Remove all files, also those of the folders ``beside``; returns their number and bytes.

        Raises:
            OSError: a file cannot be removed.
        """
        count = size = 0
        for folder in (self.folder, *self.beside):
            for _, found in _files(folder):
                count, size = count + 1, size + found.st_size
            if folder.is_symlink() or folder.exists():
                shutil.rmtree(folder)
        _used.pop(self.folder, None)
        _allowance.pop(self.folder, None)
        return count, size

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def _read(self, key: str) -> bytes | None:
        with self._opened() as folder, _opened_shelf(key, folder) as shelf:
            try:
                entry = os.open(key[2:], _ENTRY, dir_fd=shelf)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                entry = None  # a link
            if entry is not None:
                with open(entry, "rb") as file:
                    if _is_own(os.fstat(entry), stat.S_ISREG):
                        return file.read()
        log.warning("the cached artifact %s is not a file of yours alone and will be rebuilt", self._path(key))
        self.drop(key)
        return None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the folder, through which the folder is checked."""
        handle = os.open(self.folder, _FOLDER)
        try:
            self._check_private(os.fstat(handle))
            yield handle
        finally:
            os.close(handle)

    def _check_private(self, found: os.stat_result) -> None:
        if found.st_uid != os.geteuid():
            raise UnsafeCache(
                f"The cache folder {self.folder} belongs to user {found.st_uid}, not to you ({os.geteuid()}); its "
                f"contents run as code, so it is not used. Set TORCHMUX_CACHE_DIR to a folder of your own."
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise UnsafeCache(
                f"The cache folder {self.folder} is open to other users (mode {stat.S_IMODE(found.st_mode):04o}); its "
                f"contents run as code, so it is not used. Remove the folder, or move it away: others may have "
                f"written to it, and changing its mode does not undo that."
            )

    def _warn_once(self, what: str, message: str, *args: object) -> None:
        if (self.folder, what) not in _warned:
            _warned.add((self.folder, what))
            log.warning(message, *args)

    def _trim_when_due(self, written: int) -> None:
        """Trim after the first entry that a process writes, and whenever its allowance is used up.

        Measuring the folder visits each of its files, which may be thousands, so it does not happen for every entry.
        The allowance is half of the free room; the other half is for other processes.
        """
        left = _allowance.get(self.folder, 0) - written
        if left < 0:
            left = max((self.limit - self._trim()) // 2, self.limit // 64)
        _allowance[self.folder] = left

    def _trim(self) -> int:
        """Remove the least recently used files, and partial files older than an hour, which crashed writers left.

        Returns the bytes that remain.
        """
        entries = []
        for folder in (self.folder, *self.beside):
            for path, found in _files(folder):
                if path.name.startswith(_PARTIAL):
                    if time.time() - found.st_mtime > 3600:
                        path.unlink(missing_ok=True)
                else:
                    entries.append((found.st_mtime, found.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries, key=lambda e: e[0]):
            if total <= self.limit:
                break
            path.unlink(missing_ok=True)
            total -= size
        return total


@contextlib.contextmanager
def _opened_shelf(key: str, folder: int) -> Iterator[int]:
    """A descriptor of the folder in which the entry ``key`` lies.

    Raises:
        PermissionError: other users may write to that folder.
    """
    shelf = os.open(key[:2], _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        if not _is_own(os.fstat(shelf), stat.S_ISDIR):
            raise PermissionError(f"others may write to its folder {key[:2]}")
        yield shelf
    finally:
        os.close(shelf)


def _is_own(found: os.stat_result, kind: object) -> bool:
    """Whether a file has this kind, belongs to the user, and only the user may write to it."""
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022  # type: ignore[operator]


def _write(shelf: int, name: str, *content: bytes) -> None:
    """Create or replace a file atomically: readers see all of it or nothing."""
    partial = f"{_PARTIAL}{secrets.token_hex(8)}"
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=shelf)
    try:
        with open(handle, "wb") as file:
            file.writelines(content)
        os.replace(partial, name, src_dir_fd=shelf, dst_dir_fd=shelf)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=shelf)
        raise


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for inside, _, names in os.walk(folder):
        for name in names:
            path = Path(inside) / name
            with contextlib.suppress(FileNotFoundError):  # another process trims too
                yield path, path.lstat()


def _checksum(key: str, payload: bytes) -> bytes:
    digest = _DIGEST(key.encode())
    digest.update(payload)
    return digest.digest()


class CarriedCache(ArtifactCache):
    """Artifacts in memory: those of a saved file, or what is read while one is written (``read``).

    It looks for what it does not have ``behind`` itself, and stores nothing.
    """

    def __init__(self, payloads: Mapping[str, bytes], behind: ArtifactCache | None = None) -> None:
        super().__init__(Path("carried"))
        self._payloads, self._behind = payloads, behind
        self.read: dict[str, bytes] = {}

    def load(self, key: str) -> bytes | None:
        payload = self._payloads.get(key)
        if payload is None and self._behind is not None:
            payload = self._behind.load(key)
        if payload is not None:
            self.read[key] = payload
        return payload

    def store(self, key: str, payload: bytes) -> None:
        self.read[key] = payload

    def drop(self, key: str) -> None:
        self.read.pop(key, None)


_carried: ContextVar[CarriedCache | None] = ContextVar("carried", default=None)


@contextlib.contextmanager
def carrying(cache: CarriedCache) -> Iterator[CarriedCache]:
    """Within, :func:`default_cache` is ``cache`` in this thread."""
    token = _carried.set(cache)
    try:
        yield cache
    finally:
        _carried.reset(token)


def default_cache() -> ArtifactCache | None:
    """The cache that ``torchmux.config`` selects, or None if caching is off."""
    if (carried := _carried.get()) is not None:
        return carried
    if not config.cache_enabled:
        return None
    folder = Path(config.cache_dir)
    beside = [folder / name for name in _BESIDE]
    if config.cache:
        from .fleet import FleetCache

        return FleetCache(config.cache, folder / "artifacts", beside=beside)
    return ArtifactCache(folder / "artifacts", beside=beside)


def used_keys(cache: ArtifactCache) -> list[str]:
    """The names of the entries that this process has read from or written to the folder of ``cache``."""
    return sorted(_used.get(cache.folder, ()))
