"""Whether a backend can run on this machine, determined without importing its compiler."""

from __future__ import annotations

import functools
import importlib.metadata
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement

from torchmux.wording import cut, shown

from .errors import InvalidSpec
from .identity import SameObject
from .names import listed
from .spec import Availability, BackendSpec


@dataclass(frozen=True)
class _Lack:
    """An unmet requirement; ``found`` is the installed version if there is one."""

    wanted: str
    found: str | None


def availability(spec: BackendSpec) -> Availability:
    """Whether ``spec`` can run here; the answer's ``reason`` is a clause that starts with the backend's name.

    Requirements are checked against installed metadata, then ``spec.probe()`` is called.  The answer is kept until
    :func:`forget` is called.
    """
    return _find_out(SameObject(spec))


def forget() -> None:
    """Forget all answers, for example after something was installed."""
    _find_out.cache_clear()


def parse_requirement(text: str) -> list[Requirement]:
    """The alternatives of one requirement, ``"onnxruntime>=1.20 | onnxruntime-gpu>=1.20"``; any of them is enough.

    Raises:
        InvalidSpec: an alternative is not a PEP 508 requirement.
    """
    try:
        return [Requirement(part.strip()) for part in text.split("|")]
    except InvalidRequirement as error:
        raise InvalidSpec(f"{shown(text)} is not a PEP 508 requirement: {cut(str(error))}") from error


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or ``None``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache(maxsize=256)
def _find_out(key: SameObject) -> Availability:
    spec: BackendSpec = key.value
    lacks = [lack for text in spec.requires if (lack := _lacking(text)) is not None]
    if not lacks:
        answer = _probe(spec)
        return answer if answer.ok else Availability(False, f"{spec.name} cannot run here: {answer.reason}")
    reason = f"{spec.name} needs {_needs(lacks)}"
    # A user without the hardware learns it now, not after a long installation.  The probe may fail because of what is
    # missing, so only a plain "no" counts.
    try:
        answer = spec.probe()
    except Exception:
        return Availability(False, reason)
    if isinstance(answer, Availability) and not answer.ok:
        reason += f"; also, {answer.reason}"
    return Availability(False, reason)


def _probe(spec: BackendSpec) -> Availability:
    try:
        answer = spec.probe()
    except Exception as error:
        return Availability(False, f"its probe raised {type(error).__name__}: {error}")
    if not isinstance(answer, Availability):
        return Availability(False, f"its probe returned {answer!r}, which is not an Availability")
    return (
        answer
        if answer.ok or answer.reason
        else Availability(False, "its probe reports that it is unavailable, without a reason")
    )


def _lacking(text: str) -> _Lack | None:
    """The missing part of one requirement, or ``None`` if it is met."""
    alternatives = [r for r in parse_requirement(text) if r.marker is None or r.marker.evaluate()]
    if not alternatives:
        return None  # does not apply to this platform
    found = None
    for requirement in alternatives:
        version = installed_version(requirement.name)
        if version is not None:
            if requirement.specifier.contains(version, prereleases=True):
                return None
            found = found or f"{requirement.name} {version}"
    return _Lack(_without_marker(alternatives[0]), found)


def _without_marker(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"


def _needs(lacks: list[_Lack]) -> str:
    missing = [lack.wanted for lack in lacks if lack.found is None]
    clauses = []
    if missing:
        names = listed(missing).replace("'", "")
        clauses.append(f"{names}, which {'is' if len(missing) == 1 else 'are'} not installed")
    clauses += [f"{lack.wanted}, but {lack.found} is installed" for lack in lacks if lack.found is not None]
    return "; and ".join(clauses)
