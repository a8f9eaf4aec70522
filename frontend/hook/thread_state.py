"""What each thread is doing; ``shared.lock`` keeps them apart when sessions change and frames are captured."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from torchmux.compile_lock import shared

__all__ = ["shared", "this_thread"]

_threads: list[weakref.ref] = []


class _Doing:
    """What a thread is doing: graphs that run are noted in the record of the compiled callable that runs them."""

    __slots__ = ("converting", "owner")

    def __init__(self) -> None:
        self.owner: Any = None  # a hook.Record
        self.converting = False  # whether a frame is being captured


class _ThisThread(threading.local):
    """One object of the thread's own: attributes of a ``local`` take ten times as long as those of an object."""

    def __init__(self) -> None:
        self.doing = _Doing()
        _threads[:] = [known for known in _threads if (thread := known()) is not None and thread.is_alive()]
        _threads.append(weakref.ref(threading.current_thread()))

    @staticmethod
    def only_thread() -> bool:
        """Whether no other thread that is still there has run compiled code."""
        threads = [known() for known in list(_threads)]
        return not any(t is not None and t.is_alive() and t is not threading.current_thread() for t in threads)


this_thread = _ThisThread()
