"""The recordings on one device, and the order in which they run.

Each recording has memory of its own, also for what it needs only while it runs.  If a later recording could use that,
its results might lie there, and a call of the earlier one would overwrite what the program still holds.
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
        self._last: Any = None
        self._lock = threading.RLock()  # an operator of the program may call what is recorded as well

    @contextlib.contextmanager
    def turn(self) -> Iterator[Any]:
        """Alone among threads, and behind whatever ran last on another stream; yields the current stream."""
        with self._lock:
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None and self._last != stream:
                stream.wait_stream(self._last)
            self._last = stream
            yield stream

    def add(self, recording: Recording) -> None:
        self._recordings.add(recording)

    def owns(self, address: int) -> bool:
        """Whether a storage is the output of a recording, and so stays where it is while that lives."""
        return any(address in recording.addresses for recording in self._recordings)


def pool_of(device: int) -> Pool:
    with _LOCK:
        if device not in _POOLS:
            _POOLS[device] = Pool(device)
        return _POOLS[device]
