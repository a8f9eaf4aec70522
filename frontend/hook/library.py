"""Whose code it is: a user's, which is captured, or a library's, which runs as it is.

A library is the standard library, NumPy, torchmux itself and torch's own machinery.  torch's layers and optimizers are
as good as a user's, and so is whatever was itself given to ``compile()``.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import sysconfig
import traceback
import types
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from torchmux import torch_internals as ti

from ..bytecode.identity import CodeMap


def _folders(*packages: str) -> tuple[str, ...]:
    """The folders of torchmux's packages: one folder if it is installed, several for an editable install."""
    specs = map(importlib.util.find_spec, packages)
    return tuple(
        dict.fromkeys(p + os.sep for spec in specs if spec is not None for p in spec.submodule_search_locations or ())
    )


_OWN = _folders("torchmux", "torchmux.frontend", "torchmux.registry", "torchmux.backends")
_MACHINERY = (*_OWN, os.path.dirname(torch.__file__) + os.sep, os.path.dirname(np.__file__) + os.sep)
_TRITON = _folders("triton")  # what launches kernels, and under Triton's interpreter runs them
_GENERATED = "<string>"  # code that exec() has made, of a library or of the program
_GRAPH_MODULE = "<eval_with_key>"  # code of a torch.fx.GraphModule: a backend's, unless it is what was compiled


def _library_prefixes() -> tuple[str, ...]:
    """Folders whose code is never a user's: the standard library, torchmux itself, torch's machinery."""
    return (
        *_MACHINERY,
        *_TRITON,
        sysconfig.get_paths()["stdlib"] + os.sep,
        "<torchmux",
        "<frozen",
        _GRAPH_MODULE,
        "<fx-generated",
    )


_LIBRARY = _library_prefixes()
_SITE_PACKAGES = tuple({sysconfig.get_paths()["purelib"] + os.sep, sysconfig.get_paths()["platlib"] + os.sep})
# torch.nn layers, optimizers and the like are as good as a user's; the call machinery of Module is shared by every
# module there is.
_TORCH_CAPTURED = tuple(
    os.path.join(os.path.dirname(torch.__file__), *p) + (os.sep if not p[-1].endswith(".py") else "")
    for p in (("nn", "modules"), ("nn", "functional.py"), ("ao", "nn"), ("optim",))
)
# The cases of the conformance suite and the models of the zoo are programs, wherever they are installed.
_PROGRAMS = _folders("torchmux.conformance", "torchmux.zoo")
_TORCH_SKIPPED = (os.path.join(os.path.dirname(torch.__file__), "nn", "modules", "module.py"),)
# These lie between what was compiled and whoever called it: the last is the hook, which asks.
_CALLS_THROUGH = (
    *_TORCH_SKIPPED, os.path.join(os.path.dirname(torch.__file__), "fx", "graph_module.py"), _GRAPH_MODULE,
    os.path.dirname(__file__) + os.sep,
)  # fmt: skip
_RUNS_GRAPHS = _folders("torchmux.frontend.higher_order")  # those inside of a captured graph, in its backward pass too
# The functions they call are not part of the program's own work: log handlers, warning hooks, and what an import runs,
# which may be the import of torch's own tracer, without which nothing can be captured.  Triton runs kernels.  What a
# checkpoint runs must save the same tensors when a backward pass runs it again, where no hook is.
_QUIET = (
    *(module.__file__.removesuffix("__init__.py") for module in (logging, warnings, traceback) if module.__file__),
    *_TRITON,
    "<frozen importlib.",
    os.path.join(os.path.dirname(torch.__file__), "utils", "checkpoint.py"),
)


def is_library(filename: str) -> bool:
    """Whether frames of this file run in eager."""
    if filename.startswith(_TORCH_CAPTURED):
        return filename in _TORCH_SKIPPED
    if filename.startswith(_PROGRAMS):
        return False
    if filename.startswith(_LIBRARY):
        return not filename.startswith(_SITE_PACKAGES) or filename.startswith((*_MACHINERY, *_TRITON))
    return False


def is_own(filename: str) -> bool:
    """Whether it is a file of torchmux that is no program."""
    return filename.startswith(_OWN) and not filename.startswith(_PROGRAMS)


def is_generated(code: types.CodeType, namespace: Mapping[str, Any]) -> bool:
    """Whether a library has generated this code, such as the ``__init__`` of its dataclasses."""
    if code.co_filename != _GENERATED:
        return False
    module = sys.modules.get(str(namespace.get("__name__")))
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_library(file)


def is_graph_module(filename: str) -> bool:
    """Whether this is code of a ``torch.fx.GraphModule``."""
    return filename.startswith(_GRAPH_MODULE)


def is_quiet(filename: str) -> bool:
    """Whether what this file's code calls is no part of the program's own work either."""
    return filename.startswith(_QUIET)


_asked_for: CodeMap = CodeMap()  # functions of a library that were themselves given to compile()


def ask_for(function: Any) -> None:
    """Capture ``function``, which is compiled by itself, although it may be a library's."""
    code = getattr(function, "__code__", None)
    if isinstance(code, types.CodeType) and is_library(code.co_filename) and not code.co_filename.startswith(_OWN):
        _asked_for.set(code, True)
        captures = ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT)
        ti.set_code_exec_strategy(code, captures)  # it may have been met before


def was_asked_for(code: types.CodeType) -> bool:
    """Whether a library's function was itself given to ``compile()``."""
    return _asked_for.get(code) is not None


def is_root() -> bool:
    """Whether the frame that the C hook asks about is what was compiled, rather than called by it."""
    caller: types.FrameType | None = sys._getframe(1)  # of ours: the frame itself is not on the stack yet
    while caller is not None and caller.f_code.co_filename.startswith(_CALLS_THROUGH):
        caller = caller.f_back
    if caller is None:
        return True
    return is_own(caller.f_code.co_filename) and not caller.f_code.co_filename.startswith(_RUNS_GRAPHS)
