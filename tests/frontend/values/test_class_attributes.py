"""Attributes of classes that compiled code sets, and weak references that it makes."""

from __future__ import annotations

import weakref

import pytest
import torch

import torchmux
from torchmux.frontend.handlers.table import FUNCTIONS
from torchmux.frontend.values.constants import ConstValue


class Base:
    made = 0
    shared = 3

    def __init__(self):
        type(self).made += 1


class Derived(Base):
    last = None

    def read(self):
        return self.made, self.shared, Derived.made


class Counting(torch.nn.Module):
    calls = 0

    def forward(self, x):
        Counting.calls += 1
        return x * self.calls


READ = Derived.read


def counts(x):
    made = Derived()
    before = made.read()
    Derived.last = x * 2
    Derived.shared = [1, 2]
    made.made = 100
    derived = x * Derived.made, before, made.read(), Derived.last + 1, made.last
    return *derived, Base.made, Base.shared, getattr(made, "shared"), hasattr(Base, "last")  # noqa: B009


def counts_on_the_base(x):
    Base.made += 1
    Base.fresh = Derived.made
    return x * Derived.made, Derived().fresh


def keeps_a_tensor(x):
    Derived.last = x.sum()
    torchmux.graph_break()
    return Derived.last * 2


def replaces_a_method(x):
    Derived.read = lambda self: 7
    return x * Derived().read()


def asks_the_dictionary(x):
    Derived.last = 5
    return x * Derived.__dict__["last"]


def fresh_state():
    for cls, names in ((Derived, ("made", "shared")), (Base, ("fresh",))):
        for name in names:
            if name in cls.__dict__:
                delattr(cls, name)
    Base.made, Base.shared, Derived.last, Derived.read = 0, 3, None, READ


def told(function, x):
    fresh_state()
    try:
        results = [str(function(x)) for _ in range(4)]
        state = {cls.__name__: {n: str(v) for n, v in vars(cls).items() if n[0] != "_"} for cls in (Base, Derived)}
        state["Derived"].pop("read")
        return results, state
    finally:
        fresh_state()


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(counts, 0), (counts_on_the_base, 0), (keeps_a_tensor, 1), (replaces_a_method, 1), (asks_the_dictionary, 1)],
)
def test_attributes_of_classes(function, breaks):
    x = torch.ones(2)
    compiled = torchmux.compile(function, backend="eager")
    assert told(compiled, x) == told(function, x)
    assert torchmux.report(compiled).break_count >= breaks
    assert bool(torchmux.report(compiled).break_count) == bool(breaks), torchmux.report(compiled).breaks


def test_a_module_that_counts_its_calls():
    compiled = torchmux.compile(Counting(), backend="eager", fullgraph=True)
    Counting.calls = 0
    assert [compiled(torch.ones(2))[0].item() for _ in range(5)] == [1, 2, 3, 4, 5]
    assert Counting.calls == 5
    assert torchmux.report(compiled).graph_count == 2  # the count is dynamic from the second call on


def test_weak_references():
    class Thing:
        factor = 3.0

    thing, kept = Thing(), {}

    def run(x, known):
        made = weakref.ref(thing)
        kept["last"] = made
        return x * made().factor, made is weakref.ref(thing), made is known, made() is thing

    other = Thing()
    compiled = torchmux.compile(run, backend="eager", fullgraph=True)
    for known in (weakref.ref(other), weakref.ref(thing), None):
        for _ in range(2):
            assert str(compiled(torch.ones(2), known)) == str(run(torch.ones(2), known))
        assert kept["last"] is weakref.ref(thing)


def test_a_class_method_in_c_has_the_handler_of_its_descriptor(monkeypatch):
    """``autograd.Function.apply`` is one from torch 2.14 on: each reading gives a new object, bound to the class."""
    monkeypatch.setitem(
        FUNCTIONS, bytes.__dict__["fromhex"], lambda tr, owner, text: ConstValue((owner.obj, text.const(tr)))
    )
    kept = bytes.fromhex

    def f(x):
        return x * 2, bytes.fromhex("ab"), kept("cd")

    compiled = torchmux.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1:] == ((bytes, "ab"), (bytes, "cd"))


def test_objects_of_the_program_as_attributes():
    class Held:
        def __init__(self, value):
            self.value = value

    class Holder:
        last = None
        count = 0

    def fn(x):
        before = Holder.last
        Holder.last = Held(x * 2)
        Holder.last.value = Holder.last.value + 1
        Holder.count += 1
        return x if before is None else x + before.value

    def outcomes(function):
        Holder.last, Holder.count = None, 0
        results = [(function(torch.ones(3) * n), Holder.last.value, Holder.count) for n in (1, 2, 3)]
        Holder.last = Held(torch.ones(3))
        results.append((function(torch.ones(3)), Holder.last.value, Holder.count))
        Held.__get__ = lambda held, instance, owner: Held(held.value * 5)  # now its objects are descriptors
        try:
            results.append((function(torch.ones(3)), vars(Holder)["last"].value, Holder.count))
        finally:
            del Held.__get__
        return results

    compiled = torchmux.compile(fn, backend="eager")
    for found, expected in zip(outcomes(compiled), outcomes(fn), strict=True):
        assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) for a, b in zip(found, expected, strict=True))
