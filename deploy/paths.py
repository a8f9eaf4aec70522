"""Sources and guards of the frontend as JSON, and back.

Each is of a declared kind with typed fields; what a field holds is another source, a constant, or something that has a
name (:mod:`.values`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from torchmux.frontend.guards import cached_results, computed
from torchmux.frontend.guards.closed import all_kinds
from torchmux.frontend.guards.kinds import (
    classes,
    containers,
    equality,
    frames,
    functions,
    iterators,
    modules,
    numbers,
    objects,
    tensors,
)
from torchmux.frontend.guards.kinds.guard import Guard
from torchmux.frontend.guards.sources import Source
from torchmux.registry.errors import LoadRefused

from .values import again, told

DECLARED = (
    classes, containers, equality, frames, functions, iterators, modules, numbers, objects, tensors, cached_results,
    computed,
)  # fmt: skip
"""Importing these, and the modules of both families, declares all kinds of guards and sources."""


class Writer:
    """Sources, each once, as a table in which later ones refer to earlier ones by number."""

    def __init__(self) -> None:
        self.table: list[Any] = []
        self._number: dict[Source, int] = {}

    def source(self, source: Source) -> int:
        """The number of a source.

        Raises:
            NotTold: it begins with, or leads through, something that has no name.
        """
        number = self._number.get(source)
        if number is None:
            entry = [type(source).__name__, self._fields(source)]
            number = self._number[source] = len(self.table)
            self.table.append(entry)
        return number

    def guard(self, guard: Guard) -> Any:
        """A guard; errors as :meth:`source`."""
        return [type(guard).__name__, self._fields(guard)]

    def _fields(self, member: Any) -> list[Any]:
        return [self._value(getattr(member, f.name)) for f in fields(member) if f.init]

    def _value(self, value: Any) -> Any:
        if isinstance(value, Source):
            return ["source", self.source(value)]
        if type(value) in (tuple, list) and any(isinstance(v, Source) for v in value):
            return [f"{type(value).__name__} of sources", [self._value(v) for v in value]]
        return told(value)


class Reader:
    """The sources of a table; errors are those of :func:`.values.again`."""

    def __init__(self, table: Sequence[Any]) -> None:
        self.sources: list[Source] = []
        for entry in table:
            self.sources.append(self._member(entry, _SOURCES))

    def guard(self, entry: Any) -> Guard:
        found: Guard = self._member(entry, _GUARDS)
        return found

    def _member(self, entry: Any, family: dict[str, type]) -> Any:
        name, values = entry
        cls = family.get(name)
        if cls is None:
            raise LoadRefused(f"A saved file has a guard of the kind {name}, which this version of torchmux lacks.")
        return cls(*map(self._value, values))

    def _value(self, value: Any) -> Any:
        if isinstance(value, list) and value[0] == "source":
            return self.sources[value[1]]
        if isinstance(value, list) and value[0].endswith(" of sources"):
            items = [self._value(v) for v in value[1]]
            return tuple(items) if value[0].startswith("tuple") else items
        return again(value)


def sources_in(guard: Guard) -> list[Source]:
    """All sources that a guard reads, those in tuples included."""
    found: list[Source] = []
    for f in fields(guard):
        value = getattr(guard, f.name)
        for each in value if type(value) in (tuple, list) else (value,):
            if isinstance(each, Source):
                found.append(each)
    return found


def paths_in(source: Source) -> list[Source]:
    """A path, and those of the keys in it."""
    found = [source]
    step: Source | None = source
    while step is not None:
        for f in fields(step):  # type: ignore[arg-type]
            value = getattr(step, f.name)
            if isinstance(value, Source) and f.name != "parent":
                found += paths_in(value)
        step = step.parent
    return found


_SOURCES = {cls.__name__: cls for cls in all_kinds(Source)}
_GUARDS = {cls.__name__: cls for cls in all_kinds(Guard)}
