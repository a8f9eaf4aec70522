"""Polyfills of functions and iterators give what their originals give: values, laziness, errors and words."""

import collections
import functools
import itertools
import math
import operator
import re
import subprocess
import sys

import pytest
from hypothesis import example, given, settings, strategies as st

from torchmux.frontend.polyfills import METHOD_POLYFILLS, POLYFILLS, STANDS_FOR, lookup

from .polyfill_checks import (
    Opaque,
    Watched,
    check,
    check_iterator,
    failing,
    ints,
    numbers,
    outcome,
    picky,
    picky2,
    small_ints,
    streams,
    values,
    watched,
)

# --- tables --------------------------------------------------------------------------------------------------------


def _name(value):
    """A test id without addresses: workers must collect the same names."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def test_importing_needs_no_torch():
    code = (
        "import importlib.util as u, sys\n"
        "spec = u.spec_from_file_location('p', sys.argv[1], submodule_search_locations=[sys.argv[2]])\n"
        "module = u.module_from_spec(spec); sys.modules['p'] = module; spec.loader.exec_module(module)\n"
        "assert 'torch' not in sys.modules\n"
    )
    import torchmux.frontend.polyfills as package

    subprocess.run([sys.executable, "-c", code, package.__file__, package.__path__[0]], check=True)


def test_lookup_finds_functions_methods_and_class_methods():
    assert lookup(zip)[0] is POLYFILLS[zip]
    assert lookup(itertools.chain.from_iterable)[0] is POLYFILLS[itertools.chain.from_iterable]
    items = [1]
    function, leading = lookup(items.index)
    assert function is METHOD_POLYFILLS[list, "index"] and leading[0] is items
    assert lookup(list.index) == (function, ())
    assert lookup({}.fromkeys) == (METHOD_POLYFILLS[dict, "fromkeys"], (dict,))
    assert lookup((1).__add__) is None
    assert lookup(len) is None
    assert lookup(lambda: 0) is None


def test_lookup_respects_overrides():
    class Mine(list):
        def index(self, value):
            return 7

    class Inherits(list):
        pass

    assert lookup(Mine().index) is None
    assert lookup(Inherits().index)[0] is METHOD_POLYFILLS[list, "index"]


def test_lookup_hashes_no_user_object():
    class Unhashable:
        __hash__ = None

        def __call__(self):
            return 0

    assert lookup(Unhashable()) is None


def test_originals_exist_where_the_tables_say():
    for owner, name in METHOD_POLYFILLS:
        assert name in owner.__dict__, (owner, name)
    for cls, original in STANDS_FOR.items():
        assert isinstance(original, type) and isinstance(cls, type)


# --- builtins -----------------------------------------------------------------------------------------------------


@given(streams)
def test_all_any_zip_map(specs):
    check_iterator(zip, watched(specs))
    check_iterator(zip, watched(specs), strict=True)
    check_iterator(map, lambda log: [lambda *a: sum(map(picky, a)), *watched(specs)(log)])
    for original in (all, any, sum):
        check_iterator(original, watched(specs[:1] or [([], None)]), consume=outcome)


@given(ints, failing, small_ints)
def test_enumerate_filter(items, fail, start):
    check_iterator(enumerate, lambda log: [Watched(items, log, 0, fail), start])
    check_iterator(enumerate, lambda log: [Watched(items, log, 0, fail)], start=start)
    for function in (picky, None, bool):
        check_iterator(filter, lambda log, f=function: [f, Watched(items, log, 0, fail)])


@given(st.lists(numbers, max_size=12), st.one_of(st.just(0), numbers))
@example([2**63 - 2, -(2**63) - 1, 9007199254740991.0, 9007199254740994.0, 1.0], 0)  # no C long: no compensation
@example([9007199254740991.0, 9007199254740994.0, 1.0], 2**63)
@settings(max_examples=400)
def test_sum_of_numbers(items, start):
    check(sum, items, start)
    check(sum, items)


@given(st.lists(st.floats(-1e16, 1e16), max_size=20))
def test_sum_of_floats_rounds_like_the_running_python(items):
    check(sum, items)
    check(sum, items, 0.5)


@pytest.mark.parametrize(
    "args",
    [
        (["a"], ""),
        ([b"a"], b""),
        ([b"a"], bytearray()),
        ([[1], [2]], []),
        ([[1], (2,)], []),
        ([1, "a"],),
        ([0.5, "a"],),
        ([0.5, 1 + 2j, 3],),
        ([-0.0, -0.0], -0.0),
        ([1e308, 1e308, -1e308],),
        ([math.inf, -math.inf],),
        (5,),
    ],
)
def test_sum_edges(args):
    check(sum, *args)


@given(st.lists(values, max_size=6), st.sampled_from([None, str, repr, abs]))
def test_min_max_on_lists(items, key):
    for original in (min, max):
        check(original, items, key=key)
        check(original, items, key=key, default="none")
        check(original, *items, key=key)


def test_min_max_errors():
    for original in (min, max):
        check(original)
        check(original, 5)
        check(original, 1, 2, default=3)
        check(original, [])
        check(original, [], default=None)
        check(original, [Opaque(), Opaque()])


@given(st.lists(st.tuples(small_ints, st.integers()), max_size=70), st.booleans())
def test_sorted_is_stable(items, reverse):
    check(sorted, items, key=operator.itemgetter(0), reverse=reverse)
    check(sorted, items, reverse=reverse)
    mine, theirs = list(items), list(items)
    METHOD_POLYFILLS[list, "sort"](mine, key=lambda item: item[0], reverse=reverse)
    theirs.sort(key=lambda item: item[0], reverse=reverse)
    assert mine == theirs


def test_sorted_compares_with_less_than_only():
    class OnlyLess:
        def __init__(self, rank):
            self.rank = rank

        def __lt__(self, other):
            return self.rank < other.rank

    items = [OnlyLess(rank) for rank in (3, 1, 2, 1, 5, 4)]
    assert POLYFILLS[sorted](items) == sorted(items)
    assert POLYFILLS[sorted](items, reverse=True) == sorted(items, reverse=True)


def test_sorted_errors():
    check(sorted, [1, "a"])
    check(sorted, 5)
    check(sorted, [Opaque(), Opaque()])
    check(sorted, [1, 2], key=lambda item: [][item])


class Sequence:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class OwnReversed:
    def __reversed__(self):
        return iter("own")


class NotReversible:
    __reversed__ = None

    def __len__(self):
        return 0

    def __getitem__(self, index):
        return index


class ShortSequence(Sequence):
    def __len__(self):
        return len(self.items) + 1


@pytest.mark.parametrize(
    "value",
    [
        [1, 2, 3],
        (1, 2),
        "abc",
        range(3, 10, 2),
        {"a": 1, "b": 2},
        {"a": 1}.keys(),
        {"a": 1, "b": 2}.items(),
        {"a": 1, "b": 2}.values(),
        collections.OrderedDict(a=1, b=2),
        collections.OrderedDict(a=1, b=2).items(),
        Sequence("abc"),
        ShortSequence("abc"),
        OwnReversed(),
        NotReversible(),
        {1, 2},
        5,
        iter([1]),
    ],
    ids=_name,
)
def test_reversed(value):
    check_iterator(reversed, lambda log: [value])
    method = getattr(type(value), "__reversed__", None)
    if method is not None and lookup(method):
        check_iterator(method, lambda log: [value])


def test_reversed_sees_the_list_as_it_is():
    for function in (reversed, POLYFILLS[reversed], METHOD_POLYFILLS[list, "__reversed__"]):
        items = [1, 2, 3, 4]
        iterator = function(items)
        assert next(iterator) == 4
        del items[1:]
        assert list(iterator) == []
        items.extend([5, 6, 7])
        assert list(iterator) == []


@given(ints, small_ints, failing)
def test_iter_with_sentinel(items, sentinel, fail):
    check_iterator(iter, lambda log: [Watched(items, log, 0, fail).__next__, sentinel])


def test_iter_with_sentinel_needs_a_function():
    check(iter, 5, 6)


@pytest.mark.parametrize(
    ("original", "args", "kwargs"),
    [
        (enumerate, (5,), {}),
        (zip, (5,), {}),
        (zip, ([1], 5), {}),
        (map, (len,), {}),
        (map, (), {}),
        (map, (len, 5), {}),
        (filter, (None, 5), {}),
        (all, (5,), {}),
        (any, (5,), {}),
        (zip, (), {}),
        (zip, (), {"strict": True}),
    ],
)
def test_iterating_builtins_refuse_at_the_call(original, args, kwargs):
    check_iterator(original, lambda log: args, **kwargs)


@given(st.lists(numbers, max_size=6))
def test_math_prod(items):
    items = [item for item in items if not isinstance(item, float) or math.isfinite(item)]
    check(math.prod, items)
    check(math.prod, items, start=2)


# --- itertools and functools --------------------------------------------------------------------------------------


@given(streams)
def test_chain_and_zip_longest(specs):
    check_iterator(itertools.chain, watched(specs))
    check_iterator(itertools.chain.from_iterable, lambda log: [Watched(watched(specs)(log), log, "outer")])
    check_iterator(itertools.zip_longest, watched(specs))
    check_iterator(itertools.zip_longest, watched(specs), fillvalue=-1)


@given(ints, failing)
def test_single_stream_iterators(items, fail):
    def one(log):
        return Watched(items, log, 0, fail)

    for original in (itertools.cycle, itertools.pairwise, itertools.accumulate):
        check_iterator(original, lambda log: [one(log)])
    for original in (itertools.takewhile, itertools.dropwhile, itertools.filterfalse):
        check_iterator(original, lambda log: [picky, one(log)])
    for function in (None, bool):
        check_iterator(itertools.filterfalse, lambda log, f=function: [f, one(log)])
    check_iterator(itertools.accumulate, lambda log: [one(log), picky2])
    check_iterator(itertools.accumulate, lambda log: [one(log)], initial=7)
    check_iterator(itertools.accumulate, lambda log: [one(log)], func=picky2, initial=0)
    check_iterator(itertools.starmap, lambda log: [picky2, zip(one(log), one(log), strict=False)])
    check_iterator(itertools.starmap, lambda log: [picky2, one(log)])
    check_iterator(itertools.compress, lambda log: [one(log), Watched(items[::-1], log, 1)])


bound = st.one_of(st.none(), st.integers(-1, 9))


@given(ints, failing, st.lists(bound, min_size=1, max_size=3))
@settings(max_examples=300)
def test_islice(items, fail, bounds):
    check_iterator(itertools.islice, lambda log: [Watched(items, log, 0, fail), *bounds])


def test_islice_leaves_its_argument_in_the_same_place():
    for bounds in ((3,), (1, 6, 4), (0, 9, 4), (5, 5), (0, None, 3)):
        rests = []
        for function in (itertools.islice, POLYFILLS[itertools.islice]):
            source = iter(range(12))
            rests.append((list(function(source, *bounds)), list(source)))
        assert rests[0] == rests[1]


@given(ints, failing, st.sampled_from([None, picky, abs]))
@settings(max_examples=300)
def test_groupby(items, fail, key):
    # Each group is read to a different depth, and the first is tried again when it is over.
    def walk(function):
        log, seen, first = [], [], None
        groups = function(Watched(items, log, 0, fail), key)
        for depth in range(6):
            step = outcome(next, groups)
            if step[0] == "error":
                seen.append(step)
                continue
            name, group = step[1]
            first = first or group
            seen.append((name, [outcome(next, group) for _ in range(depth)], outcome(next, first)))
        return seen, log

    assert walk(POLYFILLS[itertools.groupby]) == walk(itertools.groupby)


@given(ints, st.lists(st.integers(0, 2), max_size=15))
def test_tee(items, turns):
    def walk(function):
        log = []
        readers = function(Watched(items, log, 0), 3)
        return [outcome(next, readers[turn]) for turn in turns], log

    assert walk(POLYFILLS[itertools.tee]) == walk(itertools.tee)


def test_tee_counts():
    check(itertools.tee, [], -1)
    check(itertools.tee, 5)
    check(itertools.tee, [], 0)
    assert len(POLYFILLS[itertools.tee]([])) == 2


pools = st.lists(st.lists(small_ints, max_size=3), max_size=3)


@given(pools, st.integers(-1, 2))
def test_product(specs, repeat):
    check_iterator(itertools.product, lambda log: specs)
    check_iterator(itertools.product, lambda log: specs, repeat=repeat)


@given(st.lists(small_ints, max_size=5), st.integers(-1, 6))
def test_combinatorics(items, length):
    check_iterator(itertools.permutations, lambda log: [items])
    for original in (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement):
        check_iterator(original, lambda log, f=original: [items, length])


def test_combinatorics_errors():
    check(itertools.permutations, [], 1.5)
    for original in (itertools.permutations, itertools.combinations, itertools.combinations_with_replacement):
        check(original, 5, 1)
    check(itertools.product, 5)
    check_iterator(itertools.product, lambda log: [5], repeat=0)


@pytest.mark.parametrize("args", [(), (5,), (0, 2), (2.5, 0.5), (1, -1), ("a",), (1, None), ([],)], ids=repr)
def test_count(args):
    check_iterator(itertools.count, lambda log: args)


@pytest.mark.parametrize("args", [("a",), ("a", 3), ("a", 0), ("a", -2), ("a", 1.5)], ids=repr)
def test_repeat(args):
    check_iterator(itertools.repeat, lambda log: args)


@pytest.mark.parametrize("args", [([],), ([], "a"), ([], 1, "a"), ([], "a", 1), ([], 0, 1, 0), (5, 1)], ids=repr)
def test_islice_errors(args):
    check_iterator(itertools.islice, lambda log: args)


@pytest.mark.skipif(not hasattr(itertools, "batched"), reason="new in Python 3.12")
@given(st.lists(small_ints, max_size=7), st.integers(0, 4), failing)
def test_batched(items, size, fail):
    check_iterator(itertools.batched, lambda log: [Watched(items, log, 0, fail), size])
    if sys.version_info >= (3, 13):
        check_iterator(itertools.batched, lambda log: [Watched(items, log, 0, fail), size], strict=True)


@given(ints, failing, st.lists(small_ints, max_size=1))
def test_reduce(items, fail, initial):
    check_iterator(functools.reduce, lambda log: [picky2, Watched(items, log, 0, fail), *initial], consume=outcome)


def test_reduce_errors():
    check(functools.reduce, operator.add, [])
    check(functools.reduce, operator.add, 5)
    check(functools.reduce, operator.add, [1], 2, 3)
