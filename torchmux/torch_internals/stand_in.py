"""Modules of torch that are not imported: stand-ins that answer to their names for a while.

A stand-in has the few answers that are needed; whoever asks it for anything else, or imports a module of the package
that it stands for, gets the real one, imported then.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from .modes import without_modes

lock = threading.RLock()  # held by whoever installs and removes
_standing: dict[str, types.ModuleType] = {}


class StandIn(types.ModuleType):
    """Answers to ``name``.

    ``beneath`` are the modules of a package that are imported without it.  One that ``stays`` does so when the package
    around it is imported.  ``removed`` is called once it is gone.
    """

    def __init__(
        self,
        name: str,
        answers: dict[str, Any],
        *,
        beneath: tuple[str, ...] = (),
        stays: bool = False,
        removed: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name)
        self.__dict__.update(answers, __beneath__=beneath, __stays__=stays, __removed__=removed)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(real(self.__name__), name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__") or isinstance(value, types.ModuleType):  # as the import system does
            super().__setattr__(name, value)
        else:
            setattr(real(self.__name__), name, value)


def install(name: str, module: types.ModuleType, spec: importlib.machinery.ModuleSpec | None = None) -> None:
    """Have ``module`` answer to ``name``; with the ``spec`` of a package, modules can be imported from it."""
    if spec is not None:
        module.__path__ = list(spec.submodule_search_locations or ())
        module.__spec__ = spec
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    sys.modules[name] = _standing[name] = module
    _attach(name)


def is_installed(name: str) -> bool:
    """Whether a stand-in answers to ``name``."""
    return name in _standing and sys.modules.get(name) is _standing[name]


def remove(name: str) -> None:
    """Leave the place to the real module."""
    module = _standing.pop(name, None)
    if module is None:
        return
    if sys.modules.get(name) is module:
        del sys.modules[name]
    package, _, child = name.rpartition(".")
    around = sys.modules.get(package)
    if around is not None and around.__dict__.get(child) is module:
        del around.__dict__[child]
    if isinstance(module, StandIn):
        module.__removed__()
    if not _standing and _finder in sys.meta_path:
        sys.meta_path.remove(_finder)


def real(name: str) -> types.ModuleType:
    """The module itself, imported if it is not; the modes of a tracer do not see what its import runs."""
    with lock:
        for each, module in list(_standing.items()):
            stays = isinstance(module, StandIn) and module.__stays__
            if f"{name}.".startswith(f"{each}.") or (each.startswith(f"{name}.") and not stays):
                remove(each)
    with without_modes():
        module = importlib.import_module(name)
    with lock:
        for each in _standing:
            _attach(each)
    return module


def _attach(name: str) -> None:
    """``import package.module`` makes the module an attribute of the package."""
    package, _, child = name.rpartition(".")
    around = sys.modules.get(package)
    if around is not None and is_installed(name):
        around.__dict__.setdefault(child, _standing[name])


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the import of a module of a package that has a stand-in, ahead of everybody else."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        package = ".".join(name.split(".")[:2])
        stand_in = _standing.get(package)
        if stand_in is None or sys.modules.get(package) is not stand_in or name in (package, *stand_in.__beneath__):
            return None
        real(package)
        around = name.rpartition(".")[0]
        if around not in sys.modules:
            importlib.import_module(around)
        module = sys.modules.get(name)  # the package may have imported it meanwhile
        if module is None:
            return None
        # the import system takes the spec of such a module itself, and would execute the module a second time
        found = importlib.util.spec_from_loader(name, _Loaded(module))
        module.__spec__ = found
        return found


class _Loaded(importlib.abc.Loader):
    """Hands out a module that is loaded already, and gives it back its spec."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec


_finder = _Finder()
