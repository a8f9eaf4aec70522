"""Dictionaries and their views.

A dictionary from outside is guarded key by key as it is read; its whole key list is guarded only if it is iterated,
measured or changed.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ...breaks import C_FUNCTION, NOT_REBUILDABLE, OPERATION, GraphBreak
from ...guards.kinds.containers import HasKey, HasKeyFrom, Keys, KeysAt, NotEmpty, RawLength, faces
from ...guards.sources import Attr, Element, Elements, Item, ItemOf, RawItem, Source
from ..base import Lazy, Raised, Value
from ..builtin_methods import builtin_method, call_builtin_method
from ..constants import ConstValue, SymValue, is_another
from .iteration import IteratorValue, SequenceIterator
from .keys import check_key
from .sequences import TupleValue
from .sets import SetValue, by_hash

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

NONE, TRUE = ConstValue(None), ConstValue(True)
_CONST_KEYS = (str, int, bool, type(None))


class DictValue(Value):
    """A dict (``cls`` may be OrderedDict or defaultdict); ``entries`` maps hash keys to (key value, element)."""

    __slots__ = ("_keys_guarded", "attrs", "cls", "default_factory", "entries", "obj", "removed", "version", "written")

    def __init__(
        self, entries: dict[Any, tuple[Value, Any]], source: Source | None = None, cls: type = dict, obj: Any = None
    ) -> None:
        self.entries = entries
        self.source = source
        self.cls = cls
        self.obj = obj  # the real dict, for one from outside
        self.default_factory: Value | None = None
        self.attrs: dict[str, Value] = {}  # an OrderedDict has room for attributes
        self._keys_guarded = source is None
        self.version = 0  # counts the changes of the keys
        # What changed, of a dictionary from outside: what it held before stays unread.  None: its contents as a whole.
        self.written: set[Any] | None = set()
        self.removed: dict[Any, Value] = {}

    def pytype(self) -> type:
        return self.cls

    # --- reading ---------------------------------------------------------------------------------------------------

    def _base(self) -> type:
        return collections.OrderedDict if issubclass(self.cls, collections.OrderedDict) else dict

    def guard_keys(self, tr: Tracer) -> None:
        """From here on the trace depends on exactly which keys there are, and on their order."""
        if self._keys_guarded:
            return
        self._keys_guarded = True
        assert self.source is not None
        base: Any = self._base()
        keys = tuple(base.__iter__(self.obj))
        if not all(type(key) in _CONST_KEYS for key in keys):
            tr.guards.add(RawLength(self.source, base, len(keys)))
            # the others are objects that have been read from their positions
            positions = tuple(i for i, key in enumerate(keys) if tr.is_fixed_key(key))
            if positions:
                tr.guards.add(KeysAt(Elements(self.source, base), positions, faces(keys, positions)))
            return
        tr.guards.add(Keys(self.source, keys))

    def lookup(self, tr: Tracer, key: Value) -> Value | None:
        """The element under ``key``, or None; guards presence or absence of this key only."""
        if self._lacks(tr, key):
            return None
        hashed = key.hash_key(tr)
        found = self.entries.get(hashed)
        if found is None:
            if not self._keys_guarded:
                self._guard_presence(tr, key, hashed, present=False)
            return None
        element = found[1]
        if isinstance(element, Lazy):
            element = tr.force(element)
            self.entries[hashed] = (found[0], element)
        return element

    def _guard_presence(self, tr: Tracer, key: Value, hashed: Any, present: bool) -> None:
        assert self.source is not None
        what = f"{key.describe():.60}"
        if key.source is not None and not key.is_const():
            tr.guards.add(HasKeyFrom(self.source, self._base(), key.source, present, what))
            return
        tr.guards.add(HasKey(self.source, self._base(), tr.stable(hashed), present, what))

    def _lacks(self, tr: Tracer, key: Value) -> bool:
        """Whether ``key`` is a symbolic number that is no key, which is then guarded without making it a constant."""
        if not isinstance(key, SymValue) or not is_another(tr, key, self.entries):
            return False
        self.guard_keys(tr)
        return True

    def has(self, tr: Tracer, key: Value) -> bool:
        if self._lacks(tr, key):
            return False
        hashed = key.hash_key(tr)
        present = hashed in self.entries
        if not self._keys_guarded:
            self._guard_presence(tr, key, hashed, present)
        return present

    def keys(self, tr: Tracer) -> list[Value]:
        self.guard_keys(tr)
        return [key for key, _ in self.entries.values()]

    def values(self, tr: Tracer) -> list[Value]:
        self.guard_keys(tr)
        for hashed, (key, element) in list(self.entries.items()):
            if isinstance(element, Lazy):
                self.entries[hashed] = (key, tr.force(element))
        return [element for _, element in self.entries.values()]

    def truth(self, tr: Tracer) -> bool:
        if not self._keys_guarded and self.source is not None and tr.effects.is_clean(self):
            tr.guards.add(NotEmpty(self.source, bool(self.entries)))
        return bool(self.entries)

    def length(self, tr: Tracer) -> Value:
        self.guard_keys(tr)
        return ConstValue(len(self.entries))

    def getitem(self, tr: Tracer, key: Value) -> Value:
        found = self.lookup(tr, key)
        if found is not None:
            return found
        if self.default_factory is not None:
            element = self.default_factory.call(tr, [], {})
            self.setitem(tr, key, element)
            return element
        raise Raised(tr.make_exception_from_values(KeyError, [key]))

    def contains(self, tr: Tracer, item: Value) -> Value:
        return ConstValue(self.has(tr, item))

    def iter(self, tr: Tracer) -> Value:
        return DictIterator(tr, self, "keys")

    def view_item(self, tr: Tracer, kind: str, hashed: Any) -> Value:
        """What iterating over ``keys()``, ``values()`` or ``items()`` gives for one entry."""
        key, element = self.entries[hashed]
        if kind == "keys":
            return key
        if isinstance(element, Lazy):
            element = tr.force(element)
            self.entries[hashed] = (key, element)
        return element if kind == "values" else TupleValue([key, element])

    def unpack(self, tr: Tracer) -> list[Value]:
        return self.keys(tr)

    # --- writing ---------------------------------------------------------------------------------------------------

    def _change(self, tr: Tracer) -> None:
        self.guard_keys(tr)
        tr.effects.changed(self)

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self._change(tr)
        hashed = key.hash_key(tr)
        kept = self.entries.get(hashed)
        self.version += kept is None
        self.entries[hashed] = (kept[0] if kept else key, value)
        if self.written is not None:
            self.written.add(hashed)

    def delitem(self, tr: Tracer, key: Value) -> None:
        if not self.has(tr, key):
            raise Raised(tr.make_exception_from_values(KeyError, [key]))
        self._change(tr)
        self.version += 1
        hashed = key.hash_key(tr)
        kept, _ = self.entries.pop(hashed)
        if self.written is not None:
            # what is new here is only forgotten
            self.removed.setdefault(hashed, kept)
            self.written.discard(hashed)

    def replace(self, tr: Tracer, entries: dict[Any, tuple[Value, Any]]) -> None:
        self.values(tr)  # the write-back needs every element
        self._change(tr)
        self.version += 1
        self.written = None
        self.entries = entries

    # --- attributes ------------------------------------------------------------------------------------------------

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name == "default_factory" and self.cls is collections.defaultdict:
            return self.default_factory or ConstValue(None)
        if name in self.attrs:
            return self.attrs[name]
        if self.cls is collections.OrderedDict and self.obj is not None and name in self.obj.__dict__:
            raise GraphBreak(OPERATION, f"attribute {name!r} of {self.describe()}")
        return builtin_method(tr, self, name)

    def setattr(self, tr: Tracer, name: str, value: Value) -> None:
        if self.cls is not collections.OrderedDict or self.source is not None or hasattr(self.cls, name):
            super().setattr(tr, name, value)
        self.attrs[name] = value

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self, self.cls, name, args, kwargs)

    def arg(self, tr: Tracer) -> Any:
        return {key.const(tr): self.lookup(tr, key).arg(tr) for key in self.keys(tr)}  # type: ignore[union-attr]

    def fake(self, tr: Tracer) -> Any:
        return {key.const(tr): self.lookup(tr, key).fake(tr) for key in self.keys(tr)}  # type: ignore[union-attr]

    def const(self, tr: Tracer) -> Any:
        plain = {key.const(tr): self.lookup(tr, key).const(tr) for key in self.keys(tr)}  # type: ignore[union-attr]
        if self.cls is dict:
            return plain
        if self.cls is collections.defaultdict:
            return self.cls(self.default_factory.const(tr) if self.default_factory else None, plain)
        made = self.cls(plain)
        for name, value in self.attrs.items():
            setattr(made, name, value.const(tr))
        return made

    def rebuild(self, out: FrameWriter) -> str:
        self.values(out.tr)
        pairs = [f"{out.value(key)}: {out.value(element)}" for key, element in self.entries.values()]
        text = "{" + ", ".join(pairs) + "}"
        if self.cls is dict:
            return text
        if self.cls is collections.defaultdict:
            factory = out.value(self.default_factory) if self.default_factory else "None"
            return f"{out.names.const(self.cls)}({factory}, {text})"
        text = f"{out.names.const(self.cls)}({text})"
        if not self.attrs:
            return text
        variable = out.shell(self, text)
        for name, value in self.attrs.items():
            out.line(f"{variable}.{name} = {out.value(value)}")
        return variable

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        base = out.names.const(self._base())
        entries = [entry for key, entry in self.entries.items() if self.written is None or key in self.written]
        pairs = [(out.value(key), out.value(element)) for key, element in entries]
        writes = [f"{base}.__setitem__({target}, {key}, {element})" for key, element in pairs]
        if self.written is None:
            return [f"{base}.clear({target})", *writes]
        return [*(f"{base}.pop({target}, {out.value(key)}, None)" for key in self.removed.values()), *writes]

    def fill(self, out: FrameWriter, variable: str) -> None:
        base = out.names.const(self._base())
        self.values(out.tr)
        for key, element in self.entries.values():
            out.line(f"{base}.__setitem__({variable}, {out.value(key)}, {out.value(element)})")


# --- methods -------------------------------------------------------------------------------------------------------


def _init(tr: Tracer, owner: DictValue, *args: Value, **kwargs: Value) -> Value:
    if owner.cls is collections.defaultdict:
        raise GraphBreak(C_FUNCTION, "defaultdict.__init__ of an existing dictionary")
    return _update(tr, owner, *args, **kwargs)  # the former entries stay


def _get(tr: Tracer, owner: DictValue, key: Value, default: Value = NONE) -> Value:
    return owner.lookup(tr, key) or default


def _setdefault(tr: Tracer, owner: DictValue, key: Value, default: Value = NONE) -> Value:
    found = owner.lookup(tr, key)
    if found is None:
        owner.setitem(tr, key, default)
        return default
    return found


def _pop(tr: Tracer, owner: DictValue, key: Value, *default: Value, **named: Value) -> Value:
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


def _update(tr: Tracer, owner: DictValue, *others: Value, **kwargs: Value) -> Value:
    if len(others) > 1:
        raise GraphBreak(C_FUNCTION, f"{owner.cls.__name__}.update with {len(others)} arguments")
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
    for position, pair in enumerate(other.unpack(tr)):
        parts = pair.unpack(tr)
        if len(parts) != 2:
            message = f"dictionary update sequence element #{position} has length {len(parts)}; 2 is required"
            raise Raised(tr.make_exception(ValueError, message))
        result.append((parts[0], parts[1]))
    return result


def _clear(tr: Tracer, owner: DictValue) -> Value:
    owner.replace(tr, {})
    return NONE


def _copy(tr: Tracer, owner: DictValue) -> Value:
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


def _reversed(tr: Tracer, owner: DictValue) -> Value:
    return SequenceIterator(owner.keys(tr)[::-1])


DictValue.METHODS = {
    "__init__": _init,
    "get": _get,
    "keys": lambda tr, owner: DictViewValue(owner, "keys"),
    "values": lambda tr, owner: DictViewValue(owner, "values"),
    "items": lambda tr, owner: DictViewValue(owner, "items"),
    "setdefault": _setdefault,
    "pop": _pop,
    "popitem": _popitem,
    "update": _update,
    "clear": _clear,
    "copy": _copy,
    "__copy__": _copy,
    "move_to_end": _move_to_end,
    "__reversed__": _reversed,
    "__ior__": lambda tr, owner, other: (_update(tr, owner, other), owner)[1],
}


class DictIterator(IteratorValue):
    """Over the keys, values or items of a dictionary, whose values may change meanwhile, but not its keys."""

    __slots__ = ("keys", "kind", "owner", "position", "version")

    def __init__(self, tr: Tracer, owner: DictValue, kind: str) -> None:
        owner.guard_keys(tr)
        self.owner = owner
        self.kind = kind
        self.keys = list(owner.entries)
        self.position = 0
        self.version = owner.version
        self.source = None

    def pytype(self) -> type:
        return type(iter(getattr({}, self.kind)()))

    def next(self, tr: Tracer) -> Value | None:
        if self.position < 0:
            return None
        if self.owner.version != self.version:
            self._keys_changed(tr)
        if self.position >= len(self.keys):
            self.position = -1
            return None
        self.position += 1
        return self.owner.view_item(tr, self.kind, self.keys[self.position - 1])

    def _keys_changed(self, tr: Tracer) -> None:
        if len(self.owner.entries) != len(self.keys):
            kind = (
                "OrderedDict mutated"
                if issubclass(self.owner.cls, collections.OrderedDict)
                else "dictionary changed size"
            )
            raise Raised(tr.make_exception(RuntimeError, f"{kind} during iteration"))
        if list(self.owner.entries) != self.keys:
            raise GraphBreak(OPERATION, "a dictionary's keys change during iteration")

    def rebuild(self, out: FrameWriter) -> str:
        """For a loop, the real iterator; elsewhere the remaining items, read on request, because values may still
        change.
        """
        if self.owner.version != self.version:
            raise GraphBreak(NOT_REBUILDABLE, "an iterator over a dictionary whose keys changed")
        if self in out.direct and self.position >= 0:
            return out.late_iterator(f"{out.value(self.owner)}.{self.kind}()", self.position)
        keys = out.container(
            "[", "]", [self.owner.entries[key][0] for key in self.keys[self.position :]] if self.position >= 0 else []
        )
        if self.kind == "keys":
            return f"iter({keys})"
        variable = out.temporary(keys)
        values = f"map({out.value(self.owner)}.__getitem__, {variable})"
        return values if self.kind == "values" else f"zip({variable}, {values})"


_TABLES: tuple[dict, ...] = ({}, collections.OrderedDict())
VIEWS = {type(getattr(made, kind)()): kind for made in _TABLES for kind in ("keys", "values", "items")}


class DictViewValue(Value):
    """``keys()``, ``values()`` or ``items()`` of a dictionary: a live view."""

    __slots__ = ("kind", "owner")

    def __init__(self, owner: DictValue, kind: str, source: Source | None = None) -> None:
        self.owner = owner
        self.kind = kind
        self.source = source

    def pytype(self) -> type:
        made: dict = collections.OrderedDict() if issubclass(self.owner.pytype(), collections.OrderedDict) else {}
        return type(getattr(made, self.kind)())

    def unpack(self, tr: Tracer) -> list[Value]:
        owner = self.owner
        if self.kind == "keys":
            return owner.keys(tr)
        if self.kind == "values":
            return owner.values(tr)
        return [TupleValue([k, v]) for k, v in zip(owner.keys(tr), owner.values(tr), strict=True)]

    def iter(self, tr: Tracer) -> Value:
        return DictIterator(tr, self.owner, self.kind)

    def truth(self, tr: Tracer) -> bool:
        return self.owner.truth(tr)

    def length(self, tr: Tracer) -> Value:
        return self.owner.length(tr)

    def contains(self, tr: Tracer, item: Value) -> Value:
        return self.owner.contains(tr, item) if self.kind == "keys" else super().contains(tr, item)

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self.as_set(tr), set, name, args, kwargs)

    def as_set(self, tr: Tracer) -> SetValue:
        """A set with the view's elements, for set algebra on views."""
        return SetValue(by_hash(tr, self.unpack(tr)))

    def rebuild(self, out: FrameWriter) -> str:
        return f"{out.value(self.owner)}.{self.kind}()"


def wrap_dict(tr: Tracer, obj: dict, source: Source | None, raw: bool = False) -> DictValue:
    """An existing dictionary; with ``raw`` its class may override item access, which must then be bypassed."""
    if source is not None and not raw:
        tr.guards.type_is(source, type(obj))
    entries: dict[Any, tuple[Value, Any]] = {}
    base = collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict
    makes_items = raw or type(obj) is collections.defaultdict  # where there are none, if it is read as usual
    for position, (key, element) in enumerate(list(base.items(obj))):  # one with weak references may shrink
        key_source: Source | None = None
        element_source: Source | None = None
        if source is not None:
            key_source = Element(source, base, position)
            if not tr.is_fixed_key(key):
                element_source = ItemOf(source, base, key_source)
            else:
                element_source = RawItem(source, base, key) if makes_items else Item(source, key)
        key_value = tr.wrap_key(key, key_source)
        hashed = key_value.hash_key(tr)
        check_key(hashed, key, entries, obj, base)
        entries[hashed] = (key_value, Lazy(element, element_source))
    value = DictValue(entries, source, base if raw else type(obj), obj)
    if type(obj) is collections.defaultdict:
        value.default_factory = tr.wrap(obj.default_factory, source and Attr(source, "default_factory"))
    return value
