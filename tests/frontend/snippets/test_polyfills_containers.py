"""Polyfills of operators and of methods of containers give what their originals give, errors included."""

import collections
import operator

import pytest
from hypothesis import given, strategies as st

from torchmux.frontend.polyfills import METHOD_POLYFILLS, POLYFILLS, STANDS_FOR, lookup

from .polyfill_checks import NeverEqual, Opaque, check, check_iterator, ints, outcome, same, small_ints, values, watched

# --- operator ------------------------------------------------------------------------------------------------------

UNARY = [operator.not_, operator.truth, operator.abs, operator.invert, operator.neg, operator.pos]
NEITHER = [operator.setitem, operator.delitem, operator.call]
BINARY = [
    original
    for original in POLYFILLS
    if getattr(operator, original.__name__, None) is original
    and not isinstance(original, type)
    and original not in UNARY + NEITHER
]
OPERANDS = [0, 3, -2, True, 1.5, "ab", "b", None, Opaque()]


@pytest.mark.parametrize("original", UNARY, ids=lambda f: f.__name__)
def test_unary_operators(original):
    for operand in [*OPERANDS, [1], []]:
        check(original, operand)


@pytest.mark.parametrize("original", BINARY, ids=lambda f: f.__name__)
def test_binary_operators(original):
    function = POLYFILLS[original]
    for a in [*OPERANDS, [], [1, 3], (1, 3), {1: 2}, {3}]:
        for b in [*OPERANDS, [1], (3,), {3}]:
            mine, theirs = [
                outcome(f, a.copy() if isinstance(a, (list, dict, set)) else a, b) for f in (function, original)
            ]
            # The words of a TypeError name the operator, or the function; the place says enough.
            assert same(mine, theirs) or (mine[:2] == theirs[:2] == ("error", TypeError)), (a, b, mine, theirs)


def test_item_assignment_operators():
    items = [1, 2, 3]
    POLYFILLS[operator.setitem](items, 1, 9)
    POLYFILLS[operator.delitem](items, 0)
    assert items == [9, 3]
    assert POLYFILLS[operator.call](dict, a=1) == {"a": 1}


class Node:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self, *args, **kwargs):
        return args, kwargs


TREE = Node(a=Node(b=Node(c=1)), d=2, e={"k": 3})


@pytest.mark.parametrize(
    ("maker", "args", "kwargs", "operand"),
    [
        (operator.itemgetter, (1,), {}, [5, 6, 7]),
        (operator.itemgetter, (1, 0, -1), {}, [5, 6, 7]),
        (operator.itemgetter, (slice(1, None),), {}, "abc"),
        (operator.itemgetter, ("a",), {}, {}),
        (operator.itemgetter, (), {}, None),
        (operator.attrgetter, ("d",), {}, TREE),
        (operator.attrgetter, ("a.b.c", "d"), {}, TREE),
        (operator.attrgetter, ("a.x",), {}, TREE),
        (operator.attrgetter, (), {}, None),
        (operator.attrgetter, (1,), {}, None),
        (operator.methodcaller, ("method",), {}, TREE),
        (operator.methodcaller, ("method", 1, 2), {}, TREE),
        (operator.methodcaller, ("method", 1), {"k": 2}, TREE),
        (operator.methodcaller, ("nothing",), {}, TREE),
        (operator.methodcaller, (), {}, TREE),
        (operator.methodcaller, (1,), {}, TREE),
    ],
)
def test_getters(maker, args, kwargs, operand):
    expected = outcome(lambda: maker(*args, **kwargs)(operand))
    assert outcome(lambda: POLYFILLS[maker](*args, **kwargs)(operand)) == expected
    made = outcome(maker, *args, **kwargs)
    if made[0] == "value":
        function, pieces = lookup(made[1])
        assert outcome(function, *pieces, operand) == expected
        assert STANDS_FOR[type(POLYFILLS[maker](*args, **kwargs))] is maker


# --- lists, tuples, strings ---------------------------------------------------------------------------------------

NAN = float("nan")
bound = st.one_of(st.none(), st.integers(-1, 9))
nested = st.recursive(
    st.one_of(small_ints, st.just(NAN), st.text(max_size=2)), lambda s: st.lists(s, max_size=3), max_leaves=6
)


@given(st.lists(st.one_of(small_ints, st.just(NAN), nested), max_size=6), values, bound, bound)
def test_list_and_tuple_searches(items, value, start, stop):
    for sequence in (items, tuple(items)):
        for wanted in (value, *items[:2]):
            check(sequence.index, wanted)
            check(sequence.count, wanted)
            check(sequence.__contains__, wanted)
            if start is not None:
                check(sequence.index, wanted, start)
                if stop is not None:
                    check(sequence.index, wanted, start, stop)
        mine, theirs = list(items), list(items)
        assert same(outcome(METHOD_POLYFILLS[list, "remove"], mine, value), outcome(theirs.remove, value))
        assert all(a is b for a, b in zip(mine, theirs, strict=True))


def test_identity_counts_as_equality():
    odd = NeverEqual()
    check([odd].index, odd)
    check([odd].count, odd)
    check((1, odd).index, odd)
    check([odd].__eq__, [odd])
    check({"a": odd}.__eq__, {"a": odd})
    check(operator.countOf, [odd], odd)


@given(st.lists(nested, max_size=4), st.lists(nested, max_size=4))
def test_sequence_comparisons(a, b):
    for left, right in ((a, b), (a, list(a)), (tuple(a), tuple(b)), (tuple(a), tuple(a))):
        for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
            check(getattr(left, name), right)
    check(a.__eq__, tuple(b))
    check(tuple(a).__lt__, 5)


def test_sequence_comparison_gives_what_the_items_give():
    class Answer:
        def __eq__(self, other):
            return False

        def __lt__(self, other):
            return "less"

    assert METHOD_POLYFILLS[list, "__lt__"]([Answer()], [Answer()]) == "less"


@given(st.lists(st.text(max_size=3)))
def test_str_join(parts):
    for make in (iter, set, tuple, dict.fromkeys):
        assert METHOD_POLYFILLS[str, "join"](", ", make(parts)) == ", ".join(make(parts))


def test_str_join_errors():
    check(", ".join, 5)
    check(", ".join, {1: "a"})
    check_iterator(", ".join, watched([(["a"], 1)]), consume=outcome)


# --- dictionaries and sets ----------------------------------------------------------------------------------------

dicts = st.dictionaries(st.one_of(small_ints, st.booleans()), st.one_of(small_ints, st.just(NAN)), max_size=5)


@given(dicts, dicts)
def test_dict_operations(a, b):
    for left, right in ((a, b), (a, dict(a)), (a, dict(reversed(a.items())))):
        for wrap in (dict, collections.OrderedDict):
            for name in ("__eq__", "__ne__", "__or__", "__ror__"):
                check(getattr(wrap(left), name), right)
                check(getattr(wrap(left), name), collections.OrderedDict(right))
                check(getattr(wrap(left), name), 5)
            mine, theirs = wrap(left), wrap(left)
            assert METHOD_POLYFILLS[wrap, "__ior__"](mine, right) is mine
            theirs |= right
            assert list(mine.items()) == list(theirs.items())
            assert same(list(METHOD_POLYFILLS[wrap, "__reversed__"](wrap(left))), list(reversed(wrap(left))))
    check(dict.fromkeys, list(a), 5)
    check(dict.fromkeys, list(a))
    check(collections.OrderedDict.fromkeys, list(a), 5)
    check(collections.OrderedDict.fromkeys, list(a), value=5)


def test_fromkeys_of_subclasses():
    class Mine(dict):
        pass

    check(Mine.fromkeys, "ab", 1)
    check(dict.fromkeys, 5)
    check(dict.fromkeys, [[]])


@given(dicts, dicts, st.lists(small_ints, max_size=4))
def test_dict_views(a, b, others):
    for left, right in ((a.keys(), b.keys()), (a.items(), b.items()), (a.keys(), set(b)), (a.keys(), others)):
        for name in ("__and__", "__or__", "__sub__", "__xor__", "isdisjoint"):
            check(getattr(left, name), right)
        for name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
            check(getattr(left, name), right)


@given(ints)
def test_count_elements(items):
    mine, theirs = {}, {}
    POLYFILLS[collections._count_elements](mine, items)
    collections._count_elements(theirs, items)
    assert mine == theirs


members = st.lists(st.one_of(small_ints, st.booleans(), st.floats(-2, 2)), max_size=6)


def typed(items):
    """The members with their types: of 1, True and 1.0 a set keeps the one it met first."""
    return sorted((item, type(item).__name__) for item in items) if isinstance(items, (set, frozenset)) else items


@given(members, st.lists(members, max_size=3))
def test_set_methods(items, others):
    for cls in (set, frozenset):
        for kind in (set, frozenset, list, iter):
            for name in ("union", "intersection", "difference"):
                function, leading = lookup(getattr(cls(items), name))
                mine = function(*leading, *[kind(other) for other in others])
                theirs = getattr(cls(items), name)(*[kind(other) for other in others])
                assert type(mine) is type(theirs) and typed(mine) == typed(theirs)
            for other in others:
                for name in ("symmetric_difference", "issubset", "issuperset", "isdisjoint"):
                    mine = METHOD_POLYFILLS[cls, name](cls(items), kind(other))
                    theirs = getattr(cls(items), name)(kind(other))
                    assert type(mine) is type(theirs) and typed(mine) == typed(theirs)


@given(members, st.lists(members, max_size=2))
def test_set_methods_in_place(items, others):
    for kind in (set, frozenset, list):
        for name in ("intersection_update", "difference_update", "symmetric_difference_update"):
            given_others = [kind(other) for other in (others[:1] if name.startswith("sym") else others)]
            mine, theirs = set(items), set(items)
            assert same(
                outcome(METHOD_POLYFILLS[set, name], mine, *given_others),
                outcome(getattr(theirs, name), *given_others),
            ) or name.startswith("sym")
            assert typed(mine) == typed(theirs) or not given_others


def test_a_set_and_itself():
    for name in ("difference_update", "symmetric_difference_update", "intersection_update"):
        mine, theirs = {1, 2}, {1, 2}
        METHOD_POLYFILLS[set, name](mine, mine)
        getattr(theirs, name)(theirs)
        assert mine == theirs


@given(members, members)
def test_set_operators(a, b):
    for cls in (set, frozenset):
        for other in (set(b), frozenset(b), list(b), set(a)):
            for name in ["or", "and", "sub", "xor", "ror", "rand", "rsub", "rxor", "eq", "ne", "le", "lt", "ge", "gt"]:
                name = f"__{name}__"
                mine = METHOD_POLYFILLS[cls, name](cls(a), other)
                theirs = getattr(cls, name)(cls(a), other)
                assert type(mine) is type(theirs) and typed(mine) == typed(theirs)
    for name in ["ior", "iand", "isub", "ixor"]:
        for other in (set(b), frozenset(b), list(b)):
            left, right = set(a), set(a)
            mine = METHOD_POLYFILLS[set, f"__{name}__"](left, other)
            theirs = getattr(set, f"__{name}__")(right, other)
            assert (mine is left) == (theirs is right) and typed(left) == typed(right)


def test_sets_refuse_what_cannot_be_iterated():
    for name in ("union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset", "isdisjoint"):
        check(getattr({1}, name), 5)
