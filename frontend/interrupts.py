"""Ctrl-C while a frame is traced: noted when it comes, raised where nothing is half done.

A trace runs inside modes and callbacks of torch.  KeyboardInterrupt raised in the wrong one of them leaves fake tensors
switched on for the rest of the program, or ends the process.  Compiling a graph, which takes longer, is not protected.
"""

from __future__ import annotations

import signal
import threading
from typing import Any


class _State:
    noted = False


_state = _State()


def _note(number: int, frame: Any) -> None:
    _state.noted = True


def check() -> None:
    """Raise what has been noted; called between the steps of a trace."""
    if _state.noted and threading.current_thread() is threading.main_thread():
        _state.noted = False
        raise KeyboardInterrupt


class deferred:
    """A block in which Ctrl-C is only noted.  Handlers of the program's own are left alone."""

    def __enter__(self) -> None:
        self.active = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self.active:
            _state.noted = False
            signal.signal(signal.SIGINT, _note)

    def __exit__(self, kind: Any, *_: object) -> None:
        if not self.active:
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if kind is None or issubclass(kind, Exception):
            check()
        _state.noted = False
