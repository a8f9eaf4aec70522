"""Checks the guards on the structure of models together, by detecting writes to them.

Most guards of a large model are about its modules: their classes, submodules, flags, hooks, where the parameters are.
While a :class:`~.write_watch.Watch` reports that none of them was written to, these guards still hold.  The remaining
checks are the arguments, the global state, everything else that the program read, and the tensors themselves, whose
sizes and types can change without a write to a module.

A snapshot keeps modules and parameters alive, so only the compiled callable holds it, guards refer to it weakly, and it
goes when the model does.  What paths begin from (the model that was compiled, an argument, a module among the globals)
is compared in each call, and held weakly.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from torchmux import torch_internals as ti

from ..hook.interrupts import from_its_first_instruction, keep
from . import tensor_words, write_watch
from .check import Apart, CompiledGuards, by_name, by_position, read, tensor_checker, unpacking
from .guards import no_snapshot
from .loader import Loader, Names
from .plain_call import PlainCall
from .sources import Argument, Source
from .stable_objects import OPEN
from .stable_paths import Walk
from .write_watch import Watch

log = logging.getLogger("torchmux")

_FEW = 16  # guards that are checked faster one by one
_WORTH_IT = 100  # uses that make up for a snapshot
_MOST_PATIENCE = 1 << 16
_MOST = 64  # sets of objects that a check has snapshots of


OTHER: Any = object()  # what a check answers for other objects than those of its snapshot


class Form:
    """How a check takes what it is about: the values of these locals, in this order; and what it checks besides."""

    def __init__(self, names: tuple[str, ...], plain: PlainCall | None) -> None:
        self.names = names
        self.plain = plain

    def is_like(self, other: Form) -> bool:
        if self.plain is None or other.plain is None:
            return self.names == other.names and self.plain is other.plain
        return self.names == other.names and self.plain.is_like(other.plain)


class Snapshot:
    """What the guards found in objects, valid while the watch sees no change."""

    def __init__(
        self,
        watch: Watch,
        roots: dict[Source, weakref.ref[Any]],
        check: Callable[..., Any],
        values: tuple,
        names: tuple[str, ...] | None,
    ) -> None:
        self.watch = watch
        self.check = check
        self.values = values
        self.names = names  # of the locals whose values the check takes; None if it takes all of them as a dictionary
        self.form: Form | None = None  # all of which the check is
        self._roots = roots  # path -> weak reference
        self.uses = 0
        self.roots: tuple[Callable[[], Any], ...] = ()  # where the inputs lead from
        self.inputs: tuple = ()  # of the frame function, or nothing

    def changed(self) -> set[int]:
        """The ids of the objects that were written to."""
        roots = [root() for root in self._roots.values()]  # alive while their words are read
        return self.watch.changed() if all(root is not None for root in roots) else set()

    def begins_from(self, reference: weakref.ref[Any]) -> bool:
        return any(root is reference for root in self._roots.values())

    def knows_inputs(self, roots: tuple, values: tuple) -> None:
        """The frame function need not load what it starts with."""
        self.roots = roots
        self.inputs = values


class _Calls:
    """What a check knows of its calls that begin from the same objects."""

    __slots__ = ("passed", "patience", "snapshot", "uses")

    def __init__(self, patience: int, passed: int) -> None:
        self.patience = patience  # how many full checks pass before the next snapshot
        self.passed = passed
        self.snapshot: Callable[[], Snapshot | None] = no_snapshot
        self.uses = 0  # of the snapshot that has ended


class SnapshotCheck:
    """Calls the full check of an entry, or the short one of a snapshot.

    Code that belongs to several modules of a class has a snapshot for each: its calls begin from other arguments.
    ``owner()`` is the record of the compiled callable that is running, or None.
    """

    def __init__(self, guards: CompiledGuards, owner: Callable[[], Any]) -> None:
        self._guards = guards
        self._full = guards.check
        self.inputs = guards.inputs  # whose snapshot is the one that was used last
        self._owner = owner
        self._changes: collections.Counter[int] = collections.Counter()  # id -> how often it ended a snapshot
        self._began: dict[Argument, weakref.ref[Any]] = {}  # the arguments that the latest snapshot was about
        self._replaced: collections.Counter[Argument] = collections.Counter()  # how often it was another one
        self.gave_up = False  # there is too little that a snapshot would be about
        self._patience = 1  # with objects that are new here
        self._at_once = False  # the next check takes a snapshot
        self._roots: tuple[str, ...] = ()  # the arguments that calls begin from
        self._calls: dict[tuple[int, ...], _Calls] = {}  # the ids of those arguments -> the calls with them
        self._names: tuple[str, ...] | None = None  # as the next snapshot takes them
        self._form: Callable[[], Form | None] = no_snapshot  # of the next snapshot

    @from_its_first_instruction
    def __call__(self, frame_locals: dict) -> bool:
        try:
            verdict = OTHER
            if (snapshot := self.inputs.latest()) is not None:
                verdict = _asked(snapshot, frame_locals)
            if verdict is OTHER and self._roots and (other := self._of_these(frame_locals)) not in (None, snapshot):
                self.inputs.latest, snapshot = weakref.ref(other), other
                verdict = _asked(other, frame_locals)
            if snapshot is not None and verdict is not OTHER:
                if verdict is not None:
                    snapshot.uses += 1
                    return bool(verdict)
                self._end_changed(snapshot)
            return self._holds(frame_locals)
        except BaseException as error:
            return keep(error)

    def _key(self, frame_locals: dict) -> tuple[int, ...]:
        return tuple([id(frame_locals.get(name, OTHER)) for name in self._roots])

    def _of_these(self, frame_locals: dict) -> Snapshot | None:
        """The snapshot of the calls with these objects."""
        calls = self._calls.get(self._key(frame_locals))
        return None if calls is None else calls.snapshot()

    def _end_changed(self, ended: Snapshot) -> None:
        """End all snapshots that are no longer right, ``ended`` among them: one write may have changed several."""
        self.inputs.latest = no_snapshot  # the frame function must not use it either
        changed: set[int] = set()
        for calls in self._calls.values():
            if (snapshot := calls.snapshot()) is None:
                continue
            if (ids := snapshot.changed()) or snapshot is ended:
                changed |= ids
                calls.snapshot, calls.uses = no_snapshot, snapshot.uses
        self._changes.update(changed)

    def known(self, form: Form) -> Form:
        """The form that the latest snapshot has, if it is like this one."""
        latest = self._form()
        return latest if latest is not None and latest.is_like(form) else form

    def of_values(self, form: Form) -> Callable[..., bool]:
        """The check as a function of the values of some locals, a tuple, for as long as the check itself is there.

        A snapshot of this form has a check that may be called ahead of it.
        """
        if self._form() is not form:
            self._names, self._form, self.inputs.latest = form.names, weakref.ref(form), no_snapshot
            self._calls, self._at_once = {}, True  # with a snapshot of that form
        held, names = weakref.ref(self), form.names
        without = None

        def holds(values: tuple) -> bool:
            nonlocal without
            if (check := held()) is None:
                return False
            if check.gave_up:
                without = without or check._guards.of_arguments(names)
                return without(values)
            return check(dict(zip(names, values, strict=True)))

        return holds

    def _holds(self, frame_locals: dict) -> bool:
        if not self._full(frame_locals):
            return False
        key = self._key(frame_locals)
        if (calls := self._calls.get(key)) is None:
            if len(self._calls) >= _MOST:
                self._calls = {known: each for known, each in self._calls.items() if each.snapshot() is not None}
            calls = self._calls[key] = _Calls(self._patience, self._patience if self._at_once else 0)
            self._at_once = False
        calls.passed += 1
        if calls.passed > calls.patience and len(self._calls) < _MOST:
            self._take(calls, frame_locals)
        return True

    def _take(self, calls: _Calls, frame_locals: dict) -> None:
        """Making a snapshot takes as long as many full checks, so one that did not last delays the next."""
        calls.patience = 1 if calls.uses >= _WORTH_IT else min(2 * calls.patience, _MOST_PATIENCE)
        calls.passed = calls.uses = 0
        record = self._owner()
        if record is None:
            return
        try:
            self._replaced.update(path for path, obj in self._began.items() if obj() is not frame_locals[path.name])
            walk = Walk(
                frame_locals,
                record.root,
                {key for key, times in self._changes.items() if times > 1},
                {path for path, times in self._replaced.items() if times > 1},
            )
            form = self._form()
            snapshot = _take(self._guards, walk, frame_locals, self._names, form, _forgetting(record, self))
            self._began = {
                path: weakref.ref(root)
                for path, root in walk.roots.items()
                if isinstance(path, Argument) and not isinstance(root, torch.nn.Module)
            }
        except Exception:  # the hook would treat it as a failed guard
            log.warning("torchmux checks %d guards one by one", len(self._guards.conditions), exc_info=True)
            snapshot = None
        if snapshot is None:
            self.gave_up, self._patience, self._calls, self.inputs.latest = True, sys.maxsize, {}, no_snapshot
            return
        # what was read for it was read under the watch, and so is this
        if self._full(frame_locals) and snapshot.watch.unchanged():
            roots = tuple(path.name for path in walk.roots if isinstance(path, Argument))
            if roots != self._roots:
                self._roots, self._calls = roots, {}
            key = self._key(frame_locals)
            self._calls[key] = calls
            kept = record.snapshots.setdefault(self, {})
            self.inputs.latest = calls.snapshot = weakref.ref(snapshot)
            now = {known: each.snapshot() for known, each in self._calls.items()}
            for known in [known for known, each in kept.items() if now.get(known) is not each]:
                kept.pop(known, None)
            kept[key] = snapshot

    def lost(self, snapshot: Snapshot) -> None:
        """Note that an object is gone that this snapshot began from."""
        self._patience = 1 if snapshot.uses >= _WORTH_IT else min(2 * self._patience, _MOST_PATIENCE)


def _asked(snapshot: Snapshot, frame_locals: dict) -> Any:
    """True, False, None for a snapshot that has ended, or OTHER."""
    if (names := snapshot.names) is None:
        return snapshot.check(snapshot.values, frame_locals)
    return snapshot.check(snapshot.values, [frame_locals.get(name, OTHER) for name in names])


def check_of(guards: CompiledGuards, owner: Callable[[], Any]) -> Callable[[dict], bool]:
    """The check that the C hook calls."""
    if len(guards.conditions) < max(_FEW, 1) or not write_watch.is_available():
        return guards.check
    return SnapshotCheck(guards, owner)


def _forgetting(record: Any, check: SnapshotCheck) -> Callable[[Any], None]:
    """What forgets a snapshot of a check, once an object is gone that it is about."""
    record, check = weakref.ref(record), weakref.ref(check)  # type: ignore[assignment]

    def forget(gone: Any) -> None:
        if (snapshots := getattr(record(), "snapshots", None)) is None or (owner := check()) is None:
            return
        kept = snapshots.get(owner, {})
        for key, snapshot in list(kept.items()):
            if snapshot.begins_from(gone):
                kept.pop(key, None)
                owner.lost(snapshot)

    return forget


def _take(
    guards: CompiledGuards,
    walk: Walk,
    frame_locals: dict,
    given: tuple[str, ...] | None,
    form: Form | None,
    when_gone: Callable[[Any], None],
) -> Snapshot | None:
    conditions = [guard for guard in guards.conditions if not walk.settles(guard)]
    apart = [_apart(walk, group) for group in guards.distinct]
    groups = [each.sources for each in apart if len(each.sources) > 1]
    for source in guards.tensor_checks[-1][1]:
        walk.value(source)
    others = _other_tensors(guards, walk, frame_locals)
    inputs, more = (tuple(map(walk.value, sources)) for sources in (guards.inputs.sources, guards.inputs.more))
    if not walk.roots and len(guards.conditions) - len(conditions) < _FEW:
        return None
    begin = tuple(map(walk.value, guards.inputs.roots))
    known = all(value is not OPEN for value in (*inputs, *more, *begin))
    roots: Any = {path: weakref.ref(root, when_gone) for path, root in walk.roots.items()}
    if form is not None and form.plain is not None and not form.plain.is_watched(walk):
        form = None
    loaders: list[_SettledLoader] = []

    def make_loader(names: Names, lines: list[str]) -> Loader:
        loaders.append(_SettledLoader(names, lines, walk, given))
        if given is not None:
            lines.append(unpacking(given))
        for path, root in roots.items():
            lines.append(f"if {loaders[0].load(path)} is not {names.const(root)}(): return {names.const(OTHER)}")
        return loaders[0]

    check, _ = guards.write(
        [*walk.pins().values(), *conditions],
        groups,
        make_loader,
        takes="S, L" if given is None else "S, values",
        watch=walk.watch,
        others=others,
        apart=apart,
    )
    snapshot = Snapshot(walk.watch, roots, check, loaders[0].values(), given)
    snapshot.form = form
    if known and not any(value is root for value in (*inputs, *more) for root in walk.roots.values()):
        begins = zip(guards.inputs.roots, begin, strict=True)
        snapshot.knows_inputs(
            tuple(roots.get(path) or functools.partial(_same, value) for path, value in begins),
            (*inputs, more) if more else inputs,
        )
    return snapshot


def _apart(walk: Walk, group: list[Source]) -> Apart:
    """Of objects that all differ, those that a call may bring, and the ids of those that stay."""
    values = {source: walk.value(source) for source in group}
    stay = frozenset(id(value) for value in values.values() if value is not OPEN)
    return Apart([source for source, value in values.items() if value is OPEN], stay)


def _other_tensors(guards: CompiledGuards, walk: Walk, frame_locals: dict) -> tuple[list[Any], Apart] | None:
    """What is checked of tensors besides the arguments, where the watch notes most of them; None if it does not.

    What guards ask of dispatch keys depends on the state of the thread as well, in the same way for all tensors of the
    same keys: one of these is checked.
    """
    facts = {fact.source: fact for fact in guards.facts}
    if len(guards.tensor_checks) < 2 or not tensor_words.is_available():
        return None
    if any(fact.layout is not torch.strided for fact in facts.values()):
        return None
    own, every = (sources for _, sources in guards.tensor_checks)
    watched = {s: walk.value(s) for s in every if s not in own and walk.may_keep(walk.value(s))}
    watched = {source: tensor for source, tensor in watched.items() if walk.notes_tensor(tensor)}
    seen = [source for source in every if source not in watched]
    values = dict(zip(seen, read(seen, frame_locals), strict=True))
    known = {ti.dispatch_keys(values[source]) for source in own}
    group = [(s, values[s], [*facts[s].sizes], [*facts[s].strides]) for s in seen] if len(seen) > len(own) else []
    for source, tensor in watched.items():
        if (keys := ti.dispatch_keys(tensor)) not in known:
            known.add(keys)
            group.append((source, tensor, [*tensor.shape], [*tensor.stride()]))
    apart = Apart(seen, frozenset(map(id, watched.values())))
    return ([tensor_checker(group)] if group else []), apart


def _same(value: Any) -> Any:
    return value


class _SettledLoader(Loader):
    """Takes the values of settled sources from the tuple ``S``."""

    def __init__(self, names: Names, lines: list[str], walk: Walk, given: tuple[str, ...] | None) -> None:
        super().__init__(names, lines, by_name if given is None else by_position(given))
        self._walk = walk
        self._settled: dict[Source, str] = {}
        self._groups: dict[str, list[Source]] = {}

    def load(self, source: Source) -> str:
        if source in self._settled:
            return self._settled[source]
        return self._settled.setdefault(source, f"s{len(self._settled)}") if self._is(source) else super().load(source)

    def load_all(self, sources: list[Source]) -> str:
        """Settled ones that follow each other are one tuple, which a call gets as it is."""
        found = []
        for settled, group in itertools.groupby(sources, self._is):
            if settled:
                found.append(f"*t{len(self._groups)}")
                self._groups[found[-1][1:]] = list(group)
            else:
                found.extend(map(self.load, group))
        return ", ".join(found)

    def _is(self, source: Source) -> bool:
        return source not in self._walk.pinned and self._walk.may_keep(self._walk.value(source))

    def values(self) -> tuple:
        """``S``."""
        groups = (tuple(map(self._walk.value, group)) for group in self._groups.values())
        return (*map(self._walk.value, self._settled), *groups)

    def prologue(self) -> list[str]:
        names = ", ".join([*self._settled.values(), *self._groups])
        return [f"({names},) = S"] if names else []
