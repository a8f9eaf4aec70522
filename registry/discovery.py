"""Which backends installed distributions provide, read from entry points without importing what they name."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import threading
from collections.abc import Callable
from typing import Any

from torchmux.wording import cut

from .errors import BackendUnavailable, InvalidSpec, TorchmuxError
from .loading import TakesTooLong, imported
from .names import normalize
from .options import TorchOptions
from .spec import ANY, BackendSpec, Tombstone
from .validate import as_spec

OUR_GROUP = "torchmux.backends"
TORCH_GROUP = "torch_dynamo_backends"

BUILT_IN = "torchmux"
"""The distribution whose names no other takes."""

REPAIR = "python -m pip install --force-reinstall --no-deps torchmux"

FOREIGN_PRIORITY = -1000
"""Below every backend that describes itself."""

# Our own backends are in torch's group too, for torch.compile; without this they would be listed twice.
_PUBLISHED = "torchmux.registry.published"


class Candidate:
    """One candidate for a backend name.  :meth:`describe` imports what it names at its first call."""

    def __init__(
        self,
        name: str,
        source: str,
        load: Callable[[], Any],
        *,
        distribution: str | None = None,
        distribution_version: str | None = None,
        foreign: bool = False,
    ) -> None:
        self.name = normalize(name)
        self.source = source  # for messages
        self.distribution = distribution  # None: registered by this process
        self.distribution_version = distribution_version
        self.foreign = foreign
        self._load = load
        self._lock = threading.Lock()
        self._description: BackendSpec | Tombstone | None = None
        self._failure: tuple[type[TorchmuxError], str, BaseException | None] | None = None

    def describe(self) -> BackendSpec | Tombstone:
        """The description, imported once.

        Raises:
            BackendUnavailable: importing it raised an exception, which is chained.
            InvalidSpec: the description is invalid, or for another version of the contract.
        """
        with self._lock:
            if self._description is None and self._failure is None:
                try:
                    self._description = self._describe()
                except TorchmuxError as error:
                    self._failure = (type(error), str(error), error.__cause__)
        if self._failure is not None:
            kind, message, cause = self._failure
            raise kind(message) from cause
        assert self._description is not None
        return self._description

    def _describe(self) -> BackendSpec | Tombstone:
        try:
            # What this process and torchmux itself provide is trusted to end, and need not pay for a thread.
            found = self._load() if self.is_built_in or self.distribution is None else imported(self._load, self.source)
        except TakesTooLong as error:
            raise BackendUnavailable(
                f"{self.source} registers the backend {self.name!r}, but importing it takes too long: {error}. "
                f"{self._advice()}"
            ) from None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise BackendUnavailable(
                f"{self.source} registers the backend {self.name!r}, but importing it raised "
                f"{type(error).__name__}: {cut(str(error))}. {self._advice()}"
            ) from error
        try:
            return as_spec(found, self.name, self.source)
        except TorchmuxError:
            raise
        except Exception as error:  # even checking the description raises
            raise InvalidSpec(
                f"{self.source} provides an unreadable description of the backend {self.name!r}: "
                f"{type(error).__name__}: {cut(str(error))}"
            ) from error

    def _advice(self) -> str:
        if self.is_built_in:
            return f"Repair torchmux with: {REPAIR}"
        return f"Repair that installation, or remove it with: python -m pip uninstall {self.distribution}"

    @property
    def is_built_in(self) -> bool:
        """Whether torchmux itself provides it, and so owns the name."""
        return self.distribution is not None and normalize(self.distribution) == BUILT_IN

    @property
    def qualified_name(self) -> str:
        """``"distribution:name"``, which finds this candidate whatever else has the name."""
        return f"{normalize(self.distribution or 'this process')}:{self.name}"


class Qualified(Candidate):
    """A candidate under its qualified name, because its own name means another backend."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(
            candidate.name,
            candidate.source,
            candidate.describe,
            distribution=candidate.distribution,
            distribution_version=candidate.distribution_version,
            foreign=candidate.foreign,
        )
        self.name = candidate.qualified_name

    def _describe(self) -> BackendSpec | Tombstone:
        # Reports and caches must not take it for the backend that has the bare name.
        return dataclasses.replace(self._load(), name=self.name)


def discover() -> dict[str, list[Candidate]]:
    """All candidates of the installed distributions, by normalized name."""
    found: dict[str, list[Candidate]] = {}
    for entry in importlib.metadata.entry_points(group=OUR_GROUP):
        found.setdefault(normalize(entry.name), []).append(_ours(entry))
    for entry in importlib.metadata.entry_points(group=TORCH_GROUP):
        if entry.module != _PUBLISHED:
            found.setdefault(normalize(entry.name), []).append(_foreign(entry))
    return found


def _ours(entry: importlib.metadata.EntryPoint) -> Candidate:
    name, version = _distribution(entry)
    return Candidate(
        entry.name, f"{name} {version} ({entry.value})", entry.load, distribution=name, distribution_version=version
    )


def _foreign(entry: importlib.metadata.EntryPoint) -> Candidate:
    """A function registered for ``torch.compile``; it is not inspected, because importing it may import a compiler."""
    name, version = _distribution(entry)
    spec = BackendSpec(
        name=normalize(entry.name),
        summary=f"registered with torch.compile by {name}; torchmux has no further information about it",
        load=f"{entry.module}:{entry.attr}",
        graph="torch",
        training=True,
        dynamic_shapes=True,
        devices=(ANY,),
        dtypes=(ANY,),
        options=TorchOptions,
        priority=FOREIGN_PRIORITY,
        fingerprint=lambda: f"{name} {version}",
    )
    return Candidate(
        entry.name,
        f"{name} {version} ({entry.value})",
        lambda: spec,
        distribution=name,
        distribution_version=version,
        foreign=True,
    )


def _distribution(entry: importlib.metadata.EntryPoint) -> tuple[str, str]:
    if entry.dist is None:
        return "an unknown distribution", ""
    return entry.dist.name, entry.dist.version
