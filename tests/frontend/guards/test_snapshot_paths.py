"""What snapshots say about functions, their closures, objects with slots, and arguments that are new in each call."""

import functools
import gc
import inspect
import types
import weakref

import pytest
import torch

import torchmux

from .guarding import vector
from .test_snapshots import Outer, eager_snapshots, needs_watches, taken, uses  # noqa: F401  (a fixture)

LAYERS = 3


def decorated(times):
    def forward(self, x):
        return Outer.forward(self, x) * times

    @functools.wraps(forward)
    def wrapper(self, *args):
        return forward(self, *args)

    return wrapper, forward


def outer_with(wrapper):
    return type("Decorated", (Outer,), {"forward": wrapper})()


FUNCTIONS = {
    "contents of a cell of a cell": lambda wrapper, forward: setattr(forward.__closure__[0], "cell_contents", 5),
    "another function in the cell": lambda wrapper, forward: setattr(
        wrapper.__closure__[0], "cell_contents", lambda self, x: x - 1
    ),
    "code of the function in the cell": lambda wrapper, forward: setattr(
        forward, "__code__", types.CodeType.replace(decorated_other.__code__)
    ),
    "defaults of the function in the cell": lambda wrapper, forward: setattr(forward, "__defaults__", (3,)),
}


def _other(times):
    def forward(self, x=3):
        return Outer.forward(self, x) - times

    return forward


decorated_other = _other(1)


@needs_watches
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_changed_function_in_a_closure_is_noticed(name, eager_snapshots):  # noqa: F811
    wrapper, forward = decorated(2)
    net = outer_with(wrapper)
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), net(vector()))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    FUNCTIONS[name](wrapper, forward)
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), net(vector()))


class Slotted:
    __slots__ = ("__weakref__", "factor")

    def __init__(self, factor):
        self.factor = factor


class OtherSlotted(Slotted):
    __slots__ = ()


SLOTTED = Slotted(2)
SIGNATURE = inspect.signature(lambda a, b=1: None)


class UsesSlots(Outer):
    def forward(self, x):
        by = SLOTTED.factor + 10 * isinstance(SLOTTED, OtherSlotted)
        return super().forward(x) * by + len(SIGNATURE.parameters)


@needs_watches
@pytest.mark.parametrize("change", [("factor", 3), ("__class__", OtherSlotted)])
def test_a_changed_slot_is_noticed(change, eager_snapshots, monkeypatch):  # noqa: F811
    net = UsesSlots()
    compiled = torchmux.compile(net, backend="eager")
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), net(vector()))
    assert uses(compiled), "no snapshot was used, so nothing is tested"
    reference = weakref.ref(SLOTTED)
    before = uses(compiled)
    compiled(vector())
    assert uses(compiled) > before and reference() is SLOTTED, "a weak reference is no change"
    monkeypatch.setattr(SLOTTED, *change)
    for _ in range(4):
        torch.testing.assert_close(compiled(vector()), net(vector()))


class Box:
    def __init__(self, factor):
        self.factor = factor


@needs_watches
@pytest.mark.parametrize("make", [lambda: Box(2), lambda: lambda x: x * 2], ids=["object", "function"])
def test_an_argument_that_is_new_in_each_call_leaves_the_snapshot_of_the_model(make, eager_snapshots):  # noqa: F811
    net = Outer()

    @torchmux.compile(backend="eager")
    def call(net, x, given):
        return given(net(x)) if callable(given) else net(x) * given.factor

    for _ in range(8):
        torch.testing.assert_close(call(net, vector(), make()), net(vector()) * 2)
    before = uses(call)
    for _ in range(4):
        torch.testing.assert_close(call(net, vector(), make()), net(vector()) * 2)
    assert uses(call) == before + 4
    given = make()
    gone = weakref.ref(given)
    call(net, vector(), given)
    del given
    gc.collect()
    assert gone() is None and taken(call)
