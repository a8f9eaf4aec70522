"""The listing: what each known backend is, whether it can run here, and if not, why."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from . import options as option_rules
from .availability import availability, installed_version, parse_requirement
from .catalog import Catalog
from .discovery import Candidate
from .errors import TorchmuxError
from .spec import BackendSpec, Tombstone
from .standing import preference


@dataclass(frozen=True)
class BackendInfo:
    """One row of :func:`torchmux.backends`.

    ``available`` is ``None`` if only an import could tell: this applies to backends registered only with torch.
    ``version`` is that of the compiler, ``distribution`` what provides the backend (``None``: this process).
    ``error`` is set when the name cannot be used at all: a broken plugin or a conflict.

    Examples:
        >>> (row,) = [row for row in torchmux.backends() if row.name == "eager"]
        >>> row.available, row.devices, row.training
        (True, ('*',), True)
    """

    name: str
    available: bool | None
    reason: str = ""
    summary: str = ""
    version: str | None = None
    devices: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    training: bool = False
    dynamic_shapes: bool = False
    modes: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    install: str = ""
    distribution: str | None = None
    foreign: bool = False
    retired: bool = False
    unverified: str = ""
    error: str = ""
    priority: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The row as a dict that JSON can hold."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


def rows(catalog: Catalog) -> list[BackendInfo]:
    """All known backends: usable ones first, best first (:func:`.standing.preference`)."""
    return sorted((_row(catalog, name) for name in catalog.names()), key=_order)


def _order(row: BackendInfo) -> tuple[int, int, int, int, str]:
    if row.available:
        rank = 0
    elif row.error:
        rank = 3
    elif row.retired:
        rank = 4
    else:
        rank = 2 if row.foreign else 1
    return (rank, *preference(row))


def _row(catalog: Catalog, name: str) -> BackendInfo:
    try:
        candidate = catalog.find(name)
    except TorchmuxError as error:  # a conflict affects only those who request this name
        return BackendInfo(name, False, str(error), error=str(error))
    try:
        description = candidate.describe()
    except TorchmuxError as error:
        return BackendInfo(name, False, str(error), distribution=candidate.distribution, error=str(error))
    if isinstance(description, Tombstone):
        return BackendInfo(
            name, False, retirement(description), "retired", distribution=candidate.distribution, retired=True
        )
    return _described(candidate, description)


def _described(candidate: Candidate, spec: BackendSpec) -> BackendInfo:
    available: bool | None
    if candidate.foreign:
        available, reason = None, "not checked: this would require importing it"
    else:
        answer = availability(spec)
        available, reason = answer.ok, answer.reason
        if ":" in candidate.name:
            bare = candidate.name.rpartition(":")[2]
            note = f"the name {bare!r} is that of torchmux's own backend; this one is {candidate.name!r}"
            reason = f"{reason}; {note}" if reason else note
    return BackendInfo(
        name=candidate.name,
        available=available,
        reason=reason,
        summary=spec.summary,
        version=_version(candidate, spec),
        devices=tuple(spec.devices),
        dtypes=tuple(spec.dtypes),
        training=spec.training,
        dynamic_shapes=spec.dynamic_shapes,
        modes=tuple(option_rules.mode_table(spec)),
        options=tuple(option_rules.option_table(spec)),
        install=spec.install,
        distribution=candidate.distribution,
        foreign=candidate.foreign,
        unverified=spec.unverified,
        priority=spec.priority,
    )


def retirement(tombstone: Tombstone) -> str:
    """The message for a request for a retired name."""
    reason = tombstone.reason.rstrip(".")
    bare = tombstone.successor.replace("_", "").isalnum()  # the name of a backend; anything else is a phrase
    successor = f"backend={tombstone.successor!r}" if bare else tombstone.successor.rstrip(".")
    return f"The backend {tombstone.name!r} is retired: {reason}. Use {successor} instead."


def _version(candidate: Candidate, spec: BackendSpec) -> str | None:
    """The version of the first requirement that is installed; the backend's own if it requires nothing."""
    if not spec.requires:
        return candidate.distribution_version
    for text in spec.requires:
        for requirement in parse_requirement(text):
            version = installed_version(requirement.name)
            if version is not None:
                return version
    return None
