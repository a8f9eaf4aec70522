"""Class statements in traced functions: put off where nobody uses the class, run where somebody does."""

from __future__ import annotations

import collections

import pytest
import torch

import torchmux

X = torch.linspace(-2, 2, 6)
LOG = []


class Registering:
    def __init_subclass__(cls):
        LOG.append(cls.__name__)


def unused(x):
    def helper(y):
        return y * 2

    class Double(torch.autograd.Function):
        """Not taken for tensors of this kind."""

        factor = 2

        @staticmethod
        def forward(ctx, y):
            return helper(y)

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Double.apply(x) if x.dtype is torch.int64 else helper(x)


def made_and_returned(x):
    class Plain:
        def __init__(self, value):
            self.value = value

        def __repr__(self):
            return super().__repr__() + str(self.value)

    return x + 1, Plain.__name__, Plain(3).value


def returned(x):
    class Plain:
        size = 3

    return x + 1, {"class": Plain}


def in_a_closure(x):
    class Plain:
        size = 3

    def later():
        return Plain.size

    return x * 2, later


def breaks_elsewhere(x):
    class Unused:
        pass

    x = x + 1
    torchmux.graph_break()
    return x * 2


def body_with_effects(x):
    class Loud:
        LOG.append("body")

    return x + 1


def base_with_effects(x):
    class Derived(Registering):
        pass

    return x + 1


def masked(x):
    return torch.masked.sum(x, dim=0, mask=x > 0)


def plain(result):
    """What can be compared of a result: classes are new ones with each call."""
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, type):
        return result.__qualname__, result.size
    return result() if callable(result) and not isinstance(result, torch.Tensor) else result


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return all(map(same, a, b)) if isinstance(a, tuple) else a == b


@pytest.mark.parametrize("fn", [unused, masked])
def test_a_class_that_nobody_uses_breaks_nothing(fn):
    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    x = X.clone().requires_grad_()
    assert torch.equal(compiled(x), fn(x))
    assert torch.equal(*(torch.autograd.grad(each(x).sum(), x)[0] for each in (compiled, fn)))
    assert torchmux.report(compiled).graph_count == 1


@pytest.mark.parametrize(
    "fn", [made_and_returned, returned, in_a_closure, breaks_elsewhere, body_with_effects, base_with_effects]
)
def test_a_class_that_is_needed_is_made(fn):
    compiled = torchmux.compile(fn, backend="eager")
    for _ in range(2):
        LOG.clear()
        expected, log = plain(fn(X)), list(LOG)
        LOG.clear()
        assert same(plain(compiled(X)), expected)
        assert log == LOG
    assert torchmux.report(compiled).graph_count >= 1


def test_the_other_way_through_uses_it():
    compiled = torchmux.compile(unused, backend="eager")
    for x in (X, torch.arange(3), X, torch.arange(4)):
        assert torch.equal(compiled(x), unused(x))


def test_fullgraph_says_what_breaks():
    with pytest.raises(torchmux.Unsupported, match="explicit graph break"):
        torchmux.compile(breaks_elsewhere, backend="eager", fullgraph=True)(X)


def pair(x):
    Pair = collections.namedtuple("Pair", "left right", defaults=(3,))
    made = Pair(x)._replace(left=x + 1)
    return made.left * made.right, made._fields, Pair.__module__, repr(Pair(1)), type(made) is Pair


def scaling(x):
    Scale = type("Scale", (), {"factor": 3, "__call__": lambda self, y: y * self.factor})
    return Scale()(x), Scale.__name__, Scale.__module__


def derived(x):
    class Base:
        def __init__(self, value):
            self.value = value

        def double(self):
            return self.value * 2

    Derived = type("Derived", (Base,), {"seven": 7})
    return Derived(x).double(), Derived.seven, isinstance(Derived(x), Base)


@pytest.mark.parametrize("fn", [pair, scaling, derived])
def test_a_class_that_stays_inside_is_made_once(fn):
    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    for _ in range(3):
        assert same(compiled(X), fn(X))
    assert torchmux.report(compiled).graph_count == 1


def pair_returned(x):
    return collections.namedtuple("Pair", "left right")(x, 2)


def instance_returned(x):
    made = type("Scale", (), {"factor": 3})()
    made.value = x * made.factor
    return made


def attribute_set(x):
    Scale = type("Scale", (), {"factor": 3})
    Scale.factor += 1
    return x * Scale.factor, Scale


def list_in_class(x):
    Keeping = type("Keeping", (), {"kept": []})
    Keeping.kept.append(3)
    return x * len(Keeping.kept)


def test_what_a_class_holds_is_new_in_each_call():
    compiled = torchmux.compile(list_in_class, backend="eager")
    for _ in range(3):
        assert same(compiled(X), list_in_class(X))


@pytest.mark.parametrize("fn", [pair_returned, instance_returned, attribute_set])
def test_a_class_that_gets_out_is_another_one_in_each_call(fn):
    compiled = torchmux.compile(fn, backend="eager")
    first, second = compiled(X), compiled(X)
    kinds = [made[1] if fn is attribute_set else type(made) for made in (first, second)]
    assert kinds[0] is not kinds[1]
    assert [kind.__module__ for kind in kinds] == [__name__] * 2


def test_a_wrong_field_raises_as_in_eager():
    def repeated(x):
        try:
            collections.namedtuple("Pair", "left left")
        except ValueError as error:
            return x + 1, str(error)

    assert same(torchmux.compile(repeated, backend="eager")(X), repeated(X))
