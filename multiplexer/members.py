"""The members of a chain: which backends they are, with which options, and which of them can run here."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchmux.registry.errors import BackendUnavailable, InvalidOption, InvalidSpec
from torchmux.registry.names import did_you_mean, listed, members_of, normalize
from torchmux.registry.options import TORCH_MODES
from torchmux.registry.report import Strict
from torchmux.registry.resolve import ResolvedBackend, known_spec, resolve
from torchmux.wording import kind, shown

log = logging.getLogger("torchmux")

AUTO = "auto"


@dataclass(frozen=True)
class Members:
    """The members that can run here, in order, and the reasons why others cannot, by name."""

    usable: tuple[ResolvedBackend, ...]
    skipped: Mapping[str, str]
    notes: tuple[str, ...] = ()


def members(
    backends: Sequence[Any],
    *,
    mode: str | None,
    options: Mapping[str, Any] | None,
    dynamic: bool | None,
    strict: Strict,
) -> Members:
    """Resolve each member; one that cannot run here is skipped, with a line in the log and in reports.

    Raises:
        InvalidSpec: the chain is empty, names a member twice, or has one that no chain can have.
        UnknownBackend: there is no backend of a name.
        BackendUnavailable: none of the members can run here.
        InvalidOption: options for something else than a member, or that a member does not take, or no member has the
            mode.
    """
    names = names_of(backends)
    given = _by_member(names, mode, options)
    usable: list[ResolvedBackend] = []
    skipped: dict[str, str] = {}
    unused: list[str] = []
    for name, backend in zip(names, backends, strict=True):
        settings: dict[str, Any] = {"options": given.get(name), "dynamic": dynamic, "strict": strict}
        try:
            try:
                usable.append(resolve(backend, mode=mode, **settings))
            except InvalidOption:
                if mode is None or mode in TORCH_MODES:
                    raise
                usable.append(resolve(backend, **settings))
                unused.append(name)
        except BackendUnavailable as error:
            skipped[name] = str(error)
    if not usable:
        reasons = " ".join(skipped.values())
        raise BackendUnavailable(f"No member of the chain {listed(names)} can run here. {reasons}")
    if unused and len(unused) == len(usable):
        raise InvalidOption(
            f"No member of the chain {listed(names)} has the mode {shown(mode)}. "
            "torchmux.list_mode_options(backend=NAME) lists the modes of a member."
        )
    for name, reason in skipped.items():
        log.info("the chain %s goes without %s: %s", listed(names), name, reason)
    notes = [f"the chain goes without {name}: {reason}" for name, reason in skipped.items()]
    notes += [f"{name} has no mode {mode!r}" for name in unused]
    return Members(tuple(usable), skipped, tuple(notes))


def names_of(backends: Sequence[Any]) -> list[str]:
    """The names of the members of a chain.

    Raises:
        InvalidSpec, UnknownBackend: as in :func:`members`.
    """
    names = [_name(backend) for backend in backends]
    if not names:
        raise InvalidSpec('backend=[] names no backend. A chain is a list of them: backend=["openvino", "native"].')
    for name in names:
        if names.count(name) > 1:
            raise InvalidSpec(f"The chain {listed(names)} names {shown(name)} twice. Name each member once.")
    return names


def _name(backend: Any) -> str:
    """The name of a member."""
    if backend is None or members_of(backend) is not None:
        raise InvalidSpec(f"A member of a chain is a backend, not {kind(backend)}.")
    if isinstance(backend, str) and normalize(backend) == AUTO:
        raise InvalidSpec("auto is no member of a chain: it measures backends, and chains of them, itself.")
    try:
        return known_spec(backend).name
    except BackendUnavailable:  # it is retired, or its plugin is broken
        return normalize(backend) if isinstance(backend, str) else str(backend.name)


def _by_member(names: Sequence[str], mode: str | None, options: Any) -> Mapping[str, Any]:
    if options is None:
        return {}
    if mode is not None:
        raise InvalidOption(
            "Either mode or options can be specified, but both can't be specified at the same time. Pass one "
            "of the two."
        )
    if not isinstance(options, Mapping):
        raise InvalidOption(
            f"The options of a chain are a dict of its members to their options, not {kind(options)}: "
            f"options={{{names[0]!r}: {{...}}}}."
        )
    found = {}
    for name, own in options.items():
        member = normalize(name) if isinstance(name, str) else name
        if member not in names:
            raise InvalidOption(
                f"{shown(name)} is no member of the chain {listed(names)}.{did_you_mean(member, names)} The options of "
                f"a chain are by member: options={{{names[0]!r}: {{...}}}}."
            )
        found[member] = own
    return found
