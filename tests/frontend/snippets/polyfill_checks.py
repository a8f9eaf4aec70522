"""What the tests of the polyfills share: running one and its original side by side, and the inputs for both."""

import functools

from hypothesis import strategies as st

from torchmux.frontend.polyfills import lookup

LIMIT = 40  # items taken of an iterator, which may be endless


class Watched:
    """An iterable that logs what is asked of it, so that two consumers can be compared item by item."""

    def __init__(self, items, log, name, fail_at=None):
        self.items, self.log, self.name, self.fail_at = list(items), log, name, fail_at
        self.index = 0

    def __iter__(self):
        self.log.append((self.name, "iter"))
        return self

    def __next__(self):
        index = self.index
        self.index += 1
        self.log.append((self.name, "next", index))
        if index == self.fail_at:
            raise LookupError(f"{self.name} fails at {index}")
        if index >= len(self.items):
            raise StopIteration
        return self.items[index]


class Opaque:
    """Neither iterable nor ordered nor callable."""

    def __repr__(self):
        return "opaque"


class NeverEqual:
    def __eq__(self, other):
        return False

    __hash__ = object.__hash__


def outcome(function, *args, **kwargs):
    try:
        return "value", function(*args, **kwargs)
    except Exception as error:
        return "error", type(error), str(error)


def drained(function, *args, **kwargs):
    """What an iterator gives, item by item, also after an error and after the end."""
    made = outcome(function, *args, **kwargs)
    if made[0] == "error":
        return made
    steps = []
    for _ in range(LIMIT):
        step = outcome(next, made[1])
        steps.append(step)
        if step[0] == "error" and len([s for s in steps if s[0] == "error"]) > 2:
            break
    return steps


def same(a, b):
    """Equal, of equal types all the way down; a NaN is like another."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return a.hex() == b.hex()
    return a is b or a == b


def check(original, *args, **kwargs):
    """The polyfill of `original` agrees with it on values that are not changed by the call."""
    function, leading = lookup(original)
    assert same(outcome(function, *leading, *args, **kwargs), outcome(original, *args, **kwargs))


def check_iterator(original, make_args, consume=drained, **kwargs):
    """The polyfill agrees, asks for the same items at the same time, and does so after errors too."""
    function, leading = lookup(original)
    results = []
    for called in (functools.partial(function, *leading), original):
        log = []
        results.append((consume(called, *make_args(log), **kwargs), log))
    assert same(*[steps for steps, _ in results])
    assert results[0][1] == results[1][1]


small_ints = st.integers(-4, 4)
ints = st.lists(small_ints, max_size=8)
values = st.one_of(small_ints, st.booleans(), st.none(), st.floats(), st.text(max_size=3))
numbers = st.one_of(small_ints, st.integers(-(2**70), 2**70), st.booleans(), st.floats())
failing = st.one_of(st.none(), st.integers(0, 6))
streams = st.lists(st.tuples(ints, failing), max_size=4)


def watched(specs):
    return lambda log: [Watched(items, log, i, fail) for i, (items, fail) in enumerate(specs)]


def picky(item):
    if item == 3:
        raise KeyError("three")
    if item == -3:
        raise StopIteration
    return item % 2


def picky2(a, b):
    if b == 3:
        raise KeyError("three")
    return a - b
