"""Watches: detect changes of objects and dictionaries, at a few nanoseconds each.

Checking every attribute of every module again would cost a call of a large model more than everything else in the
frontend.  CPython up to 3.13 records every write to a dictionary: each write gives it a version that no dictionary had
before (PEP 509).  Where 3.13 keeps attributes in the object itself, they are one word each.  An object's class and its
``__dict__`` are words in its header.  A :class:`Watch` records such words and compares all of them in one vectorized
read.

The watch keeps every object whose words it records alive, or whoever compares does (:meth:`Watch.leave`), so no read is
ever outside a live object. Before the first use, the positions of the words are determined, and every way to write is
tried, on this interpreter. If anything is not as expected, :func:`is_available` is false and nothing is ever watched.
The public dictionary watchers are not enough: 3.13 does not notify them when an attribute is stored.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import struct
import sys
from collections.abc import Callable
from typing import Any

WORD = 8
_FIRST = 4096  # no object is in the first page
CLASS = WORD  # from an object's address to its class
_FEW = 600  # words
_INLINE_VALUES = 1 << 2 if sys.version_info >= (3, 13) else 0  # Py_TPFLAGS_INLINE_VALUES
FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__", "__closure__")
_VERSION = 3 * WORD  # from a dictionary's address to its version: after the header and the number of items


class Watch:
    """A record of words at the time they are added.  Add first, then read the objects."""

    def __init__(self) -> None:
        self._words: dict[int, int] = {}  # address -> what stands there
        self._behind: dict[int, int] = {}  # as above, to be read only while all of the others stand
        self._ids: list[int] = []  # of the object, one for each word
        self._ids_behind: list[int] = []
        self._roots: set[int] = set()  # the ids of the objects that others keep alive
        self._kept: list[Any] = []
        self._held: list[Any] = []  # the objects of the words, so that nothing else can get the same address
        # once it is sealed: where words are, and what was there, in the order in which to compare
        self.comparisons: tuple[tuple[Any, bytearray], ...] = ()

    def leave(self, obj: Any) -> None:
        """Do not keep ``obj`` alive; whoever compares holds it meanwhile."""
        self._roots.add(id(obj))

    def header(self, obj: Any) -> dict | None:
        """Note the class of ``obj`` and which its ``__dict__`` is; returns that, or None if it cannot be watched."""
        try:
            namespace = object.__getattribute__(obj, "__dict__")  # and not as its class may have it
        except AttributeError:
            return None
        address = id(obj) + _namespace_offset()
        if type(namespace) is not dict or read(address) != id(namespace):
            return None
        self._held.append(type(obj))
        self.note(obj, id(obj) + CLASS)
        self.note(obj, address)
        return namespace

    def class_of(self, obj: Any) -> None:
        """Note the class of ``obj``."""
        self._held.append(type(obj))
        self.note(obj, id(obj) + CLASS)

    def attributes(self, obj: Any, namespace: dict) -> None:
        """Note all attributes that are in the ``__dict__`` of an object."""
        self.contents(namespace)
        if type(obj).__flags__ & _INLINE_VALUES:
            # they may be in the object, where a store gives the dictionary no new version
            self._held.extend(namespace.values())
            start = id(obj) + type(obj).__basicsize__
            for number in range(1 + (read(start) & 0xFF)):  # how many is the first byte of a head of one word
                self.note(namespace, start + number * WORD)

    def contents(self, d: dict) -> None:
        """Note which keys and values a dictionary has."""
        self.note(d, id(d) + _VERSION)

    def part(self, function: Any, name: str) -> None:
        """Note which ``__code__``, ``__defaults__``, ``__kwdefaults__`` or ``__closure__`` a function has."""
        self._held.append(getattr(function, name))
        self.note(function, id(function) + _part_offsets()[name])

    def words(self, obj: Any) -> None:
        """Note all that a cell or an object with slots refers to."""
        self._held.extend(gc.get_referents(obj))
        for offset in range(CLASS, type(obj).__basicsize__, WORD):
            if offset != type(obj).__weakrefoffset__:  # a weak reference changes nothing
                self.note(obj, id(obj) + offset)

    def bases(self, cls: type) -> bool:
        """Note what a class derives from; False if that cannot be watched."""
        address = id(cls) + _mro_offset()
        if read(address) != id(cls.__mro__):
            return False
        self._held.append(cls.__mro__)
        self.note(cls, address)
        return True

    def note(self, obj: Any, address: int) -> None:
        if address not in self._words:
            if id(obj) not in self._roots:
                self._kept.append(obj)
            self._ids.append(id(obj))
            self._words[address] = read(address)

    def note_behind(self, obj: Any, address: int) -> None:
        """Note a word that is there for as long as what was noted of ``obj`` stands."""
        if address not in self._behind:
            self._ids_behind.append(id(obj))
            self._behind[address] = read(address)

    def seal(self) -> None:
        """There are no more notes: from now on they can be compared."""
        import numpy

        self.comparisons = tuple(
            (
                numpy.array([(address - _FIRST) // WORD for address in words], dtype=numpy.int64),
                bytearray(numpy.array(list(words.values()), dtype=numpy.uint64)),
            )
            for words in (self._words, self._behind)
            if words
        )

    def unchanged(self) -> bool:
        """Whether all that was noted stands, once it is sealed."""
        return all(expected == reading(at)(at) for at, expected in self.comparisons)

    def changed(self) -> set[int]:
        """The ids of the objects that do not stand as noted."""
        return _differing(self._words, self._ids) or _differing(self._behind, self._ids_behind)


def _differing(words: dict[int, int], ids: list[int]) -> set[int]:
    now = map(read, words)
    return {owner for owner, word, was in zip(ids, now, words.values(), strict=True) if word != was}


def read(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def reading(at: Any) -> Callable[[Any], Any]:
    """What reads the words at these places, as an array: numpy has a faster way for few, and another for many.

    A ``bytearray`` compares itself to that without a copy.
    """
    return _memory().__getitem__ if len(at) <= _FEW else _memory().take


@functools.cache
def _memory() -> Any:
    """The address space as an array of words, of which only those of watched objects are ever read."""
    import numpy

    words: Any = ctypes.c_uint64 * ((2**47 - _FIRST) // WORD)
    return numpy.frombuffer(words.from_address(_FIRST), dtype=numpy.uint64)


# --- the trial -------------------------------------------------------------------------------------------------------


class _Trial:
    def __init__(self) -> None:
        self.a, self.b = 1, 2


class _Other(_Trial):
    pass


@functools.cache
def _namespace_offset() -> int:
    """From an object's address to where its ``__dict__`` is named, which is in front of its header."""
    obj = _Trial()
    found = [n for n in range(-4 * WORD, 0, WORD) if read(id(obj) + n) == id(obj.__dict__)]
    if len(found) != 1 or read(id(obj) + CLASS) != id(_Trial):
        raise NotImplementedError
    return found[0]


@functools.cache
def _mro_offset() -> int:
    """From a class's address to where its ``__mro__`` is named."""
    size: Any = type.__basicsize__
    found = [n for n in range(0, size, WORD) if read(id(_Other) + n) == id(_Other.__mro__)]
    if len(found) != 1:
        raise NotImplementedError
    return found[0]


@functools.cache
def _part_offsets() -> dict[str, int]:
    """From a function's address to where its parts are named."""

    def function(a: Any = 1, *, b: Any = 2) -> Any:
        return function

    found = {}
    for name in FUNCTION_PARTS:
        part = id(getattr(function, name))
        (found[name],) = [n for n in range(CLASS, type(function).__basicsize__, WORD) if read(id(function) + n) == part]
    return found


@functools.cache
def is_available() -> bool:
    """Whether watches work here: every way to write is tried."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 14):
        return False
    # a 64-bit build whose objects have no further words in their headers
    if struct.calcsize("P") != WORD or sys.byteorder != "little" or hasattr(sys, "getobjects"):
        return False
    try:
        return all(is_noticed(write, attributes) for write in WRITES for attributes in (0, 50))
    except (ImportError, NotImplementedError, ValueError):
        return False


def is_noticed(write: Any, attributes: int) -> bool:
    """Whether a watch detects this operation on an object with some more attributes."""

    class Trial(_Trial):
        def method(self) -> Any:
            return write

    obj = Trial()
    _more(obj, attributes)
    watch = Watch()
    namespace = watch.header(obj)
    if namespace is None or not watch.bases(Trial):
        return False
    watch.attributes(obj, namespace)
    (of_class,) = gc.get_referents(Trial.__dict__)
    watch.contents(of_class)
    for part in FUNCTION_PARTS:
        watch.part(Trial.method, part)
    assert Trial.method.__closure__ is not None
    watch.words(Trial.method.__closure__[0])
    watch.seal()
    if not watch.unchanged():
        return False
    write(obj)
    return not watch.unchanged()


def _store(obj: Any, value: int) -> None:
    obj.a = value


def _more(obj: Any, attributes: int) -> None:
    """This many attributes are not stored in the object itself."""
    for number in range(attributes):
        setattr(obj, f"x{number}", number)


def _store_by_specialized_code(obj: Any) -> None:
    other = _Trial()
    _more(other, len(obj.__dict__) - len(other.__dict__))
    assert other.__dict__
    for number in range(100):
        _store(other, number)
    _store(obj, 7)


WRITES = (
    lambda obj: _store(obj, 5),
    _store_by_specialized_code,
    lambda obj: setattr(obj, "c", 1),
    lambda obj: delattr(obj, "b"),
    lambda obj: object.__setattr__(obj, "a", 5),
    lambda obj: obj.__dict__.__setitem__("a", 5),
    lambda obj: obj.__dict__.update(a=5),
    lambda obj: obj.__dict__.pop("a"),
    lambda obj: obj.__dict__.clear(),
    lambda obj: setattr(obj, "__dict__", {"a": 1, "b": 2}),
    lambda obj: setattr(obj, "__class__", _Other),
    lambda obj: setattr(type(obj), "a", 1),
    lambda obj: delattr(type(obj), "method"),
    lambda obj: setattr(type(obj), "__bases__", (_Other,)),
    lambda obj: setattr(type(obj).method, "__code__", _store.__code__.replace(co_freevars=("write",))),
    lambda obj: setattr(type(obj).method, "__defaults__", (1,)),
    lambda obj: setattr(type(obj).method, "__kwdefaults__", {}),
    lambda obj: setattr(type(obj).method.__closure__[0], "cell_contents", 1),
)
