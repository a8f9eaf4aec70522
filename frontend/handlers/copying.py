"""``copy.copy``, ``copy.deepcopy`` and ``pickle.dumps`` over values: they read the address of each object."""

from __future__ import annotations

import copy
import copyreg
import pickle
from typing import TYPE_CHECKING, Any

import torch

from .. import breaks
from ..breaks import GraphBreak
from ..values.base import Value
from ..values.builtin_methods import BuiltinMethodValue
from ..values.classes import RealValue
from ..values.constants import ConstValue, SymValue
from ..values.containers.deques import DequeValue
from ..values.containers.mappings import DictValue
from ..values.containers.sequences import ListValue, RangeValue, TupleValue
from ..values.containers.sets import SetValue
from ..values.facets.identities import IdValue, KnownIdValue
from ..values.facets.instance_dict import InstanceDictValue
from ..values.functions import FunctionValue
from ..values.objects import ObjectValue
from .builtins_ import hasattr_
from .table import handles

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

_ATOMIC = (ConstValue, SymValue, RealValue, FunctionValue, RangeValue)
# By any of these a class says how it wants to be copied.
_PROTOCOL = (
    "__copy__",
    "__deepcopy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__getnewargs__",
    "__getnewargs_ex__",
)


def _refuse(function: str, value: Value) -> GraphBreak:
    return GraphBreak(breaks.C_FUNCTION, f"copy.{function} of {value.describe()}")


def _is_plain_object(tr: Tracer, value: Value) -> bool:
    """Whether an object's copy is a new object of its class with its attributes."""
    if not isinstance(value, ObjectValue) or issubclass(value.cls, (BaseException, torch.nn.Module)):
        return False
    custom = value.cls in copyreg.dispatch_table
    for name in _PROTOCOL:
        found = tr.static_lookup(value.cls, name)
        tr.guard_lookup(value.cls, name, found)
        custom = custom or found is not tr.static_lookup(object, name)
    slots = any("__slots__" in vars(c) for c in value.cls.__mro__)
    return not custom and not slots and value.cls.__dictoffset__ != 0 and value.storage(tr) is None


def _answers(tr: Tracer, value: Value, name: str) -> bool:
    """Whether an object has an attribute that its class lacks: its ``__getattr__`` may answer for any."""
    return hasattr_(tr, value, ConstValue(name)).truth(tr)


def _attributes(tr: Tracer, value: ObjectValue) -> list[tuple[str, Value]]:
    snapshot = InstanceDictValue(value).snapshot(tr)
    return [(k.const(tr), snapshot.getitem(tr, k)) for k in snapshot.unpack(tr)]


@handles(copy.copy)
def copy_(tr: Tracer, x: Value) -> Value:
    if isinstance(x, (*_ATOMIC, TupleValue)):
        return x
    if isinstance(x, (ListValue, DictValue, SetValue, DequeValue)):
        return x if isinstance(x, SetValue) and x.cls is frozenset else x.call_method(tr, "copy", [], {})
    if isinstance(x, ObjectValue):
        method = x.special(tr, "__copy__")
        if method is not None:
            return method.call(tr, [], {})
        if _is_plain_object(tr, x):
            made = ObjectValue(x.cls)
            if not _answers(tr, made, "__setstate__"):
                made.attrs.update(_attributes(tr, x))
                return made
    raise _refuse("copy", x)


@handles(copy.deepcopy)
def deepcopy(tr: Tracer, x: Value, *memo: Value) -> Value:
    if not memo:
        return _deep(tr, x, {})
    if not isinstance(memo[0], MemoValue):
        raise GraphBreak(breaks.C_FUNCTION, "copy.deepcopy with a memo that the program provides")
    return _deep(tr, x, memo[0].copies)


class MemoValue(Value):
    """The memo that ``__deepcopy__`` receives and passes on: the copies that already exist."""

    __slots__ = ("copies",)

    def __init__(self, copies: dict[Value, Value]) -> None:
        self.copies = copies
        self.source = None

    def pytype(self) -> type:
        return dict

    def describe(self) -> str:
        return "the memo of copy.deepcopy"

    def _original(self, key: Value) -> Value:
        """What a key is the address of."""
        if isinstance(key, (IdValue, KnownIdValue)):
            return key.of
        raise GraphBreak(breaks.C_FUNCTION, f"{key.describe()} as a key of {self.describe()}")

    def contains(self, tr: Tracer, item: Value) -> Value:
        return ConstValue(self._original(item) in self.copies)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        found = self.copies.get(self._original(key))
        if found is None:
            raise GraphBreak(breaks.C_FUNCTION, f"{key.describe()}, which {self.describe()} lacks")
        return found

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.copies[self._original(key)] = value

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "get" and len(args) in (1, 2) and not kwargs:
            return self.copies.get(self._original(args[0])) or (args[1] if len(args) > 1 else ConstValue(None))
        raise GraphBreak(breaks.C_FUNCTION, f"method {name!r} of {self.describe()}")

    def getattr(self, tr: Tracer, name: str) -> Value:
        return BuiltinMethodValue(self, dict, name)


def _deep(tr: Tracer, value: Value, memo: dict[Value, Value]) -> Value:
    if isinstance(value, _ATOMIC):
        return value
    known = memo.get(value)
    if known is not None:
        return known
    if isinstance(value, ObjectValue) and not issubclass(value.cls, torch.nn.Module):
        method = value.special(tr, "__deepcopy__")
        if method is not None:
            memo[value] = method.call(tr, [MemoValue(memo)], {})
            return memo[value]
    copier: Any = next((c for kind, c in _COPIERS if isinstance(value, kind)), None)
    if copier is None and _is_plain_object(tr, value):
        copier = _object
    if copier is None:
        raise _refuse("deepcopy", value)
    return copier(tr, value, memo)


def _list(tr: Tracer, value: ListValue, memo: dict[Value, Value]) -> Value:
    made = memo[value] = ListValue([])
    made._items.extend(_deep(tr, element, memo) for element in value.unpack(tr))
    return made


def _tuple(tr: Tracer, value: TupleValue, memo: dict[Value, Value]) -> Value:
    items = value.unpack(tr)
    copied = [_deep(tr, element, memo) for element in items]
    if value in memo:
        return memo[value]
    same = value.cls is tuple and all(a is b for a, b in zip(items, copied, strict=True))
    if value.cls is not tuple:
        raise _refuse("deepcopy", value)
    memo[value] = value if same else TupleValue(copied)
    return memo[value]


def _dict(tr: Tracer, value: DictValue, memo: dict[Value, Value]) -> Value:
    if value.cls is not dict:
        raise _refuse("deepcopy", value)
    made = memo[value] = DictValue({})
    for key, element in zip(value.keys(tr), value.values(tr), strict=True):
        made.setitem(tr, _deep(tr, key, memo), _deep(tr, element, memo))
    return made


def _object(tr: Tracer, value: ObjectValue, memo: dict[Value, Value]) -> Value:
    made = memo[value] = ObjectValue(value.cls)
    if _answers(tr, value, "__deepcopy__") or _answers(tr, made, "__setstate__"):
        raise _refuse("deepcopy", value)
    for name, element in _attributes(tr, value):
        made.attrs[name] = _deep(tr, element, memo)
    return made


def _namespace(tr: Tracer, value: InstanceDictValue, memo: dict[Value, Value]) -> Value:
    """``obj.__dict__``: the copy is a separate dictionary, which belongs to no object."""
    made = memo[value] = DictValue({})
    for key, element in _attributes(tr, value.owner):
        made.setitem(tr, ConstValue(key), _deep(tr, element, memo))
    return made


def _set(tr: Tracer, value: SetValue, memo: dict[Value, Value]) -> Value:
    """A set of copies, put in one after the other: what follows on equal hashes may come in another order."""
    if value.cls not in (set, frozenset):
        raise _refuse("deepcopy", value)
    copied = [_deep(tr, element, memo) for element in value.unpack(tr)]
    memo[value] = SetValue({element.hash_key(tr): element for element in copied}, cls=value.cls)
    return memo[value]


_COPIERS = (
    (ListValue, _list),
    (TupleValue, _tuple),
    (DictValue, _dict),
    (InstanceDictValue, _namespace),
    (SetValue, _set),
)


# --- pickles ---------------------------------------------------------------------------------------------------------


@handles(pickle.dumps)
def dumps(tr: Tracer, value: Value) -> Value:
    """The pickle of constants: libraries take it for the key of a cache."""
    return tr.fold(pickle.dumps, [_to_pickle(tr, value, set())], {})


def _to_pickle(tr: Tracer, value: Value, told: set[Any]) -> Any:
    """What a value made of constants is.  No text and no container may come twice.

    A pickle says whether equal ones are one object, which a trace does not know.
    """
    cls = value.pytype()
    if cls in (int, float, bool, type(None)) and value.is_const():
        return value.const(tr)
    once: Any = value.const(tr) if cls in (str, bytes) and value.is_const() else id(value)
    if once in told or not (cls in (str, bytes) or isinstance(value, (DictValue, ListValue, TupleValue))):
        raise GraphBreak(breaks.C_FUNCTION, f"pickle.dumps of {value.describe()}")
    told.add(once)
    if isinstance(value, DictValue) and cls is dict:
        keys, values = value.keys(tr), value.values(tr)
        return {_to_pickle(tr, k, told): _to_pickle(tr, v, told) for k, v in zip(keys, values, strict=True)}
    if cls in (list, tuple):
        return cls([_to_pickle(tr, item, told) for item in value.unpack(tr)])
    if cls in (str, bytes):
        return once
    raise GraphBreak(breaks.C_FUNCTION, f"pickle.dumps of {value.describe()}")
