"""Loads the implementation that a description names; this imports the compiler."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from .conforms import check_class, check_implementation
from .errors import BackendUnavailable, InvalidSpec
from .identity import SameObject
from .spec import Backend, BackendSpec


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


def import_attribute(path: str, spec: BackendSpec) -> Any:
    """Import ``"module:attribute"`` for ``spec``; errors as in :func:`load_implementation`."""
    module_name, _, attribute = path.partition(":")
    try:
        found = importlib.import_module(module_name)
    except Exception as error:
        hint = f" Install its requirements with: {spec.install}" if spec.install else ""
        raise BackendUnavailable(
            f"{spec.name} cannot be used: importing {module_name} raised {type(error).__name__}: {error}.{hint}"
        ) from error
    try:
        return functools.reduce(getattr, attribute.split("."), found)
    except AttributeError as error:
        raise InvalidSpec(f"{spec.name} loads {path!r}, but {module_name} has no {attribute!r}.") from error
