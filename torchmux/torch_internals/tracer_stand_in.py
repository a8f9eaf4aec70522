"""Fake tensors without torch's own tracer.

``torch._dynamo`` is imported by the first fake tensor of a process, for its settings, and by many an operator, for the
function ``disable``.  That import takes longer than capturing most programs.  While :func:`tracer_stand_in` is active,
a stand-in answers to the name: it has the settings and a plain ``disable``; whoever asks it for anything else, or
imports a module of the package, gets the real one, imported then.  Afterwards all is as it was, but for the module of
the settings, which stays.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .frame_hook import not_captured

_NAME, _SETTINGS = "torch._dynamo", "torch._dynamo.config"
_MARK = "__dynamo_disable"  # where an operator keeps what disable() made of it

_lock = threading.RLock()
_users = 0
_stand_in: types.ModuleType | None = None
_disabled: list[tuple[Any, Any]] = []


@contextlib.contextmanager
def tracer_stand_in() -> Iterator[None]:
    """While this lasts, torch finds its tracer's settings without the tracer, unless it is there already."""
    global _users
    with _lock:
        if _NAME not in sys.modules:
            _install()
        _users += 1
    try:
        if sys.modules.get(_NAME) is _stand_in:
            importlib.import_module(_SETTINGS)
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _remove()


def _install() -> None:
    global _stand_in
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.submodule_search_locations is None:
        return
    _stand_in = _StandIn(_NAME)
    _stand_in.__path__ = list(spec.submodule_search_locations)
    _stand_in.__spec__ = spec
    _stand_in.__dict__["disable"] = _disable
    sys.modules[_NAME] = _stand_in
    torch.__dict__["_dynamo"] = _stand_in
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _remove() -> None:
    """Leave the place to the real module."""
    if sys.modules.get(_NAME) is _stand_in:
        del sys.modules[_NAME]
    if torch.__dict__.get("_dynamo") is _stand_in:
        del torch.__dict__["_dynamo"]
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    while _disabled:
        function, made = _disabled.pop()
        if function.__dict__.get(_MARK) is made:
            del function.__dict__[_MARK]


def _real() -> Any:
    with _lock:
        if _stand_in is not None and sys.modules.get(_NAME) is _stand_in:
            _remove()
    return importlib.import_module(_NAME)


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_real(), name)


def _disable(function: Any = None, recursive: bool = True, **how: Any) -> Any:
    """``function`` as the hook leaves it alone; what is not asked for by torch's operators is the real one's."""
    if type(function) is not types.FunctionType or not recursive or how != {"wrapping": False}:
        return _real().disable(function, recursive, **how)
    made = _alone(function)
    _disabled.append((function, made))
    return made


def _alone(function: Callable[..., Any]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return not_captured(run)


class _Finder(importlib.abc.MetaPathFinder):
    """Sees the import of a module of the package, ahead of everybody else."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(_NAME + ".") or name == _SETTINGS or sys.modules.get(_NAME) is not _stand_in:
            return None
        _real()
        module = sys.modules.get(name)  # the package may have imported it meanwhile
        return None if module is None else importlib.util.spec_from_loader(name, _Loaded(module))


class _Loaded(importlib.abc.Loader):
    """Hands out a module that is loaded already."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec


_finder = _Finder()
