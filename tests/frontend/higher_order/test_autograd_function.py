"""``torch.autograd.Function`` in one graph: forward and the user's own backward, both captured."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import torchmux

from ..training import BACKENDS, agree, broke, matrix, vector

FACTOR = 3.0
WEIGHT = torch.linspace(0.5, 2.0, 4).requires_grad_()


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Scaled(Function):
    """A backward that autograd would not find by itself, so that a test sees whose gradient it is."""

    @staticmethod
    def forward(ctx, x, scale, square=True):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return (x * x if square else x) * scale

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 7 * x * grad * ctx.scale, None, None


def test_the_backward_of_the_user_is_used(backend):
    def function(x):
        return Scaled.apply(x * WEIGHT, 2.0) + Scaled.apply(x, 0.5, False)

    x = vector()
    agree(function, x, backend=backend, parameters=(WEIGHT,))
    (got,) = torch.autograd.grad(torchmux.compile(function, backend=backend)(x).sum(), x)
    assert not torch.allclose(got, torch.autograd.grad((2 * (x * WEIGHT) ** 2 + x / 2).sum(), x)[0])


class SetUp(Function):
    @staticmethod
    def forward(x, y, power):
        return x**power * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.power = inputs
        ctx.save_for_backward(x, y, output[0])

    @staticmethod
    def backward(ctx, first, second):
        x, y, out = ctx.saved_tensors
        gx = gy = None
        if ctx.needs_input_grad[0]:
            gx = first * y * ctx.power + second + out
        if ctx.needs_input_grad[1]:
            gy = first * x
        assert not ctx.needs_input_grad[2]
        return gx, gy, None


@pytest.mark.parametrize(("left", "right"), [(True, True), (True, False), (False, True), (False, False)])
def test_setup_context_and_needs_input_grad(backend, left, right):
    def function(x, y):
        a, b = SetUp.apply(x, y, 2)
        return a + 1, b.sin()

    agree(function, vector(grad=left), vector(grad=right), backend=backend)


class Parts(Function):
    """Results of all kinds: differentiable, not differentiable, an integer tensor, no tensor at all."""

    @staticmethod
    def forward(ctx, x):
        middle = x.exp()
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(None, middle)
        ctx.kept = {"twice": [middle * 2]}
        return middle, sign, x.argsort(), None, 3

    @staticmethod
    def backward(ctx, middle, sign, order, none, number):
        nothing, saved = ctx.saved_tensors
        assert nothing is None
        assert none is None
        assert number is None
        return middle * saved + ctx.kept["twice"][0] + sign + order


def test_results_that_are_not_differentiable(backend):
    def function(x):
        out, sign, order, none, number = Parts.apply(x)
        assert none is None
        return out * number, sign * 2, order

    agree(function, vector(), backend=backend)


class Same(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x, x.view(2, 2)

    @staticmethod
    def backward(ctx, grad, viewed):
        return grad * 5 + viewed.reshape(4), grad


def test_arguments_returned_and_given_twice(backend):
    def function(x):
        same, viewed = Same.apply(x, x)
        return same is x, same + 1, viewed.sum()

    agree(function, vector(), backend=backend)


class Closed(Function):
    """Reads tensors and numbers that are no arguments."""

    @staticmethod
    def forward(ctx, x):
        ctx.weight = WEIGHT
        return x * WEIGHT * FACTOR

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.weight + WEIGHT.detach() * FACTOR


def test_what_is_read_from_outside_gets_no_gradient(backend):
    def function(x):
        return Closed.apply(x * 2)

    x = vector()
    agree(function, x, backend=backend, parameters=(WEIGHT,))
    out = torchmux.compile(function, backend=backend)(x)
    assert torch.autograd.grad(out.sum(), [x, WEIGHT], allow_unused=True)[1] is None


class Once(Scaled):
    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.detach() * grad, None, None


class OfClass(Once):
    power = 2

    @classmethod
    def forward(cls, ctx, x, scale):
        ctx.save_for_backward(x)
        return x**cls.power * scale

    @classmethod
    @once_differentiable
    def backward(cls, ctx, grad):
        (x,) = ctx.saved_tensors
        return x.detach() * grad * cls.power, None


def test_class_methods():
    agree(lambda x: OfClass.apply(x, 2.0), vector(), backend="eager")


def test_once_differentiable(backend):
    x = vector()
    compiled = agree(lambda x: Once.apply(x, 2.0), x, backend=backend)
    if backend == "eager":
        (first,) = torch.autograd.grad((compiled(x) ** 2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            first.sum().backward()


def second_derivative(function, x):
    (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    return torch.autograd.grad((first * first).sum(), x)


def test_second_derivatives():
    def function(x):
        return Scaled.apply(x, 3.0)

    compiled = torchmux.compile(function, backend="eager", fullgraph=True)
    x = vector()
    torch.testing.assert_close(second_derivative(compiled, x), second_derivative(function, x))


class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Scaled.apply(x, 2.0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x


class NestedBack(Nested):
    @staticmethod
    def backward(ctx, grad):
        return Scaled.apply(grad, 3.0)


def test_nested(backend):
    agree(lambda x: Nested.apply(x.sin()), vector(), backend=backend)
    compiled = agree(lambda x: NestedBack.apply(x.sin()), vector(), backend=backend, breaks=None)
    assert "Scaled in a backward pass" in broke(compiled)


class Detached(Scaled):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            factor = x * ctx.scale
        return factor * grad * x, None, None


def test_regions_without_gradients_in_backward(backend):
    x = vector()

    def function(x):
        return Detached.apply(x, 3.0)

    compiled = agree(function, x, backend=backend)
    if backend == "eager":
        torch.testing.assert_close(second_derivative(compiled, x), second_derivative(function, x))


class Contiguous(Function):
    """Asks about the memory of its gradient, which ``sum`` makes an expanded number."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.view(-1).view(grad.shape) if grad.is_contiguous() else grad * 2


def test_gradients_are_contiguous_as_the_trace_took_them_to_be():
    x = matrix()
    compiled = torchmux.compile(lambda x: Contiguous.apply(x), backend="eager", fullgraph=True)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 3))


class AsVjp(Function):
    @staticmethod
    def forward(ctx, x):
        return x.cos()

    @staticmethod
    def vjp(ctx, grad):
        return grad * 11


def test_backward_may_be_called_vjp(backend):
    agree(lambda x: AsVjp.apply(x), vector(), backend=backend)


def test_in_a_module_with_parameters_and_under_no_grad(backend):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return SetUp.apply(self.linear(x), self.linear.bias, 2)[0]

    layer = Layer()
    compiled = agree(layer, vector(), backend=backend, parameters=tuple(layer.parameters()))
    with torch.no_grad():
        torch.testing.assert_close(compiled(vector()), layer(vector()))


def test_sizes_that_change(backend):
    class Rows(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows = x.shape[0]
            return x.sum(0)

        @staticmethod
        def backward(ctx, grad):
            return grad.expand(ctx.rows, -1) * ctx.rows

    def function(x):
        return Rows.apply(x)

    compiled = agree(function, matrix(3), backend=backend)
    for rows in (5, 7, 9):
        agree(function, matrix(rows), backend=backend, compiled=compiled)
    assert len(torchmux.report(compiled).graphs) == 2


class Mixed(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad @ y.t(), (x.t() @ grad).to(y.dtype)


class Plain(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        gx = grad.to(x.dtype) @ y.t()
        return gx if gx.dtype is x.dtype else gx * 100, None


@pytest.mark.parametrize("function", [Mixed, Plain])
def test_autocast_around_it(backend, function):
    def run(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return function.apply(x, y)

    agree(run, matrix(), matrix(grad=False), backend=backend)


class OneUnmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        return x * 2, sign, x.argsort()

    @staticmethod
    def backward(ctx, grad, sign, order):
        return grad * 2 if sign is None and order is None else grad * 3


def test_one_gradient_that_is_not_materialized(backend):
    agree(lambda x: OneUnmaterialized.apply(x)[:2], vector(), backend=backend)


def test_twice_backward(backend):
    x = vector()
    out = torchmux.compile(lambda x: AsVjp.apply(x), backend="eager", fullgraph=True)(x).sum()
    out.backward()
    out.backward()
    assert torch.equal(x.grad, torch.full((4,), 22.0))


# --- guards -------------------------------------------------------------------------------------------------------


def test_globals_of_both_passes_are_guarded(backend, monkeypatch):
    def function(x):
        return Closed.apply(x)

    compiled = agree(function, vector(), backend=backend)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5.0)
    agree(function, vector(), backend=backend, compiled=compiled)
    monkeypatch.setattr(sys.modules[__name__], "WEIGHT", torch.ones(4))
    agree(function, vector(), backend=backend, compiled=compiled)


def test_replaced_passes_are_guarded(backend, monkeypatch):
    def function(x):
        return Scaled.apply(x, 2.0)

    compiled = agree(function, vector(), backend=backend)
    monkeypatch.setattr(Scaled, "backward", staticmethod(lambda ctx, grad: (grad * 100, None, None)))
    agree(function, vector(), backend=backend, compiled=compiled)
    monkeypatch.setattr(Scaled, "forward", staticmethod(lambda ctx, x, scale: x + scale))
    agree(function, vector(), backend=backend, compiled=compiled)


def test_whether_a_gradient_is_wanted_is_guarded(backend):
    def function(x, y):
        return SetUp.apply(x, y, 3)

    compiled = None
    for left, right in ((True, False), (False, True), (True, True)):
        compiled = agree(function, vector(grad=left), vector(grad=right), backend=backend, compiled=compiled)


# --- what ends the graph ------------------------------------------------------------------------------------------

LOG = []


class Logs(Scaled):
    @staticmethod
    def backward(ctx, grad):
        LOG.append(len(LOG))
        return grad, None, None


class Unmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        return first if second is None else second


class AsksGradMode(Scaled):
    @staticmethod
    def backward(ctx, grad):
        return (grad * 2 if torch.is_grad_enabled() else grad * 3), None, None


class WritesToSaved(Scaled):
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return x.mul_(2) * grad, None, None


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: Logs.apply(x, 2.0), "Logs.backward changes"),
        (lambda x: Unmaterialized.apply(x)[0], "it is not known which gradients exist"),
        (lambda x: AsksGradMode.apply(x, 2.0), "grad mode"),
        (lambda x: WritesToSaved.apply(x * 1, 2.0), "in place"),
    ],
)
def test_what_a_graph_cannot_do_runs_in_eager(backend, function, words):
    compiled = agree(function, vector(), backend=backend, breaks=None)
    assert words in broke(compiled)


def test_backward_runs_each_time_that_eager_runs_it(backend):
    LOG.clear()
    out = torchmux.compile(lambda x: Logs.apply(x, 2.0), backend=backend)(vector())
    assert LOG == []
    out.sum().backward()
    assert LOG == [0]


def test_what_forward_leaves_behind(backend):
    """Forward runs once a call, so it may change objects and keep tensors in them."""
    seen = {}

    class Counts(Scaled):
        @staticmethod
        def forward(ctx, x, scale):
            seen["calls"] = seen.get("calls", 0) + 1
            return Scaled.forward(ctx, x, scale)

    class Keeps(Scaled):
        @staticmethod
        def forward(ctx, x, scale):
            seen["kept"] = x * 5
            seen["result"] = Scaled.forward(ctx, x, scale)
            return seen["result"]

    compiled = torchmux.compile(lambda x: Counts.apply(x, 2.0), backend=backend, fullgraph=True)
    for calls in (1, 2, 3):
        compiled(vector())
        assert seen["calls"] == calls
    torchmux.compile(lambda x: Keeps.apply(x, 2.0) + 1, backend=backend, fullgraph=True)(vector())
    assert torch.equal(seen["kept"], vector(grad=False) * 5)
    assert not seen["kept"].requires_grad
    assert seen["result"].requires_grad


class Picky(Scaled):
    @staticmethod
    def forward(ctx, x, scale):
        if scale > 2:
            raise ValueError(f"too large: {scale}")
        return Scaled.forward(ctx, x, scale)

    @staticmethod
    def backward(ctx, grad):
        raise KeyError("no gradient")


def test_exceptions_of_the_user(backend):
    def caught(x):
        try:
            return Picky.apply(x, 3.0)
        except ValueError as error:
            return x, str(error)

    compiled = torchmux.compile(caught, backend=backend)
    assert compiled(vector())[1] == "too large: 3.0"
    with pytest.raises(ValueError, match="too large"):
        torchmux.compile(lambda x: Picky.apply(x, 3.0), backend=backend)(vector())
    out = torchmux.compile(lambda x: Picky.apply(x, 1.0), backend=backend)(vector())
    with pytest.raises(KeyError, match="no gradient"):
        out.sum().backward()


def test_a_wrong_number_of_gradients(backend):
    class Short(Scaled):
        @staticmethod
        def backward(ctx, grad):
            return grad

    out = torchmux.compile(lambda x: Short.apply(x, 1.0), backend=backend)(vector())
    with pytest.raises(RuntimeError, match="number of gradients"):
        out.sum().backward()


@pytest.mark.parametrize("other", ["onnxrt", "openvino", "tvm"])
def test_under_other_backends(other):
    if not next(info for info in torchmux.backends() if info.name == other).available:
        pytest.skip(f"{other} is not installed")
    compiled = torchmux.compile(lambda x: Scaled.apply(x, 2.0).sin(), backend=other)
    x, y = vector(), vector()
    compiled(x).sum().backward()
    Scaled.apply(y, 2.0).sin().sum().backward()
    torch.testing.assert_close(x.grad, y.grad)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), Scaled.apply(x, 2.0).sin())


class Broken(Function):
    """A forward that runs in eager, in pieces, with torch's own context."""

    @staticmethod
    def forward(ctx, x, y):
        torchmux.graph_break()
        ctx.asked = ctx.needs_input_grad
        ctx.save_for_backward(x, y)
        return x * y + sum(ctx.needs_input_grad)

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y * sum(ctx.asked), grad * x


def test_which_gradients_are_needed_is_asked_outside_of_a_graph():
    compiled = torchmux.compile(lambda x, y: Broken.apply(x, y) * 2, backend="eager")
    for needed in ((True, False), (False, True), (True, True), (False, False), (True, False)):
        found, expected = [], []
        for results, function in ((found, compiled), (expected, lambda x, y: Broken.apply(x, y) * 2)):
            inputs = [vector().detach().requires_grad_(each) for each in needed]
            out = function(*inputs)
            if any(needed):
                out.sum().backward()
            results += [out, *(each.grad for each in inputs)]
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert not any("needs_input_grad" in each.reason for each in torchmux.report(compiled).breaks)


class Limited(Function):
    """Its backward pass reads a number of the program that its forward pass does not."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-LIMIT["of gradients"], LIMIT["of gradients"])


LIMIT = {"of gradients": 1.0}


def test_a_backward_reads_a_number_that_changes(backend, monkeypatch):
    compiled = torchmux.compile(lambda x: Limited.apply(x * 1.3) * 3, backend=backend)
    for limit in (1.0, 0.5, 0.25):
        monkeypatch.setitem(LIMIT, "of gradients", limit)
        x = vector().detach().requires_grad_()
        compiled(x).sum().backward()
        assert torch.equal(x.grad, torch.full_like(x, limit) * 1.3)
    assert not broke(compiled)
