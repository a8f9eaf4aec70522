"""The artifact cache of a fleet: an address that many machines share, behind the folder of each.

What is read from the address goes to the folder, and what is compiled goes to both.  Artifacts run as code, and many
may be able to write to the address, so each is signed (HMAC-SHA256) with a key that the machines share,
``TORCHMUX_CACHE_KEY``: what is not signed with it is never run.  There is no lock.  Whoever writes an entry later
replaces one that does the same, and an entry that is not whole has no valid signature.

Nothing is removed from the address.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from torchmux.config import config
from torchmux.registry.errors import TorchmuxError

from .addresses import Files, files_at
from .cache import ArtifactCache

log = logging.getLogger("torchmux.cache")

T = TypeVar("T")

KEY_VARIABLE = "TORCHMUX_CACHE_KEY"
PAUSE_S = 60.0
"""For how long an address that has failed is left alone: twice as long after each further failure, since a client may
try for half a minute before it says so."""

_MAGIC = b"tmxf"
_HEAD = len(_MAGIC) + hashlib.sha256().digest_size


class FleetCache(ArtifactCache):
    """The folder of this machine, and ``address`` behind it.

    An address that cannot be used, or a process without the key, works with the folder alone; one warning says so.
    """

    def __init__(self, address: str, folder: Path, limit: int | None = None, beside: Sequence[Path] = ()) -> None:
        super().__init__(folder, limit, beside)
        self._behind = _addresses.setdefault(address, _Address(address))

    def load(self, key: str) -> bytes | None:
        payload = super().load(key)
        if payload is None:
            payload = self._behind.load(key)
            if payload is not None:
                self.store_here(key, payload)
        return payload

    def store(self, key: str, payload: bytes) -> None:
        self.store_here(key, payload)
        self._behind.store(key, payload)

    def store_here(self, key: str, payload: bytes) -> None:
        """Store an artifact in the folder alone."""
        super().store(key, payload)

    def drop(self, key: str) -> None:
        super().drop(key)
        self._behind.dropped.add(key)


class _Address:
    def __init__(self, address: str) -> None:
        self.address = address
        self.dropped: set[str] = set()  # what did not load here is not fetched again
        self._files: Files | None = None
        self._rests_until, self._pause = 0.0, PAUSE_S
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def load(self, key: str) -> bytes | None:
        secret = self._secret()
        if secret is None or key in self.dropped:
            return None
        content = self._tried(lambda files: files.read(key), None)
        if content is None:
            return None
        payload = content[_HEAD:]
        if content[: len(_MAGIC)] != _MAGIC or not hmac.compare_digest(
            content[len(_MAGIC) : _HEAD], _signature(secret, key, payload)
        ):
            self._warn_once(
                "signature",
                f"artifacts in {self.address} are damaged, or not signed with the key in {KEY_VARIABLE}, such as "
                f"{key}. They are not used, and are compiled again",
            )
            return None
        return payload

    def store(self, key: str, payload: bytes) -> None:
        secret = self._secret()
        if secret is not None:
            content = _MAGIC + _signature(secret, key, payload) + payload
            self._tried(lambda files: files.write(key, content), None)

    def _secret(self) -> bytes | None:
        text = os.environ.get(KEY_VARIABLE)
        if not text:
            self._warn_once(
                "key",
                f"config.cache={self.address!r} is not used: artifacts run as code, so machines that share them sign "
                f"them. Set {KEY_VARIABLE} to a secret of these machines. For a folder of your own, set "
                "TORCHMUX_CACHE_DIR instead",
            )
            return None
        return text.encode()

    def _tried(self, work: Callable[[Files], T], otherwise: T) -> T:
        if time.monotonic() < self._rests_until:
            return otherwise
        try:
            with self._lock:
                if self._files is None:
                    self._files = files_at(self.address, config.cache_size_limit)
            done = work(self._files)
            self._pause = PAUSE_S
            return done
        except TorchmuxError as error:  # fsspec is not installed
            why = str(error)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        self._rests_until = time.monotonic() + self._pause
        self._pause *= 2
        self._warn_once(
            "failed", f"config.cache={self.address!r} cannot be used, only the folder of this machine: {why}"
        )
        return otherwise

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            log.warning("%s", message)


def _signature(secret: bytes, key: str, payload: bytes) -> bytes:
    digest = hmac.new(secret, key.encode() + b"\0", hashlib.sha256)
    digest.update(payload)
    return digest.digest()


_addresses: dict[str, _Address] = {}
