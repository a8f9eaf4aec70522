"""Sources: every kind leads to its value, prints as a person would write it, and equals those that take its way."""

from __future__ import annotations

import contextvars
import dataclasses
import functools
import gc
import random
import types
import weakref
from dataclasses import field

import numpy as np
import pytest
import torch

from torchmux.frontend.guards import closed
from torchmux.frontend.guards.cached_results import CachedResult, CachedResultOf
from torchmux.frontend.guards.check import read
from torchmux.frontend.guards.closed import all_kinds, kind
from torchmux.frontend.guards.computed import Computed
from torchmux.frontend.guards.sources import (
    Attr,
    Cell,
    CellContents,
    ClosureCell,
    Const,
    Converted,
    Descriptor,
    Drawn,
    Element,
    Elements,
    GeneratorArgument,
    Global,
    InContext,
    Item,
    ItemOf,
    IteratedDict,
    IteratorArguments,
    Local,
    NumpyItem,
    Proxied,
    RawAttr,
    RawItem,
    Referent,
    Size,
    Source,
    Upcoming,
    not_followed,
)
from torchmux.frontend.guards.stable_objects import OPEN
from torchmux.frontend.guards.stable_paths import Walk

x = Local("x")
HOSTILE = ["a b", "class", "it's", '"', "{x}", "{0}", "{", "\\", "a\nb", "", "ﬁ", "0", "a.b", "%s"]


class Walls:
    """Reads nothing through its own ``__getattribute__``."""

    def __init__(self):
        object.__setattr__(self, "value", 7)

    def __getattribute__(self, name):
        raise AttributeError(name)


class Listed(list):
    def __getitem__(self, index):
        raise IndexError(index)


def given(number):
    yield number


@functools.cache
def squared(number, *, plus):
    return number * number + plus


def _closure():
    secret = 5
    return lambda: secret


FUNCTION = _closure()
KEY = (1, 2)
NUMBERS = {"a": 1}
THING = types.SimpleNamespace(weight=3)
KEPT = Walls()

# source, the frame's x, the expected value, words
EXAMPLES = [
    (x, 3, 3, "x"),
    (CellContents("x"), 3, 3, "x"),
    (Cell("x"), 3, 3, "cell of x"),  # a check is handed what is in it
    (Const(Walls, "Walls"), None, Walls, "Walls"),
    (Global({"scale": 4}, "scale"), None, 4, "global scale"),
    (Attr(x, "weight"), THING, 3, "x.weight"),
    (RawAttr(x, "value"), Walls(), 7, "x.value"),
    (Descriptor(x, "a"), type("Slotted", (), {"a": NUMBERS}), NUMBERS, "x.a"),
    (Item(x, "a"), NUMBERS, 1, "x['a']"),
    (Item(x, KEY), {KEY: 8}, 8, "x[tuple]"),
    (RawItem(x, list, 1), Listed([5, 6]), 6, "x[1]"),
    (RawItem(x, dict, KEY), {KEY: 8}, 8, "x[tuple]"),
    (Element(x, dict, 0), NUMBERS, "a", "key of x"),
    (Elements(x, dict), NUMBERS, [*NUMBERS], "elements of x"),
    (ItemOf(x, dict, Element(x, dict, 0)), NUMBERS, next(iter(NUMBERS.values())), "x[key of x]"),
    (ClosureCell(x, 0, "secret"), FUNCTION, FUNCTION.__closure__[0], "cell secret of x"),
    (Size(x, 1), torch.ones(2, 3), 3, "size 1 of x"),
    (Converted(x, str), 3, "3", "x"),
    (Drawn(x, "randrange", (3, 4), 0), random.Random(0), 3, "x.randrange()"),
    (CachedResult(x, (3,), {"plus": 1}), squared, 10, "x(...)"),
    (CachedResultOf(x, (Const(3, "3"), 1), ("plus",)), squared, 10, "x(...)"),
    (Computed(round, (x, 1), ("ndigits",), x), 2.625, 2.6, "round(x, 1)"),
    (Proxied(x), types.MappingProxyType(NUMBERS), NUMBERS, "x"),
    (NumpyItem(x), np.int64(3), 3, "x.item()"),
    (Referent(x), weakref.ref(KEPT), KEPT, "x()"),
    (IteratorArguments(x), iter([1, 2]), ([1, 2],), "x"),
    (Upcoming(x, 1), iter([1, 2]), 2, "item 1 ahead of x"),
    (GeneratorArgument(x, "number"), given(3), 3, "number of x"),
    (InContext(x, True), contextvars.ContextVar("own", default=3), 3, "x.get()"),
    (IteratedDict(x), iter(NUMBERS), NUMBERS, "dictionary of x"),
]


def test_every_kind_has_an_example():
    assert {type(source) for source, *_ in EXAMPLES} == set(all_kinds(Source))


@pytest.mark.parametrize(("source", "value", "expected", "words"), EXAMPLES, ids=lambda x: getattr(x, "__name__", None))
def test_it_leads_to_its_value(source, value, expected, words):
    (found,) = read([source], {"x": value})
    assert found is expected or found == expected
    assert source.words() == words


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_all_kinds_are_read(name):
    thing = types.SimpleNamespace()
    setattr(thing, name, 5)
    walls = Walls()
    object.__setattr__(walls, name, 6)
    for source, value in [
        (Attr(x, name), thing),
        (RawAttr(x, name), walls),
        (Item(x, name), {name: 7}),
        (RawItem(x, dict, name), {name: 7}),
        (Global({name: 8}, name), None),
        (Attr(Item(x, name), name), {name: thing}),
        (Descriptor(x, name), type("Named", (), {name: 9})),
    ]:
        (found,) = read([source], {"x": value})
        assert found in (5, 6, 7, 8, 9)
    assert Attr(x, name).words() == f"x.{name}"
    assert Item(x, name).words() == f"x[{name!r}]"
    assert Const(thing, name).words() == name


def test_a_local_may_have_any_name():
    (found,) = read([Local(".0")], {".0": 3})
    assert found == 3


def test_paths_with_a_common_beginning_load_it_once():
    reads = []

    class Counting:
        def __getattr__(self, name):
            reads.append(name)
            return 3

    middle = Attr(x, "middle")
    read([Attr(middle, "real"), Attr(Attr(x, "middle"), "imag"), middle], {"x": Counting()})
    assert reads == ["middle"]


def test_words_without_the_tables_of_modules():
    weight = Item(Attr(Item(Attr(x, "_modules"), "0"), "_parameters"), "weight")
    assert weight.words() == "x._modules['0']._parameters['weight']"
    assert weight.short_words() == "x['0']['weight']"
    assert Item(Attr(x, "tables"), "weight").short_words() == "x.tables['weight']"
    assert Attr(x, "_parameters").short_words() == "x._parameters"


def test_equality_is_that_of_the_way():
    one, other = [], []
    assert Attr(x, "a") == Attr(Local("x"), "a")
    assert hash(Attr(x, "a")) == hash(Attr(Local("x"), "a"))
    assert Const(one, "list") == Const(one, "another name")
    assert ClosureCell(x, 0, "a") == ClosureCell(x, 0, "b")
    different = [
        x, CellContents("x"), Cell("x"), Local("y"), Attr(x, "a"), RawAttr(x, "a"), Attr(Local("y"), "a"), Item(x, "a"),
        Item(x, 1), Item(x, True), Item(x, "1"), Item(x, None), Item(x, 0), Item(x, False), RawItem(x, dict, 1),
        RawItem(x, list, 1), Const(one, "list"), Const(other, "list"), Size(x, 1), Element(x, dict, 1),
        Element(x, set, 1), Elements(x, set), ItemOf(x, dict, Local("y")), Item(x, KEY),
        Item(x, (*KEY,)), ClosureCell(x, 1, "a"), Global(NUMBERS, "a"), Global({"a": 1}, "a"),
    ]  # fmt: skip
    assert len(set(different)) == len(different)


def test_comparing_runs_none_of_the_programs_code():
    class Rude:
        def __eq__(self, other):
            raise AssertionError

        def __hash__(self):
            raise AssertionError

    key = Rude()
    assert Item(x, key) == Item(Local("x"), key)
    assert Item(x, key) != Item(x, Rude())


def test_depth_and_root():
    path = Item(Attr(x, "a"), 0)
    assert (path.depth(), path.root(), path.parent) == (3, x, Attr(x, "a"))


def test_sources_never_change():
    path = Attr(x, "a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        path.name = "b"
    assert not hasattr(path, "__dict__")


def test_what_is_not_declared_cannot_be_made():
    class Undeclared(Source):
        __slots__ = ()

    class Derived(Attr):
        __slots__ = ()

    for source, arguments in ((Undeclared, ()), (Derived, (x, "a"))):
        with pytest.raises(TypeError, match="not declared"):
            source(*arguments)


def test_every_question_has_to_be_answered():
    with pytest.raises(TypeError, match="Sometimes does not define in_words, follow"):

        @kind
        class Sometimes(Source):
            parent: Source

            def expression(self, out):
                return "1"

    with pytest.raises(TypeError, match="Copied does not define expression, in_words, follow"):

        @kind
        class Copied(Attr):  # what a parent answers need not be right for it
            pass


def test_a_new_kind_is_one_class(monkeypatch):
    monkeypatch.setattr(closed, "_COMPARED", dict(closed._COMPARED))  # for this test only

    @kind
    class Last(Source):
        """The last item of a list."""

        parent: Source
        note: str = field(default="", compare=False)

        def expression(self, out):
            return f"{out.load(self.parent)}[-1]"

        def in_words(self, parent):
            return f"last of {parent}"

        follow = not_followed

    assert read([Attr(Last(x), "real")], {"x": [1, 2]}) == [2]
    assert Last(x, "one") == Last(x, "two")
    assert repr(Attr(Last(x), "real")) == "<Attr last of x.real>"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        self.settings = types.SimpleNamespace(by=2)
        self.settings.__dict__["a b"] = 3
        self.numbers = (1, 2)


# what a snapshot follows, from a module: the others are loaded in each check
FOLLOWED = {
    "argument": (x, lambda net: net),
    "cell": (CellContents("x"), lambda net: net),
    "attribute": (Attr(x, "numbers"), lambda net: net.numbers),
    "attribute past __getattribute__": (RawAttr(x, "numbers"), lambda net: net.numbers),
    "table": (Item(Attr(x, "_modules"), "lin"), lambda net: net.lin),
    "item of a tuple": (Item(Attr(x, "numbers"), -1), lambda net: 2),
    "global": (Global(globals(), "NUMBERS"), lambda net: NUMBERS),
    "class": (Const(Net, "Net"), lambda net: Net),
    "code": (Attr(Attr(Const(Net, "Net"), "__init__"), "__code__"), lambda net: Net.__init__.__code__),
    "its own module": (Const(torch.nn, "torch.nn"), lambda net: torch.nn),
}
NOT_FOLLOWED = {
    "cell object": Cell("x"),
    "object of the program's": Const([], "list"),
    "descriptor": Descriptor(Const(Net, "Net"), "__init__"),
    "a list": Local("y"),
    "missing": Item(Attr(x, "_modules"), "none"),
    "out of range": Item(Attr(x, "numbers"), 2),
    "raw item": RawItem(Attr(x, "_modules"), dict, "lin"),
    "size": Size(Item(Attr(Item(Attr(x, "_modules"), "lin"), "_parameters"), "weight"), 0),
    "what follows what is open": Attr(Item(Local("y"), 0), "weight"),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name):
    net = Net()
    source, expected = FOLLOWED[name]
    assert Walk({"x": net, "y": Net()}, net).value(source) is expected(net)


@pytest.mark.parametrize("name", NOT_FOLLOWED)
def test_not_followed(name):
    net = Net()
    assert Walk({"x": net, "y": [Net()]}, net).value(NOT_FOLLOWED[name]) is OPEN


def test_a_source_keeps_alive_what_it_compares_by_identity():
    key = frozenset({1})
    source, gone = Item(x, key), id(key)
    del key
    gc.collect()
    assert id(source.key) == gone
