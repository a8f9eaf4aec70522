"""What each thread is doing, and the lock that keeps them apart."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_threads: list[weakref.ref] = []


class _ThisThread(threading.local):
    """What this thread is doing: graphs that run are noted in the record of the compiled callable that runs them."""

    owner: Any = None  # a hook.Record
    converting = False  # whether a frame is being captured

    def __init__(self) -> None:
        _threads[:] = [known for known in _threads if (thread := known()) is not None and thread.is_alive()]
        _threads.append(weakref.ref(threading.current_thread()))

    @staticmethod
    def only_thread() -> bool:
        """Whether no other thread that is still there has run compiled code."""
        threads = [known() for known in list(_threads)]
        return not any(t is not None and t.is_alive() and t is not threading.current_thread() for t in threads)


this_thread = _ThisThread()


class _Shared:
    """What all threads have in common."""

    # Sessions change and frames are captured under it.  It is taken by ``with``, in C: a signal may come behind a call.
    lock = threading.RLock()


shared = _Shared()


def _new_lock() -> None:
    """In a forked process: the thread that may have held the lock is not there."""
    shared.lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)
