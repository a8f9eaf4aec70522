"""Decisions that a fleet shares: a folder, or any address that fsspec knows, named by ``config.decisions``.

There is one file for each key, which whoever has measured writes, and no lock.  A file of claims says who measures
meanwhile.  A claim has an end, so a process that dies holds the others up for as long as a measurement takes.  Two
that claim at the same time both measure; the later one of two equal files stands.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from torchmux.config import config
from torchmux.registry.errors import TorchmuxError

from . import portable
from .decision import Decision

log = logging.getLogger("torchmux.cache")

T = TypeVar("T")

SLACK_S = 120.0
"""What a measurement may take beyond twice its budget before its claim ends."""

PAUSE_S = 60.0
"""For how long an address that has failed is left alone."""

MOST_BYTES = 1 << 24
"""A file that is larger is no decision."""


class Files(Protocol):
    """The three things that are done at an address; each may raise any exception."""

    def read(self, name: str) -> bytes | None:
        """The file, or None if there is none."""

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a file, at once where the file system can."""

    def create(self, name: str, content: bytes) -> bool:
        """Make a file, unless there is one; whether it was made."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""


class Share:
    """An address; the first failure is logged, and the process goes on without the address for a while."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._files: Files | None = None
        self._token = secrets.token_hex(8)
        self._is_warned = False
        self._rests_until = 0.0
        self._lock = threading.Lock()

    def get(self, key: str) -> Decision | None:
        """The decision with this key, if a readable one is there."""
        content = self._tried(lambda files: files.read(f"{key}.json"), None)
        if content is None:
            return None
        try:
            if len(content) > MOST_BYTES:
                raise portable.InvalidDecisions("it is too large")
            (entry,) = portable.unpacked(content)
        except (TorchmuxError, ValueError) as error:
            log.warning("the shared decision %s in %s cannot be read, and is made again: %s", key, self.address, error)
            return None
        if entry.decision is None or entry.key != key:
            why = entry.refused or "it has another key"
            log.warning("the shared decision %s in %s is refused, and is made again: %s", key, self.address, why)
            return None
        return entry.decision

    def put(self, key: str, decision: Decision) -> None:
        """Write a decision; one with the same key is replaced."""
        content = portable.packed([decision]).encode()
        self._tried(lambda files: files.write(f"{key}.json", content), None)

    def claim(self, key: str, seconds: float) -> bool:
        """Whether this process is to measure: nobody else does, or the address cannot be used."""
        name = f"{key}.claim"
        content = json.dumps({"by": self._token, "until": time.time() + 2 * seconds + SLACK_S}).encode()

        def try_it(files: Files) -> bool:
            if files.create(name, content):
                return True
            found = _claim(files.read(name))
            if found is not None and found["until"] > time.time() and found["by"] != self._token:
                return False
            files.write(name, content)  # the claim has ended; of several that see this, the last one has it
            return (_claim(files.read(name)) or {}).get("by") == self._token

        return self._tried(try_it, True)

    def release(self, key: str) -> None:
        """End the claim of this process."""

        def try_it(files: Files) -> None:
            if (_claim(files.read(f"{key}.claim")) or {}).get("by") == self._token:
                files.remove(f"{key}.claim")

        self._tried(try_it, None)

    def _tried(self, work: Callable[[Files], T], otherwise: T) -> T:
        if time.monotonic() < self._rests_until:
            return otherwise
        try:
            with self._lock:
                if self._files is None:
                    self._files = files_at(self.address)
            return work(self._files)
        except TorchmuxError as error:  # fsspec, or what it needs for this address, is not installed
            self._warn(str(error))
        except Exception as error:
            self._warn(f"{type(error).__name__}: {error}")
        return otherwise

    def _warn(self, why: str) -> None:
        self._rests_until = time.monotonic() + PAUSE_S
        if not self._is_warned:
            self._is_warned = True
            log.warning("config.decisions=%r cannot be used; decisions stay on this machine: %s", self.address, why)


class Folder:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        try:
            with open(os.open(self.path / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                return file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        partial = self._partial(content)
        try:
            os.replace(partial, self.path / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def create(self, name: str, content: bytes) -> bool:
        partial = self._partial(content)
        try:
            os.link(partial, self.path / name)  # unlike an exclusive open, this shows the content at once
        except FileExistsError:
            return False
        except OSError:  # a file system without links
            return self._create_open(name, content)
        finally:
            partial.unlink(missing_ok=True)
        return True

    def _create_open(self, name: str, content: bytes) -> bool:
        try:
            with open(self.path / name, "xb") as file:
                file.write(content)
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)

    def _partial(self, content: bytes) -> Path:
        partial = self.path / f".partial-{secrets.token_hex(8)}"
        partial.write_bytes(content)
        return partial


class Remote:
    """An address of fsspec.

    Object stores show a file at once or not at all.  Where a system shows one that is being written, it is no JSON yet,
    and counts as missing.
    """

    def __init__(self, address: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise TorchmuxError(
                f"{address} needs fsspec, which is not installed: python -m pip install 'torchmux[fsspec]'."
            ) from None
        self.system, self.path = url_to_fs(address)
        self.system.makedirs(self.path, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        self.system.invalidate_cache()  # others write
        try:
            content: bytes = self.system.cat_file(self._at(name), end=MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        self.system.pipe_file(self._at(name), content)

    def create(self, name: str, content: bytes) -> bool:
        self.system.invalidate_cache()
        if self.system.exists(self._at(name)):
            return False
        try:
            self.system.pipe_file(self._at(name), content, mode="create")
        except FileExistsError:
            return False
        except (TypeError, ValueError, NotImplementedError):  # this file system cannot
            self.system.pipe_file(self._at(name), content)
        return self.read(name) == content  # otherwise someone was quicker

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.system.rm_file(self._at(name))

    def _at(self, name: str) -> str:
        return f"{self.path.rstrip('/')}/{name}"


def files_at(address: str) -> Files:
    """The files of a folder, or of an address with a protocol; an unusable one raises any exception."""
    path = address.removeprefix("file://")
    return Remote(address) if "://" in path else Folder(Path(path).expanduser())


_shares: dict[str, Share] = {}


def current() -> Share | None:
    """The address that ``config.decisions`` names, if any."""
    address = config.decisions
    if not address:
        return None
    return _shares.setdefault(address, Share(address))


def _claim(content: bytes | None) -> dict[str, Any] | None:
    """What a claim says; None for none, and for one that cannot be read."""
    try:
        told = json.loads(content or b"")
    except ValueError:
        return None
    is_one = isinstance(told, dict) and isinstance(told.get("by"), str) and isinstance(told.get("until"), (int, float))
    return told if is_one else None
