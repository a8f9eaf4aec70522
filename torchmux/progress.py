"""What a wait of more than two seconds is for: one line on a terminal, which goes when it is over; nothing elsewhere.

``with waiting("capturing f"):`` says what a block does.  Blocks inside of it replace the words while they run, and
:func:`step` adds how far the innermost one is.  One wait is shown at a time: that of the thread that began first.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

PATIENCE_S = 2.0
"""How long a wait may take before it is shown."""


class _Wait:
    """What the outermost block of a thread is doing, and the line that shows it."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.words: list[str] = []
        self.over = False
        self._line: Any = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        with self._lock:
            self.over = True
            self._timer.cancel()
            if self._line is not None:
                self._line.stop()

    def _show(self) -> None:
        with self._lock:
            if self.over:
                return
            from rich.console import Console
            from rich.live import Live

            # The program may be captured right now, and what it reads of sys must not change under it.
            self._line = Live(
                self._text(),
                console=Console(stderr=True, highlight=False),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                get_renderable=self._text,
            )
            self._line.start()

    def _text(self) -> Any:
        from rich.text import Text

        # The outermost says what the wait is for, the innermost what goes on.
        said = ": ".join(dict.fromkeys((*self.words[:1], *self.words[-1:])))
        return Text(f"torchmux: {said} ({time.monotonic() - self.began:.0f} s)", overflow="ellipsis", no_wrap=True)


_lock = threading.Lock()
_wait: _Wait | None = None
_owner = 0  # the thread of the wait
_quiet = 0  # others who show on the terminal what goes on


@contextlib.contextmanager
def waiting(words: str) -> Iterator[None]:
    """Show ``words`` on a terminal if the block takes longer than :data:`PATIENCE_S`."""
    global _wait, _owner
    this = threading.get_ident()
    with _lock:
        outermost = _wait is None
        if outermost and not _quiet and sys.stderr is not None and sys.stderr.isatty():
            _wait, _owner = _Wait(), this
        wait = _wait if _owner == this else None
    if wait is None:
        yield
        return
    wait.words.append(words)
    try:
        yield
    finally:
        wait.words.pop()
        if outermost:
            with _lock:
                _wait, _owner = None, 0
            wait.end()


def step(words: str) -> None:
    """Replace the words of this thread's innermost block, to say how far it is."""
    wait = _wait
    if wait is not None and _owner == threading.get_ident() and wait.words:
        wait.words[-1] = words


@contextlib.contextmanager
def shown_elsewhere() -> Iterator[None]:
    """Show nothing in this block: the caller shows on the terminal what goes on."""
    global _quiet
    with _lock:
        _quiet += 1
    try:
        yield
    finally:
        with _lock:
            _quiet -= 1


def _forget() -> None:
    """In a child of fork: what its parent shows is its parent's."""
    global _lock, _wait, _owner
    _lock, _wait, _owner = threading.Lock(), None, 0


os.register_at_fork(after_in_child=_forget)
