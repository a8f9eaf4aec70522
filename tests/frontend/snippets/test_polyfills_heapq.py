"""Polyfills of heapq leave the heap that their originals leave, also where a comparison raises."""

import _heapq

import pytest
from hypothesis import given, strategies as st

from torchmux.frontend.polyfills import POLYFILLS, lookup

from .polyfill_checks import Opaque, check, ints, outcome, same, values

HEAPQ = [original for original in POLYFILLS if getattr(original, "__module__", None) == "_heapq"]
WITH_ITEM = {"heappush", "heappushpop", "heapreplace", "_heapreplace_max"}


class Upside(list):
    """C code sees none of this."""

    def __getitem__(self, index):
        raise LookupError

    def __len__(self):
        return 0


def _arguments(original, item):
    return (item,) if original.__name__ in WITH_ITEM else ()


def _agree(original, items, item, make=list):
    function, _ = lookup(original)
    mine, theirs = make(items), make(items)
    steps = [outcome(f, heap, *_arguments(original, item)) for f, heap in ((function, mine), (original, theirs))]
    assert same(*steps)
    assert same(list(list.__iter__(mine)), list(list.__iter__(theirs)))


def test_each_function_has_a_polyfill():
    every = {f for name, f in vars(_heapq).items() if callable(f) and not name.startswith("__")}
    assert set(HEAPQ) == every


@pytest.mark.parametrize("original", HEAPQ, ids=lambda f: f.__name__)
@given(items=st.one_of(ints, st.lists(values, max_size=9)), item=values, subclass=st.booleans())
def test_heaps(original, items, item, subclass):
    _agree(original, items, item, Upside if subclass else list)


@pytest.mark.parametrize("original", HEAPQ, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_comparison_that_removes_items(original, kept):
    outcomes = []
    for called in (lookup(original)[0], original):
        heap: list = []

        class Removes:
            def __init__(self, rank, heap=heap):
                self.rank, self.heap = rank, heap

            def __lt__(self, other):
                del self.heap[kept:]
                return self.rank < other.rank

        heap.extend(map(Removes, (1, 3, 2, 5, 4, 0)))
        step = outcome(called, heap, *_arguments(original, Removes(9)))
        outcomes.append((getattr(step[-1], "rank", step), [item.rank for item in heap]))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("original", HEAPQ, ids=lambda f: f.__name__)
def test_errors(original):
    for heap in (5, None, (1, 2), Opaque(), []):
        check(original, heap, *_arguments(original, 1))
    function, _ = lookup(original)
    for bad in ((), ([1], 2, 3)):
        with pytest.raises(TypeError):
            function(*bad)
