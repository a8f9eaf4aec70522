"""What each thread is doing; ``shared.lock`` keeps them apart when sessions change and frames are captured."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from torchmux.compile_lock import shared

__all__ = ["shared", "this_thread"]

FIRST_BUCKET = 1 << 40  # from here on, buckets of the hook's entries are those of sessions
NO_BUCKET = -1


class _Doing:
    """What a thread is doing: graphs that run are noted in the record of the compiled callable that runs them."""

    __slots__ = ("bucket", "converting", "owner")

    def __init__(self) -> None:
        self.bucket = NO_BUCKET  # of the session whose code the hook looks for
        self.owner: Any = None  # a hook.Record
        self.converting = False  # whether a frame is being captured


_threads: list[tuple[weakref.ref[threading.Thread], _Doing]] = []


class _ThisThread(threading.local):
    """One object of the thread's own: attributes of a ``local`` take ten times as long as those of an object."""

    def __init__(self) -> None:
        self.doing = _Doing()
        _threads[:] = [known for known in _threads if (thread := known[0]()) is not None and thread.is_alive()]
        _threads.append((weakref.ref(threading.current_thread()), self.doing))

    @staticmethod
    def others() -> list[_Doing]:
        """What other threads are doing that are still there and have run compiled code."""
        known = [(ref(), doing) for ref, doing in list(_threads)]
        current = threading.current_thread()
        return [doing for thread, doing in known if thread is not None and thread is not current and thread.is_alive()]


this_thread = _ThisThread()


def bucket_after(found: int, outer: int) -> int:
    """The bucket to go back to after a call that has found that of a session; ``outer`` is that of the call around it.

    The hook has one bucket for all threads, so what a call finds may be what another thread has left for its own call.
    """
    if outer != NO_BUCKET:
        return outer
    return found if any(doing.bucket != NO_BUCKET for doing in this_thread.others()) else NO_BUCKET
