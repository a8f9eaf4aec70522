"""Methods of lists, tuples and strings that compare or iterate: index, count, remove, sort, ==, <, in, join.

Items are compared as in C code: an object is equal to itself, whatever its `==` returns.
"""

# Loops, not `all` and `any` of generators: a polyfill is traced, and a generator is one more frame to trace.
# ruff: noqa: SIM110

import sys

from .builtins_ import sorted_
from .tables import method_polyfill

try:
    [].index(None)
except ValueError as error:
    # Some versions name the value that was not found, the others say "x".
    _INDEX_NAMES_VALUE = str(error).startswith("None")

_PLAIN = (str, int, bytes, float, bool, complex)


def is_or_equals(a, b):
    """Whether an item matches, as in C code. Equal texts and numbers match, and whether they are one object is unknown
    to a trace, so it is asked of unequal ones only: nan."""
    if type(a) in _PLAIN and type(b) in _PLAIN:
        return a == b or a is b
    return a is b or a == b


def _find(sequence, value, start, stop):
    """The first index in [start, stop) that holds `value`, or -1. Comparing may run code that changes the sequence."""
    if start < 0:
        start += len(sequence)
        if start < 0:
            start = 0
    if stop < 0:
        stop += len(sequence)
    index = start
    while index < stop and index < len(sequence):
        item = sequence[index]
        if is_or_equals(item, value):
            return index
        index += 1
    return -1


def _count(sequence, value):
    count = 0
    for item in sequence:
        if is_or_equals(item, value):
            count += 1
    return count


@method_polyfill(list, "index")
def list_index(self, value, start=0, stop=sys.maxsize, /):
    index = _find(self, value, start, stop)
    if index < 0:
        raise ValueError(f"{value!r} is not in list" if _INDEX_NAMES_VALUE else "list.index(x): x not in list")
    return index


@method_polyfill(tuple, "index")
def tuple_index(self, value, start=0, stop=sys.maxsize, /):
    index = _find(self, value, start, stop)
    if index < 0:
        raise ValueError("tuple.index(x): x not in tuple")
    return index


@method_polyfill(list, "count")
def list_count(self, value, /):
    return _count(self, value)


@method_polyfill(tuple, "count")
def tuple_count(self, value, /):
    return _count(self, value)


@method_polyfill(list, "remove")
def list_remove(self, value, /):
    index = _find(self, value, 0, sys.maxsize)
    if index < 0:
        raise ValueError("list.remove(x): x not in list")
    del self[index]


@method_polyfill(list, "sort")
def list_sort(self, /, *, key=None, reverse=False):
    items = self[:]
    if key is not None:  # code of the program runs, and finds the list empty
        list.clear(self)
    try:
        found = sorted_(items, key=key, reverse=reverse)
    except BaseException:
        self[:] = items
        raise
    modified = key is not None and len(self) > 0
    self[:] = found
    if modified:
        raise ValueError("list modified during sort")


@method_polyfill(list, "__contains__")
@method_polyfill(tuple, "__contains__")
def sequence_contains(self, value, /):
    for item in self:
        if is_or_equals(item, value):
            return True
    return False


def first_difference(a, b):
    """The first index at which two sequences differ: the length of the shorter one if they do not."""
    index = 0
    while index < len(a) and index < len(b):
        if not is_or_equals(a[index], b[index]):
            return index
        index += 1
    return index


def sequence_eq(a, b):
    if len(a) != len(b):
        return False
    return first_difference(a, b) >= len(a)


def sequence_ne(a, b):
    return not sequence_eq(a, b)


def sequence_lt(a, b):
    index = first_difference(a, b)
    if index < len(a) and index < len(b):
        return a[index] < b[index]
    return len(a) < len(b)


def sequence_le(a, b):
    index = first_difference(a, b)
    if index < len(a) and index < len(b):
        return a[index] <= b[index]
    return len(a) <= len(b)


def sequence_gt(a, b):
    index = first_difference(a, b)
    if index < len(a) and index < len(b):
        return a[index] > b[index]
    return len(a) > len(b)


def sequence_ge(a, b):
    index = first_difference(a, b)
    if index < len(a) and index < len(b):
        return a[index] >= b[index]
    return len(a) >= len(b)


def _comparison(owner, compare):
    def method(self, other, /):
        return compare(self, other) if isinstance(other, owner) else NotImplemented

    return method


for _owner in (list, tuple):
    method_polyfill(_owner, "__eq__")(_comparison(_owner, sequence_eq))
    method_polyfill(_owner, "__ne__")(_comparison(_owner, sequence_ne))
    method_polyfill(_owner, "__lt__")(_comparison(_owner, sequence_lt))
    method_polyfill(_owner, "__le__")(_comparison(_owner, sequence_le))
    method_polyfill(_owner, "__gt__")(_comparison(_owner, sequence_gt))
    method_polyfill(_owner, "__ge__")(_comparison(_owner, sequence_ge))


@method_polyfill(str, "join")
def str_join(self, iterable, /):
    """For what is neither list nor tuple: joining those is the interpreter's own."""
    try:
        iterator = iter(iterable)
    except TypeError:
        raise TypeError("can only join an iterable") from None
    return self.join(list(iterator))
