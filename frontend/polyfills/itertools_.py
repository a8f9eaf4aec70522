"""The iterators of itertools that consume their arguments once; those that build tuples are in combinatorics."""

import itertools
import operator
import sys

from .tables import polyfill, stands_for

_MISSING = object()


class Iterator:
    def __iter__(self):
        return self


@stands_for(itertools.chain)
class Chain(Iterator):
    def __init__(self, iterables):
        self.iterables = iterables
        self.current = None

    def __next__(self):
        while self.iterables is not None:
            if self.current is None:
                try:
                    self.current = iter(next(self.iterables))
                except BaseException:
                    # The end, or an argument that cannot be iterated: either finishes the chain.
                    self.iterables = None
                    raise
            item = next(self.current, _MISSING)
            if item is not _MISSING:
                return item
            self.current = None
        raise StopIteration


@polyfill(itertools.chain)
def chain(*iterables):
    return Chain(iter(iterables))


@polyfill(itertools.chain.from_iterable)
def chain_from_iterable(iterable, /):
    return Chain(iter(iterable))


@stands_for(itertools.count)
class Count(Iterator):
    def __init__(self, value, step):
        self.value = value
        self.step = step

    def __next__(self):
        value = self.value
        self.value = value + self.step
        return value


@polyfill(itertools.count)
def count(start=0, step=1):
    for number in (start, step):
        # Numbers need not be Python's: anything that converts to one and no sequence will do, a tensor too.
        if isinstance(number, (str, bytes, list, tuple, dict)) or number is None:
            raise TypeError("a number is required")
    return Count(start, step)


@stands_for(itertools.cycle)
class Cycle(Iterator):
    def __init__(self, iterator):
        self.iterator = iterator
        self.saved = []
        self.index = 0

    def __next__(self):
        if self.iterator is not None:
            item = next(self.iterator, _MISSING)
            if item is not _MISSING:
                self.saved.append(item)
                return item
            self.iterator = None
        if not self.saved:
            raise StopIteration
        item = self.saved[self.index]
        self.index = (self.index + 1) % len(self.saved)
        return item


@polyfill(itertools.cycle)
def cycle(iterable, /):
    return Cycle(iter(iterable))


@stands_for(itertools.repeat)
class Repeat(Iterator):
    def __init__(self, item, left):
        self.item = item
        self.left = left

    def __next__(self):
        if self.left is not None:
            if self.left <= 0:
                raise StopIteration
            self.left -= 1
        return self.item

    def __length_hint__(self):
        if self.left is None:
            raise TypeError("len() of unsized object")
        return self.left


@polyfill(itertools.repeat)
def repeat(object, times=_MISSING):
    if times is _MISSING:
        return Repeat(object, None)
    if not hasattr(type(times), "__index__"):
        raise TypeError(f"'{type(times).__name__}' object cannot be interpreted as an integer")
    return Repeat(object, times if times > 0 else 0)


@stands_for(itertools.islice)
class ISlice(Iterator):
    def __init__(self, iterator, following, stop, step):
        self.iterator = iterator
        self.consumed = 0
        self.following = following
        self.stop = stop
        self.step = step

    def __next__(self):
        if self.iterator is None:
            raise StopIteration
        try:
            while self.consumed < self.following:
                next(self.iterator)
                self.consumed += 1
            if self.stop is not None and self.consumed >= self.stop:
                raise StopIteration
            item = next(self.iterator)
        except BaseException:
            self.iterator = None
            raise
        self.consumed += 1
        self.following += self.step
        # The original leaves its argument where the slice ends, not where the next step would be.
        if self.stop is not None and self.following > self.stop:
            self.following = self.stop
        return item


@polyfill(itertools.islice)
def islice(iterable, /, *bounds):
    if not 1 <= len(bounds) <= 3:
        limit = "at least 2 arguments" if not bounds else "at most 4 arguments"
        raise TypeError(f"islice expected {limit}, got {len(bounds) + 1}")
    start, stop, step = 0, bounds[0], 1
    if len(bounds) > 1:
        start, stop = bounds[0], bounds[1]
        if len(bounds) == 3:
            step = bounds[2]
    stop, start, step = _as_index(stop), _as_index(start), _as_index(step)
    if not _is_bound(stop):
        raise ValueError("Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if not _is_bound(start):
        raise ValueError("Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if not _is_bound(step) or step == 0:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return ISlice(iter(iterable), start or 0, stop, 1 if step is None else step)


def _as_index(value):
    return operator.index(value) if hasattr(type(value), "__index__") else value


def _is_bound(value):
    return value is None or (hasattr(type(value), "__index__") and 0 <= value <= sys.maxsize)


@stands_for(itertools.takewhile)
class TakeWhile(Iterator):
    def __init__(self, predicate, iterator):
        self.predicate = predicate
        self.iterator = iterator
        self.stopped = False

    def __next__(self):
        if self.stopped:
            raise StopIteration
        item = next(self.iterator)
        if self.predicate(item):
            return item
        self.stopped = True
        raise StopIteration


@polyfill(itertools.takewhile)
def takewhile(predicate, iterable, /):
    return TakeWhile(predicate, iter(iterable))


@stands_for(itertools.dropwhile)
class DropWhile(Iterator):
    def __init__(self, predicate, iterator):
        self.predicate = predicate
        self.iterator = iterator
        self.dropping = True

    def __next__(self):
        while self.dropping:
            item = next(self.iterator)
            if not self.predicate(item):
                self.dropping = False
                return item
        return next(self.iterator)


@polyfill(itertools.dropwhile)
def dropwhile(predicate, iterable, /):
    return DropWhile(predicate, iter(iterable))


@stands_for(itertools.filterfalse)
class FilterFalse(Iterator):
    def __init__(self, predicate, iterator):
        self.predicate = predicate
        self.iterator = iterator

    def __next__(self):
        while True:
            item = next(self.iterator)
            if not (item if self.predicate is None else self.predicate(item)):
                return item


@polyfill(itertools.filterfalse)
def filterfalse(function, iterable, /):
    # `bool` is what None means, and calling it would convert where a test is enough.
    return FilterFalse(None if function is bool else function, iter(iterable))


@stands_for(itertools.accumulate)
class Accumulate(Iterator):
    def __init__(self, iterator, function, initial):
        self.iterator = iterator
        self.function = function
        self.initial = initial
        self.total = _MISSING

    def __next__(self):
        if self.initial is not None:
            self.total = self.initial
            self.initial = None
            return self.total
        item = next(self.iterator)
        if self.total is _MISSING:
            self.total = item
        elif self.function is None:
            self.total = self.total + item
        else:
            self.total = self.function(self.total, item)
        return self.total


@polyfill(itertools.accumulate)
def accumulate(iterable, func=None, *, initial=None):
    return Accumulate(iter(iterable), func, initial)


@stands_for(itertools.starmap)
class StarMap(Iterator):
    def __init__(self, function, iterator):
        self.function = function
        self.iterator = iterator

    def __next__(self):
        # The conversion first: the original's words for an item that cannot be iterated are those of `tuple`.
        arguments = tuple(next(self.iterator))
        return self.function(*arguments)


@polyfill(itertools.starmap)
def starmap(function, iterable, /):
    return StarMap(function, iter(iterable))


@stands_for(itertools.zip_longest)
class ZipLongest(Iterator):
    def __init__(self, iterators, fillvalue):
        self.iterators = iterators
        self.fillvalue = fillvalue
        self.active = len(iterators)

    def __next__(self):
        if not self.active:
            raise StopIteration
        row = []
        for position, iterator in enumerate(self.iterators):
            item = self.fillvalue
            if iterator is not None:
                try:
                    item = next(iterator)
                except StopIteration:
                    self.active -= 1
                    if not self.active:
                        raise
                    self.iterators[position] = None
                except BaseException:
                    self.active = 0
                    raise
            row.append(item)
        return tuple(row)


@polyfill(itertools.zip_longest)
def zip_longest(*iterables, fillvalue=None):
    return ZipLongest([iter(iterable) for iterable in iterables], fillvalue)


@stands_for(itertools.pairwise)
class Pairwise(Iterator):
    def __init__(self, iterator):
        self.iterator = iterator
        self.old = _MISSING

    def __next__(self):
        if self.iterator is None:
            raise StopIteration
        try:
            if self.old is _MISSING:
                self.old = next(self.iterator)
            new = next(self.iterator)
        except BaseException:
            self.iterator = None
            raise
        pair = self.old, new
        self.old = new
        return pair


@polyfill(itertools.pairwise)
def pairwise(iterable, /):
    return Pairwise(iter(iterable))


@stands_for(itertools.compress)
class Compress(Iterator):
    def __init__(self, data, selectors):
        self.data = data
        self.selectors = selectors

    def __next__(self):
        while True:
            item = next(self.data)
            if next(self.selectors):
                return item


@polyfill(itertools.compress)
def compress(data, selectors):
    return Compress(iter(data), iter(selectors))


@stands_for(itertools.groupby)
class GroupBy(Iterator):
    def __init__(self, iterator, function):
        self.iterator = iterator
        self.function = function
        self.item = self.key = self.group_key = _MISSING
        self.group = None

    def __next__(self):
        # Taking the next group ends the one before: it may be iterated no more.
        self.group = None
        while self.key is _MISSING or (self.group_key is not _MISSING and _same(self.group_key, self.key)):
            self.step()
        self.group_key = self.key
        self.group = Group(self, self.key)
        return self.key, self.group

    def step(self):
        item = next(self.iterator)
        self.key = item if self.function is None else self.function(item)
        self.item = item


@stands_for(itertools._grouper)
class Group(Iterator):
    """The second half of what `groupby` gives: it reads on in the iterator of its parent."""

    def __init__(self, parent, key):
        self.parent = parent
        self.key = key

    def __next__(self):
        parent = self.parent
        if parent.group is not self:
            raise StopIteration
        if parent.item is _MISSING:
            parent.step()
        if not _same(self.key, parent.key):
            raise StopIteration
        item = parent.item
        parent.item = parent.key = _MISSING
        return item


def _same(a, b):
    return a is b or a == b


@polyfill(itertools.groupby)
def groupby(iterable, key=None):
    return GroupBy(iter(iterable), key)


@stands_for(itertools._tee)
class Tee(Iterator):
    """One reader of an iterator that several read: a place in the linked list of the items read so far.

    A link is a list of an item and the next link; the last link is empty until someone reads on.
    """

    def __init__(self, iterator, link):
        self.iterator = iterator
        self.link = link

    def __next__(self):
        link = self.link
        if not link:
            item = next(self.iterator)
            link.append(item)
            link.append([])
        self.link = link[1]
        return link[0]

    def __copy__(self):
        return Tee(self.iterator, self.link)


@polyfill(itertools.tee)
def tee(iterable, n=2, /):
    if n < 0:
        raise ValueError("n must be >= 0")
    if n == 0:
        return ()
    reader = iter(iterable)
    if not hasattr(reader, "__copy__"):
        reader = Tee(iter(reader), [])
    return tuple([reader] + [reader.__copy__() for _ in range(n - 1)])
