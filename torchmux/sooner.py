"""What runs a graph sooner than Python can, where a backend brings it while the process runs.

The frontend knows what stands around a graph in each call, and never imports a backend; only a backend has a compiler.
So whoever would use such a class waits for it here, and whoever has it brings it here.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

Make = Callable[[Any], None]

_lock = threading.Lock()
_runner: Any = None
_waiting: weakref.WeakSet[Any] = weakref.WeakSet()


def wait_for_runner(function: Any, make: Make) -> None:
    """Call ``make`` with the class of runners: now, or when there is one, if ``function`` is still there then.

    ``make`` belongs to the function: neither is kept alive.
    """
    with _lock:
        if _runner is None:
            function.make_runner = make
            _waiting.add(function)
            return
    make(_runner)


def bring_runner(runner: Any) -> None:
    """Let all that waits use this class.

    ``runner(captured, thread, is_profiled, modes, graph, translated)`` is called with the inputs of a graph in a tuple,
    counts the call in ``thread.doing.owner[captured]``, if that is a record, and calls ``graph`` with the inputs.  It
    returns NotImplemented, ahead of all that, while a profiler or autocast is on, or there are forward derivatives, as
    ``modes._current_level`` says (unless ``modes`` is None).  ``translated`` is called with each exception of the
    graph's, and may raise another one.
    """
    global _runner
    with _lock:
        _runner = runner
        functions = list(_waiting)
        _waiting.clear()
    for function in functions:
        function.make_runner(runner)
        del function.make_runner
