"""The builtin functions that iterate: all, any, enumerate, zip, map, filter, sum, min, max, sorted, reversed, iter."""

# Loops, not `all` and `any` of generators: a polyfill is traced, and a generator is one more frame to trace.
# ruff: noqa: SIM110

import builtins
import math
import operator
import sys

from .tables import method_polyfill, polyfill, stands_for

_MISSING = object()


def _message_of_empty(function):
    try:
        function(())
    except ValueError as error:
        return str(error)


# The words differ between Python versions.
_EMPTY_MIN = _message_of_empty(min)
_EMPTY_MAX = _message_of_empty(max)
try:
    iter(None, None)
except TypeError as error:
    _NOT_CALLABLE = str(error)

_COMPENSATED_SUM = sys.version_info >= (3, 12)
_flag = bool if sys.version_info >= (3, 12) else operator.index  # what ``reverse`` of a sort is converted by


@polyfill(builtins.all)
def all_(iterable, /):
    for item in iterable:
        if not item:
            return False
    return True


@polyfill(builtins.any)
def any_(iterable, /):
    for item in iterable:
        if item:
            return True
    return False


@stands_for(enumerate)
class Enumerate:
    def __init__(self, iterator, index):
        self.iterator = iterator
        self.index = index

    def __iter__(self):
        return self

    def __next__(self):
        item = next(self.iterator)
        index = self.index
        self.index = index + 1
        return index, item


@polyfill(builtins.enumerate)
def enumerate_(iterable, start=0):
    return Enumerate(iter(iterable), start)


@stands_for(zip)
class Zip:
    def __init__(self, iterators):
        self.iterators = iterators

    def __iter__(self):
        return self

    def __next__(self):
        if not self.iterators:
            raise StopIteration
        row = []
        for iterator in self.iterators:
            row.append(next(iterator))
        return tuple(row)


@stands_for(zip)
class StrictZip:
    def __init__(self, iterators):
        self.iterators = iterators

    def __iter__(self):
        return self

    def __next__(self):
        if not self.iterators:
            raise StopIteration
        row = []
        for iterator in self.iterators:
            item = next(iterator, _MISSING)
            if item is _MISSING:
                break
            row.append(item)
        else:
            return tuple(row)
        if row:
            raise ValueError(_strict_message(len(row) + 1, "shorter"))
        for position in range(1, len(self.iterators)):
            if next(self.iterators[position], _MISSING) is not _MISSING:
                raise ValueError(_strict_message(position + 1, "longer"))
        raise StopIteration


def _strict_message(position, how):
    before = "argument 1" if position == 2 else f"arguments 1-{position - 1}"
    return f"zip() argument {position} is {how} than {before}"


@polyfill(builtins.zip)
def zip_(*iterables, strict=False):
    iterators = [iter(iterable) for iterable in iterables]
    return StrictZip(iterators) if strict else Zip(iterators)


@stands_for(map)
class Map:
    def __init__(self, function, iterators):
        self.function = function
        self.iterators = iterators

    def __iter__(self):
        return self

    def __next__(self):
        arguments = []
        for iterator in self.iterators:
            arguments.append(next(iterator))
        return self.function(*arguments)


@polyfill(builtins.map)
def map_(*function_and_iterables):
    if len(function_and_iterables) < 2:
        raise TypeError("map() must have at least two arguments.")
    function, *iterables = function_and_iterables
    return Map(function, [iter(iterable) for iterable in iterables])


@stands_for(filter)
class Filter:
    def __init__(self, function, iterator):
        self.function = function
        self.iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        while True:
            item = next(self.iterator)
            if item if self.function is None else self.function(item):
                return item


@polyfill(builtins.filter)
def filter_(function, iterable, /):
    # `bool` is what None means, and calling it would convert where a test is enough.
    return Filter(None if function is bool else function, iter(iterable))


@polyfill(builtins.sum)
def sum_(iterable, /, start=0):
    iterator = iter(iterable)
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    if isinstance(start, bytes):
        raise TypeError("sum() can't sum bytes [use b''.join(seq) instead]")
    if isinstance(start, bytearray):
        raise TypeError("sum() can't sum bytearray [use b''.join(seq) instead]")
    total = start
    if _COMPENSATED_SUM:
        integers = [start]
        while type(total) is int:
            item = next(iterator, _MISSING)
            if item is _MISSING:
                return total
            total = total + item
            if type(item) is not int and type(item) is not bool:
                break
            integers.append(item)
            integers.append(total)
        # An integer that fits no C long ends all fast ways.  That is asked late, as it would be a guard on each size.
        if type(total) is float and (start is total or all_(map(_fits_long, integers))):
            total, finished = _sum_floats(total, iterator)
            if finished:
                return total
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return total
        total = total + item


def _fits_long(number):
    return -sys.maxsize - 1 <= number <= sys.maxsize


def _sum_floats(total, iterator):
    """Sum on from a float with Neumaier's compensation, up to the first item that is no number: (sum, at the end)."""
    lost = 0.0
    while True:
        item = next(iterator, _MISSING)
        if item is _MISSING:
            return _compensate(total, lost), True
        if type(item) is float:
            rounded = total + item
            if abs(total) >= abs(item):
                lost += (total - rounded) + item
            else:
                lost += (item - rounded) + total
            total = rounded
        elif isinstance(item, int) and _fits_long(item):
            total += float(item)
        else:
            return _compensate(total, lost) + item, False


def _compensate(total, lost):
    # Adding a zero would lose the sign of -0.0, and adding the NaN left by an overflow would lose the infinity.
    return total + lost if lost and math.isfinite(lost) else total


@polyfill(builtins.min)
def min_(*arguments, key=None, default=_MISSING):
    iterable = _candidates("min", arguments, default)
    best = best_rank = _MISSING
    for item in iterable:
        rank = item if key is None else key(item)
        if best is _MISSING or rank < best_rank:
            best, best_rank = item, rank
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError(_EMPTY_MIN)
    return default


@polyfill(builtins.max)
def max_(*arguments, key=None, default=_MISSING):
    iterable = _candidates("max", arguments, default)
    best = best_rank = _MISSING
    for item in iterable:
        rank = item if key is None else key(item)
        if best is _MISSING or rank > best_rank:
            best, best_rank = item, rank
    if best is not _MISSING:
        return best
    if default is _MISSING:
        raise ValueError(_EMPTY_MAX)
    return default


def _candidates(name, arguments, default):
    if not arguments:
        raise TypeError(f"{name} expected at least 1 argument, got 0")
    if len(arguments) == 1:
        return arguments[0]
    if default is not _MISSING:
        raise TypeError(f"Cannot specify a default for {name}() with multiple positional arguments")
    return arguments


@polyfill(builtins.sorted)
def sorted_(iterable, /, *, key=None, reverse=False):
    reverse = _flag(reverse)
    items = list(iterable)
    ranks = list(items) if key is None else [key(item) for item in items]
    # Turning the list around before and after keeps equal items in their order, as the original does.
    if reverse:
        items.reverse()
        ranks.reverse()
    done = _first_run(items, ranks)
    while done < len(items):
        rank = ranks[done]
        low, high = 0, done
        while low < high:
            middle = (low + high) // 2
            if rank < ranks[middle]:
                high = middle
            else:
                low = middle + 1
        ranks.insert(low, ranks.pop(done))
        items.insert(low, items.pop(done))
        done += 1
    if reverse:
        items.reverse()
    return items


def _first_run(items, ranks):
    """The length of the sorted run that the list starts with; a falling one is turned around, as timsort does."""
    if len(items) < 2:
        return len(items)
    end = 2
    if ranks[1] < ranks[0]:
        while end < len(items) and ranks[end] < ranks[end - 1]:
            end += 1
        items[:end] = items[:end][::-1]
        ranks[:end] = ranks[:end][::-1]
    else:
        while end < len(items) and not ranks[end] < ranks[end - 1]:
            end += 1
    return end


@stands_for(reversed)
class Reversed:
    def __init__(self, sequence, index):
        self.sequence = sequence
        self.index = index

    def __iter__(self):
        return self

    def __next__(self):
        index = self.index
        if index < 0:
            raise StopIteration
        self.index = -1
        try:
            item = self.sequence[index]
        except IndexError:
            raise StopIteration from None
        self.index = index - 1
        return item


@polyfill(builtins.reversed)
def reversed_(sequence, /):
    cls = type(sequence)
    method = getattr(cls, "__reversed__", _MISSING)
    if method is None or (method is _MISSING and not hasattr(cls, "__getitem__")):
        raise TypeError(f"'{cls.__name__}' object is not reversible")
    if method is not _MISSING:
        return method(sequence)
    return Reversed(sequence, len(sequence) - 1)


@stands_for(type(reversed([])))
class ListReversed(Reversed):
    pass


@method_polyfill(list, "__reversed__")
def list_reversed(self):
    return ListReversed(self, len(self) - 1)


@method_polyfill(range, "__reversed__")
def range_reversed(self):
    return iter(self[::-1])


@stands_for(type(iter(int, 1)))
class CallUntil:
    """What `iter(function, sentinel)` returns: its class has no name in Python."""

    def __init__(self, function, sentinel):
        self.function = function
        self.sentinel = sentinel
        self.exhausted = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.exhausted:
            raise StopIteration
        try:
            item = self.function()
        except StopIteration:
            self.exhausted = True
            raise StopIteration from None
        if item is self.sentinel or self.sentinel == item:
            self.exhausted = True
            raise StopIteration
        return item


@polyfill(builtins.iter)
def iter_with_sentinel(function, sentinel, /):
    """`iter` of two arguments; that of one is the interpreter's own."""
    if not callable(function):
        raise TypeError(_NOT_CALLABLE)
    return CallUntil(function, sentinel)


@polyfill(math.prod)
def prod(iterable, /, *, start=1):
    product = start
    for item in iterable:
        product = product * item
    return product
