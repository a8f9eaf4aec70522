"""Does what a description loads have the shape of the contract?  Asked once, when it is loaded.

A member that is missing, is no function, or takes other arguments than the pipeline passes would otherwise show as an
``AttributeError`` or ``TypeError`` in the middle of a compilation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from .errors import InvalidSpec

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "supports": ("node",),
    "compile": ("gm", "example_inputs", "request"),
}
"""The members of :class:`.contract.Backend`, with the arguments that the pipeline passes by position."""

OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "rewrite": ("gm", "request"),
    "small_calls": ("gm", "request"),
    "decompositions": (),
    "keep_whole": (),
    "differentiate_whole": (),
    "writes_back": ("node",),
    "makes_views": ("node",),
    "takes_numbers": (),
    "casting": (),
    "restore": ("artifact", "constants"),
}
"""The same of :class:`.contract.BackendExtras`; one that is None counts as absent."""

_DATA: Mapping[str, type] = {"decompositions": Mapping, "keep_whole": Collection}
"""Members that may be the value itself instead of a method that returns it."""

_ADVICE = (
    "An implementation is a function (gm, example_inputs, **options), or an object with supports(node) and "
    "compile(gm, example_inputs, request); docs/backend-authors.md lists what else it may have."
)


def check_implementation(found: Any, name: str, graph: str) -> None:
    """Check an implementation before it gets its first graph.

    Raises:
        InvalidSpec: ``found`` cannot be what compiles for the backend ``name``; the message names the member.
    """
    problem = _problem(found) or (_problem_of_extras(found) if graph == "aten" else "")
    if problem:
        raise InvalidSpec(
            f"{name} loads {found!r} ({type(found).__name__}), which cannot compile: {problem}. {_ADVICE}"
        )


def check_class(found: type, name: str) -> None:
    """Check a class of implementations, of which one is to be made without arguments; errors as above."""
    if problem := _misfit(found, ()):
        raise InvalidSpec(
            f"{name} loads the class {found.__name__}, of which no object can be made: {problem}. {_ADVICE}"
        )


def _problem(found: Any) -> str:
    present = [member for member in REQUIRED if getattr(found, member, None) is not None]
    # A callable with ``compile`` alone may be anything, an nn.Module for one; ``supports`` says that it is a backend.
    if not present or (callable(found) and not isinstance(found, type) and present == ["compile"]):
        return _problem_of_function(found)
    for member, arguments in REQUIRED.items():
        if member not in present:
            return f"it has {present[0]}, but no {member}({', '.join(arguments)})"
        if problem := _problem_of_method(found, member, arguments):
            return problem
    return ""


def _problem_of_extras(found: Any) -> str:
    for member, arguments in OPTIONAL.items():
        value = getattr(found, member, None)
        if value is None or isinstance(value, _DATA.get(member, ())):
            continue
        if problem := _problem_of_method(found, member, arguments):
            return problem
    return ""


def _problem_of_function(found: Any) -> str:
    if not callable(found):
        return "it is neither a function nor has it supports and compile"
    if problem := _misfit(found, ("gm", "example_inputs"), partial=True):
        return f"it cannot be called with (gm, example_inputs): {problem}"
    return ""


def _problem_of_method(found: Any, member: str, arguments: tuple[str, ...]) -> str:
    value = getattr(found, member)
    asked = f"{member}({', '.join(arguments)})"
    if not callable(value):
        kind = f" or a {_DATA[member].__name__.lower()}" if member in _DATA else ""
        return f"its {member} is {value!r}, not a method {asked}{kind}"
    if problem := _misfit(value, arguments):
        return f"it cannot be called as {asked}: {problem}"
    return ""


def _misfit(function: Callable[..., Any], arguments: tuple[str, ...], *, partial: bool = False) -> str:
    """Why ``function`` does not take these arguments by position; empty if it does, or does not say what it takes.

    ``partial``: it may have more arguments without a default, which the user's options give.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    try:
        (signature.bind_partial if partial else signature.bind)(*arguments)
    except TypeError as error:
        return str(error)
    return ""
