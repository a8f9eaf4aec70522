"""Imports what entry points and descriptions name.

A description that another distribution provides is imported in a thread of its own.  The caller waits for it and can be
interrupted; one that never ends, or raises as if the user had interrupted it, costs its name only.  The implementation
that a description names is imported by its caller; this imports the compiler.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

from torchmux.wording import cut

from .conforms import check_class, check_implementation
from .errors import BackendUnavailable, InvalidSpec
from .identity import SameObject
from .spec import Backend, BackendSpec

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


def load_implementation(spec: BackendSpec) -> Any:
    """The function or :class:`Backend` object that ``spec.load`` names; loaded once for each description.

    Raises:
        BackendUnavailable: importing it raised an exception, which is chained.
        InvalidSpec: there is no such attribute, or it does not follow the contract.
    """
    return _load(SameObject(spec))


@functools.lru_cache(maxsize=256)
def _load(key: SameObject) -> Any:
    spec: BackendSpec = key.value
    found = import_attribute(spec.load, spec) if isinstance(spec.load, str) else spec.load
    if isinstance(found, type) and isinstance(found, Backend):
        check_class(found, spec.name)
        found = found()
    check_implementation(found, spec.name, spec.graph)
    return found


def import_path(path: str) -> Any:
    """What ``"module:attribute"`` names among torchmux's own modules."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_attribute(path: str, spec: BackendSpec) -> Any:
    """Import ``"module:attribute"`` for ``spec``; errors as in :func:`load_implementation`."""
    module_name, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        hint = f" Install its requirements with: {spec.install}" if spec.install else ""
        raise BackendUnavailable(
            f"{spec.name} cannot be used: importing {module_name} raised {type(error).__name__}: {cut(str(error))}."
            f"{hint}"
        ) from error
    try:
        return functools.reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        raise InvalidSpec(f"{spec.name} loads {path!r}, but {module_name} has no {attribute!r}.") from error
