"""Decisions that a fleet shares: a folder, or any address that fsspec knows, named by ``config.decisions``.

There is one file for each key, which whoever has measured writes, and no lock.  A file of claims says who measures
meanwhile.  A claim has an end, so a process that dies holds the others up for as long as a measurement takes.  Two
that claim at the same time both measure; the later one of two equal files stands.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from torchmux.backends.common.cache.addresses import Files, files_at
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
                    self._files = files_at(self.address, MOST_BYTES)
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
