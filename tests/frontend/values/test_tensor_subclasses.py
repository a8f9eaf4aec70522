"""Tensor subclasses, ``__torch_function__`` and modes: a break is allowed, a wrong answer is not."""

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import torchmux

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of

SEEN = []


class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        SEEN.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Doubled(torch.Tensor):
    """Adds twice what it is asked to."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is torch.add else result


class Plain(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Quantity:
    """No tensor at all, but torch functions ask it what to do."""

    def __init__(self, value, unit):
        self.value = value
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        values = [arg.value if isinstance(arg, Quantity) else arg for arg in args]
        return Quantity(func(*values, **(kwargs or {})), "m")


class Wrapped(torch.Tensor):
    """Dispatches to the tensor that it holds."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = [arg.inner if isinstance(arg, Wrapped) else arg for arg in args]
        result = func(*plain, **(kwargs or {}))
        return Wrapped(result + 1) if isinstance(result, torch.Tensor) else result


class PlusOne(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result + 1 if func is torch.sin else result


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


@feature(more="a subclass of torch.Tensor ends the graph")
def subclass_is_an_argument():
    def run(x, y):
        return torch.add(x, y) * 3, x.shape, isinstance(x, Doubled)

    yield run, (tensor().as_subclass(Doubled), tensor())
    yield run, (tensor(), tensor())
    yield run, (tensor(), tensor().as_subclass(Doubled))


@feature(more="a subclass of torch.Tensor ends the graph")
def functions_seen_by_a_subclass():
    SEEN.clear()

    def run(x):
        return (x + 1).sin().sum()

    yield run, (tensor().as_subclass(Logged),)
    yield list(SEEN)


@feature(more="a subclass of torch.Tensor ends the graph")
def subclass_made_inside(x):
    y = x.as_subclass(Doubled)
    z = torch.add(y, 1)
    return z, type(z).__name__, x * 2


@feature(more="a subclass of torch.Tensor ends the graph")
def subclass_in_a_module():
    module = torch.nn.Linear(4, 4)
    module.register_buffer("extra", torch.ones(4).as_subclass(Doubled))

    def run(x):
        return torch.add(module(x), module.extra)

    yield run, (tensor(),)


@feature(more="a subclass of torch.Tensor ends the graph")
def subclass_in_a_closure():
    constant = torch.ones(4).as_subclass(Doubled)

    def run(x):
        return torch.add(x, constant)

    yield run, (tensor(),)


@feature()
def subclass_without_a_function():
    def run(x):
        return x + 1, type(x * 2).__name__

    yield run, (tensor().as_subclass(Plain),)


class Scaled(torch.nn.Parameter):
    pass


@feature()
def parameter_subclass():
    weight = Scaled(torch.ones(4))

    def run(x):
        return x * weight

    yield run, (tensor(),)


@feature(backward=False, more="a class that does not tell what its tensors consist of ends the graph")
def dispatching_subclass():
    def run(x):
        return x + 1

    def unwrapped(x):
        return run(Wrapped(x)).inner

    yield unwrapped, (tensor(),)


@feature()
def objects_with_torch_function():
    quantity = Quantity(tensor(), "m")

    def run(x):
        y = torch.add(quantity, x)
        return y.value * 2, y.unit

    yield run, (tensor(),)


@feature(again="under a mode the function runs in eager")
def called_under_a_function_mode():
    def run(x):
        return torch.sin(x) * 2

    yield run, (tensor(),)
    with PlusOne():
        yield run, (tensor(),)
    yield run, (tensor(),)


@feature(more="a mode of torch functions ends the graph")
def function_mode_inside(x):
    with PlusOne():
        y = torch.sin(x)
    return y, torch.sin(x)


@feature(more="a mode of torch functions ends the graph")
def function_mode_object_from_outside():
    mode = PlusOne()

    def run(x):
        with mode:
            return torch.sin(x)

    yield run, (tensor(),)
    yield run, (tensor(),)


@feature()
def called_under_a_dispatch_mode():
    def run(x):
        return torch.sin(x) * 2

    yield run, (tensor(),)
    with Counted() as mode:
        yield run, (tensor(),)
    yield mode.calls
    yield run, (tensor(),)


@feature()
def dispatch_mode_inside(x):
    with Counted() as mode:
        y = torch.sin(x)
    return y * 2, mode.calls


@feature()
def torch_functions_disabled(x):
    with torch._C.DisableTorchFunctionSubclass():
        return x * 2


@feature()
def overrides_are_asked(x):
    return torch.overrides.has_torch_function((x,)), torch.overrides.is_tensor_like(x), x * 2


class Tagged(torch.nn.Parameter):
    """Parameters that carry more than their data, as libraries for large models have them."""

    tag, scale = None, 3

    def __new__(cls, data, kind="a"):
        made = super().__new__(cls, data)
        made.kind = kind
        return made

    @property
    def twice(self):
        return self * 2

    def scaled(self, x):
        return x * self.scale


class Adding(Tagged):
    def add(self, other):
        return super().add(other) * 100


class WithTags(torch.nn.Module):
    def __init__(self, cls):
        super().__init__()
        self.first, self.second = cls(torch.ones(4), "b"), cls(torch.arange(4.0))
        self.second.tag = 5

    def forward(self, x):
        first, second = self.first, self.second
        y = first.scaled(x) + first.twice + second.add(first)
        if first.kind == "b" and second.tag is not None:
            y = y * second.tag
        kinds = isinstance(first, torch.nn.Parameter), isinstance(first, Tagged), type(first).__name__, first.tag
        return y, kinds, type(first.detach()) is torch.Tensor, first


@feature()
def parameters_with_attributes():
    model = WithTags(Tagged)
    yield model, (tensor()[:, :1],)
    yield model, (tensor()[:, :1],)
    yield type(model.first.grad)
    model.first.kind = "z"
    yield model, (tensor()[:, :1],)
    model.second.scale = model.first.scale = 4
    yield model, (tensor()[:, :1],)
    model.first.tag = "own"
    yield model, (tensor()[:, :1],)


@feature()
def attributes_of_parameters_that_change():
    weight = Tagged(torch.ones(4))

    def run(weight, x):
        weight.kind += "!"
        weight.tag, weight.fresh = 3, x * 2
        return weight.scaled(x), weight.kind, weight.tag, weight.fresh

    for _ in range(2):
        yield run, (weight, torch.ones(4))
    yield weight.kind, weight.tag, weight.fresh, Tagged.tag


CHANGES = {
    "scale": 7,
    "add": lambda self, other: self * 50,
    "__add__": lambda self, other: torch.zeros(4),
    "__torch_function__": classmethod(torch.Tensor.__torch_function__.__func__),
    "__getattribute__": lambda self, name: 9 if name == "scale" else torch.nn.Parameter.__getattribute__(self, name),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_class_of_a_parameter_gets_is_seen(name, monkeypatch):
    model, x = WithTags(Tagged), torch.ones(2, 4)
    compiled = torchmux.compile(model, backend="eager")
    compiled(x)
    monkeypatch.setattr(Tagged, name, CHANGES[name], raising=False)
    expected, actual = model(x)[0], compiled(x)[0]
    assert type(actual) is type(expected)
    torch.testing.assert_close(actual, expected)


def test_a_parameter_that_changes_an_operator_runs_in_eager():
    model, x = WithTags(Adding), torch.ones(2, 4)
    torch.testing.assert_close(torchmux.compile(model, backend="eager")(x)[0], model(x)[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_subclasses_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_subclasses_take_no_more_graphs(name):
    check_graphs(__name__, name)


def test_a_function_mode_sees_the_functions_of_the_program_only():
    class Noting(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(func)
            return func(*args, **(kwargs or {}))

    compiled = torchmux.compile(lambda x: torch.sin(x) * 2, backend="eager")
    x = tensor()
    for _ in range(3):
        with Noting() as mode:
            compiled(x)
        assert mode.seen == [torch.sin, torch.Tensor.mul]
        compiled(x)
