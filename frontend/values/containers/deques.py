"""``collections.deque``: a sequence of values that drops items from the opposite end when it is full."""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Any

from ...breaks import C_FUNCTION, NOT_REBUILDABLE, GraphBreak
from ...guards.kinds.containers import Length
from ...guards.sources import Attr, Item, Source
from ..base import Lazy, Raised, Value
from ..builtin_methods import builtin_method, call_builtin_method
from ..constants import ConstValue
from .iteration import SequenceIterator
from .sequences import SequenceValue, SliceValue

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

NONE, ONE = ConstValue(None), ConstValue(1)


class DequeValue(SequenceValue):
    """A deque; one that came from outside is written back after the graph if it was changed."""

    __slots__ = ("maxlen", "version")

    def __init__(self, items: list, maxlen: int | None, source: Source | None = None, lazy: bool = False) -> None:
        super().__init__(items, source, lazy)
        self.maxlen = maxlen
        self.version = 0  # counts what an iterator of the deque must not miss
        if maxlen is not None and len(items) > maxlen:
            self._items = items[len(items) - maxlen :]

    def pytype(self) -> type:
        return collections.deque

    def is_const(self) -> bool:
        return False

    def arg(self, tr: Tracer) -> Any:
        raise self.not_understood(f"{self.describe()} as an argument of an operator")

    fake = arg

    def _plain(self, items: list) -> Any:
        return collections.deque(items, self.maxlen)

    def like(self, tr: Tracer, items: list[Value]) -> Value:
        return DequeValue(items, self.maxlen)

    def replace(self, tr: Tracer, items: list[Value], keep_left: bool = False) -> None:
        """Make ``items`` the contents; what is too much falls off the left, or with ``keep_left`` off the right."""
        self.items(tr)
        tr.effects.changed(self)
        self.version += 1
        if self.maxlen is not None and len(items) > self.maxlen:
            items = items[: self.maxlen] if keep_left else items[len(items) - self.maxlen :]
        self._items = items

    def getitem(self, tr: Tracer, key: Value) -> Value:
        if isinstance(key, SliceValue):
            raise Raised(tr.make_exception(TypeError, "sequence index must be integer, not 'slice'"))
        if not -len(self._items) <= (index := self._index(tr, key)) < len(self._items):  # type: ignore[operator]
            raise Raised(tr.make_exception(IndexError, "deque index out of range"))
        return self.at(tr, index)  # type: ignore[arg-type]

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        self.getitem(tr, key)
        self.items(tr)
        tr.effects.changed(self)
        self._items[key.const(tr)] = value

    def delitem(self, tr: Tracer, key: Value) -> None:
        self.getitem(tr, key)
        items = list(self.items(tr))
        del items[key.const(tr)]
        self.replace(tr, items)

    def iter(self, tr: Tracer) -> Value:
        return DequeIterator(self, self.unpack(tr))

    def getattr(self, tr: Tracer, name: str) -> Value:
        return ConstValue(self.maxlen) if name == "maxlen" else builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self, collections.deque, name, args, kwargs)

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        text = out.container("[", "]", self.items(out.tr))
        return [f"{target}.clear()", f"{target}.extend({text})"]

    def rebuild(self, out: FrameWriter) -> str:
        items = out.container("[", "]", self.items(out.tr))
        return f"{out.names.const(collections.deque)}({items}, {self.maxlen})"


class DequeIterator(SequenceIterator):
    """Over a deque, which must not change meanwhile."""

    __slots__ = ("owner", "version")

    def __init__(self, owner: DequeValue, items: list[Value]) -> None:
        super().__init__(items)
        self.owner = owner
        self.version = owner.version

    def pytype(self) -> type:
        return type(iter(collections.deque()))

    def next(self, tr: Tracer) -> Value | None:
        if self.owner.version != self.version:
            raise Raised(tr.make_exception(RuntimeError, "deque mutated during iteration"))
        return super().next(tr)

    def rebuild(self, out: FrameWriter) -> str:
        if self.owner.version != self.version:
            raise GraphBreak(NOT_REBUILDABLE, "an iterator over a deque that changed")
        return out.late_iterator(out.value(self.owner), self.position) if self in out.direct else super().rebuild(out)


def _init(tr: Tracer, owner: DequeValue, iterable: Value | None = None, maxlen: Value = NONE) -> Value:
    if maxlen.const(tr) != owner.maxlen:
        raise GraphBreak(C_FUNCTION, "deque.__init__ of a deque with another maxlen")
    owner.replace(tr, [])
    return NONE if iterable is None else _extend(tr, owner, iterable)


def _append(tr: Tracer, owner: DequeValue, value: Value) -> Value:
    owner.replace(tr, [*owner.items(tr), value])
    return NONE


def _appendleft(tr: Tracer, owner: DequeValue, value: Value) -> Value:
    owner.replace(tr, [value, *owner.items(tr)], keep_left=True)
    return NONE


def _extend(tr: Tracer, owner: DequeValue, other: Value) -> Value:
    owner.replace(tr, [*owner.items(tr), *other.unpack(tr)])
    return NONE


def _extendleft(tr: Tracer, owner: DequeValue, other: Value) -> Value:
    owner.replace(tr, [*other.unpack(tr)[::-1], *owner.items(tr)], keep_left=True)
    return NONE


def _take(tr: Tracer, owner: DequeValue, index: int) -> Value:
    items = list(owner.items(tr))
    if not items:
        raise Raised(tr.make_exception(IndexError, "pop from an empty deque"))
    element = items.pop(index)
    owner.replace(tr, items)
    return element


def _rotate(tr: Tracer, owner: DequeValue, count: Value = ONE) -> Value:
    moved = collections.deque(owner.items(tr))
    moved.rotate(count.const(tr))
    owner.replace(tr, list(moved))
    return NONE


def _clear(tr: Tracer, owner: DequeValue) -> Value:
    owner.replace(tr, [])
    return NONE


def _reverse(tr: Tracer, owner: DequeValue) -> Value:
    owner.replace(tr, owner.items(tr)[::-1])
    return NONE


DequeValue.METHODS = {
    **SequenceValue.METHODS,
    "__init__": _init,
    "append": _append,
    "appendleft": _appendleft,
    "extend": _extend,
    "extendleft": _extendleft,
    "pop": lambda tr, owner: _take(tr, owner, -1),
    "popleft": lambda tr, owner: _take(tr, owner, 0),
    "rotate": _rotate,
    "clear": _clear,
    "reverse": _reverse,
    "copy": lambda tr, owner: DequeValue(owner.unpack(tr), owner.maxlen),
    "__copy__": lambda tr, owner: DequeValue(owner.unpack(tr), owner.maxlen),
    "__iadd__": lambda tr, owner, other: (_extend(tr, owner, other), owner)[1],
    "__reversed__": lambda tr, owner: DequeIterator(owner, owner.unpack(tr)[::-1]),
}


def wrap_deque(tr: Tracer, obj: collections.deque, source: Source | None) -> DequeValue:
    """An existing deque: its length is guarded now, its elements when they are read."""
    if source is not None:
        tr.guards.type_is(source, collections.deque)
        tr.guards.add(Length(source, len(obj)))
        tr.guards.equals(Attr(source, "maxlen"), obj.maxlen)
    items = [Lazy(x, Item(source, i) if source else None) for i, x in enumerate(obj)]
    return DequeValue(items, obj.maxlen, source, lazy=True)
