"""Class statements in traced functions that do not have to run, because nothing uses the class.

A torch function may define an ``autograd.Function`` and use it only for some arguments.  Such a statement is postponed.
If the class is used after all, or the graph breaks, the trace starts again, and such statements break it.
"""

from __future__ import annotations

import abc
import builtins
import dis
import types
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import INSTRUCTION, GraphBreak
from ..capture.attempts import ClassNeeded
from .base import Value
from .functions import FunctionValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


# A body of these only makes functions and binds names.
_QUIET = frozenset(
    {"RESUME", "COPY_FREE_VARS", "MAKE_CELL", "LOAD_NAME", "STORE_NAME", "LOAD_CONST", "LOAD_CLOSURE", "LOAD_FAST",
     "LOAD_LOCALS", "STORE_DEREF", "BUILD_TUPLE", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "PUSH_NULL", "PRECALL",
     "CALL", "POP_TOP", "NOP", "CACHE", "RETURN_VALUE", "RETURN_CONST"}
)  # fmt: skip
_DECORATORS = frozenset({"staticmethod", "classmethod", "property"})
_METACLASSES = (type, abc.ABCMeta, type(torch.autograd.Function))


class BuildClassValue(Value):
    """``__build_class__`` on the stack of a class statement."""

    __slots__ = ()

    def pytype(self) -> type:
        return types.BuiltinFunctionType

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        body, _, *bases = args
        found = [base.real() for base in bases]
        if not isinstance(body, FunctionValue) or kwargs or not all(map(_is_plain, found)) or not _is_quiet(body):
            raise GraphBreak(INSTRUCTION, "a class statement")
        metaclass: type = type
        for base in found:
            metaclass = type(base) if issubclass(type(base), metaclass) else metaclass
        return LocalClassValue(metaclass)


class LocalClassValue(Value):
    """A class whose statement was put off; each question about it ends the attempt."""

    __slots__ = ("metaclass",)

    def __init__(self, metaclass: type) -> None:
        super().__init__()
        self.metaclass = metaclass

    def pytype(self) -> type:
        return self.metaclass

    def rebuild(self, out: FrameWriter) -> str:
        raise ClassNeeded("a class whose statement was postponed is needed")


def _is_plain(base: Any) -> bool:
    """Whether making a class derived from ``base`` runs no code of the program."""
    if not isinstance(base, type) or type(base) not in _METACLASSES:
        return False
    return not any("__init_subclass__" in vars(cls) for cls in base.__mro__ if cls is not object)


def _is_quiet(body: FunctionValue) -> bool:
    if _DECORATORS & body.globals.keys() or not all(hasattr(builtins, name) for name in _DECORATORS):
        return False
    return all(
        each.opname in _QUIET and (each.opname != "LOAD_NAME" or each.argval in {*_DECORATORS, "__name__"})
        for each in dis.get_instructions(body.code)
    )
