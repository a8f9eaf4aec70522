"""Checks the guards on a model's structure at once, by whether anything was written to the model.

Most guards of a large model are about its modules: their classes, submodules, flags, hooks, where the parameters are.
While a :class:`~.watch.Watch` says that nobody wrote to any of them, those guards hold as they held before, and what is
left to check are the arguments, the global state, what else the program read, and the tensors themselves, whose sizes
and types can change without a write to a module.

A snapshot keeps modules and parameters alive, so the compiled callable that owns the model keeps it, and nothing else:
guards only refer to it weakly, and only modules that belong to the owner's are in it.
"""

from __future__ import annotations

import ast
import logging
import re
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from . import watch
from .guard_check import CompiledGuards
from .guards import Guard, no_snapshot
from .sources import Loader, LocalSource, Names, Source
from .values.modules import HOOKS, NO_HOOKS, TABLES, unregistered

log = logging.getLogger("torchmux")

_FEW = 12  # guards that are checked faster one by one
_WORTH_IT = 100  # uses that make up for a snapshot
_MOST_PATIENCE = 1 << 16
_SCALARS = frozenset({bool, int, float, complex, str, bytes, types.NoneType, torch.dtype, torch.device})
_OPEN: Any = object()  # nothing is known
# conditions on a dictionary that its keys and values decide
_ON_CONTENTS = re.compile(r"'\w+' (not )?in \{0\}|tuple\(\{0\}\) == \{1\}|len\(\{0\}\) == \d+|type\(\{0\}\) is \{1\}")
_UNREGISTERED = re.compile(re.escape(unregistered("!")).replace("'!'", r"'\w+'"))
_IDENTITY = re.compile(r"\{0\} is (\{1\}|\{other\}|None|True|False|\.\.\.)")


class Snapshot:
    """What the guards found in a model, valid while the watch sees no change."""

    def __init__(self, walk: _Walk, check: Callable[..., bool], values: tuple, inputs: tuple) -> None:
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
        self._patience = 1  # how many full checks pass before the next snapshot
        self._passed = 0

    def __call__(self, frame_locals: dict) -> bool:
        snapshot = self._inputs.latest()
        if snapshot is not None and snapshot.is_about(frame_locals):
            if snapshot.watch.unchanged():
                self._uses += 1
                return snapshot.check(frame_locals, snapshot.values)
            self._inputs.latest = no_snapshot  # the frame function must not use it either
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
            snapshot = _take(self._guards, frame_locals, record.root)
        except Exception:  # the hook would take it for a failed guard
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
    if len(guards.conditions) < _FEW or not any(isinstance(root, LocalSource) for root in roots):
        return guards.check
    return SnapshotCheck(guards, owner) if watch.is_available() else guards.check


def _take(guards: CompiledGuards, frame_locals: dict, root: torch.nn.Module) -> Snapshot | None:
    walk = _Walk(frame_locals, root)
    conditions = [guard for guard in guards.conditions if not walk.settles(guard)]
    groups = [group for group in guards.distinct if any(walk.value(source) is _OPEN for source in group)]
    for _, sources in guards.tensor_checks:
        for source in sources:
            walk.value(source)
    inputs = tuple(map(walk.value, guards.inputs.sources))
    if not walk.roots:
        return None
    if any(value is _OPEN for value in inputs) or list(walk.roots) != [guards.inputs.root]:
        inputs = ()
    loaders: list[_SettledLoader] = []

    def make_loader(names: Names, lines: list[str]) -> Loader:
        loaders.append(_SettledLoader(names, lines, walk))
        return loaders[0]

    check, _ = guards.write(conditions, groups, make_loader, "L, S")
    walk.watch.seal()
    return Snapshot(walk, check, tuple(map(walk.value, loaders[0].settled)), inputs)


class _SettledLoader(Loader):
    """Takes the values of settled sources from the tuple ``S``."""

    def __init__(self, names: Names, lines: list[str], walk: _Walk) -> None:
        super().__init__(names, lines, lambda source: f"L[{source.name!r}]")
        self._walk = walk
        self.settled: dict[Source, str] = {}

    def load(self, source: Source) -> str:
        if source in self.settled:
            return self.settled[source]
        if isinstance(source, LocalSource) or self._walk.value(source) is _OPEN:
            return super().load(source)
        return self.settled.setdefault(source, f"s{len(self.settled)}")

    def prologue(self) -> list[str]:
        return [f"({', '.join(self.settled.values())},) = S"] if self.settled else []


class _Walk:
    """Follows sources from the owner's modules through what can be watched."""

    def __init__(self, frame_locals: dict, root: torch.nn.Module) -> None:
        self.watch = watch.Watch()
        self.roots: dict[str, Any] = {}
        self._locals = frame_locals
        self._owned = {id(module) for module in root.modules()}
        self._values: dict[Source, Any] = {}
        self._namespaces: dict[int, dict | None] = {}
        self._tables: dict[int, dict] = {}  # dictionaries that are noted

    def value(self, source: Source) -> Any:
        """What a source leads to for as long as nothing noted changes, or _OPEN."""
        if source not in self._values:
            self._values[source] = self._follow(source)
        return self._values[source]

    def _follow(self, source: Source) -> Any:
        if isinstance(source, LocalSource):
            found = self._known(self._locals[source.name])
            if isinstance(found, torch.nn.Module):
                self.roots[source.name] = found
                return found
            return _OPEN
        if source.parent is None:
            # a module that the program reached by a path of its own, as a method of it, say
            obj = source.consts[0] if source.template == "{1}" else None
            return self._known(obj) if isinstance(obj, torch.nn.Module) else _OPEN
        parent = self.value(source.parent)
        if isinstance(parent, torch.nn.Module):
            return self._attribute(parent, source)
        key = source.consts[0] if source.template == "{0}[{1}]" else _literal(source.template)
        if id(parent) in self._tables and key is not _OPEN and key in parent:
            return self._known(parent[key])
        if type(parent) is tuple and type(key) is int and -len(parent) <= key < len(parent):
            return self._known(parent[key])
        return _OPEN

    def _attribute(self, module: torch.nn.Module, source: Source) -> Any:
        name = source.template.removeprefix("{0}.")
        namespace = self._namespace(module)
        if namespace is None or name == source.template:
            return _OPEN
        if name == "__dict__":
            return namespace
        if name not in namespace or _has_data_descriptor(type(module), name):
            return _OPEN
        return self._known(namespace[name])

    def _known(self, obj: Any) -> Any:
        if isinstance(obj, torch.nn.Module):
            return obj if self._owns(obj) and self._namespace(obj) is not None else _OPEN
        if type(obj) is dict:
            self._note(obj)
        return obj

    def _owns(self, module: torch.nn.Module) -> bool:
        return id(module) in self._owned

    def _namespace(self, module: torch.nn.Module) -> dict | None:
        if id(module) not in self._namespaces:
            plain = type(module).__getattribute__ is object.__getattribute__
            namespace = self.watch.attributes(module) if plain else None
            self._namespaces[id(module)] = namespace
            if namespace is not None:
                self._tables[id(namespace)] = namespace
        return self._namespaces[id(module)]

    def _note(self, d: dict) -> None:
        self._tables[id(d)] = d
        self.watch.contents(d)

    def settles(self, guard: Guard) -> bool:
        """Whether a guard that holds now holds until something noted changes."""
        value = self.value(guard.source)
        if value is _OPEN or (guard.other is not None and self.value(guard.other) is _OPEN):
            return False
        if _IDENTITY.fullmatch(guard.condition):
            return True
        if guard.other is not None or not all(
            type(c) in _SCALARS or isinstance(c, (type, tuple)) for c in guard.consts
        ):
            return False
        if type(value) in _SCALARS:
            return True
        if isinstance(value, torch.nn.Module):
            return (
                guard.condition == "type({0}) is {1}"
                or (guard.condition == NO_HOOKS and self._has_no_hooks(value))
                or (_UNREGISTERED.fullmatch(guard.condition) is not None and self._has_tables(value))
            )
        has_contents = id(value) in self._tables or type(value) is tuple
        return has_contents and _ON_CONTENTS.fullmatch(guard.condition) is not None

    def _has_tables(self, module: torch.nn.Module) -> bool:
        namespace = self._namespace(module)
        assert namespace is not None
        tables = [self._known(namespace.get(name)) for name in TABLES]
        return all(id(table) in self._tables for table in tables)

    def _has_no_hooks(self, module: torch.nn.Module) -> bool:
        namespace = self._namespace(module)
        assert namespace is not None
        for name in HOOKS:
            hooks = namespace.get(name)
            if not isinstance(hooks, dict) or hooks or _has_data_descriptor(type(module), name):
                return False
            self.watch.contents(hooks)
        return True


def _literal(template: str) -> Any:
    """The key of a template ``{0}[key]``, or _OPEN."""
    if not template.startswith("{0}[") or not template.endswith("]"):
        return _OPEN
    try:
        return ast.literal_eval(template[4:-1].replace("{{", "{").replace("}}", "}"))
    except (ValueError, SyntaxError):
        return _OPEN


def _has_data_descriptor(cls: type, name: str) -> bool:
    for base in cls.__mro__:
        if name in base.__dict__:
            found = type(base.__dict__[name])
            return hasattr(found, "__set__") or hasattr(found, "__delete__")
    return False
