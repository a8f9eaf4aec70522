"""The memory that the recordings on one device share, and the order in which they run.

A recording keeps its outputs as long as it lives, so no other recording ever gets their memory.  Memory that it needs
only while it runs returns to the pool after recording, and the next recording may use it.  Any two recordings may
therefore run in any order, but never at the same time.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .recording import Recording

_POOLS: dict[int, Pool] = {}
_LOCK = threading.Lock()


class Pool:
    """The recordings on one device."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.side = torch.cuda.Stream(device)
        self._recordings: weakref.WeakSet[Recording] = weakref.WeakSet()
        self._handle: Any = None
        self._of_handle: weakref.WeakSet[Recording] = weakref.WeakSet()
        self._last: Any = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def turn(self) -> Iterator[Any]:
        """Alone among threads, and behind whatever ran last on another stream; yields the current stream."""
        with self._lock:
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None and self._last != stream:
                stream.wait_stream(self._last)
            self._last = stream
            yield stream

    def handle(self) -> Any:
        """What names the memory to the allocator; a new one when no recording is left to hold the old."""
        if self._handle is None or not self._of_handle:
            self._handle = torch.cuda.graph_pool_handle()
            self._of_handle = weakref.WeakSet()
        return self._handle

    def abandon(self) -> None:
        """Give memory of a new name from now on; the old one is of no use after a recording that failed."""
        self._handle = None

    def add(self, recording: Recording) -> None:
        self._recordings.add(recording)
        self._of_handle.add(recording)

    def owns(self, address: int) -> bool:
        """Whether a storage is the output of a recording, and so stays where it is while that lives."""
        return any(address in recording.addresses for recording in self._recordings)


def pool_of(device: int) -> Pool:
    with _LOCK:
        if device not in _POOLS:
            _POOLS[device] = Pool(device)
        return _POOLS[device]
