"""Where decisions are kept: a folder like that of artifacts, with pins beside them, and the shared address after it.

Every decision and every pin is an entry of its own.  An entry is written at once or not at all, and a damaged one is
dropped, so processes need no locks.  A pin is not part of the decision's entry, and outlives a new measurement.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from torchmux.backends.common.cache.cache import ArtifactCache
from torchmux.config import config
from torchmux.registry.errors import TorchmuxError
from torchmux.registry.names import did_you_mean, listed, normalize

from . import shared
from .decision import Decision
from .fingerprint import GRAPH_DIGITS, Fingerprint, differences, is_same_question
from .typed import Invalid, written

log = logging.getLogger("torchmux.cache")

MOST_TOLD = 3
"""How many decisions that do not apply a report speaks of."""

POLL_S = 1.0
"""How often a process asks whether another one has decided."""


class UnknownDecision(TorchmuxError):
    """No kept decision has this key, several have, or it has no such candidate."""


# --- for auto ---------------------------------------------------------------------------------------------------------


def load(key: Fingerprint) -> Decision | None:
    """The decision for exactly this fingerprint: from this machine's folder, then from the shared address."""
    decision = read(key.key)
    if decision is not None and (why := objection(decision, key)):
        log.warning("the decision %s is not used, and is made again: %s", key.key, why)
        decision = None
    if decision is None:
        decision = _from_share(key)
    return decision


def keep(key: Fingerprint, decision: Decision) -> None:
    """File a decision here, and at the shared address; both readers and :func:`load` find it by its fingerprint."""
    decision.fingerprint = key
    decision.about = {**key.about, **decision.about}
    write(decision)
    if (share := shared.current()) is not None:
        share.put(key.key, decision)


def once(
    key: Fingerprint | None, decide: Callable[[], Decision], seconds: float, check: Callable[[], None] = lambda: None
) -> Decision:
    """Decide and file it; with a shared address, only one process that shares it decides, and the others wait for it.

    Args:
        decide: measures; about ``seconds`` long.
        check: called while it waits; an exception ends that.
    """
    if key is None:
        return decide()
    share = shared.current()
    claimed = False
    patience = time.monotonic() + 2 * seconds + shared.SLACK_S
    while share is not None and not (claimed := share.claim(key.key, seconds)):
        if (found := _from_share(key)) is not None:
            return found
        if time.monotonic() > patience:  # whatever a claim says, and whatever the clocks of others do
            break
        check()
        time.sleep(POLL_S)
    try:
        if claimed and (found := _from_share(key)) is not None:  # decided between the look-up and the claim
            return found
        decision = decide()
        decision.notes += unused(key)
        keep(key, decision)
    finally:
        if claimed and share is not None:
            share.release(key.key)
    return _with_pin(decision)


def unused(key: Fingerprint) -> list[str]:
    """Why kept decisions on the same graph are not used for this fingerprint, in words."""
    cache = _folder()
    if cache is None:
        return []
    start = key.key[:GRAPH_DIGITS]
    found = []
    for name in sorted(cache.entries()):
        decision = read(name) if name.startswith(start) and name != key.key else None
        there = decision.fingerprint if decision is not None else None
        if decision is not None and there is not None and is_same_question(key, there):
            found.append((differences(key, there), decision))
    found.sort(key=lambda pair: len(pair[0]))
    return [
        f"{decision.described} is not used: {'; '.join(why[:MOST_TOLD])}"
        + (f"; and {len(why) - MOST_TOLD} more differences" if len(why) > MOST_TOLD else "")
        for why, decision in found[:MOST_TOLD]
        if why
    ]


def _from_share(key: Fingerprint) -> Decision | None:
    share = shared.current()
    decision = share.get(key.key) if share is not None else None
    if decision is None:
        return None
    if why := objection(decision, key):
        log.warning("the shared decision %s is not used: %s", key.key, why)
        return None
    decision.about["source"] = "shared"
    write(decision)
    return _with_pin(decision)


def objection(decision: Decision, key: Fingerprint) -> str:
    """Why a decision found under a key is not to be followed: it is for something else, or names a stranger."""
    if decision.fingerprint != key:
        return "its fingerprint is not the one of its key"
    for row in decision.ranking:
        for backend in (*row.by_member(), *row.pins.values()):
            if backend != "eager" and backend not in key.candidates:
                return f"it names {backend}, which is no candidate"
        if any(not number.isdecimal() or int(number) >= key.nodes for number in row.pins):
            return "it pins a node that the graph does not have"
        if len(row.by_member()) > 1 and not row.options.keys() <= row.by_member().keys():
            return f"it has options for more backends than {row.backend}"
        for backend, options in row.by_member().items():
            known = [{}, *(key.candidates[backend].options if backend in key.candidates else [])]
            if written(options) not in known:
                return f"it has options for {backend} that are not tried"
    return ""


# --- for people -------------------------------------------------------------------------------------------------------


def entries() -> Iterator[Decision]:
    """All decisions that are kept here, in the order of their keys; those that cannot be read are left out."""
    cache = _folder()
    for name in sorted(cache.entries()) if cache is not None else ():
        decision = read(name)
        if decision is not None and decision.fingerprint is not None:
            yield decision


def find(prefix: str) -> Decision:
    """The only decision whose key begins so.

    Raises:
        UnknownDecision: there is none, or more than one.
    """
    found = find_all(prefix)
    if len(found) > 1:
        shown = listed(decision.key[: GRAPH_DIGITS + 8] for decision in found[:4])
        raise UnknownDecision(f"{len(found)} decisions have keys that begin with {prefix!r}, such as {shown}.")
    return found[0]


def find_all(prefix: str) -> list[Decision]:
    """All decisions whose keys begin so; errors as :func:`find`, if there is none."""
    found = [decision for decision in entries() if decision.key.startswith(prefix.strip().lower())]
    if not found:
        raise UnknownDecision(
            f"No decision has a key that begins with {prefix!r}. `torchmux decisions list` shows the keys."
        )
    return found


def forget(decision: Decision) -> None:
    """Remove a decision and its pin from this machine; a shared address keeps it."""
    for cache in (_folder(), _pins()):
        if cache is not None:
            cache.drop(decision.key)


def pin(decision: Decision, candidate: str) -> Decision:
    """Have ``decision`` followed with another candidate than was chosen: the name of one, or of a backend.

    Raises:
        UnknownDecision: no candidate of this name may run; the message names those that may.
    """
    usable = decision.ranking
    named = [row for row in usable if row.candidate == candidate]
    named = named or [row for row in usable if row.backend == normalize(candidate)]
    if not named:
        lost = next((row for row in decision.rows if candidate in (row.candidate, row.backend)), None)
        why = f" {lost.candidate} is {lost.verdict}: {lost.reason}." if lost is not None else ""
        names = [row.candidate for row in usable]
        raise UnknownDecision(
            f"The decision {decision.key[:12]} cannot be pinned to {candidate!r}."
            f"{why or did_you_mean(candidate, names)} Its candidates are {listed(names)}."
        )
    cache = _pins()
    if cache is not None:
        cache.store(decision.key, json.dumps(named[0].candidate).encode())
    return dataclasses.replace(decision, pinned=named[0].candidate)


def unpin(decision: Decision) -> Decision:
    """Have ``decision`` followed as it was measured."""
    cache = _pins()
    if cache is not None:
        cache.drop(decision.key)
    return dataclasses.replace(decision, pinned="")


def read(name: str) -> Decision | None:
    """The decision with this key, pinned if it is; None if there is none that can be read."""
    cache = _folder()
    content = cache.load(name) if cache is not None else None
    if content is None:
        return None
    try:
        decision = Decision.from_json(content)
    except Invalid as error:
        log.warning("the decision %s cannot be read, and is made again: %s", name, error)
        return None
    if decision.fingerprint is None or decision.key != name:
        log.warning("the decision %s cannot be read, and is made again: its fingerprint has another key", name)
        return None
    return _with_pin(decision)


def write(decision: Decision) -> None:
    """File a decision on this machine, without its pin."""
    cache = _folder()
    if cache is not None:
        cache.store(decision.key, dataclasses.replace(decision, pinned="").to_json().encode())


def _with_pin(decision: Decision) -> Decision:
    cache = _pins()
    content = cache.load(decision.key) if cache is not None else None
    try:
        pinned = json.loads(content) if content is not None else ""
    except ValueError:
        pinned = ""
    decision.pinned = pinned if isinstance(pinned, str) else ""
    return decision


def _folder() -> ArtifactCache | None:
    return ArtifactCache(Path(config.cache_dir) / "decisions") if config.cache_enabled else None


def _pins() -> ArtifactCache | None:
    return ArtifactCache(Path(config.cache_dir) / "pins") if config.cache_enabled else None
