"""Builtin functions that need the tracer's representation; the rest are polyfills."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import operator
import re
import reprlib
import sys
import types
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from .. import breaks, polyfills
from ..breaks import GraphBreak
from ..guards.kinds.classes import NotInClasses
from ..guards.kinds.functions import Dispatches, Returns
from ..guards.sources import Const, Local
from ..trace.operator_table import BINARY, COMPARE, INPLACE, UNARY
from ..values import arrays
from ..values.base import MISSING, Raised, Value
from ..values.classes import ClassValue, RealValue, allocate
from ..values.constants import ConstValue, SymValue
from ..values.containers.iteration import IteratorValue
from ..values.containers.mappings import DictValue
from ..values.containers.sequences import ListValue, TupleValue
from ..values.containers.sets import SetValue
from ..values.descriptors import MethodValue
from ..values.exceptions import TracebackValue
from ..values.facets.identities import IdValue, KnownIdValue
from ..values.functions import FunctionValue
from ..values.objects import ObjectValue, of_protocol
from ..values.tensors import TensorValue
from .resolve import polyfill_of
from .table import CODES, handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE = ConstValue(None)
ZERO = ConstValue(0)


@handles(len)
def len_(tr: Tracer, value: Value) -> Value:
    return value.length(tr)


@handles(operator.length_hint)
def length_hint(tr: Tracer, value: Value, default: Value = ZERO) -> Value:
    if isinstance(value, ObjectValue) and value.storage(tr) is None and value.special(tr, "__len__") is None:
        hint = value.special(tr, "__length_hint__")
        if hint is None and any(hasattr(value.pytype(), name) for name in ("__len__", "__length_hint__")):
            raise GraphBreak(breaks.C_FUNCTION, f"operator.length_hint of {value.describe()}")
        if hint is None:
            return tr.fold(operator.length_hint, [object(), default.const(tr)], {})
        return of_protocol(hint.call(tr, [], {}), "__len__")
    return value.length(tr)


@handles(isinstance)
def isinstance_(tr: Tracer, value: Value, cls: Value) -> Value:
    return ConstValue(_isinstance(tr, value, cls))


def _isinstance(tr: Tracer, value: Value, cls: Value) -> bool:
    if isinstance(cls, TupleValue):
        return any(_isinstance(tr, value, each) for each in cls.unpack(tr))
    real = cls.real()
    if isinstance(real, types.UnionType):
        return any(_isinstance(tr, value, tr.lift(each)) for each in real.__args__)
    if isinstance(cls, ClassValue):
        if value.pytype() is real:
            return True  # no class is asked about its own objects
        check = tr.static_lookup(type(real), "__instancecheck__")
        if type(real) is not type:
            tr.guard_lookup(type(real), "__instancecheck__", check)
        if isinstance(check, types.FunctionType) and _is_user_code(check):
            return tr.wrap(check, None).call(tr, [cls, value], {}).truth(tr)
        return tr.is_instance(value, real)
    if real is not MISSING:
        existing = value.real()
        if existing is not MISSING:
            return bool(tr.fold(isinstance, [existing, real], {}).const(tr))
        if hasattr(real, "__origin__"):
            return issubclass(value.pytype(), real.__origin__)
    raise GraphBreak(breaks.OPERATION, f"isinstance(..., {cls.describe()})")


def _is_user_code(function: types.FunctionType) -> bool:
    module = function.__module__ or ""
    return not module.startswith(("abc", "typing", "enum", "torch", "collections", "_py_abc"))


@handles(issubclass)
def issubclass_(tr: Tracer, cls: Value, other: Value) -> Value:
    if isinstance(other, TupleValue):
        return ConstValue(any(issubclass_(tr, cls, each).truth(tr) for each in other.unpack(tr)))
    mine, theirs = cls.real(), other.real()
    if not isinstance(mine, type) or not isinstance(theirs, type):
        if MISSING in (mine, theirs):
            raise GraphBreak(breaks.OPERATION, f"issubclass({cls.describe()}, {other.describe()})")
        return tr.fold(issubclass, [mine, theirs], {})
    check = tr.static_lookup(type(theirs), "__subclasscheck__")
    if type(theirs) is not type:
        tr.guard_lookup(type(theirs), "__subclasscheck__", check)
    if isinstance(check, types.FunctionType) and _is_user_code(check):
        return ConstValue(tr.wrap(check, None).call(tr, [other, cls], {}).truth(tr))
    try:
        return ConstValue(tr.is_subclass(mine, theirs))
    except TypeError as error:
        raise Raised(tr.exception(error)) from None


def _name(tr: Tracer, function: Any, name: Value, *more: Any) -> str:
    """The name of an attribute that ``function`` takes; it raises what ``function`` raises for another object."""
    found = name.const(tr)
    if not isinstance(found, str):
        tr.fold(function, [types.SimpleNamespace(), found, *more], {})
    return found


@handles(getattr)
def getattr_(tr: Tracer, value: Value, name: Value, *default: Value) -> Value:
    attribute = _name(tr, getattr, name)
    if default and isinstance(value, SymValue) and not value.has(attribute):
        return default[0]
    try:
        return value.getattr(tr, attribute)
    except Raised as raised:
        if default and issubclass(raised.value.pytype(), AttributeError):
            return default[0]
        raise


@handles(hasattr)
def hasattr_(tr: Tracer, value: Value, name: Value) -> Value:
    attribute = _name(tr, hasattr, name)
    if isinstance(value, SymValue):
        return ConstValue(value.has(attribute))
    try:
        value.getattr(tr, attribute)
    except Raised as raised:
        if issubclass(raised.value.pytype(), AttributeError):
            return ConstValue(False)
        raise
    return ConstValue(True)


@handles(setattr)
def setattr_(tr: Tracer, value: Value, name: Value, new: Value) -> Value:
    value.setattr(tr, _name(tr, setattr, name, None), new)
    return NONE


@handles(delattr)
def delattr_(tr: Tracer, value: Value, name: Value) -> Value:
    value.delattr(tr, _name(tr, delattr, name))
    return NONE


@handles(callable)
def callable_(tr: Tracer, value: Value) -> Value:
    found = tr.static_lookup(value.pytype(), "__call__")
    tr.guard_lookup(value.pytype(), "__call__", found)
    if isinstance(value, TensorValue) and found is MISSING:
        tr.guards.add(NotInClasses(Const(value.pytype(), "torch.Tensor"), "__call__"))
    return ConstValue(found is not MISSING)


@handles(iter)
def iter_(tr: Tracer, value: Value, *sentinel: Value) -> Value:
    if sentinel:
        polyfill = polyfill_of(tr, iter)
        assert polyfill is not None
        return polyfill.call(tr, [value, *sentinel], {})
    return value.iter(tr)


@handles(next)
def next_(tr: Tracer, value: Value, *default: Value) -> Value:
    if len(default) > 1:
        raise GraphBreak(breaks.C_FUNCTION, "next() with more than two arguments")
    if tr.static_lookup(value.pytype(), "__next__") is MISSING:
        raise Raised(tr.make_exception(TypeError, f"{value.pytype().__name__!r} object is not an iterator"))
    if not isinstance(value, (ObjectValue, IteratorValue)):
        raise GraphBreak(breaks.OPERATION, f"next() of {value.describe()}")
    if isinstance(value, ObjectValue) and not default:
        return value.call_method(tr, "__next__", [], {})
    if hasattr(value, "send") and not default:
        return value.send(tr, NONE)  # a generator's return value travels in its StopIteration
    element = value.next(tr)
    if element is not None:
        return element
    if default:
        return default[0]
    raise Raised(tr.make_exception(StopIteration))


# What is one object for as long as the trace knows it by one value.
_HAVE_ADDRESSES = (TensorValue, ObjectValue, ListValue, DictValue, SetValue)


@handles(id)
def id_(tr: Tracer, value: Value) -> Value:
    real = _known_tensor(tr, value)
    if real is not MISSING:
        assert value.source is not None
        tr.guards.is_object(value.source, real)
        return KnownIdValue(value, real)
    real = value.real()
    if real is not MISSING and isinstance(value, (RealValue, ObjectValue)):
        if isinstance(value, ObjectValue) and value.source is not None:
            tr.guards.is_object(value.source, real)
        return KnownIdValue(value, real)
    if not isinstance(value, _HAVE_ADDRESSES):
        raise GraphBreak(breaks.OPERATION, f"id() of {value.describe()}")
    return IdValue(value)


def _known_tensor(tr: Tracer, value: Value) -> Any:
    """The tensor that an input stands for, if calls hardly ever bring another: a parameter, or what an object holds.

    Programs keep tables of such tensors by their ``id``.
    """
    if not isinstance(value, TensorValue) or not value.is_input or value.source is None:
        return MISSING
    found = tr.real_inputs.get(value.node, MISSING)
    return MISSING if isinstance(value.source, Local) and type(found) is not torch.nn.Parameter else found


@handles(hash)
def hash_(tr: Tracer, value: Value) -> Value:
    if isinstance(value, ObjectValue):
        method = value.special(tr, "__hash__")
        if method is not None:
            return of_protocol(method.call(tr, [], {}), "__hash__")
    if value.is_const():
        return tr.fold(hash, [value.const(tr)], {})
    if isinstance(value, TensorValue):
        return id_(tr, value)  # which is what a tensor's hash is
    if isinstance(value, SymValue):
        return tr.fold(hash, [value.const(tr)], {})
    if type(value) is TupleValue and value.pytype() is tuple:
        return ConstValue(hash(tuple(_Hashed(hash_(tr, item).const(tr)) for item in value.items(tr))))
    raise GraphBreak(breaks.OPERATION, f"hash() of {value.describe()}")


class _Hashed:
    """Stands for an element in the hash of a tuple, which is made of the hashes of its elements."""

    def __init__(self, found: int) -> None:
        self.found = found

    def __hash__(self) -> int:
        return self.found


@handles(repr)
def repr_(tr: Tracer, value: Value) -> Value:
    return tr.convert(value, "r")


@handles(ascii)
def ascii_(tr: Tracer, value: Value) -> Value:
    return tr.convert(value, "a")


@handles(format)
def format_(tr: Tracer, value: Value, *spec: Value) -> Value:
    return tr.format(value, spec[0] if spec else None)


@handles(abs)
def abs_(tr: Tracer, value: Value) -> Value:
    if isinstance(value, arrays.AnyArray):
        return arrays.NumpyFunctionValue(np.absolute).call(tr, [value], {})
    return _numeric(tr, abs, "__abs__", [value])


@handles(round)
def round_(tr: Tracer, value: Value, *digits: Value, **named: Value) -> Value:
    return _numeric(tr, round, "__round__", [value, *digits, *named.values()])


@handles(divmod)
def divmod_(tr: Tracer, left: Value, right: Value) -> Value:
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        raise GraphBreak(breaks.C_FUNCTION, "divmod() of a tensor")  # which torch has no method for
    if left.is_const() and right.is_const():
        return tr.fold(divmod, [left.const(tr), right.const(tr)], {})
    if isinstance(left, ObjectValue) or isinstance(right, ObjectValue):
        raise GraphBreak(breaks.C_FUNCTION, "divmod() of an object")
    return TupleValue([tr.binary("//", left, right), tr.binary("%", left, right)])


@handles(pow)
def pow_(tr: Tracer, base: Value, exponent: Value, *modulus: Value) -> Value:
    if modulus:
        found = tr.computed(pow, [base, exponent, *modulus])
        return found or tr.fold(pow, [base.const(tr), exponent.const(tr), modulus[0].const(tr)], {})
    return tr.binary("**", base, exponent)


def _numeric(tr: Tracer, function: Any, name: str, args: list[Value]) -> Value:
    value = args[0]
    if isinstance(value, SymValue) and function is round and value.pytype() is float:
        if len(args) == 1 or args[1].pytype() is int:
            return tr.emit("call_function", round, args, {})
    if isinstance(value, SymValue) and function is round and value.pytype() is int and len(args) == 1:
        return value
    if isinstance(value, TensorValue):
        if function is round:
            raise GraphBreak(breaks.C_FUNCTION, "round() of a tensor")  # which torch has no method for
        return tr.emit("call_function", torch.abs, args, {})
    if isinstance(value, SymValue) and function is abs and value.pytype() is not bool:
        if (found := tr.computed(abs, [value])) is not None:
            return found
        if value.pytype() is float and not value.sym.node.expr.is_symbol:
            return tr.fold(abs, [value.const(tr)], {})  # which may be zero, with a sign
        return value if tr.decide(value.sym >= 0) else tr.unary("-", value)
    if isinstance(value, ObjectValue):
        method = value.special(tr, name)
        if method is not None:
            return method.call(tr, args[1:], {})
    return tr.computed(function, args) or tr.fold(function, [a.const(tr) for a in args], {})


@handles(vars)
def vars_(tr: Tracer, value: Value) -> Value:
    try:
        return value.getattr(tr, "__dict__")
    except Raised as raised:
        if issubclass(raised.value.pytype(), AttributeError):
            message = "vars() argument must have __dict__ attribute"
            raise Raised(tr.make_exception(TypeError, message)) from None
        raise


@handles(dir)
def dir_(tr: Tracer, value: Value) -> Value:
    real = value.real()
    if isinstance(real, (type, types.ModuleType)):
        names = dir(real)
        tr.guard_text(real, dir, names, "has the same names")
        return tr.lift(names)
    raise GraphBreak(breaks.C_FUNCTION, "dir()")


@handles(globals)
def globals_(tr: Tracer) -> Value:
    raise GraphBreak(breaks.C_FUNCTION, "globals()")


def _outside(function: Any) -> None:
    """These act on the world outside the graph, so they run between graphs."""

    def refuse(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
        raise GraphBreak(breaks.C_FUNCTION, f"{function.__name__}() has effects outside the graph")

    handles(function)(refuse)


for _function in (breakpoint, print, input, open, eval, exec, compile, sys.getrefcount):
    _outside(_function)


@handles(sys._getframe)
def getframe(tr: Tracer, depth: Value | None = None) -> Value:
    """After a break a function is two frames, so one that looks at the stack is not split."""
    stop = GraphBreak(breaks.C_FUNCTION, "sys._getframe()")
    frame = tr.frame
    while frame is not None and frame.namespace is vars(inspect):  # it asks for others
        frame = frame.parent
    stop.whole_frame = frame is not None and frame.is_root
    raise stop


@handles(sys.exc_info)
def exc_info(tr: Tracer) -> Value:
    error = tr.handled_exception()
    return TupleValue([NONE, NONE, NONE] if error is None else [tr.lift(error.pytype()), error, TracebackValue()])


@handles(sys.exception)
def exception(tr: Tracer) -> Value:
    return tr.handled_exception() or NONE


@handles(locals)
def locals_(tr: Tracer) -> Value:
    """A snapshot of the calling frame's variables; the root frame's arguments are read for it."""
    frame = tr.frame
    assert frame is not None
    entries: dict[Any, tuple[Value, Any]] = {}
    for name in dict.fromkeys((*frame.code.co_varnames, *frame.code.co_cellvars, *frame.code.co_freevars)):
        if name in frame.cells:
            value = frame.cells[name].read(tr)
        else:
            value = frame.locals.get(name) or (tr.load_argument(name) if frame.is_root else None)
        if value is not None:
            entries[name] = (ConstValue(name), value)
    return DictValue(entries)


@handles(sys.getrecursionlimit)
def recursion_limit(tr: Tracer) -> Value:
    """While it traces, the tracer has a limit of its own."""
    tr.guards.add(Returns(Const(sys.getrecursionlimit, "sys.getrecursionlimit"), tr.recursion_limit))
    return ConstValue(tr.recursion_limit)


@handles(sys.intern)
def intern_(tr: Tracer, value: Value) -> Value:
    return value


@handles(inspect.signature)
def signature(tr: Tracer, target: Value) -> Value:
    """The signature of a function is fixed by its code and defaults, which are guarded."""
    bound = isinstance(target, MethodValue)
    function = target.function if isinstance(target, MethodValue) else target
    real = function.real()
    if not isinstance(real, types.FunctionType):
        raise GraphBreak(breaks.C_FUNCTION, f"inspect.signature of {target.describe()}")
    return tr.wrap(inspect.signature(types.MethodType(real, object()) if bound else real), None)


# --- attributes by the base protocol ------------------------------------------------------------------------------


@handles(object.__setattr__)
def object_setattr(tr: Tracer, owner: Value, name: Value, value: Value) -> Value:
    if not isinstance(owner, ObjectValue):
        raise GraphBreak(breaks.OPERATION, f"object.__setattr__ on {owner.describe()}")
    owner.set_plain(tr, name.const(tr), value)
    return NONE


@handles(object.__new__)
def object_new(tr: Tracer, cls: Value, *args: Value, **kwargs: Value) -> Value:
    real = cls.real()
    if not isinstance(real, type):
        raise GraphBreak(breaks.OPERATION, f"object.__new__ of {cls.describe()}")
    if args or kwargs:
        own_init = tr.static_lookup(real, "__init__") is not object.__init__
        if not own_init or tr.static_lookup(real, "__new__") is not object.__dict__["__new__"]:
            raise GraphBreak(breaks.OPERATION, f"object.__new__ of {real.__qualname__} with arguments")
    return allocate(tr, real, list(args), kwargs)


@handles(dict.__new__, list.__new__, set.__new__, BaseException.__new__)
def container_new(tr: Tracer, cls: Value, *args: Value, **kwargs: Value) -> Value:
    real = cls.real()
    if real in (dict, list, set):
        return cls.call(tr, [], {})
    return allocate(tr, real, list(args) if issubclass(real, BaseException) else [], {})


@handles(tuple.__new__)
def tuple_new(tr: Tracer, cls: Value, *items: Value) -> Value:
    values = items[0].unpack(tr) if items else []
    real = cls.real()
    if real is tuple or tr.is_plain_namedtuple(real):
        return TupleValue(values, cls=real)
    return ObjectValue(real, storage=TupleValue(values))


@handles(str.__new__, int.__new__, float.__new__)
def scalar_new(tr: Tracer, cls: Value, *args: Value) -> Value:
    real = cls.real()
    base = next(b for b in (str, int, float) if issubclass(real, b))
    storage = tr.fold(base, [a.const(tr) for a in args], {})
    return storage if real is base else ObjectValue(real, storage=storage)


@handles(type.__new__, type.__init__, builtins.__build_class__)
def make_class(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
    raise GraphBreak(breaks.C_FUNCTION, "creating a class")


# --- functools, operator ------------------------------------------------------------------------------------------


@handles(functools.update_wrapper)
def update_wrapper(tr: Tracer, *args: Value, **kwargs: Value) -> Value:
    return tr.wrap(polyfills.functools_.update_wrapper, None).call(tr, list(args), kwargs)


# It keeps compiled patterns in a cache, which the program does not see.
@handles(re._compile)  # type: ignore[attr-defined]
def compile_pattern(tr: Tracer, pattern: Value, flags: Value) -> Value:
    if not pattern.is_const():
        return pattern  # compiled already
    return tr.fold(re.compile, [pattern.const(tr), flags.const(tr)], {})


# A generic function looks its implementations up in a cache of weak references, by the class of its argument.
def dispatch(tr: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if function.fn is None or len(args) != 1 or kwargs or not isinstance(args[0], ClassValue):
        raise GraphBreak(breaks.C_FUNCTION, "dispatch of a generic function that the compiled function creates")
    cls, base = args[0].obj, function.source or Const(function.fn, function.qualname)
    found = function.fn(cls)
    tr.guards.add(Dispatches(base, cls, found))
    return tr.wrap(found, None)


# A text that may contain itself; the frames that compute it tell whether it does, as thread and identity do in Python.
def text_once(tr: Tracer, function: FunctionValue, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cells = {name: c.read(tr) for name, c in zip(function.code.co_freevars, function.closure, strict=True)}
    running, inner = cells["repr_running"], cells["user_function"]
    if len(args) != 1 or kwargs or not isinstance(inner, FunctionValue) or running is None or running.truth(tr):
        raise GraphBreak(breaks.C_FUNCTION, "_thread.get_ident")
    frame = tr.frame
    while frame is not None:
        if frame.code is inner.code and frame.locals.get(inner.code.co_varnames[0]) is args[0]:
            return cells.get("fillvalue") or ConstValue("...")
        frame = frame.parent
    return inner.call(tr, args, {})


for _wrapper in (
    reprlib.recursive_repr()(repr),
    getattr(dataclasses, "_recursive_repr", reprlib.recursive_repr())(repr),
):
    CODES[id(_wrapper.__code__)] = text_once

_DISPATCH = functools.singledispatch(len).dispatch.__code__
CODES[id(_DISPATCH)] = dispatch

for _symbol, _entry in BINARY.items():
    handles(_entry[0])(lambda tr, a, b, _s=_symbol: tr.binary(_s, a, b))
for _symbol, _pair in INPLACE.items():
    handles(_pair[0])(lambda tr, a, b, _s=_symbol: tr.binary(_s, a, b))
for _symbol, _entry in COMPARE.items():
    handles(_entry[0])(lambda tr, a, b, _s=_symbol: tr.compare(_s, a, b))
for _symbol, _single in UNARY.items():
    handles(_single[0])(lambda tr, a, _s=_symbol: tr.unary(_s, a))


@handles(operator.not_)
def not_(tr: Tracer, value: Value) -> Value:
    return ConstValue(not value.truth(tr))


@handles(operator.truth)
def truth(tr: Tracer, value: Value) -> Value:
    return ConstValue(value.truth(tr))


@handles(operator.is_)
def is_(tr: Tracer, left: Value, right: Value) -> Value:
    return ConstValue(tr.is_same(left, right))


@handles(operator.is_not)
def is_not(tr: Tracer, left: Value, right: Value) -> Value:
    return ConstValue(not tr.is_same(left, right))


@handles(operator.getitem)
def getitem(tr: Tracer, owner: Value, key: Value) -> Value:
    return owner.getitem(tr, key)


@handles(operator.setitem)
def setitem(tr: Tracer, owner: Value, key: Value, value: Value) -> Value:
    owner.setitem(tr, key, value)
    return NONE


@handles(operator.delitem)
def delitem(tr: Tracer, owner: Value, key: Value) -> Value:
    owner.delitem(tr, key)
    return NONE


@handles(operator.contains)
def contains(tr: Tracer, owner: Value, item: Value) -> Value:
    return ConstValue(owner.contains(tr, item).truth(tr))


@handles(operator.abs)
def operator_abs(tr: Tracer, value: Value) -> Value:
    return abs_(tr, value)


@handles(operator.index)
def index(tr: Tracer, value: Value) -> Value:
    value = tr.as_index(value)
    return value if isinstance(value, SymValue) else tr.fold(operator.index, [value.const(tr)], {})
