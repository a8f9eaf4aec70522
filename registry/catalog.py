"""Every backend that this process knows: those of installed distributions, and those that it registered itself."""

from __future__ import annotations

import threading

from torchmux.wording import shown

from . import availability
from .discovery import Candidate, Qualified, discover
from .errors import BackendConflict, TorchmuxError, UnknownBackend
from .names import did_you_mean, listed, normalize
from .spec import Tombstone


class Catalog:
    """A map from names to candidates.  It scans installed distributions at the first use and after each refresh."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._installed: dict[str, list[Candidate]] | None = None
        self._registered: dict[str, Candidate] = {}
        self._known_as: dict[str, Qualified] = {}  # by qualified name
        self._removed: set[tuple[str, str | None]] = set()  # (name, distribution)

    def names(self) -> list[str]:
        """All known names, sorted, including retired ones, and the qualified names of backends that need them."""
        with self._lock:
            known = sorted({*self._registered, *self._read_installed()})
            found = [name for name in known if self._candidates(name)]
            return sorted([*found, *(c.qualified_name for name in found for c in self._shadowed(name))])

    def find(self, name: str) -> Candidate:
        """The one candidate for ``name``, which may be qualified: ``"distribution:name"``.

        Backends that this process registered take precedence over installed ones, and backends that describe
        themselves to torchmux over those that only torch knows.  A retired name yields to a backend that uses it now.
        torchmux's own backends keep their names: another distribution's backend of that name is found by its qualified
        name.

        Raises:
            UnknownBackend: no backend has this name; the message suggests the closest matches.
            BackendConflict: two distributions provide it; the message names both.
        """
        with self._lock:
            candidates = self._candidates(normalize(name))
            qualified = self._qualified(normalize(name))
        if qualified is not None:
            return qualified
        if not candidates:
            raise self._unknown(name)
        own = [c for c in candidates if not c.foreign]
        foreign = [c for c in candidates if c.foreign]
        chosen = own or foreign
        if len(own) == 1 and foreign and _is_retired(own[0]):
            chosen = foreign
        chosen = [c for c in chosen if c.is_built_in] or chosen
        if len(chosen) > 1:
            raise _conflict(normalize(name), chosen)
        return chosen[0]

    def add(self, candidate: Candidate) -> None:
        """Register a backend in this process.

        Raises:
            BackendConflict: the name is taken.
        """
        with self._lock:
            # A retired name may be taken, and so may one that only torch knows.
            others = [c for c in self._candidates(candidate.name) if not c.foreign and not _is_retired(c)]
            if others:
                raise BackendConflict(
                    f"The name {candidate.name!r} is taken by {others[0].source}. Choose another name, or call "
                    f"torchmux.unregister_backend({candidate.name!r}) first."
                )
            self._registered[candidate.name] = candidate

    def remove(self, name: str, distribution: str | None = None) -> None:
        """Remove a name from this process, or only what one distribution provides under it.

        Raises:
            UnknownBackend: there is no such name, or that distribution does not provide it.
        """
        wanted = normalize(name)
        with self._lock:
            candidates = self._candidates(wanted)
            if distribution is not None:
                offered = [c.distribution for c in candidates]
                candidates = [c for c in candidates if c.distribution == distribution]
                if not candidates and offered:
                    raise UnknownBackend(
                        f"{shown(distribution)} registers no backend {shown(name)}; it comes from "
                        f"{listed(d or 'this process' for d in offered)}."
                    )
            if not candidates:
                raise self._unknown(name)
            for candidate in candidates:
                if candidate.distribution is None:
                    del self._registered[wanted]
                else:
                    self._removed.add((wanted, candidate.distribution))

    def refresh(self) -> None:
        """Scan installed distributions again.  What this process registered or removed stays so."""
        with self._lock:
            self._installed = None
            self._known_as.clear()
        availability.forget()

    def _read_installed(self) -> dict[str, list[Candidate]]:
        if self._installed is None:
            self._installed = discover()
        return self._installed

    def _candidates(self, name: str) -> list[Candidate]:
        if name in self._registered:
            return [self._registered[name]]
        return [c for c in self._read_installed().get(name, []) if (name, c.distribution) not in self._removed]

    def _shadowed(self, name: str) -> list[Candidate]:
        """The candidates that are found only by their qualified names: the built-in backend has theirs."""
        candidates = [c for c in self._candidates(name) if not c.foreign]
        return [c for c in candidates if not c.is_built_in] if any(c.is_built_in for c in candidates) else []

    def _qualified(self, name: str) -> Qualified | None:
        distribution, _, bare = name.rpartition(":")
        for candidate in self._candidates(bare) if distribution else ():
            if candidate.distribution is not None and candidate.qualified_name == name:
                return self._known_as.setdefault(name, Qualified(candidate))
        return None

    def _unknown(self, name: str) -> UnknownBackend:
        known = self.names()
        return UnknownBackend(
            f"There is no backend {shown(name)}.{did_you_mean(normalize(name), known)} Known backends: {listed(known)}."
            " `python -m torchmux backends` shows what each of them needs."
        )


def _is_retired(candidate: Candidate) -> bool:
    try:
        return isinstance(candidate.describe(), Tombstone)
    except TorchmuxError:
        return False


def _conflict(name: str, candidates: list[Candidate]) -> BackendConflict:
    sources = " and ".join(c.source for c in candidates)
    last = candidates[-1].distribution
    full = listed([c.qualified_name for c in candidates], "or")
    return BackendConflict(
        f"The backend {name!r} is registered by {sources}. Ask for {full}, or remove one, with `python -m pip "
        f"uninstall {last}` for good or torchmux.unregister_backend({name!r}, distribution={last!r}) for this process."
    )


CATALOG = Catalog()
"""The catalog of this process."""
