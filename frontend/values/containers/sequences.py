"""Lists, tuples (including named tuples and sizes), ranges and slices."""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ...breaks import OPERATION, GraphBreak
from ...guards.kinds.containers import Length
from ...guards.sources import Item, Source
from ..base import MISSING, Lazy, Raised, Value
from ..builtin_methods import builtin_method, call_builtin_method
from ..constants import ConstValue
from ..descriptors import bind_class_attribute, class_attribute
from .iteration import IteratorValue, SequenceIterator

if TYPE_CHECKING:
    from ...trace.tracer import FrameWriter, Tracer

NONE, LAST = ConstValue(None), ConstValue(-1)

_FIELD: Any = type(collections.namedtuple("_", "field").field)  # type: ignore[attr-defined]


class SequenceValue(Value):
    """What lists and tuples share: a Python list of values, some of them not yet looked at."""

    __slots__ = ("_items", "_lazy")

    METHODS: ClassVar[dict[str, Any]] = {
        "__add__": lambda tr, owner, other: tr.binary("+", owner, other),
        "__mul__": lambda tr, owner, other: tr.binary("*", owner, other),
        "__rmul__": lambda tr, owner, other: tr.binary("*", owner, other),
    }

    def __init__(self, items: list, source: Source | None = None, lazy: bool = False) -> None:
        self._items = items
        self._lazy = lazy
        self.source = source

    def items(self, tr: Tracer) -> list[Value]:
        """The elements, all of them looked at.  The list is the value's own: change it only through methods."""
        if self._lazy:
            self._items = [tr.force(element) for element in self._items]
            self._lazy = False
        return self._items

    def at(self, tr: Tracer, index: int) -> Value:
        element = self._items[index]
        if self._lazy and isinstance(element, Lazy):
            element = self._items[index] = tr.force(element)
        return element

    def like(self, tr: Tracer, items: list[Value]) -> Value:
        """Another one of its kind."""
        raise NotImplementedError

    def truth(self, tr: Tracer) -> bool:
        return bool(self._items)

    def length(self, tr: Tracer) -> Value:
        return ConstValue(len(self._items))

    def unpack(self, tr: Tracer) -> list[Value]:
        return list(self.items(tr))

    def iter(self, tr: Tracer) -> Value:
        return LiveIterator(self)

    def _index(self, tr: Tracer, key: Value) -> int | slice:
        if isinstance(key, SliceValue):
            return key.const(tr)
        key = tr.as_index(key)
        if not issubclass(key.pytype(), (int, torch.Tensor)) and not hasattr(key.pytype(), "__index__"):
            kind = self.pytype().__name__
            raise Raised(
                tr.make_exception(TypeError, f"{kind} indices must be integers or slices, not {key.pytype().__name__}")
            )
        return operator.index(key.const(tr))

    def getitem(self, tr: Tracer, key: Value) -> Value:
        index = self._index(tr, key)
        if isinstance(index, slice):
            try:
                taken = self.items(tr)[index]
            except (TypeError, ValueError) as error:
                raise Raised(tr.exception(error)) from None
            return self._slice(tr, taken)
        if not -len(self._items) <= index < len(self._items):
            kind = "tuple" if isinstance(self, TupleValue) else "list"
            raise Raised(tr.make_exception(IndexError, f"{kind} index out of range"))
        return self.at(tr, index)

    def _slice(self, tr: Tracer, items: list[Value]) -> Value:
        raise NotImplementedError

    def arg(self, tr: Tracer) -> Any:
        return self._plain([element.arg(tr) for element in self.items(tr)])

    def fake(self, tr: Tracer) -> Any:
        return self._plain([element.fake(tr) for element in self.items(tr)])

    def is_const(self) -> bool:
        return not self._lazy and all(element.is_const() for element in self._items)

    def const(self, tr: Tracer) -> Any:
        return self._plain([element.const(tr) for element in self.items(tr)])

    def _plain(self, items: list) -> Any:
        raise NotImplementedError


class LiveIterator(IteratorValue):
    """Over a list or tuple value; like Python's, it sees what is appended meanwhile."""

    __slots__ = ("owner", "position")

    def __init__(self, owner: SequenceValue) -> None:
        self.owner = owner
        self.position = 0
        self.source = None

    def pytype(self) -> type:
        return type(iter([])) if self.owner.pytype() is list else type(iter(()))

    def next(self, tr: Tracer) -> Value | None:
        if self.position < 0 or self.position >= len(self.owner._items):
            self.position = -1  # what is appended after the end is not seen
            return None
        self.position += 1
        return self.owner.at(tr, self.position - 1)

    def rebuild(self, out: FrameWriter) -> str:
        if self.position < 0:
            return "iter([])" if self.pytype() is type(iter([])) else "iter(())"
        variable = out.temporary(f"iter({out.value(self.owner)})")
        out.late.append(f"{variable}.__setstate__({self.position})")  # the list may still have to grow up to there
        return variable


class ListValue(SequenceValue):
    """A list; one that came from outside is written back after the graph if it was changed."""

    __slots__ = ()

    def pytype(self) -> type:
        return list

    def is_const(self) -> bool:
        return False  # mutable: folding would lose its identity

    def _plain(self, items: list) -> Any:
        return items

    def like(self, tr: Tracer, items: list[Value]) -> Value:
        return ListValue(items)

    _slice = like

    def replace(self, tr: Tracer, items: list[Value]) -> None:
        """Make ``items`` the list's contents."""
        self.items(tr)
        tr.effects.changed(self)
        self._items = items

    def append(self, tr: Tracer, value: Value) -> None:
        tr.effects.changed(self)
        self._items.append(value)

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        index = self._index(tr, key)
        items = list(self.items(tr))
        try:
            if isinstance(index, slice):
                items[index] = value.unpack(tr)
            else:
                items[index] = value
        except (IndexError, ValueError) as error:
            raise Raised(tr.exception(error)) from None
        self.replace(tr, items)

    def delitem(self, tr: Tracer, key: Value) -> None:
        items = list(self.items(tr))
        try:
            del items[self._index(tr, key)]
        except IndexError as error:
            raise Raised(tr.exception(error)) from None
        self.replace(tr, items)

    def getattr(self, tr: Tracer, name: str) -> Value:
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self, list, name, args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        return out.container("[", "]", self.items(out.tr))

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        text = out.container("[", "]", self.items(out.tr))
        return [f"{out.names.const(list)}.__setitem__({target}, slice(None), {text})"]

    def fill(self, out: FrameWriter, variable: str) -> None:
        out.line(f"{out.names.const(list)}.extend({variable}, {out.container('[', ']', self.items(out.tr))})")


# --- methods of lists ----------------------------------------------------------------------------------------------


def _init(tr: Tracer, owner: ListValue, *args: Value, **kwargs: Value) -> Value:
    owner.replace(tr, args[0].unpack(tr) if args else [])
    return NONE


def _append(tr: Tracer, owner: ListValue, value: Value) -> Value:
    owner.append(tr, value)
    return NONE


def _extend(tr: Tracer, owner: ListValue, other: Value) -> Value:
    for value in other.unpack(tr):
        owner.append(tr, value)
    return NONE


def _insert(tr: Tracer, owner: ListValue, index: Value, value: Value) -> Value:
    items = list(owner.items(tr))
    number = index.const(tr)
    if not isinstance(number, int):
        raise GraphBreak(OPERATION, f"list.insert() at {index.describe()}")
    items.insert(number, value)
    owner.replace(tr, items)
    return NONE


def _pop(tr: Tracer, owner: ListValue, index: Value = LAST) -> Value:
    items = list(owner.items(tr))
    try:
        element = items.pop(index.const(tr))
    except (IndexError, TypeError) as error:
        raise Raised(tr.exception(error)) from None
    owner.replace(tr, items)
    return element


def _clear(tr: Tracer, owner: ListValue) -> Value:
    owner.replace(tr, [])
    return NONE


def _reverse(tr: Tracer, owner: ListValue) -> Value:
    owner.replace(tr, owner.items(tr)[::-1])
    return NONE


def _reversed(tr: Tracer, owner: ListValue) -> Value:
    return SequenceIterator(owner.unpack(tr)[::-1])


ListValue.METHODS = {
    **SequenceValue.METHODS,
    "__init__": _init,
    "append": _append,
    "extend": _extend,
    "insert": _insert,
    "pop": _pop,
    "clear": _clear,
    "copy": lambda tr, owner: ListValue(owner.unpack(tr)),
    "reverse": _reverse,
    "__reversed__": _reversed,
    "__iadd__": lambda tr, owner, other: (_extend(tr, owner, other), owner)[1],
}


class ExistingListValue(ListValue):
    """A list from outside.  Its length is guarded when something depends on it; appending does not.

    ``appended`` is what was appended before that, or None afterwards.  An element that is replaced stays unread.
    """

    __slots__ = ("_contents", "_guard_length", "_length", "_replaced", "_written", "appended")

    def __init__(self, items: list, source: Source, guard_length: Callable[[], None]) -> None:
        self._contents = items
        self._length = len(items)
        self._lazy = True
        self._guard_length = guard_length
        self.appended: list[Value] | None = []
        self.source = source
        self._written: set[int] = set()
        self._replaced = False  # as a whole

    @property
    def _items(self) -> list:
        if self.appended is not None:
            self._guard_length()
            self._contents.extend(self.appended)
            self.appended = None
        return self._contents

    @_items.setter
    def _items(self, items: list) -> None:
        self._contents = items

    def append(self, tr: Tracer, value: Value) -> None:
        if self.appended is None:
            super().append(tr, value)
        else:
            tr.effects.changed(self)
            self.appended.append(value)

    def replace(self, tr: Tracer, items: list[Value]) -> None:
        super().replace(tr, items)
        self._replaced = True

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        index = self._index(tr, key)
        if self._replaced or isinstance(index, slice) or not -len(self._items) <= index < len(self._items):
            super().setitem(tr, key, value)
            return
        tr.effects.changed(self)
        self._items[index] = value
        self._written.add(index % len(self._items))

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        if self._replaced:
            return super().write_back(out, target)
        base = out.names.const(list)
        new = self._contents[self._length :] if self.appended is None else self.appended
        writes = [
            f"{base}.__setitem__({target}, {index}, {out.value(self._contents[index])})"
            for index in sorted(self._written)
            if index < self._length
        ]
        return [*writes, *([f"{base}.extend({target}, {out.container('[', ']', new)})"] if new else [])]


class TupleValue(SequenceValue):
    """A tuple, a ``torch.Size`` or a namedtuple (``cls`` says which)."""

    __slots__ = ("cls",)

    def __init__(self, items: list, source: Source | None = None, cls: type = tuple, lazy: bool = False) -> None:
        super().__init__(items, source, lazy)
        self.cls = cls

    def pytype(self) -> type:
        return self.cls

    def _plain(self, items: list) -> Any:
        if self.cls is torch.Size:
            return tuple(items)  # torch.Size would specialize symbolic sizes; operators take tuples
        if self.cls is tuple:
            return tuple(items)
        return self.cls(*items) if hasattr(self.cls, "_fields") else self.cls(items)

    def const(self, tr: Tracer) -> Any:
        plain = super().const(tr)
        return torch.Size(plain) if self.cls is torch.Size else plain

    def _slice(self, tr: Tracer, items: list[Value]) -> Value:
        return TupleValue(items, cls=torch.Size if self.cls is torch.Size else tuple)

    def hash_key(self, tr: Tracer) -> Any:
        return tuple(element.hash_key(tr) for element in self.items(tr))

    def setitem(self, tr: Tracer, key: Value, value: Value) -> None:
        message = f"{self.cls.__name__!r} object does not support item assignment"
        raise Raised(tr.make_exception(TypeError, message))

    def delitem(self, tr: Tracer, key: Value) -> None:
        raise Raised(tr.make_exception(TypeError, f"{self.cls.__name__!r} object doesn't support item deletion"))

    def getattr(self, tr: Tracer, name: str) -> Value:
        fields = getattr(self.cls, "_fields", None) or _structseq_fields(self.cls)
        if name in fields and (raw := tr.static_lookup(self.cls, name)) is not MISSING:
            tr.guard_lookup(self.cls, name, raw)
            if not isinstance(raw, (_FIELD, types.MemberDescriptorType)):
                return bind_class_attribute(tr, self, self.cls, name, raw)
        if name in fields:
            return self.at(tr, fields.index(name))
        if self.cls not in (tuple, torch.Size):
            found = class_attribute(tr, self, self.cls, name)
            if found is not None:
                return found
            tr.guard_lookup(self.cls, name, MISSING)
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.cls is torch.Size and name == "numel":
            return tr.fold_product(self.items(tr))
        if self.cls not in (tuple, torch.Size) and not hasattr(tuple, name):
            return self.getattr(tr, name).call(tr, args, kwargs)
        return call_builtin_method(tr, self, tuple, name, args, kwargs)

    def rebuild(self, out: FrameWriter) -> str:
        items = self.items(out.tr)
        if self.cls is tuple:
            return out.container("(", ",)" if len(items) == 1 else ")", items)
        inner = out.container("(", ",)" if len(items) == 1 else ")", items)
        cls = out.names.const(self.cls)
        return f"{cls}._make({inner})" if hasattr(self.cls, "_make") else f"{cls}({inner})"


def _structseq_fields(cls: type) -> list[str]:
    """Field names of a ``torch.return_types`` class, in order."""
    if cls.__module__ != "torch.return_types":
        return []
    return list(cls.__match_args__)  # type: ignore[attr-defined]


class RangeValue(Value):
    __slots__ = ("value",)

    def __init__(self, value: range, source: Source | None = None) -> None:
        self.value = value
        self.source = source

    def pytype(self) -> type:
        return range

    def is_const(self) -> bool:
        return True

    def const(self, tr: Tracer) -> Any:
        return self.value

    def truth(self, tr: Tracer) -> bool:
        return bool(self.value)

    def length(self, tr: Tracer) -> Value:
        return tr.fold(len, [self.value], {})

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return tr.lift(getattr(self.value, name))
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return call_builtin_method(tr, self, range, name, args, kwargs)

    def getitem(self, tr: Tracer, key: Value) -> Value:
        return tr.fold(operator.getitem, [self.value, tr.as_index(key).const(tr)], {})

    def contains(self, tr: Tracer, item: Value) -> Value:
        return ConstValue(item.const(tr) in self.value)

    def iter(self, tr: Tracer) -> Value:
        return RangeIterator(self.value)

    def hash_key(self, tr: Tracer) -> Any:
        return self.value

    def rebuild(self, out: FrameWriter) -> str:
        return repr(self.value)


class RangeIterator(IteratorValue):
    __slots__ = ("position", "value")

    def __init__(self, value: range) -> None:
        self.value = value
        self.position = 0
        self.source = None

    def pytype(self) -> type:
        return type(iter(range(0)))

    def next(self, tr: Tracer) -> Value | None:
        if self.position >= len(self.value):
            return None
        self.position += 1
        return ConstValue(self.value[self.position - 1])

    def rebuild(self, out: FrameWriter) -> str:
        return f"iter({self.value[self.position :]!r})"


class SliceValue(Value):
    """A slice; its bounds may be symbolic."""

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Value, stop: Value, step: Value, source: Source | None = None) -> None:
        self.start, self.stop, self.step = start, stop, step
        self.source = source

    def pytype(self) -> type:
        return slice

    def is_const(self) -> bool:
        return self.start.is_const() and self.stop.is_const() and self.step.is_const()

    def const(self, tr: Tracer) -> slice:
        return slice(*(tr.as_index(each).const(tr) for each in (self.start, self.stop, self.step)))

    def getattr(self, tr: Tracer, name: str) -> Value:
        if name in ("start", "stop", "step"):
            return getattr(self, name)
        return builtin_method(tr, self, name)

    def call_method(self, tr: Tracer, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "indices":
            return tr.fold(self.const(tr).indices, [args[0].const(tr)], {})
        return super().call_method(tr, name, args, kwargs)

    def truth(self, tr: Tracer) -> bool:
        return True

    def arg(self, tr: Tracer) -> Any:
        return slice(self.start.arg(tr), self.stop.arg(tr), self.step.arg(tr))

    def fake(self, tr: Tracer) -> Any:
        return slice(self.start.fake(tr), self.stop.fake(tr), self.step.fake(tr))

    def rebuild(self, out: FrameWriter) -> str:
        return f"slice({out.value(self.start)}, {out.value(self.stop)}, {out.value(self.step)})"


def wrap_list(tr: Tracer, obj: list, source: Source | None) -> ListValue:
    """An existing list: its elements are guarded when they are read."""
    items = [Lazy(x, Item(source, i) if source else None) for i, x in enumerate(obj)]
    if source is None:
        return ListValue(items, lazy=True)
    tr.guards.type_is(source, type(obj))
    return ExistingListValue(items, source, lambda: _guard_length(tr, obj, source))


def wrap_tuple(tr: Tracer, obj: tuple, source: Source | None) -> TupleValue:
    _guard_length(tr, obj, source)
    items = [Lazy(x, Item(source, i) if source else None) for i, x in enumerate(obj)]
    return TupleValue(items, source, type(obj), lazy=True)


def _guard_length(tr: Tracer, obj: Any, source: Source | None) -> None:
    if source is not None:
        tr.guards.type_is(source, type(obj))
        tr.guards.add(Length(source, len(obj)))
