"""Kinds of guard: each holds where it should and not elsewhere, says so, and answers whether it can be watched."""

from __future__ import annotations

import abc
import contextvars
import dataclasses
import itertools
import math
import operator
import sys
import types
import weakref

import numpy as np
import pytest
import torch

import torchmux
from torchmux.frontend.guards import closed
from torchmux.frontend.guards.check import CompiledGuards, evaluate
from torchmux.frontend.guards.closed import all_kinds, kind
from torchmux.frontend.guards.filter import filter_guards
from torchmux.frontend.guards.forms import flattens_to
from torchmux.frontend.guards.guards import GuardSet, ShapeCondition, ShapePart
from torchmux.frontend.guards.kinds.classes import (
    ClassFinds,
    ClassMethodIs,
    DerivesAsBefore,
    HasSubclasses,
    IsInstance,
    IsSubclass,
    NotInClasses,
)
from torchmux.frontend.guards.kinds.containers import (
    HasKey,
    HasKeyFrom,
    Keys,
    KeysAt,
    Length,
    NotEmpty,
    RawLength,
    SameElements,
    SetOrder,
    face,
)
from torchmux.frontend.guards.kinds.equality import (
    BuiltinPartEquals,
    EqualsComplex,
    EqualsFloat,
    EqualsLiteral,
    EqualsNumpyScalar,
    EqualsObject,
    EqualsRange,
    IsNaN,
    IsSingleton,
    equals,
)
from torchmux.frontend.guards.kinds.frames import BranchesAsExpected, NoExceptionHandled
from torchmux.frontend.guards.kinds.functions import AutocastDtypeIs, Dispatches, FunctionGives, MethodNameIs, Returns
from torchmux.frontend.guards.kinds.guard import Guard, always_checked
from torchmux.frontend.guards.kinds.iterators import IsStrict, ItemsLeft, MoreLeft, NotBegun, StandsAt
from torchmux.frontend.guards.kinds.modules import NoGlobalHooks, NoHooks, RegistersNothingBut, Unregistered, Unshadowed
from torchmux.frontend.guards.kinds.numbers import LARGEST_FLOAT32, AtLeast, AtMost, Decides, FitsFloat32, IsInt64
from torchmux.frontend.guards.kinds.objects import (
    AttributeIs,
    Is,
    NoAttribute,
    NoOwnAttribute,
    NotInContext,
    NotInDict,
    SameObject,
    SlotIsEmpty,
    TypeIs,
)
from torchmux.frontend.guards.kinds.tensors import (
    ApartInMemory,
    ContextAccepted,
    DistributedAs,
    FlattensTo,
    PropertyEquals,
    ShowsNoLeaf,
    StorageOffset,
    Strides,
)
from torchmux.frontend.guards.loader import Loader, Names
from torchmux.frontend.guards.sources import Attr, Const, Item, Local
from torchmux.frontend.guards.stable_paths import Walk

from ..snippets.corpus import assert_same
from .test_sources import HOSTILE

x = Local("x")


class Base:
    limit = len

    @classmethod
    def made(cls):
        return cls()


class Other(Base):
    limit = abs
    extra = 1

    @classmethod
    def made(cls):
        return None


class Slotted:
    __slots__ = ("value",)


class Text(str):
    def __str__(self):
        return "hidden"


class Numbers(list):
    def __len__(self):
        return 99


def _set_slot():
    slotted = Slotted()
    slotted.value = 1
    return slotted


def _hooked():
    net = torch.nn.Linear(2, 2)
    net.register_forward_hook(lambda *_: None)
    return net


def _generator():
    yield 1


def _advanced(iterator):
    next(iterator)
    return iterator


def _handled_here():
    return types.SimpleNamespace(exc_info=lambda: (None, ValueError(), None))


A, B = object(), object()
LIN = torch.nn.Linear(2, 2)
KEY = (1, 2)
EQUAL_KEY = (*KEY,)
SHIFTED = torch.arange(6.0)[1:3]
LEAF = torch.ones(2, requires_grad=True)

# guard, an x for which it holds, an x for which it does not, the Python of the check, words
PAIR, WIDE = (types.SimpleNamespace(__tensor_flatten__=lambda n=n: (["a", "b"], n)) for n in (1, 2))
EVEN = types.SimpleNamespace(__metadata_guard__=lambda mine, other: (mine - other) % 2 == 0)
LINE = np.arange(3)
SET = contextvars.ContextVar("set")
SET.set(1)

EXAMPLES = [
    (TypeIs(x, int), 3, True, "type(x) is _c0", "has type int"),
    (Is(x, A), A, B, "x is _c0", f"is {A!r}"),
    (Is(x, len, "is that of f"), len, abs, "x is _c0", "is that of f"),
    (SameObject(Item(x, 0), Item(x, 1)), (A, A), (A, B), "v1 is v2", "is x[1]"),
    (AttributeIs(x, "limit", len), Base, Other, "x.limit is _c0", "has the same limit"),
    (NoAttribute(x, "extra"), Base, Other, "not hasattr(x, 'extra')", "has no extra"),
    (NotInContext(x), contextvars.ContextVar("unset"), SET, "x.get(_c0) is _c0", "is not set"),
    (NotInDict(x, "a", "attribute "), {}, {"a": 1}, "'a' not in x", "has no attribute a"),
    (NoOwnAttribute(x, "a"), Base(), types.SimpleNamespace(a=1), "'a' not in x.__dict__", "has no attribute a"),
    (SlotIsEmpty(x, Slotted.value, "value"), Slotted(), _set_slot(), "not _c1(_c0, x)", "has no attribute value"),
    (IsSingleton(x, None), None, 0, "x is None", "is None"),
    (IsSingleton(x, True), True, 1, "x is True", "is True"),
    (IsSingleton(x, ...), ..., None, "x is ...", "is Ellipsis"),
    (EqualsLiteral(x, 1), 1, True, "type(x) is int and x == 1", "== 1"),
    (EqualsLiteral(x, "{a}"), "{a}", "{b}", "type(x) is str and x == '{a}'", "== '{a}'"),
    (IsNaN(x), math.nan, 1.0, "type(x) is float and x != x", "is nan"),
    (EqualsFloat(x, 0.0), 0.0, -0.0, "type(x) is float and x.hex() == '0x0.0p+0'", "== 0.0"),
    (EqualsComplex(x, 1j), 1j, complex(-0.0, 1), "type(x) is complex and (x.real.hex(), x.imag.hex()) == "
     "('0x0.0p+0', '0x1.0000000000000p+0')", "== 1j"),
    (EqualsNumpyScalar(x, np.float32(2)), np.float32(2), np.float64(2), "type(x) is _c0 and x.tobytes() == _c1",
     f"== {np.float32(2)!r}"),
    (EqualsRange(x, range(0, 4, 2)), range(0, 4, 2), range(0, 3, 2),
        "type(x) is range and (x.start, x.stop, x.step) == (0, 4, 2)", "== range(0, 4, 2)"),
    (EqualsObject(x, b"a"), b"a", b"b", "type(x) is _c0 and x == _c1", "== b'a'"),
    (BuiltinPartEquals(x, str, "a"), type("T", (str,), {})("a"), type("T", (str,), {})("b"), "_c0.__str__(x) == _c1",
     "== 'a'"),
    (BuiltinPartEquals(x, int, 3), type("N", (int,), {})(3), type("N", (int,), {})(4), "_c0.__index__(x) == _c1",
     "== 3"),
    (BuiltinPartEquals(x, float, 0.0), type("F", (float,), {})(0.0), type("F", (float,), {})(-0.0),
     "_c0.hex(x) == _c1", "== 0.0"),
    (IsInt64(x), -(1 << 63), 1 << 63, f"type(x) is int and {-(1 << 63)} <= x < {1 << 63}", "is an int of 64 bits"),
    (FitsFloat32(x), 1.5, math.inf,
     f"type(x) is float and {-LARGEST_FLOAT32} <= x <= {LARGEST_FLOAT32} and x != 0.0",
     "is a float other than zero, in the range of float32"),
    (AtLeast(x, 2), 2, 1, "x >= 2", ">= 2"),
    (AtMost(x, 2), 2, 3, "x <= 2", "<= 2"),
    (Length(x, 2), [1, 2], [1], "len(x) == 2", "has length 2"),
    (Length(x, 2, "keys"), {1: 1, 2: 2}, {}, "len(x) == 2", "has 2 keys"),
    (RawLength(x, list, 2), Numbers([1, 2]), Numbers([1]), "_c0.__len__(x) == 2", "has 2 items"),
    (NotEmpty(x, True), {1: 1}, {}, "x", "is not empty"),
    (NotEmpty(x, False), {}, {1: 1}, "not x", "is empty"),
    (Keys(x, ("a", "b")), {"a": 1, "b": 2}, {"b": 2, "a": 1},
        "tuple(map(type, x)) == _c0 and tuple(x) == _c1", "has the keys ['a', 'b']"),
    (Keys(x, ("a",), "attributes"), {"a": 1}, {}, "tuple(map(type, x)) == _c0 and tuple(x) == _c1",
        "has the same attributes"),
    (Keys(x, (1,)), {1: 1}, {True: 1}, "tuple(map(type, x)) == _c0 and tuple(x) == _c1", "has the keys [1]"),
    (Keys(x, ()), {}, {1: 1}, "not tuple(x)", "has the keys []"),
    (KeysAt(x, (1,), (face(0.0),)), [A, 0.0], [A, -0.0], "_c0(x, _c1) == _c2", "are the same"),
    (HasKey(x, dict, "a", True, "'a'"), {"a": 1}, {}, "_c1.__contains__(x, _c0) is True", "has a key 'a'"),
    (HasKey(x, dict, "a", False, "'a'"), {}, {"a": 1}, "_c1.__contains__(x, _c0) is False", "has no key 'a'"),
    (HasKeyFrom(Item(x, 0), dict, Item(x, 1), True, "k"), ({A: 1}, A), ({A: 1}, B),
     "_c0.__contains__(v1, v2) is True", "has a key k"),
    (SameElements(x, set, frozenset({"a"})), {"a"}, {"a", "b"},
        "_c1.issuperset(map(type, _c0.__iter__(x))) and _c0.__eq__(x, _c2) is True", "has the same elements"),
    (SameElements(x, set, frozenset({1})), {1}, {True}, "frozenset(map(_c1, _c2.__iter__(x))) == _c0",
     "has the same elements"),
    (SetOrder(x, set, (1, 2)), {1, 2}, {1, 3}, "tuple(_c1.__iter__(x)) == _c0", "has its elements in the same order"),
    (StandsAt(x, 0), iter([1, 2]), _advanced(iter([1, 2])), "(x.__reduce__()[2:] or (None,))[0] == _c0",
     "stands at 0"),
    (IsStrict(x, True), zip([], strict=True), zip([], strict=False), "(len(x.__reduce__()) > 2) is True", "is strict"),
    (ItemsLeft(x, 1), iter({1: 1}), iter({}), "_c0(x) == 1", "has 1 items left"),
    (MoreLeft(x, 1), iter({1: 1, 2: 2}), iter([1]), "_c0(x) > 1", "has more than 1 items left"),
    (NotBegun(x, _generator.__code__, globals()), _generator(), _advanced(_generator()),
     "_c0(x) and x.gi_code is _c1 and x.gi_frame.f_globals is _c2", "is a generator of _generator that has not begun"),
    (ClassMethodIs(x, "made", Base.made.__func__), Base, Other, "x.made.__func__ is _c0", "has the same made"),
    (ClassFinds(x, "limit", len), Base, Other, "_c0(x, 'limit') is _c1", "has the same limit"),
    (DerivesAsBefore(x, Base.__mro__), Base, Other, "x.__mro__ == _c0", "derives from the same classes"),
    (HasSubclasses(x, tuple(map(weakref.ref, Base.__subclasses__()))), Base, int, "_c0(x, _c1)",
     f"has the same {len(Base.__subclasses__())} subclasses"),
    (IsInstance(x, Base, True), Base(), 3, "isinstance(x, _c0) is True", "counts as Base"),
    (IsSubclass(x, Base, True), Base, int, "issubclass(x, _c0) is True", "counts as Base"),
    (NotInClasses(x, "extra"), Base, Other, "all('extra' not in c.__dict__ for c in x.__mro__)", "has no extra"),
    (MethodNameIs(x, "append"), [].append, [].extend, "x.__name__ == 'append'", "is method append"),
    (Returns(x, 3), lambda: 3, lambda: 4, "x() == _c0", "returns 3"),
    (AutocastDtypeIs(x, "cpu", torch.half), lambda device: torch.half, lambda device: torch.bfloat16,
     "x('cpu') is _c0", "returns torch.float16 for cpu"),
    (Dispatches(x, int, len), lambda cls: len, lambda cls: abs, "x(_c0) is _c1", "finds the same for int"),
    (FunctionGives(x, operator.neg, -3, "is three"), 3, 4, "_c0(x) == _c1", "is three"),
    (NoHooks(x), LIN, _hooked(), "not (x._forward_hooks or x._forward_pre_hooks or x._backward_hooks or "
     "x._backward_pre_hooks)", "has no hooks"),
    (NoGlobalHooks(x, ("a", "b")), types.SimpleNamespace(a={}, b={}), types.SimpleNamespace(a={}, b={1: 1}),
     "not (x.a or x.b)", "has no global module hooks"),
    (Unregistered(x, "other"), LIN, torch.nn.ModuleDict({"other": LIN}), "not ('other' in x.__dict__ or "
     "'other' in x._parameters or 'other' in x._buffers or 'other' in x._modules)", "has no other"),
    (Unshadowed(x, "other"), LIN, types.SimpleNamespace(other=1), "'other' not in x.__dict__",
     "has its other registered alone"),
    (RegistersNothingBut(x, "weight", False), torch.nn.ReLU(), LIN, "not ('weight' in x._parameters or "
     "'weight' in x._modules or ('weight' in x._buffers) is not False)", "registers weight as before"),
    (PropertyEquals(x, "is_leaf", True), LEAF, LEAF * 2, "x.is_leaf == _c0", "has is_leaf True"),
    (ShowsNoLeaf(x), (LEAF * 2).view(-1), LEAF.view(-1), "not _c0(x)", "shows no memory of a leaf"),
    (Strides(x, (2, 1)), torch.ones(1, 2), torch.ones(2, 1).t(), "x.stride() == (2, 1)", "has strides (2, 1)"),
    (Decides(Item(x, 0), (Item(x, 0), Item(x, 1)), (operator.lt, 0, (operator.mul, 1, "0.5")), True), (1.0, 4.0),
     (3.0, 4.0), "_c0(v1, v2) is True", "decides a branch as before (True)"),
    (Decides(Item(x, 0), (Item(x, 0), Item(x, 1)), (operator.gt, (operator.truediv, 0, 1), "1"), False), (1.0, 4.0),
     (1.0, 0.0), "_c0(v1, v2) is False", "decides a branch as before (False)"),
    (ApartInMemory(Item(x, 0), (Item(x, 1),)), (np.ones(2), np.ones(2)), (LINE[:2], LINE[1:]),
     "_c0(v1, v2)", "shares no memory with x[1]"),
    (FlattensTo(x, flattens_to(PAIR)), PAIR, WIDE, "_c0(x) == _c1", "is made of the same"),
    (ContextAccepted(x, EVEN, ["a", "b"], 3), PAIR, WIDE, "_c3(x, _c0, _c1, _c2)",
     "is made of what its class takes for the same"),
    (DistributedAs(x, types.SimpleNamespace(placements="P", is_of=lambda value: value is A)), A, B, "_c0.is_of(x)",
     "is distributed as P"),
    (StorageOffset(x, 1), SHIFTED, torch.ones(2), "x.storage_offset() == 1", "starts at element 1"),
    (NoExceptionHandled(x), sys, _handled_here(), "x.exc_info()[1] is None", "has no exception that is being handled"),
    (BranchesAsExpected(x), types.SimpleNamespace(holds=True), types.SimpleNamespace(holds=False), "x.holds",
     "is the expected one"),
]  # fmt: skip
IDS = [f"{type(guard).__name__}-{number}" for number, (guard, *_) in enumerate(EXAMPLES)]

# What a snapshot may stand in for.  Each of these has a case in test_snapshots or below that changes it under a
# snapshot; every other kind says ``always_checked``.
WATCHED = {ClassFinds, DerivesAsBefore, NoOwnAttribute,
    TypeIs, Is, SameObject, AttributeIs, NoAttribute, NotInDict, IsSingleton, EqualsLiteral, IsNaN, EqualsFloat,
    EqualsComplex, EqualsObject, IsInt64, FitsFloat32, AtLeast, AtMost, Length, Keys, NoHooks, Unregistered,
    Unshadowed, HasKey, NoGlobalHooks,
}  # fmt: skip


def printed(guard):
    """The condition in a check that is handed x."""
    return guard.text(Loader(Names(), [], lambda source: source.name))


def test_every_kind_has_an_example():
    assert {type(guard) for guard, *_ in EXAMPLES} == set(all_kinds(Guard))


@pytest.mark.parametrize(("guard", "right", "wrong", "text", "words"), EXAMPLES, ids=IDS)
def test_it_holds_and_fails(guard, right, wrong, text, words):
    assert evaluate(guard, {"x": right})[1] is True
    assert evaluate(guard, {"x": wrong})[1] is False
    assert printed(guard) == text
    assert guard.words() == words


@pytest.mark.parametrize(("guard", "right", "wrong", "text", "words"), EXAMPLES, ids=IDS)
def test_it_is_checked_and_the_failure_is_told(guard, right, wrong, text, words):
    guards = GuardSet()
    guards.add(guard)
    compiled = CompiledGuards(guards)
    assert compiled.check({"x": right}) is True
    assert compiled.check({"x": wrong}) is False
    assert compiled.words() == [f"{guard.source.words()} {words}"]
    assert compiled.why_not({"x": wrong}).words.startswith(f"{guard.source.words()} {words} no longer holds (now ")


@pytest.mark.parametrize("cls", all_kinds(Guard))
def test_every_kind_says_whether_it_can_be_watched(cls):
    assert "is_watched" in vars(cls)
    assert (cls.is_watched is not always_checked) == (cls in WATCHED)


def test_names_of_torchs():
    special = {TypeIs: "TYPE_MATCH", Is: "ID_MATCH"}
    for guard, *_ in EXAMPLES:
        assert guard.torch_name == special.get(type(guard), "EQUALS_MATCH")


def test_what_is_no_kind_of_guard_is_refused():
    class Undeclared(Guard):
        pass

    class Derived(TypeIs):
        pass

    for make in (lambda: Guard(x), lambda: Undeclared(x), lambda: Derived(x, int)):
        with pytest.raises(TypeError, match="not declared"):
            make()
    for thing in (object(), "type(x) is int", None, x):
        with pytest.raises(TypeError, match="is no kind of guard"):
            GuardSet().add(thing)


def test_a_kind_that_does_not_say_whether_it_can_be_watched_is_refused():
    with pytest.raises(TypeError, match="Silent does not define is_watched"):

        @kind
        class Silent(Guard):
            def condition(self, value, out):
                return value

            def words(self):
                return "is true"

    with pytest.raises(TypeError, match="Copied does not define condition, words, is_watched"):

        @kind
        class Copied(TypeIs):
            pass


def test_a_new_kind_is_one_class(monkeypatch):
    monkeypatch.setattr(closed, "_COMPARED", dict(closed._COMPARED))  # for this test only

    @kind
    class SumIs(Guard):
        """The elements of a tuple add up to this."""

        total: int

        def condition(self, value, out):
            return f"{out.const(sum)}({value}) == {self.total}"

        def words(self):
            return f"adds up to {self.total}"

        def is_watched(self, objects, value):
            return type(value) is tuple

    guards = GuardSet()
    guards.add(SumIs(x, 3))
    compiled = CompiledGuards(guards)
    assert compiled.check({"x": (1, 2)})
    assert compiled.why_not({"x": (1, 3)}).words == "x adds up to 3 no longer holds (now tuple of length 2)"
    assert _walk(NET).settles(SumIs(of("sizes"), 3))
    assert not _walk(NET).settles(SumIs(of("names"), 3))
    seen = []
    filter_guards(guards, lambda entries: [seen.append(entry.name) or entry.name != "x" for entry in entries], {"x": 1})
    assert seen[0] == "x" and not guards.guards


def test_guards_never_change():
    guard = TypeIs(x, int)
    with pytest.raises(dataclasses.FrozenInstanceError):
        guard.cls = str
    assert not hasattr(guard, "__dict__")


def test_the_same_guard_is_kept_once():
    guards = GuardSet()
    for _ in range(2):
        guards.type_is(Local("x"), int)
        guards.add(Is(Local("x"), A, "other words"))
        guards.is_object(Local("x"), A)
        guards.equals(Local("x"), 1)
        guards.equals(Local("x"), "".join(["a", "b"]))
        guards.equals(Local("x"), float("1.5"))
    assert len(guards.guards) == 5


def test_equal_constants_of_other_classes_are_other_guards():
    values = [1, True, 1.0, 0, False, 0.0, -0.0, 1 + 0j, complex(1, -0.0), "1", b"1", None, ..., math.nan, np.int64(1)]
    made = {equals(x, value) for value in values}
    assert len(made) == len(values)
    for guard, value in itertools.product(made, values):
        own = guard == equals(x, value) or (type(guard) is EqualsNumpyScalar and isinstance(value, np.generic))
        assert evaluate(guard, {"x": value})[1] is own


def test_other_sources_of_a_guard_are_known():
    guard = HasKeyFrom(x, dict, Local("k"), True, "k")
    assert guard.sources() == [x, Local("k")]
    assert TypeIs(x, int).sources() == [x]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_all_kinds_are_guarded(name):
    class Has:
        pass

    setattr(Has, name, len)
    thing = types.SimpleNamespace(**{name: 1})
    for guard, right, wrong in [
        (AttributeIs(x, name, len), Has, type("Has", (), {name: abs})),
        (NoAttribute(x, name), Base, Has),
        (NotInClasses(x, name), Base, Has),
        (NotInDict(x, name), {}, {name: 1}),
        (NoOwnAttribute(x, name), Base(), thing),
        (Unregistered(x, name), LIN, types.SimpleNamespace(_parameters={}, _buffers={}, _modules={name: 1})),
        (Unshadowed(x, name), LIN, thing),
        (RegistersNothingBut(x, name, False), LIN, types.SimpleNamespace(_parameters={name: 1})),
        (MethodNameIs(x, name), types.SimpleNamespace(__name__=name), len),
        (equals(x, name), name, name + "!"),
        (Keys(x, (name,)), {name: 1}, {}),
        (HasKey(x, dict, name, True, name), {name: 1}, {}),
        (ClassMethodIs(x, name, Base.made.__func__), type("C", (), {name: vars(Base)["made"]}), type("C", (), {
            name: vars(Other)["made"]})),
    ]:  # fmt: skip
        assert evaluate(guard, {"x": right})[1] is True
        assert evaluate(guard, {"x": wrong})[1] is False
        assert "{{" not in guard.words()
    assert NotInDict(Const({}, name), name).source.words() == name


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_a_program(name):
    class Thing:
        pass

    def program(x, thing, table):
        y = x * getattr(thing, name, 2)
        if name in table:
            y = y + table[name]
        for key, value in vars(thing).items():
            y = y + value * len(key)
        return y + (3 if hasattr(type(thing), name) else 4)

    x = torch.ones(2)
    compiled = torchmux.compile(program, backend="eager", fullgraph=True)
    with_attribute, on_class = Thing(), type("Other", (), {name: 7})()
    with_attribute.__dict__[name] = 5
    for thing, table in itertools.product((Thing(), with_attribute, on_class), ({}, {name: 3}, {name: 4, 1: 2})):
        assert_same(program(x, thing, table), compiled(x, thing, table))
    torchmux.reset()


# --- what a snapshot may stand in for --------------------------------------------------------------------------------


class Meta(type):
    pass


class Watched(torch.nn.Module):
    limit = 3

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        self.number = 3
        self.sizes = (1, 2)
        self.table = {"a": 1}
        self.names = ["a"]


def _walk(net):
    return Walk({"x": net, "y": [Watched()]}, net)


NET = Watched()


def of(name):
    """The path to an attribute of the module."""
    return Attr(x, name)


SETTLED = [
    (TypeIs(x, Watched), True), (TypeIs(of("number"), int), True), (TypeIs(of("sizes"), tuple), True),
    (TypeIs(of("table"), dict), True), (TypeIs(Const(Watched, "Watched"), type), False),
    (Is(x, NET), True), (SameObject(x, x), True), (SameObject(x, Local("y")), False), (TypeIs(Local("y"), int), False),
    (AttributeIs(Const(Watched, "Watched"), "limit", 3), True), (AttributeIs(x, "limit", 3), False),
    (AttributeIs(Const(Meta("M", (), {"limit": 3}), "M"), "limit", 3), False),  # a metaclass may answer
    (AttributeIs(Const(abc.ABCMeta("M", (), {"limit": 3}), "M"), "limit", 3), True),
    (NoAttribute(Const(Watched, "Watched"), "none"), True), (NoAttribute(x, "none"), False),
    (NotInDict(of("table"), "b"), True), (NotInDict(of("__dict__"), "b"), True), (NotInDict(of("names"), "b"), False),
    (equals(of("number"), 3), True), (equals(of("sizes"), (1, 2)), False), (Length(of("sizes"), 2), True),
    (Length(of("names"), 1), False), (Keys(of("table"), ("a",)), True), (NoHooks(x), True), (NoHooks(of("lin")), False),
    (Unregistered(x, "none"), True), (Unshadowed(x, "lin"), True), (HasKey(of("table"), dict, "a", True, "a"), True),
    (AutocastDtypeIs(Const(torch.get_autocast_dtype, "d"), "cpu", torch.bfloat16), False),
    (Returns(Const(len, "len"), 3), False), (IsInt64(of("number")), True), (FitsFloat32(of("number")), True),
]  # fmt: skip


@pytest.mark.parametrize(("guard", "expected"), SETTLED, ids=[f"{type(g).__name__}-{e}-{g!r}" for g, e in SETTLED])
def test_what_a_watch_stands_in_for(guard, expected):
    assert _walk(NET).settles(guard) is expected


def test_what_changes_often_is_not_watched():
    walk = Walk({"x": NET}, NET, {id(NET.table), id(vars(NET))})
    assert not walk.settles(Keys(of("table"), ("a",)))
    assert not walk.settles(NoHooks(x))
    assert walk.settles(TypeIs(x, Watched))


# --- conditions on sizes ---------------------------------------------------------------------------------------------


def test_a_condition_on_sizes_has_its_parts():
    rows, number = ShapePart("t0", Local("x"), "size", 0), ShapePart("t1", Local("n"))
    offset = ShapePart("t10", Local("t1"), "storage_offset")
    condition = ShapeCondition((rows, " == 2*", number, " + ", offset, " + ", number), "f.py:3")
    assert condition.text == "t0.size()[0] == 2*t1 + t10.storage_offset() + t1"
    assert condition.words() == "x.size()[0] == 2*n + t1.storage_offset() + n"
    assert condition.parts() == [rows, number, offset]


def test_each_size_is_read_once_in_a_check():
    rows, columns = (ShapePart("t0", Local("x"), "size", at) for at in range(2))
    offset, number = ShapePart("t0", Local("x"), "storage_offset"), ShapePart("t1", Local("n"))
    guards = GuardSet()
    guards.shape_conditions += [
        ShapeCondition((rows, " < ", columns)),
        ShapeCondition((rows, " == ", offset, " + ", number)),
    ]
    guards.shape_roots.update(t0=Local("x"), t1=Local("n"))
    compiled = CompiledGuards(guards)
    assert compiled.text.count("t0.size()") == compiled.text.count("t0.storage_offset()") == 1
    x = torch.ones(40)
    for sizes, offset, n in (((2, 3), 1, 1), ((2, 3), 1, 2), ((3, 2), 1, 2)):
        given = {"x": x.as_strided(sizes, (1, 1), offset), "n": n}
        assert compiled.check(given) is (sizes[0] < sizes[1] and sizes[0] == offset + n)


def test_the_sentence_about_a_size_names_arguments_that_are_called_like_variables_of_the_check():
    def function(t1, t0):
        return t1 + 1 if t1.shape[0] == 2 * t0.shape[0] else t1 - 1

    compiled = torchmux.compile(function, backend="eager", dynamic=True)
    compiled(torch.ones(6), torch.ones(3))
    compiled(torch.ones(7), torch.ones(3))
    (recompile,) = torchmux.report(compiled).recompiles
    assert "condition t1.size()[0] == 2*t0.size()[0] no longer holds" in recompile
    assert "(now t1.size()[0] is 7, t0.size()[0] is 3)" in recompile
    torchmux.reset()
