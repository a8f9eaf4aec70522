"""What makes calls sooner than Python can, where a backend brings it while the process runs.

The frontend knows what stands around a graph in each call, and never imports a backend; only a backend has a compiler.
So whoever would use such a class waits for it here, and whoever has it brings it here.  There are two:

``runner(captured, thread, is_profiled, modes, graph, translated)`` is called with the inputs of a graph in a tuple.  It
counts the call in ``thread.doing.owner[captured]``, if that is a record, and calls ``graph`` with the inputs.  It
returns NotImplemented, ahead of all that, while a profiler or autocast is on, or there are forward derivatives, as
``modes._current_level`` says (unless ``modes`` is None).  ``translated`` is called with each exception of the graph's,
and may raise another one.

``caller(python, record, ready, ...)`` is called as ``python`` is, the function of ``frontend/compiled.py`` in which a
call of compiled code begins, and does what that does where ``record.direct`` is ``ready``; the last seven arguments are
what ``ready`` asks (``frontend/hook/direct.py``).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Literal

Kind = Literal["runner", "caller"]
KINDS: tuple[Kind, ...] = ("runner", "caller")
Make = Callable[[Any], None]

_lock = threading.Lock()
_brought: dict[Kind, Any] = {}
_waiting: dict[Kind, weakref.WeakSet[Any]] = {kind: weakref.WeakSet() for kind in KINDS}


def wait_for(kind: Kind, function: Any, make: Make) -> None:
    """Call ``make`` with the class: now, or when it is brought, if ``function`` is still there then.

    ``make`` belongs to the function: neither is kept alive.
    """
    with _lock:
        cls = _brought.get(kind)
        if cls is None:
            function.make_sooner = make
            _waiting[kind].add(function)
            return
    make(cls)


def bring(kind: Kind, cls: Any) -> None:
    """Let all that waits use this class, and all that will."""
    with _lock:
        _brought[kind] = cls
        functions = list(_waiting[kind])
        _waiting[kind].clear()
    for function in functions:
        make = function.make_sooner
        del function.make_sooner
        make(cls)
