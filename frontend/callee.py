"""What a call of a compiled callable runs first: the hook sees Python functions only.

A callable that is C code has no frame that could be captured.  A function that calls it stands in for it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from .breaks import NO_LINE
from .bytecode.identity import CodeMap
from .hook.library import ask_for, is_library

_LEADS_TO_ONE = (types.FunctionType, types.MethodType, functools.partial)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
_OF_NO_OBJECT = (types.ModuleType, type, types.NoneType)

_codes = CodeMap()  # a C function that is no object's method -> the code of what calls it, which equal ones share


def with_frame(fn: Any) -> Any:
    """``fn``, or a function that calls it where a call of ``fn`` itself would run no function to capture."""
    first = _first_function(fn)
    if first is None or _has_hooks(fn):
        return _calls(fn)
    if not isinstance(fn, torch.nn.Module):
        ask_for(first)
    return fn


def _has_hooks(fn: Any) -> bool:
    """Whether it is a module with hooks of the program: torch's code calls them, captured as part of its caller."""
    if not isinstance(fn, torch.nn.Module) or vars(fn).get("_forward_hooks_always_called"):
        return False
    hooks = [hook for name in _HOOKS for hook in (vars(fn).get(name) or {}).values()]
    functions = [_first_function(hook) for hook in hooks]
    return bool(hooks) and not any(f is None or is_library(f.__code__.co_filename) for f in functions)


def _first_function(fn: Any) -> types.FunctionType | None:
    """The Python function that a call of ``fn`` runs first, or ends in soon; None where there is none to capture."""
    if isinstance(fn, types.FunctionType):
        return fn
    if isinstance(fn, types.MethodType):
        return _first_function(fn.__func__)
    if isinstance(fn, functools.partial):
        return _first_function(fn.func)
    if isinstance(fn, torch.nn.Module):
        return _first_function(getattr(fn, "forward", None))
    if isinstance(fn, type):
        return _captured(type(fn), "__call__") or _captured(fn, "__new__") or _captured(fn, "__init__")
    if hasattr(type(fn), "cache_info"):  # of functools.lru_cache
        return _first_function(fn.__wrapped__)
    return _captured(type(fn), "__call__")


def _captured(cls: type, name: str) -> types.FunctionType | None:
    """A method that a class has in Python, unless it is a library's."""
    for base in cls.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            found = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
            function = _first_function(found) if isinstance(found, _LEADS_TO_ONE) else None
            return None if function is None or is_library(function.__code__.co_filename) else function
    return None


def _calls(fn: Any) -> Callable:
    """A function with ``fn``'s name and code of its own that calls ``fn``."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    is_shared = isinstance(fn, types.BuiltinFunctionType) and isinstance(fn.__self__, _OF_NO_OBJECT)
    code = _codes.get(fn) if is_shared else None
    if code is None:
        name = str(getattr(fn, "__name__", type(fn).__name__))
        # what is compiled, counted and limited goes by the code
        code = call.__code__.replace(co_name=name, co_qualname=name, co_filename=NO_LINE)
        if is_shared:
            _codes.set(fn, code)
    call.__code__ = code
    ask_for(call)
    return call
