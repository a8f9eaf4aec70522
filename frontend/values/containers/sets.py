"""Sets, in the iteration order of the real sets.

That order depends on a set's history.  Each set of constants therefore has a real set beside it, which undergoes the
same operations.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...breaks import C_FUNCTION, NOT_REBUILDABLE, OPERATION, GraphBreak
from ...guards.kinds.containers import KeysAt, RawLength, SameElements, SetOrder, faces
from ...guards.sources import Element, Elements, Source
from ..base import MISSING, Raised, Value
from ..builtin_methods import builtin_method, call_builtin_method
from ..constants import ConstValue, is_another
from .iteration import SequenceIterator
from .keys import check_key

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

NONE = ConstValue(None)
_UNIQUE = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)  # guarded by identity anywhere
_ALGEBRA = ("union", "intersection", "difference", "symmetric_difference")


class SetValue(Value):
    """A set or frozenset (``cls``); ``entries`` maps hash keys to values.

    ``mirror`` is a real set of the hash keys with the history of the program's set, None if that is not known.
    """

    __slots__ = ("cls", "entries", "mirror", "obj")

    def __init__(
        self,
        entries: dict[Any, Value],
        source: Source | None = None,
        cls: type = set,
        obj: Any = None,
        mirror: Any = MISSING,
    ) -> None:
        self.entries = entries
        self.source = source
        self.cls: Any = cls
        self.obj = obj  # the real set, for one from outside
        if mirror is MISSING:  # the elements came one after the other
            mirror = cls(list(entries)) if _is_plain(entries) else None
        self.mirror = mirror

    def pytype(self) -> type:
        return self.cls

    def truth(self, tr: Tracer) -> bool:
        return bool(self.entries)

    def length(self, tr: Tracer) -> Value:
        return ConstValue(len(self.entries))

    def contains(self, tr: Tracer, item: Value) -> Value:
        return ConstValue(not is_another(tr, item, self.entries) and item.hash_key(tr) in self.entries)

    def iter(self, tr: Tracer) -> Value:
        return SetIterator(self, self.unpack(tr))

    def unpack(self, tr: Tracer) -> list[Value]:
        if len(self.entries) < 2:
            return list(self.entries.values())
        order = self.mirror
        if order is None and self.obj is not None and tr.effects.is_clean(self) and _is_plain(self.entries):
            assert self.source is not None
            order = tuple(_base(self.cls).__iter__(self.obj))
            tr.guards.add(SetOrder(self.source, _base(self.cls), order))
        if order is None:
            raise GraphBreak(OPERATION, "the order of a set depends on addresses, or on an unknown history")
        return [self.entries[key] for key in order]

    def combine(self, name: str, others: list[Value]) -> SetValue | None:
        """The new set that method ``name`` makes of known sets, by calling it; None if one of them is not known."""
        sets = [other for other in others if isinstance(other, SetValue) and other.mirror is not None]
        if self.mirror is None or len(sets) < len(others):
            return None
        made = getattr(self.mirror, name)(*(other.mirror for other in sets))
        known = {key: value for each in (*sets[::-1], self) for key, value in each.entries.items()}
        return SetValue({key: known[key] for key in made}, cls=self.cls, mirror=made)

    def replace(self, tr: Tracer, entries: dict[Any, Value], mirror: Any = None) -> None:
        """Make ``entries`` the contents; ``mirror`` is a real set to which the same was done, if there is one."""
        tr.effects.changed(self)
        self.entries = entries
        self.mirror = mirror

    def hash_key(self, tr: Tracer) -> Any:
        if self.cls is not frozenset:
            raise Raised(tr.make_exception(TypeError, f"unhashable type: '{self.cls.__name__}'"))
        return frozenset(self.entries)

    def is_const(self) -> bool:
        return self.cls is frozenset and _is_plain(self.entries)

    def const(self, tr: Tracer) -> Any:
        return self.cls(value.const(tr) for value in self.entries.values())

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in _ALGEBRA and (found := self.combine(name, args)) is not None:
            return found
        return call_builtin_method(tr, self, self.cls, name, args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return f"{self.cls.__name__}({out.container('[', ']', self.in_order_of_making())})"

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        text = out.container("[", "]", list(self.entries.values()))
        return [f"{target}.clear()", f"{target}.update({text})"]

    def fill(self, out: FrameWriter, variable: str) -> None:
        items = out.container("[", "]", list(self.entries.values()))
        out.line(f"{out.names.const(set)}.update({variable}, {items})")

    def in_order_of_making(self) -> list[Value]:
        """The elements in an order in which to store them, so that a new set gives them as the program's does."""
        if self.mirror is None:
            return list(self.entries.values())
        wanted = list(self.mirror)
        for order in (list(self.entries), wanted, wanted[::-1]):
            if list(self.cls(order)) == wanted:
                return [self.entries[key] for key in order]
        raise GraphBreak(NOT_REBUILDABLE, "a set whose order depends on its history")


class SetIterator(SequenceIterator):
    """Over a set, whose size must not change meanwhile."""

    __slots__ = ("owner", "size")

    def __init__(self, owner: SetValue, items: list[Value]) -> None:
        super().__init__(items)
        self.owner = owner
        self.size = len(items)

    def pytype(self) -> type:
        return type(iter(set()))

    def next(self, tr: Tracer) -> Value | None:
        if self.size < 0:
            return None
        if len(self.owner.entries) != self.size:
            self.size = -1
            raise Raised(tr.make_exception(RuntimeError, "Set changed size during iteration"))
        element = super().next(tr)
        if element is None:
            self.size = -1
        elif element not in self.owner.entries.values():
            raise GraphBreak(OPERATION, "a set's elements change during iteration")
        return element

    def rebuild(self, out: FrameWriter) -> str:
        if self.size >= 0 and len(self.owner.entries) != self.size:
            raise GraphBreak(NOT_REBUILDABLE, "an iterator over a set that changed")
        if self in out.direct and self.size >= 0:
            return out.late_iterator(out.value(self.owner), self.position)
        return super().rebuild(out)


# --- methods -------------------------------------------------------------------------------------------------------


def _init(tr: Tracer, owner: SetValue, *args: Value, **kwargs: Value) -> Value:
    if owner.cls is set:
        owner.replace(tr, {})
        _update(tr, owner, *args)
    return NONE


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


def _pop(tr: Tracer, owner: SetValue) -> Value:
    entries = dict(owner.entries)
    if not entries:
        raise Raised(tr.make_exception(KeyError, "pop from an empty set"))
    if owner.mirror is None and len(entries) > 1:
        raise GraphBreak(C_FUNCTION, "set.pop: which element it takes depends on the set's history")
    taken = entries.pop(next(iter(entries)) if owner.mirror is None else owner.mirror.pop())
    owner.replace(tr, entries, owner.mirror)
    return taken


def _update(tr: Tracer, owner: SetValue, *others: Value) -> Value:
    entries, mirror = dict(owner.entries), owner.mirror
    for other in others:
        added = by_hash(tr, other.unpack(tr))
        entries.update({key: value for key, value in added.items() if key not in entries})
        real: Any = (
            other.mirror if isinstance(other, SetValue) else dict(added) if other.pytype() is dict else list(added)
        )
        if mirror is None or real is None or not all(value.is_const() for value in added.values()):
            mirror = None
        else:
            mirror.update(real)  # from sets and dictionaries in another way than from the rest
    owner.replace(tr, entries, mirror)
    return NONE


def _clear(tr: Tracer, owner: SetValue) -> Value:
    owner.replace(tr, {}, _mirrored(owner, lambda real: real.clear()))
    return NONE


def _copy(tr: Tracer, owner: SetValue) -> Value:
    if owner.cls is frozenset:
        return owner
    return SetValue(dict(owner.entries), cls=owner.cls, mirror=owner.mirror and owner.mirror.copy())


SetValue.METHODS = {
    "__init__": _init,
    "add": _add,
    "discard": _discard,
    "remove": _remove,
    "pop": _pop,
    "update": _update,
    "clear": _clear,
    "copy": _copy,
}


def _base(cls: type) -> Any:
    return set if issubclass(cls, set) else frozenset


def _is_plain(entries: dict[Any, Value]) -> bool:
    """Whether the hash keys are the very objects that the program has as elements."""
    return all(value.is_const() for value in entries.values())


def by_hash(tr: Tracer, elements: list[Value]) -> dict[Any, Value]:
    """The entries of a set of these elements: of those that are equal, the first."""
    entries: dict[Any, Value] = {}
    for element in elements:
        entries.setdefault(element.hash_key(tr), element)
    return entries


def make_set(tr: Tracer, given: Value, cls: type) -> SetValue:
    """``set(given)``; what comes from a set or a dictionary is stored in another order than the rest."""
    if isinstance(given, SetValue):
        if cls is frozenset and given.cls is frozenset:
            return given
        real = given.mirror
        if real is None and given.obj is not None and tr.effects.is_clean(given) and _is_plain(given.entries):
            given.unpack(tr)  # guards the order
            real = given.obj
        return SetValue(dict(given.entries), cls=cls, mirror=None if real is None else cls(real))
    entries = by_hash(tr, given.unpack(tr))
    kept = dict(entries) if issubclass(given.pytype(), dict) else list(entries)
    return SetValue(entries, cls=cls, mirror=cls(kept) if _is_plain(entries) else None)


def wrap_set(tr: Tracer, obj: Any, source: Source | None, raw: bool = False) -> SetValue:
    """An existing set or frozenset, guarded element by element; with ``raw`` methods of its class are bypassed."""
    base = _base(type(obj))
    elements = list(base.__iter__(obj))
    fixed = tuple(i for i, element in enumerate(elements) if tr.is_fixed_key(element) or isinstance(element, _UNIQUE))
    if source is not None:
        tr.guards.type_is(source, type(obj))
        if len(fixed) == len(elements):
            tr.guards.add(SameElements(source, base, frozenset(elements)))
        else:
            tr.guards.add(RawLength(source, base, len(elements)))
            if fixed:
                tr.guards.add(KeysAt(Elements(source, base), fixed, faces(elements, fixed)))
    entries: dict[Any, Value] = {}
    for position, element in enumerate(elements):
        # an object is read from where it is, so that it is known for the one that the program finds elsewhere
        path = None if source is None or position in fixed else Element(source, base, position)
        value = tr.wrap_key(element, path)
        hashed = value.hash_key(tr)
        check_key(hashed, element, entries, obj, base)
        entries[hashed] = value
    mirror = base.copy(obj) if source is None and _is_plain(entries) else None
    return SetValue(entries, source, base if raw else type(obj), obj, mirror)
