"""Checks the guards on a model's structure together, by detecting writes to the model.

Most guards of a large model are about its modules: their classes, submodules, flags, hooks, where the parameters are.
While a :class:`~.write_watch.Watch` reports that none of them was written to, these guards still hold.  The remaining
checks are the arguments, the global state, everything else that the program read, and the tensors themselves, whose
sizes and types can change without a write to a module.

A snapshot keeps modules and parameters alive, so only the compiled callable that owns the model holds it.  Guards refer
to it weakly, and it contains only modules that belong to the owner.
"""

from __future__ import annotations

import collections
import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from ..hook.interrupts import from_its_first_instruction, keep
from . import write_watch
from .check import CompiledGuards
from .guards import no_snapshot
from .loader import Loader, Names
from .sources import Argument, Source
from .stable_objects import OPEN
from .stable_paths import Walk

log = logging.getLogger("torchmux")

_FEW = 12  # guards that are checked faster one by one
_WORTH_IT = 100  # uses that make up for a snapshot
_MOST_PATIENCE = 1 << 16


class Snapshot:
    """What the guards found in a model, valid while the watch sees no change."""

    def __init__(self, walk: Walk, check: Callable[..., bool], values: tuple, inputs: tuple) -> None:
        (self.name, self.root), *others = walk.roots.items()
        self.others = others  # further arguments that are modules of the owner's
        self.watch = walk.watch
        self.check = check
        self.values = values
        self.inputs = inputs  # of the frame function, or nothing

    def is_about(self, frame_locals: dict) -> bool:
        """Whether the arguments are these modules."""
        return frame_locals[self.name] is self.root and all(frame_locals[name] is root for name, root in self.others)


class SnapshotCheck:
    """Calls the full check of an entry, or the short one of its snapshot.

    ``owner()`` is the record of the compiled callable that is running, or None.
    """

    def __init__(self, guards: CompiledGuards, owner: Callable[[], Any]) -> None:
        self._guards = guards
        self._full = guards.check
        self._inputs = guards.inputs
        self._owner = owner
        self._uses = 0
        self._changes: collections.Counter[int] = collections.Counter()  # id -> how often it ended a snapshot
        self._patience = 1  # how many full checks pass before the next snapshot
        self._passed = 0

    @from_its_first_instruction
    def __call__(self, frame_locals: dict) -> bool:
        try:
            return self._holds(frame_locals)
        except BaseException as error:
            return keep(error)

    def _holds(self, frame_locals: dict) -> bool:
        snapshot = self._inputs.latest()
        if snapshot is not None and snapshot.is_about(frame_locals):
            verdict = snapshot.check(frame_locals, snapshot.values, snapshot.watch.unchanged)
            if verdict is not None:
                self._uses += 1
                return verdict
            self._inputs.latest = no_snapshot  # the frame function must not use it either
            self._changes.update(snapshot.watch.changed())
        if not self._full(frame_locals):
            return False
        self._passed += 1
        if self._passed > self._patience:
            self._take(frame_locals)
        return True

    def _take(self, frame_locals: dict) -> None:
        """Making a snapshot takes as long as many full checks, so one that did not last delays the next."""
        self._patience = 1 if self._uses >= _WORTH_IT else min(2 * self._patience, _MOST_PATIENCE)
        self._passed = self._uses = 0
        record = self._owner()
        if record is None or record.root is None:
            return
        try:
            volatile = {key for key, times in self._changes.items() if times > 1}
            snapshot = _take(self._guards, frame_locals, record.root, volatile)
        except Exception:  # the hook would treat it as a failed guard
            log.warning("torchmux checks %d guards one by one", len(self._guards.conditions), exc_info=True)
            self._patience = sys.maxsize
            return
        # what was read for it was read under the watch, and so is this
        if snapshot is not None and self._full(frame_locals) and snapshot.watch.unchanged():
            record.snapshots[self] = snapshot
            self._inputs.latest = weakref.ref(snapshot)


def check_of(guards: CompiledGuards, owner: Callable[[], Any]) -> Callable[[dict], bool]:
    """The check that the C hook calls."""
    roots = {guard.source.root() for guard in guards.conditions}
    if len(guards.conditions) < _FEW or not any(isinstance(root, Argument) for root in roots):
        return guards.check
    return SnapshotCheck(guards, owner) if write_watch.is_available() else guards.check


def _take(guards: CompiledGuards, frame_locals: dict, root: torch.nn.Module, volatile: set[int]) -> Snapshot | None:
    walk = Walk(frame_locals, root, volatile)
    conditions = [guard for guard in guards.conditions if not walk.settles(guard)]
    groups = [group for group in guards.distinct if any(walk.value(source) is OPEN for source in group)]
    for _, sources in guards.tensor_checks:
        for source in sources:
            walk.value(source)
    inputs = tuple(map(walk.value, guards.inputs.sources))
    if not walk.roots:
        return None
    if any(value is OPEN for value in inputs) or list(walk.roots) != [guards.inputs.root]:
        inputs = ()
    loaders: list[_SettledLoader] = []

    def make_loader(names: Names, lines: list[str]) -> Loader:
        loaders.append(_SettledLoader(names, lines, walk))
        return loaders[0]

    check, _ = guards.write([*walk.pins().values(), *conditions], groups, make_loader, snapshot=True)
    walk.watch.seal()
    return Snapshot(walk, check, tuple(map(walk.value, loaders[0].settled)), inputs)


class _SettledLoader(Loader):
    """Takes the values of settled sources from the tuple ``S``."""

    def __init__(self, names: Names, lines: list[str], walk: Walk) -> None:
        super().__init__(names, lines, lambda source: f"L[{source.name!r}]")
        self._walk = walk
        self.settled: dict[Source, str] = {}

    def load(self, source: Source) -> str:
        if source in self.settled:
            return self.settled[source]
        if isinstance(source, Argument) or source in self._walk.pinned or self._walk.value(source) is OPEN:
            return super().load(source)
        return self.settled.setdefault(source, f"s{len(self.settled)}")

    def prologue(self) -> list[str]:
        return [f"({', '.join(self.settled.values())},) = S"] if self.settled else []
