"""Ctrl-C where it must not be raised: recorded when it arrives, and raised where nothing is half done.

A trace runs inside modes and callbacks of torch.  A KeyboardInterrupt in the wrong one of them leaves fake tensors
enabled for the rest of the program, or ends the process.  Compiling a graph, which takes longer, is not protected.

While guards are checked, the C hook treats every exception as a failed guard and clears it.  A check therefore keeps
the exception of a signal, and the frame without matching compiled code, or the end of the call, raises it.
"""

from __future__ import annotations

import signal
import threading
import types
from typing import Any

from torchmux.registry.errors import Unsupported

from ..bytecode.instruction import encode_exception_entry, exception_entries
from .thread_state import this_thread


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


def keep(error: BaseException) -> bool:
    """Keep for :func:`raise_kept` what interrupted a check; the verdict of that check.

    Other exceptions come from reading or comparing what the guards are about, which the program itself did not do.
    """
    if this_thread.doing.owner is not None and (isinstance(error, TimeoutError) or not isinstance(error, Exception)):
        this_thread.doing.owner.must_raise = error.with_traceback(None)
    return False


def raise_kept() -> None:
    """Raise what :func:`keep` kept in the compiled call that is running."""
    owner = this_thread.doing.owner
    if owner is None or owner.must_raise is None or isinstance(owner.must_raise, Unsupported):
        return
    error, owner.must_raise = owner.must_raise, None
    raise error


def from_its_first_instruction(function: Any) -> Any:
    """``function``, with an outermost ``try`` that also covers the instruction at which Python checks for signals.

    That is the first of every function, before any ``try`` can begin.
    """
    code: types.CodeType = function.__code__
    (_, *first), *others = exception_entries(code)
    table = bytearray()
    for start, end, target, depth, lasti in ((0, *first), *others):
        encode_exception_entry(table, start // 2, end // 2, target // 2, depth, lasti)
    function.__code__ = code.replace(co_exceptiontable=bytes(table))
    return function
