"""The lock under which graphs are captured and compiled, whichever thread does it.

torch keeps what it traces in globals of the process: two threads that trace at once disturb each other.
"""

from __future__ import annotations

import os
import threading


class _Shared:
    """What all threads have in common."""

    # It is taken by ``with``, in C: a signal may come behind a call.
    lock = threading.RLock()


shared = _Shared()


def _new_lock() -> None:
    """In a forked process: the thread that may have held the lock is not there."""
    shared.lock = threading.RLock()


os.register_at_fork(after_in_child=_new_lock)
