"""Functions behind ``functools.lru_cache``."""

from __future__ import annotations

import math
import types
import weakref
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import torch

from ..breaks import C_FUNCTION, GraphBreak
from ..bytecode import normalize
from ..capture.attempts import StateChanged
from ..guards.cached_results import CachedResult, CachedResultOf, knows
from ..guards.computed import Computed
from ..guards.sources import Attr, Const, Item, Source
from .base import MISSING, Value
from .classes import BuiltinValue
from .constants import CONST_TYPES, ConstValue, SymValue
from .containers.sequences import TupleValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

# function -> arguments -> how often a call was run in eager so that the cache gets to know them
_waited_for: weakref.WeakKeyDictionary[Any, dict[tuple, int]] = weakref.WeakKeyDictionary()
_PATIENCE = 3
_IDENTITY = ("__hash__", "__eq__")


def look(obj: Any) -> Hashable:
    """Equal for objects in the place of which the other would do: equal constants, to the bit, or one object."""
    if type(obj) in (tuple, dict):
        return type(obj), *map(look, obj.items() if type(obj) is dict else obj)
    return type(obj), repr(obj) if type(obj) in CONST_TYPES else id(obj)


_CALCULATE = frozenset(
    {
        "abs", "bool", "divmod", "enumerate", "float", "int", "len", "max", "min", "pow", "range", "reversed",
        "round", "sum", "tuple", "zip", "ValueError", "TypeError", "AssertionError",
    }
)  # fmt: skip
_MORE = frozenset(
    {
        "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_NAME", "LOAD_CELL", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF",
        "IMPORT_NAME", "MAKE_FUNCTION", "UNSUPPORTED",
    }
)  # fmt: skip
_MAKE = frozenset({"BUILD_LIST", "BUILD_SET", "BUILD_MAP"})
_OF_TENSORS = frozenset(
    {
        "abs", "arange", "bfloat16", "bool", "ceil", "cat", "chunk", "clamp", "contiguous", "cos", "cumsum", "device",
        "diag", "double", "dtype", "einsum", "exp", "expand", "eye", "flatten", "flip", "float", "float16", "float32",
        "float64", "floor", "full", "half", "inf", "int", "int32", "int64", "linspace", "log", "log2", "long",
        "masked_fill", "masked_fill_", "matmul", "max", "mean", "meshgrid", "min", "norm", "ones", "ones_like",
        "outer", "permute", "pi", "pow", "repeat", "reshape", "shape", "sin", "size", "sqrt", "squeeze", "stack",
        "sum", "t", "tensor", "transpose", "tril", "triu", "unsqueeze", "view", "where", "zeros", "zeros_like",
    }
)  # fmt: skip


def only_calculates(function: Any, within: tuple[Any, ...] = (), tensors: bool = False) -> bool:
    """Whether a function reads nothing but its arguments and calls none that does.

    Unless it is to make ``tensors``, it makes no object that can change either.
    """
    if type(function) is not types.FunctionType or function in within or function.__closure__:
        return False
    given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if not all(type(value) in CONST_TYPES for value in given):
        return False
    for op in normalize(function.__code__).ops:
        if op.name in _MORE or (not tensors and op.name in _MAKE):
            return False
        if tensors and op.name in ("LOAD_ATTR", "LOAD_METHOD") and op.arg not in _OF_TENSORS:
            return False
        if op.name == "LOAD_GLOBAL":
            found = function.__globals__.get(op.arg, MISSING)
            is_builtin = found is MISSING and op.arg in _CALCULATE
            if is_builtin or found is math or (tensors and found is torch):
                continue
            if not only_calculates(found, (*within, function), tensors):
                return False
    return True


def _is_symbolic(tr: Tracer, value: Value) -> bool:
    """Whether a number is symbolic, or any in a tuple."""
    if isinstance(value, TupleValue) and value.pytype() in (tuple, torch.Size):
        return any(_is_symbolic(tr, item) for item in value.unpack(tr))
    return isinstance(value, SymValue)


def _size(*sizes: int) -> torch.Size:
    return torch.Size(sizes)


def _follows(tr: Tracer, real: Any, traced: Value, source: Source) -> bool:
    """Whether a cached result is what tracing has computed.  Its symbolic numbers are from now on those computed."""
    if isinstance(traced, SymValue):
        return tr.is_number(real, source, traced)
    if type(real) in CONST_TYPES:
        return traced.is_const() and look(traced.const(tr)) == look(real)
    kind: Any = type(real)
    if kind not in (tuple, list, dict) or traced.pytype() is not kind:
        return False
    if len(real) != traced.length(tr).const(tr):
        return False
    keys: Any = list(real) if kind is dict else range(len(real))
    if not all(type(key) in CONST_TYPES for key in keys):
        return False
    return all(_follows(tr, real[key], traced.getitem(tr, ConstValue(key)), Item(source, key)) for key in keys)


class CachedFunctionValue(BuiltinValue):
    """A function behind ``functools.lru_cache``: called for real, because the program gets the cache's own objects.

    What it returns is reached by calling it again, which takes it out of the cache.
    """

    __slots__ = ()

    def call(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if any(_is_symbolic(tr, value) for value in (*args, *kwargs.values())):
            wrapped = getattr(self.obj, "__wrapped__", None)
            if only_calculates(wrapped):  # no program can tell a number of the cache from a new one
                return self._traced(tr, args, kwargs)
            if (found := self._of_numbers(tr, wrapped, args, kwargs)) is not None:
                return found
            if type(wrapped) is types.FunctionType and (found := self._of_sizes(tr, args, kwargs)) is not None:
                return found
        plain = tuple(self._key(tr, value) for value in args)
        named = {name: self._key(tr, value) for name, value in kwargs.items()}
        before = self.obj.cache_info()
        if before.maxsize is not None and before.currsize >= before.maxsize:
            raise GraphBreak(C_FUNCTION, f"the cache of {self.describe()} is full and may drop entries")
        changed = bool(tr.effects) or tr.writes_inputs()
        if changed and not knows(self.obj, plain, named):
            raise self._not_yet(plain, named)
        try:
            result = self.obj(*plain, **named)
        except Exception as error:
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}", error) from None
        if self.obj.cache_info().misses > before.misses:
            raise StateChanged(f"cached function {self.describe()} has run")  # and may have changed what was read
        base = self.source or Const(self.obj, self.describe())
        return tr.wrap(result, CachedResult(base, tr.keep_equal(plain), tr.keep_equal(named), changed))

    def _traced(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """What the function itself makes of the arguments, without the cache."""
        inner = tr.wrap(self.obj.__wrapped__, None if self.source is None else Attr(self.source, "__wrapped__"))
        return inner.call(tr, args, kwargs)

    def _of_sizes(self, tr: Tracer, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """The cache's own containers for symbolic numbers, as inputs.  Tracing the function tells how the numbers in
        them follow from the arguments, and guards hold them to that: they are no new symbols."""
        given, sources = [], []
        for value in (*args, *kwargs.values()):
            if (found := self._number(tr, value)) is None:
                return None
            given.append(found[0])
            sources.append(found[1])
        before = tr.effects.outside, tr.op_count
        traced = self._traced(tr, args, kwargs)
        if (tr.effects.outside, tr.op_count) != before:
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}, which does more than compute numbers")
        try:
            result = self.obj(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))
        except Exception as error:
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}", error) from None
        path = CachedResultOf(self.source or Const(self.obj, self.describe()), tuple(sources), tuple(kwargs))
        if not _follows(tr, result, traced, path):
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}, whose cache has other results")
        return tr.wrap(result, path)

    def _number(self, tr: Tracer, value: Value) -> tuple[Any, Any] | None:
        """An argument in this call, and where later calls find it; None for what follows from no input."""
        if isinstance(value, SymValue):
            return tr.number_and_source(value)
        if not _is_symbolic(tr, value):
            return (key := self._key(tr, value)), key
        found = [self._number(tr, item) for item in value.unpack(tr)]
        if None in found:
            return None
        items, sources = zip(*found, strict=True)
        if value.pytype() is tuple:
            return items, sources
        parent = next(each for each in sources if isinstance(each, Source))
        return torch.Size(items), Computed(_size, sources, (), parent)

    def _of_numbers(self, tr: Tracer, wrapped: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """The cache's own tensors for symbolic numbers, as inputs: their function may be called at any time."""
        if tr.active_contexts or tr.defaults.is_set or not only_calculates(wrapped, tensors=True):
            return None
        given, sources = [], []
        for value in (*args, *kwargs.values()):
            if value.is_const():
                given.append(value.const(tr))
                sources.append(given[-1])
            elif not isinstance(value, SymValue) or (source := tr.number_source(value.node)) is None:
                return None
            else:
                given.append(value.sym.node.hint)
                sources.append(source)
        try:
            result = self.obj(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))
        except Exception as error:
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()}", error) from None
        base = self.source or Const(self.obj, self.describe())
        return tr.wrap(result, CachedResultOf(base, tuple(sources), tuple(kwargs)))

    def _key(self, tr: Tracer, value: Value) -> Any:
        """What the cache knows an argument by: a constant, or an object that no other equals."""
        if value.is_const():
            return value.const(tr)
        if isinstance(value, TupleValue) and value.pytype() is tuple:
            return tuple(self._key(tr, item) for item in value.unpack(tr))
        found, cls = value.real(), value.pytype()
        if found is MISSING or any(tr.static_lookup(cls, name) is not getattr(object, name) for name in _IDENTITY):
            raise GraphBreak(C_FUNCTION, f"cached function {self.describe()} of mutable objects")
        for name in _IDENTITY:
            tr.guard_lookup(cls, name, getattr(object, name))
        if value.source is not None:
            tr.guards.is_object(value.source, found)
        return found

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("cache_info", "cache_clear"):
            raise GraphBreak(C_FUNCTION, f"{name} of cached function {self.describe()}, which tracing calls too")
        return super().getattr(tr, name)

    def _not_yet(self, plain: tuple, named: dict[str, Any]) -> GraphBreak:
        """The function has to run amid changes that the trace has not made yet, and which it may depend on."""
        stop = GraphBreak(
            C_FUNCTION, f"cached function {self.describe()} runs for the first time while there are pending changes"
        )
        waited_for = _waited_for.setdefault(self.obj, {})
        asked = (plain, tuple(named.items()))
        waited_for[asked] = waited_for.get(asked, 0) + 1
        if waited_for[asked] <= _PATIENCE:
            stop.reason += "; this call runs in eager, and the next call finds its result"
            stop.whole_frame = stop.only_now = True
        return stop
