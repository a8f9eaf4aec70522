"""What modules and classes consist of: nobody may replace a function of torch, of NumPy or of Python's library.

All modules of these are looked at.  Most never change, so a namespace that is still what it was is not copied again.
"""

from __future__ import annotations

import builtins
import concurrent.futures
import functools
import json
import logging
import math
import operator
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from torchmux import torch_internals

_STRICT = (
    torch, torch.Tensor, torch.nn.Module, torch.nn.functional, torch.nn.init, torch.linalg, torch.fft, torch.special,
    torch.autograd, torch.autograd.Function, torch.optim, torch.optim.Optimizer, torch.optim.lr_scheduler, torch.func,
    torch.nn.utils, torch.utils.checkpoint, torch.utils.data, torch.utils.data.DataLoader, builtins, warnings, math,
    operator, functools, logging, tempfile, os, random, json, pickle, subprocess, threading,
    sys.modules["time"], sys.modules["copy"],
)  # fmt: skip
"""Nobody may add names to these either."""

_CLOSED = {*(home.__name__ for home in _STRICT), "types of containers"}

_WITH_CLASSES = (
    torch.nn, torch.optim, torch.optim.lr_scheduler, torch.amp, torch.distributions, torch.fx, torch.profiler,
    torch.utils.data, torch.utils._python_dispatch, torch.overrides, pathlib, concurrent.futures, json, logging,
    threading, random, sys.modules["contextlib"], sys.modules["collections"],
)  # fmt: skip
"""Modules whose classes may not get other methods."""

_WITH_CODE = (torch.nn.functional, torch.nn.init, torch.functional)
"""Modules whose functions may not get other code or defaults; nor may those of optimizers."""

_OF_COMPILERS = ("torch._dynamo", "torch._inductor", "torch.testing", "torch.onnx", "torch.utils.benchmark")
"""Modules of torch that replace their own functions while they compile or test."""

_CONSTANTS = (torch.dtype, torch.layout, torch.memory_format, torch.Generator, float)
"""Types of values, besides functions, that a name of torch or of ``math`` has for good."""

_TOLD = {("sys", hook) for hook in ("excepthook", "displayhook", "unraisablehook", "breakpointhook")}
"""Functions that are a part of the state of their own, which a backend may declare."""

_HOME = os.path.join(os.path.dirname(torch.__file__), "")
# the separator tells torch's own folder from one beside it whose name begins alike, such as torch_tensorrt's

Namespaces = dict[str, dict[Any, Any]]

_kept: Namespaces = {}
"""Copies of namespaces, for as long as they are what they were."""

_found: tuple[int, list[tuple[str, Any]]] = (0, [])
"""How many modules there were, and the namespaces of then."""


def read() -> Namespaces:
    """All namespaces by name; those that did not change are the same copies as before."""
    return {name: _copied(name, now) for name, now in _homes()}


def _homes() -> list[tuple[str, Any]]:
    global _found
    if _found[0] != len(sys.modules):
        _found = len(sys.modules), list(_named())
    return _found[1]


def _named() -> Iterator[tuple[str, Any]]:
    known = {"torch", "numpy", *sys.stdlib_module_names}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and name.partition(".")[0] in known:
            if not name.startswith(_OF_COMPILERS):
                yield name, vars(module)
    yield "torch.ops.aten", vars(torch.ops.aten)
    for home in _STRICT:
        if isinstance(home, type):
            yield home.__name__, vars(home)
    for module in _WITH_CLASSES:
        for name, each in list(vars(module).items()):
            if isinstance(each, type) and each not in _STRICT:
                yield f"{module.__name__}.{name}", vars(each)
    yield from torch_internals.registries().items()


def _copied(name: str, now: Any) -> dict[Any, Any]:
    """A copy of a namespace: the last one, if nothing changed."""
    kept = _kept.get(name)
    try:
        if kept is not None and kept == now:  # by identity as long as nothing changed, which takes no time
            return kept
    except Exception:  # values that changed may not compare
        pass
    kept = _kept[name] = dict(now)
    return kept


def _own(found: Any) -> Any:
    """A function without what torch wraps around the ``step`` of a class of optimizers when the first one is made."""
    return found.__wrapped__ if hasattr(found, "hooked") else found


def code() -> dict[str, Any]:
    """The code and the defaults of functions, initializations and optimizers."""
    homes = [*_WITH_CODE, *(each for each in vars(torch.optim).values() if isinstance(each, type))]
    return {
        f"{home.__name__}.{name}": (id(f.__code__), id(f.__defaults__), str(f.__kwdefaults__))
        for home in homes
        for name, f in ((name, _own(found)) for name, found in list(vars(home).items()))
        if isinstance(f, types.FunctionType)
    }


def changes(before: Namespaces, after: Namespaces) -> dict[str, str]:
    """What became of each namespace that changed, in words."""
    found = {}
    for name, was in before.items():
        now = after.get(name, was)
        if now is was:
            continue
        names = [each for each in _replaced(was, now) if (name, each) not in _TOLD]
        if names:
            found[f"functions of {name}"] = _words("functions", name, names)
        if (name in _CLOSED or _is_layer(name)) and (names := _added(was, now)):
            found[f"names of {name}"] = _words("names", name, names)
    return found


def _is_layer(name: str) -> bool:
    """Whether it is a class of ``torch.nn``: what is added to it, all its instances have."""
    home, _, own = name.rpartition(".")
    return home == "torch.nn" and isinstance(getattr(torch.nn, own, None), type)


def _words(what: str, name: str, names: list[Any]) -> str:
    return f"{what} of {name} ({', '.join(sorted(map(str, names))[:5])})"


def _replaced(before: dict[Any, Any], after: dict[Any, Any]) -> list[Any]:
    """The functions that were replaced by others than torch's: it wraps some when it imports its own compiler."""
    return [
        name
        for name, value in before.items()
        if after.get(name) is not value
        and (callable(value) or _is_constant(name, value))
        and not getattr(getattr(after.get(name), "__code__", None), "co_filename", "").startswith(_HOME)
    ]


def _is_constant(name: Any, value: Any) -> bool:
    """Whether it has that value for good: what types are registered with has, and some values of torch and of math."""
    return not isinstance(name, str) or (isinstance(value, _CONSTANTS) and name[:1] != "_")


def _added(before: dict[Any, Any], after: dict[Any, Any]) -> list[Any]:
    """The names that came, but for those of modules, for marks of torch's own tracer, which begin with three _, for
    what Python remembers of a class when it is pickled, and for types that are no part of Python."""
    return [
        name
        for name, value in after.items()
        if name not in before
        and not isinstance(value, types.ModuleType)
        and not (isinstance(name, str) and (name.startswith("___") or name == "__slotnames__"))
        and not (isinstance(name, type) and name.__module__ != "builtins")
    ]
