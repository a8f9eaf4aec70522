"""Code objects as JSON: by module and qualified name, and as the rest of another after a graph break."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from torchmux.frontend.bytecode import resume_origin
from torchmux.frontend.capture.captured import CodeState
from torchmux.registry.errors import LoadRefused

from ..values import NotTold
from .names import code_again, code_told, functions_under

StateOf = Callable[[types.CodeType], CodeState]


class Codes:
    """A table of code objects, in which the rest of a function refers to the function by number."""

    def __init__(self, state: StateOf) -> None:
        self.table: list[Any] = []
        self._state = state
        self._number: dict[int, int] = {}
        self._kept: list[types.CodeType] = []

    def add(self, code: types.CodeType) -> int:
        """The number of a code object.

        Raises:
            NotTold: no module has it under its name.
        """
        number = self._number.get(id(code))
        if number is None:
            entry = self._rest(code) or code_told(code)
            number = self._number[id(code)] = len(self.table)
            self._kept.append(code)
            self.table.append(entry)
        return number

    def _rest(self, code: types.CodeType) -> Any:
        origin = resume_origin(code)
        if origin is None:
            return None
        whole, _ = origin
        for (index, stack, names), rest in self._state(whole).resumes.items():
            if rest is code:
                return ["rest", self.add(whole), index, list(stack), list(names)]
        raise NotTold(f"the rest of {whole.co_qualname}, which is no longer known")


def codes_again(table: Sequence[Any], state: StateOf) -> list[types.CodeType]:
    """The code objects of a table.

    Raises:
        LoadRefused: a function is not here, or is another.
    """
    found: list[types.CodeType] = []
    for kind, *rest in table:
        if kind == "rest":
            whole, index, stack, names = rest
            code = found[whole]
            found.append(state(code).resume(code)(index, tuple(stack), tuple(names)))
        elif kind == "code":
            found.append(code_again(*rest))
        else:
            raise LoadRefused(f"A saved file names code of the unknown kind {kind!r}.")
    return found


def globals_of(entry: Sequence[Any], table: Sequence[Any]) -> dict[str, Any]:
    """The globals of the functions with this code."""
    while entry[0] == "rest":
        entry = table[entry[1]]
    return vars(sys.modules[entry[1]])


def has_function(entry: Sequence[Any], code: types.CodeType) -> bool:
    """Whether there is a function of this code that needs nothing but its globals, under its name."""
    return _function(entry, code) is not None


def function_again(entry: Sequence[Any], code: types.CodeType) -> types.FunctionType:
    """The function whose code it is.

    Raises:
        LoadRefused: there is none under its name.
    """
    found = _function(entry, code)
    if found is None:
        raise LoadRefused(f"A saved file needs the function {entry[1]}.{entry[2]}, which is none by itself here.")
    return found


def _function(entry: Sequence[Any], code: types.CodeType) -> types.FunctionType | None:
    _, module, qualname, _ = entry
    for function in functions_under(sys.modules[module], qualname):
        if function.__code__ is code and function.__closure__ is None:
            return function
    return None
