"""Fake tensors and traces without torch's own tracer.

``torch._dynamo`` is imported by the first fake tensor of a process, for its settings, by many an operator, for the
function ``disable``, and by ``make_fx``, for nothing.  That import takes longer than capturing most programs.  While
:func:`tracer_stand_in` is active, a stand-in answers to the name: it has the settings and a plain ``disable``; whoever
asks it for anything else, or imports a module of the package, gets the real one, imported then.  The same goes for
Inductor.  Afterwards all is as it was, but for the module of the tracer's settings, which stays.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from . import inductor_stand_in, stand_in
from .frame_hook import not_captured

_NAME, _SETTINGS = "torch._dynamo", "torch._dynamo.config"
_MARK = "__dynamo_disable"  # where an operator keeps what disable() made of it

_users = 0
_disabled: list[tuple[Any, Any]] = []


@contextlib.contextmanager
def tracer_stand_in() -> Iterator[None]:
    """While this lasts, torch finds what its tracer and Inductor know without them, unless they are there already."""
    global _users
    with stand_in.lock:
        inductor_stand_in.install()
        if _NAME not in sys.modules:
            _install()
        _users += 1
    try:
        if stand_in.is_installed(_NAME):
            # which is no attribute of this stand-in if one before it has imported it
            sys.modules[_NAME].__dict__["config"] = importlib.import_module(_SETTINGS)
        yield
    finally:
        with stand_in.lock:
            _users -= 1
            if _users == 0:
                inductor_stand_in.remove()
                stand_in.remove(_NAME)


def _install() -> None:
    spec = importlib.util.find_spec(_NAME)
    if spec is not None and spec.submodule_search_locations is not None:
        answers = {"disable": _disable}
        made = stand_in.StandIn(_NAME, answers, beneath=(_SETTINGS,), removed=_forget_disabled)
        stand_in.install(_NAME, made, spec)


def _forget_disabled() -> None:
    while _disabled:
        function, made = _disabled.pop()
        if function.__dict__.get(_MARK) is made:
            del function.__dict__[_MARK]


def _disable(function: Any = None, recursive: bool = True, **how: Any) -> Any:
    """``function`` as the hook leaves it alone; what is not asked for by torch's operators is the real one's."""
    if type(function) is not types.FunctionType or not recursive or how != {"wrapping": False}:
        return stand_in.real(_NAME).disable(function, recursive, **how)
    made = _alone(function)
    _disabled.append((function, made))
    return made


def _alone(function: Callable[..., Any]) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return not_captured(run)
