"""Iterators over iterators, and iterators from outside; each container has its own iterator beside it.

Those that can outlive a graph break know how to rebuild themselves at the position that they have reached.
"""

from __future__ import annotations

import gc
import itertools
import operator
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...breaks import NOT_REBUILDABLE, OPERATION, GraphBreak
from ...guards.kinds.iterators import IsStrict, ItemsLeft, MoreLeft, StandsAt
from ...guards.sources import Item, IteratedDict, IteratorArguments, Upcoming
from ..base import Raised, Value
from ..constants import ConstValue
from .generators import wrap_generator
from .iteration import IteratorValue, SequenceIterator
from .mappings import DictIterator
from .sequences import LiveIterator, RangeIterator, TupleValue

if TYPE_CHECKING:
    from ...guards.sources import Source
    from ...trace.tracer import FrameWriter, Tracer


class EnumerateIterator(IteratorValue):
    __slots__ = ("count", "inner")

    def __init__(self, inner: Value, count: Value) -> None:
        self.inner = inner
        self.count = count
        self.source = None

    def pytype(self) -> type:
        return enumerate

    def next(self, tr: Tracer) -> Value | None:
        element = self.inner.next(tr)
        if element is None:
            return None
        count, self.count = self.count, tr.binary("+", self.count, ConstValue(1))
        return TupleValue([count, element])

    def rebuild(self, out: FrameWriter) -> str:
        return f"enumerate({out.value(self.inner)}, {out.value(self.count)})"


class ZipIterator(IteratorValue):
    __slots__ = ("inners", "strict")

    def __init__(self, inners: list[Value], strict: bool) -> None:
        self.inners = inners
        self.strict = strict
        self.source = None

    def pytype(self) -> type:
        return zip

    def next(self, tr: Tracer) -> Value | None:
        row: list[Value] = []
        for position, inner in enumerate(self.inners):
            element = inner.next(tr)
            if element is None:
                if self.strict:
                    self._check_lengths(tr, position)
                return None
            row.append(element)
        return TupleValue(row) if row else None

    def _check_lengths(self, tr: Tracer, position: int) -> None:
        if position:
            before = "argument 1" if position == 1 else f"arguments 1-{position}"
            raise Raised(tr.make_exception(ValueError, f"zip() argument {position + 1} is shorter than {before}"))
        for later, inner in enumerate(self.inners[1:], 2):
            if inner.next(tr) is not None:
                before = "argument 1" if later == 2 else f"arguments 1-{later - 1}"
                raise Raised(tr.make_exception(ValueError, f"zip() argument {later} is longer than {before}"))

    def rebuild(self, out: FrameWriter) -> str:
        inner = ", ".join(map(out.value, self.inners))
        return f"zip({inner}, strict=True)" if self.strict else f"zip({inner})"


class MapIterator(IteratorValue):
    __slots__ = ("function", "inners")

    def __init__(self, function: Value, inners: list[Value]) -> None:
        self.function = function
        self.inners = inners
        self.source = None

    def pytype(self) -> type:
        return map

    def next(self, tr: Tracer) -> Value | None:
        args = []
        for inner in self.inners:
            element = inner.next(tr)
            if element is None:
                return None
            args.append(element)
        try:
            return self.function.call(tr, args, {})
        except Raised as raised:  # for the consumer of the map, it has ended
            if issubclass(raised.value.pytype(), StopIteration):
                return None
            raise

    def rebuild(self, out: FrameWriter) -> str:
        return f"map({', '.join(map(out.value, [self.function, *self.inners]))})"


class CountIterator(IteratorValue):
    """``itertools.count``, which has no end and so cannot be a generator that is drained."""

    __slots__ = ("step", "value")

    def __init__(self, value: Value, step: Value) -> None:
        self.value = value
        self.step = step
        self.source = None

    def pytype(self) -> type:
        return itertools.count

    def next(self, tr: Tracer) -> Value | None:
        current = self.value
        self.value = tr.binary("+", current, self.step)
        return current

    def rebuild(self, out: FrameWriter) -> str:
        count = out.names.const(itertools.count)
        return f"{count}({out.value(self.value)}, {out.value(self.step)})"


class ExistingIterator(IteratorValue):
    """A builtin iterator made outside, such as the one of a ``for`` loop that a graph break interrupted.

    ``mirror`` iterates over values as the real one would from where it stands; what was taken is replayed on the real
    one after the graph.
    """

    __slots__ = ("exhausted", "inner", "mirror", "obj", "taken")

    def __init__(self, obj: Any, mirror: Value, source: Any) -> None:
        self.obj = obj
        self.mirror = mirror
        self.source = source
        self.taken = 0
        self.exhausted = False
        self.inner = False  # another iterator takes from this one, and replaying that one advances both

    def pytype(self) -> type:
        return type(self.obj)

    def real(self) -> Any:
        return self.obj

    def next(self, tr: Tracer) -> Value | None:
        if self.inner and tr.frame is not None and tr.frame.stack and tr.frame.stack[-1] is self:
            raise GraphBreak(OPERATION, "an iterator that another iterator also consumes")
        if not self.inner:
            tr.effects.changed(self)
        element = self.mirror.next(tr)
        if element is None:
            self.exhausted = True
        else:
            self.taken += 1
        return element

    def write_back(self, out: FrameWriter, target: str) -> list[str]:
        return [f"{out.names.const(advance)}({target}, {self.taken}, {self.exhausted})"]


class MovedIterator(IteratorValue):
    """What an iterator over ``contents`` has left, which stands elsewhere from call to call."""

    __slots__ = ("contents", "of", "taken")

    def __init__(self, of: Any, contents: Any, source: Source) -> None:
        self.of = of
        self.contents = contents
        self.taken = 0
        self.source = source

    def pytype(self) -> type:
        return type(self.of)

    def next(self, tr: Tracer) -> Value | None:
        assert self.source is not None
        known = tr.memo_of(self.contents)
        if known is not None and not tr.effects.is_clean(known):
            raise GraphBreak(OPERATION, "next() of an iterator over what the graph has changed")
        left, source = operator.length_hint(self.of), self.source
        assert source is not None
        if self.taken >= left:
            tr.guards.add(ItemsLeft(source, left))
            return None
        tr.guards.add(MoreLeft(source, self.taken))
        self.taken += 1
        return tr.wrap(Upcoming.of(self.of, self.taken - 1), Upcoming(source, self.taken - 1))


def advance(iterator: Iterator, count: int, exhausted: bool) -> None:
    """Take from a real iterator what the trace took from its mirror."""
    for _ in itertools.islice(iterator, count):
        pass
    if exhausted:
        next(iterator, None)


def wrap_iterator(tr: Tracer, obj: Any, source: Any) -> Value | None:
    """The value of an existing builtin iterator; None for a class whose state cannot be read.

    The state comes from ``__reduce__``: the function that makes such an iterator, its arguments, and the position.
    """
    cls = type(obj)
    if cls is types.GeneratorType:
        return wrap_generator(tr, obj, source)
    if source is not None and cls in _OVER_DICTS:
        return _wrap_dict_iterator(tr, obj, source)
    if cls not in _READABLE or source is None:
        return None
    _, args, *position = obj.__reduce__()
    tr.guards.type_is(source, cls)
    start = position[0] if position and position[0] is not None else 0
    arguments = IteratorArguments(source)
    if cls in (enumerate, zip, map):
        inners = []
        for index, arg in enumerate(args):
            if cls is map and index == 0:
                continue
            if cls is enumerate and index == 1:
                continue
            inner = tr.wrap(arg, Item(arguments, index))
            if isinstance(inner, ExistingIterator):
                inner.inner = True
            inners.append(inner)
        if cls is enumerate:
            return ExistingIterator(obj, EnumerateIterator(inners[0], tr.wrap(args[1], Item(arguments, 1))), source)
        if cls is map:
            return ExistingIterator(obj, MapIterator(tr.wrap(args[0], Item(arguments, 0)), inners), source)
        strict = bool(position and position[0])
        tr.guards.add(IsStrict(source, strict))
        return ExistingIterator(obj, ZipIterator(inners, strict), source)
    contents = args[0]
    place = contents[start:] if isinstance(contents, range) else start
    if type(contents) in _SUBSCRIPTED and tr.dims.has_moved(place, source):
        return ExistingIterator(obj, MovedIterator(obj, contents, source), source)
    tr.guards.add(StandsAt(source, position[0] if position else None))
    if isinstance(contents, range):
        tr.guards.equals(Item(arguments, 0), contents)
        return ExistingIterator(obj, RangeIterator(contents[start:]), source)
    if type(contents) in (str, bytes):
        tr.guards.equals(Item(arguments, 0), contents)
        return ExistingIterator(obj, SequenceIterator(list(map(ConstValue, contents[start:]))), source)
    if type(contents) not in (list, tuple):
        return None
    owner: Any = tr.wrap(contents, Item(arguments, 0))
    mirror = LiveIterator(owner)
    mirror.position = start
    return ExistingIterator(obj, mirror, source)


def _wrap_dict_iterator(tr: Tracer, obj: Any, source: Any) -> Value | None:
    """An iterator over a dictionary reports how much is left; the garbage collector knows the dictionary."""
    tr.guards.type_is(source, type(obj))
    left = operator.length_hint(obj)
    referents = gc.get_referents(obj)
    if not left or not referents or not isinstance(referents[0], dict):
        tr.guards.add(ItemsLeft(source, left))
        return None  # at its end, or the dictionary has changed
    if tr.dims.has_moved(len(referents[0]) - left, source):
        return ExistingIterator(obj, MovedIterator(obj, referents[0], source), source)
    tr.guards.add(ItemsLeft(source, left))
    owner: Any = tr.wrap(referents[0], IteratedDict(source))
    if not hasattr(owner, "entries") or len(owner.entries) < left:
        return None
    mirror = DictIterator(tr, owner, _OVER_DICTS[type(obj)])
    mirror.position = len(mirror.keys) - left
    return ExistingIterator(obj, mirror, source)


_SUBSCRIPTED = (list, tuple, range, str, bytes)
_OVER_DICTS: dict[type, str] = {
    type(iter({})): "keys",
    type(iter({}.values())): "values",
    type(iter({}.items())): "items",
}
_READABLE: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), enumerate, zip, map, type(iter("")), type(iter("\xff")),
    type(iter(b"")),
)  # fmt: skip


class _Indexed:
    def __getitem__(self, index: int) -> None:
        raise IndexError(index)


_SEQUENCE_ITERATOR: type = type(iter(_Indexed()))


class UserIterator(IteratorValue):
    """An object with ``__next__``, or the sequence protocol of one with only ``__getitem__``."""

    __slots__ = ("is_exhausted", "owner", "position")

    def __init__(self, owner: Value, by_index: bool) -> None:
        self.owner = owner
        self.is_exhausted = False  # for good, whatever the sequence gets later
        self.position = 0 if by_index else -1
        self.source = None

    def pytype(self) -> type:
        return self.owner.pytype() if self.position < 0 else _SEQUENCE_ITERATOR

    def next(self, tr: Tracer) -> Value | None:
        if self.is_exhausted:
            return None
        try:
            if self.position < 0:
                return self.owner.call_method(tr, "__next__", [], {})
            found = self.owner.getitem(tr, ConstValue(self.position))
        except Raised as raised:
            if not issubclass(
                raised.value.pytype(), StopIteration if self.position < 0 else (IndexError, StopIteration)
            ):
                raise
            self.is_exhausted = self.position >= 0
            return None
        self.position += 1
        return found

    def rebuild(self, out: FrameWriter) -> str:
        if self.position < 0:
            return out.value(self.owner)
        if self.is_exhausted:
            raise GraphBreak(NOT_REBUILDABLE, "an iterator that is exhausted")
        variable = out.temporary(f"iter({out.value(self.owner)})")
        out.line(f"{variable}.__setstate__({self.position})")
        return variable
