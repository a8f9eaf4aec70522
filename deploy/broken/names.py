"""Code objects by module and qualified name, also of functions that other functions make."""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

from torchmux.registry.errors import LoadRefused

from ..values import NotTold, code_digest

_LOCALS = "<locals>"


def code_told(code: types.CodeType) -> Any:
    """A code object for JSON.

    Raises:
        NotTold: no module has it under its name.
    """
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == code.co_filename:
            for found in _codes_under(module, code.co_qualname):
                if found is code:
                    return ["code", name, code.co_qualname, code_digest(code)]
    raise not_found(code)


def not_found(code: types.CodeType) -> NotTold:
    """Says that a function has no name that leads to it."""
    return NotTold(
        f"a part that runs between graphs and cannot be found by its name: {code.co_qualname} "
        f"({code.co_filename}:{code.co_firstlineno}). Define it in a module, outside of other functions"
    )


def code_again(module: str, qualname: str, digest: str) -> types.CodeType:
    """The code object of :func:`code_told`.

    Raises:
        LoadRefused: it is not here, or is another.
    """
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise LoadRefused(
            f"A saved file needs {module}.{qualname}, whose Python runs between its graphs, and {module} is not here: "
            f"{error}. Make the module importable."
        ) from error
    codes = list(_codes_under(loaded, qualname))
    for code in codes:
        if code_digest(code) == digest:
            return code
    if codes:
        raise LoadRefused(
            f"{module}.{qualname} is not the function with which a file was saved: its code is another, or compiled by "
            "another version of Python. Use the version of its module that was saved, or save the file again."
        )
    hint = (
        "The file was saved by a program that defines it itself: move it to a module that both programs import"
        if module == "__main__"
        else "Use the version of its module with which the file was saved"
    )
    raise LoadRefused(
        f"A saved file needs {module}.{qualname}, whose Python runs between its graphs, and which is not here. {hint}."
    )


def _codes_under(module: types.ModuleType, qualname: str) -> Iterator[types.CodeType]:
    """The codes of this name: several where decorators have wrapped a function."""
    outer, _, inner = qualname.partition(f".{_LOCALS}.")
    codes = [each.__code__ for each in functions_under(module, outer) if each.__code__.co_qualname == outer]
    for name in inner.split(f".{_LOCALS}.") if inner else ():
        codes = [
            each
            for code in codes
            for each in code.co_consts
            if isinstance(each, types.CodeType) and each.co_qualname == f"{code.co_qualname}.{_LOCALS}.{name}"
        ]
    yield from codes


def functions_under(module: types.ModuleType, qualname: str) -> Iterator[types.FunctionType]:
    """The function that stands under a name, and those that it wraps."""
    try:
        value: Any = functools.reduce(_member, qualname.split("."), module)
    except AttributeError:
        return
    seen: set[int] = set()
    while value is not None and id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            yield value
        value = _wrapped(value)


def _member(owner: Any, name: str) -> Any:
    if isinstance(owner, type):
        return inspect.getattr_static(owner, name)  # a property itself, not what it returns
    return getattr(owner, name)


def _wrapped(value: Any) -> Any:
    if (original := getattr(value, "_torchmux_original", None)) is not None:
        return original
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    return getattr(value, "__wrapped__", None)
