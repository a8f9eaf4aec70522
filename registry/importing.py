"""Imports of descriptions that other distributions provide: one that never ends, or ends the program, costs its name.

The import runs in a thread of its own.  The caller waits for it and can be interrupted, and what the import raises as
if the user had interrupted it is known not to come from the user.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("torchmux.discovery")

TOLD_AFTER = 10.0
"""Seconds after which a warning names what is being waited for."""

LIMIT = 60.0
"""Seconds after which the import is left to itself."""


class TakesTooLong(Exception):
    """An import did not end within the limit."""


def imported(load: Callable[[], Any], source: str) -> Any:
    """The result of ``load``, which imports what ``source`` provides.

    Raises:
        TakesTooLong: it did not end in time.
        BaseException: what ``load`` raised; never a ``KeyboardInterrupt`` that the user did not cause.
    """
    if _something_is_being_imported():
        # Another thread would wait for this one, which holds the locks of the modules that it is importing.
        return load()
    ended: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            ended.append((load(), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=work, name="torchmux-import", daemon=True)
    thread.start()
    thread.join(TOLD_AFTER)
    if thread.is_alive():
        log.warning("waiting for the import of %s, for %.0f s at most", source, LIMIT)
        thread.join(LIMIT - TOLD_AFTER)
    if not ended:
        raise TakesTooLong(f"it did not end within {LIMIT:.0f} s")
    value, error = ended[0]
    if isinstance(error, KeyboardInterrupt):
        raise RuntimeError("it raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return value


def _something_is_being_imported() -> bool:
    modules = list(sys.modules.values())
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) is True for module in modules)
