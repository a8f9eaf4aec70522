"""Methods of the builtin containers, as the interpreter runs them.

What is written here needs the representation; everything else (``index``, ``sort``, set algebra, comparisons) is a
polyfill in plain Python.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..breaks import C_FUNCTION, GraphBreak
from .base import Raised, Value, call_handler
from .constants import ConstValue
from .containers.iterators import SequenceIterator
from .containers.mappings import DictValue, DictViewValue
from .containers.sequences import ListValue, SequenceValue, TupleValue
from .containers.sets import SetValue

if TYPE_CHECKING:
    from ..trace.tracer import Tracer

NONE, TRUE, LAST = ConstValue(None), ConstValue(True), ConstValue(-1)


def call_builtin_method(
    tr: Tracer, owner: Value, cls: type, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """Call the method that builtin class ``cls`` has under ``name``, on ``owner``'s builtin contents."""
    for kind, table in _TABLES:
        if isinstance(owner, kind) and name in table:
            return call_handler(table[name], f"{cls.__name__}.{name}", (tr, owner, *args), kwargs)
    if name in _DUNDERS:
        return call_handler(_DUNDERS[name], f"{cls.__name__}.{name}", (tr, owner, *args), kwargs)
    polyfill = tr.method_polyfill(cls, name)
    if polyfill is not None:
        return polyfill.call(tr, [owner, *args], kwargs)
    if not hasattr(cls, name):
        raise Raised(tr.make_exception(AttributeError, f"'{cls.__name__}' object has no attribute '{name}'"))
    if owner.is_const() and all(a.is_const() for a in args) and not kwargs:
        return tr.fold(getattr(owner.const(tr), name), [a.const(tr) for a in args], {})
    raise GraphBreak(C_FUNCTION, f"{cls.__name__}.{name}")


# --- any container ------------------------------------------------------------------------------------------------


def _delitem(tr: Tracer, owner: Value, key: Value) -> Value:
    owner.delitem(tr, key)
    return NONE


def _setitem(tr: Tracer, owner: Value, key: Value, value: Value) -> Value:
    owner.setitem(tr, key, value)
    return NONE


_DUNDERS: dict[str, Any] = {
    "__len__": lambda tr, owner: owner.length(tr),
    "__iter__": lambda tr, owner: owner.iter(tr),
    "__getitem__": lambda tr, owner, key: owner.getitem(tr, key),
    "__setitem__": _setitem,
    "__delitem__": _delitem,
    "__contains__": lambda tr, owner, item: owner.contains(tr, item),
    "__bool__": lambda tr, owner: ConstValue(owner.truth(tr)),
    "__eq__": lambda tr, owner, other: ConstValue(tr.equal(owner, other)),
    "__ne__": lambda tr, owner, other: ConstValue(not tr.equal(owner, other)),
    "__init__": lambda tr, owner, *args, **kwargs: _init(tr, owner, *args, **kwargs),
    "__hash__": lambda tr, owner: ConstValue(hash(owner.hash_key(tr))),
}


def _init(tr: Tracer, owner: Value, *args: Value, **kwargs: Value) -> Value:
    if isinstance(owner, DictValue):
        owner.replace(tr, {})
        _dict_update(tr, owner, *args, **kwargs)
    elif isinstance(owner, ListValue):
        owner.replace(tr, args[0].unpack(tr) if args else [])
    elif isinstance(owner, SetValue) and owner.cls is set:
        owner.replace(tr, {})
        _set_update(tr, owner, *args)
    return NONE


# --- lists --------------------------------------------------------------------------------------------------------


def _append(tr: Tracer, owner: ListValue, value: Value) -> Value:
    owner.append(tr, value)
    return NONE


def _extend(tr: Tracer, owner: ListValue, other: Value) -> Value:
    for value in other.unpack(tr):
        owner.append(tr, value)
    return NONE


def _insert(tr: Tracer, owner: ListValue, index: Value, value: Value) -> Value:
    items = list(owner.items(tr))
    items.insert(index.const(tr), value)
    owner.replace(tr, items)
    return NONE


def _list_pop(tr: Tracer, owner: ListValue, index: Value = LAST) -> Value:
    items = list(owner.items(tr))
    try:
        element = items.pop(index.const(tr))
    except IndexError as error:
        raise Raised(tr.exception(error)) from None
    owner.replace(tr, items)
    return element


def _list_clear(tr: Tracer, owner: ListValue) -> Value:
    owner.replace(tr, [])
    return NONE


def _list_reverse(tr: Tracer, owner: ListValue) -> Value:
    owner.replace(tr, owner.items(tr)[::-1])
    return NONE


_LIST: dict[str, Any] = {
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _list_pop,
    "clear": _list_clear,
    "copy": lambda tr, owner: ListValue(owner.unpack(tr)),
    "reverse": _list_reverse,
    "__reversed__": lambda tr, owner: SequenceIterator(owner.unpack(tr)[::-1]),
    "__iadd__": lambda tr, owner, other: (_extend(tr, owner, other), owner)[1],
}

_SEQUENCE: dict[str, Any] = {
    "__add__": lambda tr, owner, other: tr.binary("+", owner, other),
    "__mul__": lambda tr, owner, other: tr.binary("*", owner, other),
    "__rmul__": lambda tr, owner, other: tr.binary("*", owner, other),
}


# --- dictionaries -------------------------------------------------------------------------------------------------


def _get(tr: Tracer, owner: DictValue, key: Value, default: Value = NONE) -> Value:
    return owner.lookup(tr, key) or default


def _setdefault(tr: Tracer, owner: DictValue, key: Value, default: Value = NONE) -> Value:
    found = owner.lookup(tr, key)
    if found is None:
        owner.setitem(tr, key, default)
        return default
    return found


def _dict_pop(tr: Tracer, owner: DictValue, key: Value, *default: Value, **named: Value) -> Value:
    found = owner.lookup(tr, key)
    if found is None:
        fallback = [*default, *named.values()]
        if fallback:
            return fallback[0]
        raise Raised(tr.make_exception_from_values(KeyError, [key]))
    owner.delitem(tr, key)
    return found


def _popitem(tr: Tracer, owner: DictValue, last: Value = TRUE) -> Value:
    keys = owner.keys(tr)
    if not keys:
        message = (
            "dictionary is empty"
            if issubclass(owner.cls, collections.OrderedDict)
            else "popitem(): dictionary is empty"
        )
        raise Raised(tr.make_exception(KeyError, message))
    key = keys[-1 if last.truth(tr) else 0]
    element = owner.getitem(tr, key)
    owner.delitem(tr, key)
    return TupleValue([key, element])


def _dict_update(tr: Tracer, owner: DictValue, *others: Value, **kwargs: Value) -> Value:
    for other in others:
        for key, element in pairs(tr, other):
            owner.setitem(tr, key, element)
    for name, element in kwargs.items():
        owner.setitem(tr, ConstValue(name), element)
    return NONE


def pairs(tr: Tracer, other: Value) -> list[tuple[Value, Value]]:
    """What ``dict(other)`` would take as keys and values: a mapping, or an iterable of pairs."""
    mapping = tr.as_mapping(other)
    if isinstance(mapping, DictValue):
        return list(zip(mapping.keys(tr), mapping.values(tr), strict=True))
    if hasattr(other.pytype(), "keys"):
        return [(key, other.getitem(tr, key)) for key in other.call_method(tr, "keys", [], {}).unpack(tr)]
    result = []
    for pair in other.unpack(tr):
        key, element = pair.unpack(tr)
        result.append((key, element))
    return result


def _dict_clear(tr: Tracer, owner: DictValue) -> Value:
    owner.replace(tr, {})
    return NONE


def _dict_copy(tr: Tracer, owner: DictValue) -> Value:
    owner.values(tr)
    copy = DictValue(
        dict(zip((k.hash_key(tr) for k in owner.keys(tr)), owner.entries.values(), strict=True)), cls=owner.cls
    )
    copy.default_factory = owner.default_factory
    return copy


def _move_to_end(tr: Tracer, owner: DictValue, key: Value, last: Value = TRUE) -> Value:
    element = owner.getitem(tr, key)
    hashed = key.hash_key(tr)
    entries = dict(owner.entries)
    entry = (entries.pop(hashed)[0], element)
    owner.replace(tr, {**entries, hashed: entry} if last.truth(tr) else {hashed: entry, **entries})
    return NONE


_DICT: dict[str, Any] = {
    "get": _get,
    "keys": lambda tr, owner: DictViewValue(owner, "keys"),
    "values": lambda tr, owner: DictViewValue(owner, "values"),
    "items": lambda tr, owner: DictViewValue(owner, "items"),
    "setdefault": _setdefault,
    "pop": _dict_pop,
    "popitem": _popitem,
    "update": _dict_update,
    "clear": _dict_clear,
    "copy": _dict_copy,
    "__copy__": _dict_copy,
    "move_to_end": _move_to_end,
    "__reversed__": lambda tr, owner: SequenceIterator(owner.keys(tr)[::-1]),
    "__ior__": lambda tr, owner, other: (_dict_update(tr, owner, other), owner)[1],
}


# --- sets ---------------------------------------------------------------------------------------------------------


def _mirrored(owner: SetValue, change: Callable[[set], Any]) -> set | None:
    """The owner's real set after the same change, if it has one."""
    if owner.mirror is not None:
        change(owner.mirror)
    return owner.mirror


def _add(tr: Tracer, owner: SetValue, value: Value) -> Value:
    hashed = value.hash_key(tr)
    mirror = _mirrored(owner, lambda real: real.add(hashed)) if value.is_const() else None
    owner.replace(tr, {**owner.entries, hashed: value, **owner.entries}, mirror)
    return NONE


def _discard(tr: Tracer, owner: SetValue, value: Value) -> Value:
    hashed = value.hash_key(tr)
    mirror = _mirrored(owner, lambda real: real.discard(hashed))
    owner.replace(tr, {key: element for key, element in owner.entries.items() if key != hashed}, mirror)
    return NONE


def _remove(tr: Tracer, owner: SetValue, value: Value) -> Value:
    if value.hash_key(tr) not in owner.entries:
        raise Raised(tr.make_exception_from_values(KeyError, [value]))
    return _discard(tr, owner, value)


def _set_pop(tr: Tracer, owner: SetValue) -> Value:
    entries = dict(owner.entries)
    if not entries:
        raise Raised(tr.make_exception(KeyError, "pop from an empty set"))
    if owner.mirror is None and len(entries) > 1:
        raise GraphBreak(C_FUNCTION, "set.pop: which element it takes depends on the set's history")
    taken = entries.pop(next(iter(entries)) if owner.mirror is None else owner.mirror.pop())
    owner.replace(tr, entries, owner.mirror)
    return taken


def _set_update(tr: Tracer, owner: SetValue, *others: Value) -> Value:
    entries, mirror = dict(owner.entries), owner.mirror
    for other in others:
        added = {value.hash_key(tr): value for value in other.unpack(tr)}
        entries.update({key: value for key, value in added.items() if key not in entries})
        real: Any = (
            other.mirror
            if isinstance(other, SetValue)
            else dict(added)
            if isinstance(other, DictValue)
            else list(added)
        )
        if mirror is None or real is None or not all(value.is_const() for value in added.values()):
            mirror = None
        else:
            mirror.update(real)  # from sets and dictionaries in another way than from the rest
    owner.replace(tr, entries, mirror)
    return NONE


def _set_clear(tr: Tracer, owner: SetValue) -> Value:
    owner.replace(tr, {}, _mirrored(owner, lambda real: real.clear()))
    return NONE


def _set_copy(tr: Tracer, owner: SetValue) -> Value:
    if owner.cls is frozenset:
        return owner
    return SetValue(dict(owner.entries), cls=owner.cls, mirror=owner.mirror and owner.mirror.copy())


_SET: dict[str, Any] = {
    "add": _add,
    "discard": _discard,
    "remove": _remove,
    "pop": _set_pop,
    "update": _set_update,
    "clear": _set_clear,
    "copy": _set_copy,
}

_VIEW: dict[str, Any] = {"__reversed__": lambda tr, owner: SequenceIterator(owner.unpack(tr)[::-1])}

_TABLES: list[tuple[type, dict[str, Any]]] = [
    (ListValue, _LIST),
    (SequenceValue, _SEQUENCE),
    (DictValue, _DICT),
    (SetValue, _SET),
    (DictViewValue, _VIEW),
]
