"""Classes that traced functions make.

Whatever outlives the call would need a class of its own in each call.  So the trace may use a class that it has made
once, as long as nothing of the class leaves it (``check_nothing_leaves``).

A torch function may define an ``autograd.Function`` and use it only for some arguments.  Such a statement is postponed.
If the class is used after all, or the graph breaks, the trace starts again, and whatever makes a class breaks it.
"""

from __future__ import annotations

import abc
import builtins
import collections
import dis
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, INSTRUCTION, GraphBreak
from ..capture.attempts import ClassNeeded
from .base import Raised, Value
from .containers.mappings import DictValue
from .containers.sequences import ListValue, TupleValue
from .functions import FunctionValue

if TYPE_CHECKING:
    from ..trace.tracer import FrameWriter, Tracer


_LIVES = (type, types.FunctionType, staticmethod, classmethod, property)
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
        if not body.code.co_freevars and all(base is object or base in tr.made_classes for base in found):
            name = str(args[1].const(tr))
            return made_class(tr, lambda: builtins.__build_class__(_function(tr, body), name, *found))
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


def made_class(tr: Tracer, make: Callable[[], type]) -> Value:
    """A class that this trace makes, and that must not leave it."""
    made = make()
    tr.made_classes.append(made)
    tr.made.add(id(made))
    for raw in vars(made).values():
        parts = (raw, getattr(raw, "__func__", None), getattr(raw, "fget", None))
        tr.made |= {id(part) for part in parts if isinstance(part, _LIVES)}
    return tr.lift(made)


def class_of_type(tr: Tracer, name: Value, bases: Value, namespace: Value) -> Value:
    """``type(name, bases, namespace)``."""
    found = [base.real() for base in bases.unpack(tr)]
    if not tr.may_put_off or not isinstance(namespace, DictValue):
        raise GraphBreak(C_FUNCTION, "creating a class with type()")
    if not all(base is object or base in tr.made_classes for base in found):
        raise GraphBreak(C_FUNCTION, "creating a class with type() that derives from others")
    tr.put_off += 1
    module = _module(tr)
    if module is None:
        raise GraphBreak(C_FUNCTION, "creating a class with type() in code without a module")
    content: dict[str, Any] = {"__module__": module}
    for key in namespace.iter(tr).unpack(tr):
        value = namespace.getitem(tr, key)
        content[key.const(tr)] = _function(tr, value) if isinstance(value, FunctionValue) else value.const(tr)
    return made_class(tr, lambda: type(name.const(tr), tuple(found), content))


def named_tuple(tr: Tracer, name: Value, fields: Value, **options: Value) -> Value:
    """``collections.namedtuple(name, fields)``."""
    if not tr.may_put_off:
        raise GraphBreak(C_FUNCTION, "creating a class with namedtuple()")
    given = {key: _real(tr, value) for key, value in options.items()}
    if given.get("module") is None:
        given["module"] = _module(tr) or "__main__"
    try:
        tr.put_off += 1
        return made_class(tr, lambda: collections.namedtuple(name.const(tr), _real(tr, fields), **given))
    except (TypeError, ValueError) as error:
        raise Raised(tr.exception(error)) from None


def _module(tr: Tracer) -> Any:
    """The name of the module of the code that makes a class, if it has one."""
    return None if tr.frame is None else tr.frame.namespace.get("__name__")


def _real(tr: Tracer, value: Value) -> Any:
    """A constant, or a list of them, which ``namedtuple`` only reads."""
    if type(value) in (ListValue, TupleValue) and value.pytype() in (list, tuple):
        return value.pytype()(item.const(tr) for item in value.unpack(tr))
    return value.const(tr)


def _function(tr: Tracer, value: FunctionValue) -> Any:
    if value.fn is not None or value.closure or value.attrs:
        raise GraphBreak(C_FUNCTION, f"creating a class with {value.describe()}, which is more than its code")
    defaults = tuple(each.const(tr) for each in value.defaults) or None
    made = types.FunctionType(value.code, value.globals, value.name, defaults, ())
    made.__qualname__ = value.qualname
    if value.kwdefaults:
        made.__kwdefaults__ = {name: each.const(tr) for name, each in value.kwdefaults.items()}
    return made


def check_nothing_leaves(tr: Tracer, namespace: dict[str, Any]) -> None:
    """Start again if what replaces the frame refers to a class that the trace has made, or to a part of one."""
    if tr.made and any(isinstance(value, _LIVES) and id(value) in tr.made for value in namespace.values()):
        raise ClassNeeded("a class that the trace has made is needed")


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
