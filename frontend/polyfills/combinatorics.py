"""The iterators of itertools that read their arguments to the end first and then build tuples: product and similar.

Each keeps the indices of the tuple it returned last, as the originals do; None means that no tuple was returned yet.
"""

import itertools

from .itertools_ import Iterator
from .tables import polyfill, stands_for

_MISSING = object()


@stands_for(itertools.product)
class Product(Iterator):
    def __init__(self, pools):
        self.pools = pools
        self.indices = None
        self.finished = False

    def __next__(self):
        if not self.finished:
            self.finished = not self.advance()
        if self.finished:
            raise StopIteration
        return tuple([pool[index] for pool, index in zip(self.pools, self.indices, strict=True)])

    def advance(self):
        if self.indices is None:
            self.indices = [0] * len(self.pools)
            return not any(len(pool) == 0 for pool in self.pools)
        for position in range(len(self.pools) - 1, -1, -1):
            self.indices[position] += 1
            if self.indices[position] < len(self.pools[position]):
                return True
            self.indices[position] = 0
        return False


@polyfill(itertools.product)
def product(*iterables, repeat=1):
    if repeat < 0:
        raise ValueError("repeat argument cannot be negative")
    # The original does not touch its arguments when it is to repeat them no time at all.
    return Product([tuple(iterable) for iterable in iterables] * repeat if repeat else [])


@stands_for(itertools.permutations)
class Permutations(Iterator):
    def __init__(self, pool, length):
        self.pool = pool
        self.length = length
        self.indices = None
        # How many exchanges each position has still to go through before it starts over.
        self.cycles = list(range(len(pool), len(pool) - length, -1))
        self.finished = length > len(pool)

    def __next__(self):
        if not self.finished:
            self.finished = not self.advance()
        if self.finished:
            raise StopIteration
        return tuple([self.pool[index] for index in self.indices[: self.length]])

    def advance(self):
        if self.indices is None:
            self.indices = list(range(len(self.pool)))
            return True
        for position in range(self.length - 1, -1, -1):
            self.cycles[position] -= 1
            if self.cycles[position]:
                other = len(self.pool) - self.cycles[position]
                index = self.indices[position]
                self.indices[position] = self.indices[other]
                self.indices[other] = index
                return True
            self.indices.append(self.indices.pop(position))
            self.cycles[position] = len(self.pool) - position
        return False


@polyfill(itertools.permutations)
def permutations(iterable, r=None):
    pool = tuple(iterable)
    if r is None:
        r = len(pool)
    elif not isinstance(r, int):
        raise TypeError("Expected int as r")
    if r < 0:
        raise ValueError("r must be non-negative")
    return Permutations(pool, r)


@stands_for(itertools.combinations)
class Combinations(Iterator):
    def __init__(self, pool, length):
        self.pool = pool
        self.length = length
        self.indices = None
        self.finished = length > len(pool)

    def __next__(self):
        if not self.finished:
            self.finished = not self.advance()
        if self.finished:
            raise StopIteration
        return tuple([self.pool[index] for index in self.indices])

    def advance(self):
        if self.indices is None:
            self.indices = list(range(self.length))
            return True
        for position in range(self.length - 1, -1, -1):
            if self.indices[position] < len(self.pool) - self.length + position:
                first = self.indices[position] + 1
                self.indices[position:] = range(first, first + self.length - position)
                return True
        return False


@polyfill(itertools.combinations)
def combinations(iterable, r):
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return Combinations(pool, r)


@stands_for(itertools.combinations_with_replacement)
class CombinationsWithReplacement(Iterator):
    def __init__(self, pool, length):
        self.pool = pool
        self.length = length
        self.indices = None
        self.finished = length > 0 and not pool

    def __next__(self):
        if not self.finished:
            self.finished = not self.advance()
        if self.finished:
            raise StopIteration
        return tuple([self.pool[index] for index in self.indices])

    def advance(self):
        if self.indices is None:
            self.indices = [0] * self.length
            return True
        for position in range(self.length - 1, -1, -1):
            if self.indices[position] < len(self.pool) - 1:
                self.indices[position:] = [self.indices[position] + 1] * (self.length - position)
                return True
        return False


@polyfill(itertools.combinations_with_replacement)
def combinations_with_replacement(iterable, r):
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return CombinationsWithReplacement(pool, r)


class Batched(Iterator):
    def __init__(self, iterator, size, strict):
        self.iterator = iterator
        self.size = size
        self.strict = strict

    def __next__(self):
        if self.iterator is None:
            raise StopIteration
        batch = []
        try:
            while len(batch) < self.size:
                item = next(self.iterator, _MISSING)
                if item is _MISSING:
                    break
                batch.append(item)
            if not batch:
                raise StopIteration
            if self.strict and len(batch) < self.size:
                raise ValueError("batched(): incomplete batch")
        except BaseException:
            self.iterator = None
            raise
        return tuple(batch)


# New in Python 3.12; `strict` in 3.13.
if hasattr(itertools, "batched"):
    stands_for(itertools.batched)(Batched)

    @polyfill(itertools.batched)
    def batched(iterable, n, *, strict=False):
        if n < 1:
            raise ValueError("n must be at least one")
        return Batched(iter(iterable), n, strict)
