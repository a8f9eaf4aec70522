"""Full garbage collections wait while a graph is compiled.

A compilation makes objects by the hundred thousand and keeps most of them.  Python takes this for a reason to look at
everything that the process has imported, several times; it finds nothing there, and takes a tenth of the time.  Young
objects are collected meanwhile as ever.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_NEVER = 2**31 - 1

_lock = threading.Lock()
_compilations = 0
_before = _meanwhile = gc.get_threshold()


@contextlib.contextmanager
def full_collections_wait() -> Iterator[None]:
    """Context manager under which Python collects the young generations only, in all threads.

    Several may overlap; the last one that ends restores the threshold, unless the program has set another one.
    """
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _compilations, _before, _meanwhile
    with _lock:
        if not _compilations:
            _before = gc.get_threshold()
            _meanwhile = (*_before[:2], _NEVER)
            gc.set_threshold(*_meanwhile)
        _compilations += 1


def _end() -> None:
    global _compilations
    with _lock:
        _compilations -= 1
        if not _compilations and gc.get_threshold() == _meanwhile:
            gc.set_threshold(*_before)
