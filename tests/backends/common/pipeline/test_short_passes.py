"""Training without AOTAutograd's layers does what it does with them, and what is unusual takes them again."""

from __future__ import annotations

import contextlib
import copy

import pytest
import torch
from torch.nn import functional as F

import torchmux
from torchmux.torch_internals import ShortPasses

device = torch.device("cpu")  # where inputs are: see everywhere


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)], autouse=True)
def everywhere(request):
    """Each test on each device: the backward pass runs in a thread of autograd's on a GPU."""
    global device
    device = torch.device(request.param)
    yield
    device = torch.device("cpu")


def program(x, w):
    hidden = torch.relu(x @ w)
    return hidden.sum(-1), (hidden * 2).view(-1), hidden.detach() + 1


@pytest.fixture
def taken(monkeypatch):
    """Which passes were short, in their order; a pass that was asked and declined is ``"long"``."""
    found = []
    forward, backward = ShortPasses.forward, ShortPasses.backward

    def forwards(self, ctx, args):
        found.append("forward")
        return forward(self, ctx, args)

    def backwards(self, ctx, gradients):
        result = backward(self, ctx, gradients)
        found.append("long" if result is None else "backward")
        return result

    monkeypatch.setattr(ShortPasses, "forward", forwards)
    monkeypatch.setattr(ShortPasses, "backward", backwards)
    return found


def inputs():
    torch.manual_seed(0)
    return (torch.randn(size, device=device, requires_grad=True) for size in ((3, 4), (4, 5)))


def gradients_of(function, use, times=1):
    x, w = inputs()
    for _ in range(times):
        use(function(x, w), x, w)
    return x.grad, w.grad


USES = {
    "sum": lambda y, x, w: (y[0].sum() + y[1].sum()).backward(),
    "first result": lambda y, x, w: y[0].sum().backward(),
    "strided gradient": lambda y, x, w: y[1].backward(torch.arange(30.0, device=device)[::2]),
    "twice": lambda y, x, w: (y[0].sum().backward(retain_graph=True), y[0].sum().backward()),
    "one input": lambda y, x, w: setattr(x, "grad", torch.autograd.grad(y[1].sum(), x)[0]),
    "hook": lambda y, x, w: (y[0].register_hook(lambda g: g * 3), (y[0] * y[0]).sum().backward()),
    "second derivative": lambda y, x, w: penalty(y, x),
}


def penalty(y, x):
    torch.autograd.grad(y[0].square().sum(), x, create_graph=True)[0].sum().backward()


SYMBOLIC = torch.__version__ >= (2, 13)
"""Whether the passes of symbolic sizes are short, too."""


@pytest.mark.parametrize("dynamic", [None, True], ids=["known sizes", "symbolic sizes"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_gradients(use, dynamic, taken):
    compiled = torchmux.compile(program, backend="native", fullgraph=True, dynamic=dynamic)
    for got, expected in zip(gradients_of(compiled, use, 3), gradients_of(program, use, 3), strict=True):
        assert (got is None) is (expected is None)
        if got is not None:
            torch.testing.assert_close(got, expected)
    assert ("forward" in taken) is (SYMBOLIC or not dynamic)


def test_what_is_short(taken):
    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    gradients_of(compiled, USES["sum"], 2)
    gradients_of(compiled, USES["strided gradient"])
    assert taken[2:] == ["forward", "backward"] * 2  # the first backward pass may have to be compiled


@pytest.mark.skipif(not SYMBOLIC, reason="they take the long way with this version of torch")
def test_symbolic_sizes(taken):
    """Each call has gradients of its own sizes, those of results without one, too; results say which sizes vary."""

    def function(x, n):
        return torch.softmax(x, -1) * n, x.new_ones(n) * x.sum()

    compiled = torchmux.compile(function, backend="native", fullgraph=True, dynamic=True)
    for sizes, n in (((3, 5), 4), ((7, 2), 9)):
        for use in (lambda y: y[0][0].sum(), lambda y: y[1].sum(), lambda y: y[0].square().sum() + y[1].sum()):
            torch.manual_seed(0)
            x = torch.randn(sizes, device=device, requires_grad=True)
            result = compiled(x, n)
            assert result[0]._dynamo_propagated_dynamic_indices == {0, 1}
            got, expected = (torch.autograd.grad(use(y), x)[0] for y in (result, function(x, n)))
            torch.testing.assert_close(got, expected)
    assert taken == ["forward", "backward"] * 6


def test_saved_results():
    """What eager detaches before it keeps it is kept as it is, and a write to it is seen."""
    compiled = torchmux.compile(lambda x: torch.softmax(x, -1), backend="native", fullgraph=True)
    compiled(torch.randn(3, 4, device=device, requires_grad=True))
    for write in (lambda y: None, lambda y: y.add_(1)):
        x = torch.randn(3, 4, device=device, requires_grad=True)
        with torch.profiler.profile() as made:
            result = compiled(x)
        assert not any("detach" in event.name for event in made.events())
        write(result.detach())
        if result._version:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        else:
            result.sum().backward()


def test_results(taken):
    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    for got, expected in zip(compiled(*inputs()), program(*inputs()), strict=True):
        torch.testing.assert_close(got, expected)
        assert got.requires_grad is expected.requires_grad
        assert got.stride() == expected.stride()
    assert taken == ["forward"]


def test_freed_graph_is_told():
    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    for _ in range(2):
        result = compiled(*inputs())[0].sum()
        result.backward()
        with pytest.raises(RuntimeError, match="second time"):
            result.backward()


def test_statistics_that_the_graph_updates(taken):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Sigmoid()).to(device)
    expected = copy.deepcopy(model)
    compiled = torchmux.compile(model, backend="native")
    version = model[0].running_mean._version
    for _ in range(2):
        x = torch.randn(8, 4, device=device)
        given, other = (x.clone().requires_grad_() for _ in range(2))
        compiled(given).square().sum().backward()
        expected(other).square().sum().backward()
        torch.testing.assert_close(given.grad, other.grad)
    assert taken == ["forward", "backward"] * 2 or taken == ["forward", "long", "forward", "backward"]
    assert model[0].running_mean._version > version
    for name, value in expected.state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value)


def test_changed_input_is_told():
    compiled = torchmux.compile(lambda x, w: torch.sin(x * w), backend="native", fullgraph=True)
    for _ in range(2):
        x, w = torch.randn(4, device=device, requires_grad=True), torch.randn(4, device=device)
        y = compiled(x, w)
        w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


@pytest.mark.parametrize(
    "around",
    [
        contextlib.nullcontext,
        lambda: torch.autograd.graph.save_on_cpu(),
        lambda: torch.autocast(device.type, torch.bfloat16),
        torch.no_grad,
    ],
    ids=["plain", "hooks", "autocast", "no_grad"],
)
def test_settings(around):
    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    for _ in range(2):
        with around():
            got, expected = compiled(*inputs()), program(*inputs())
        for a, b in zip(got, expected, strict=True):
            assert a.dtype is b.dtype
            assert a.requires_grad is b.requires_grad
            torch.testing.assert_close(a, b)
        if got[0].requires_grad:
            got[0].sum().backward()


def test_random_numbers_repeat(taken):
    compiled = torchmux.compile(lambda x, w: F.dropout(x @ w, 0.5), backend="native", fullgraph=True)
    for seed in (1, 2):
        x, w = inputs()
        torch.manual_seed(seed)
        y = compiled(x, w)
        y.sum().backward()
        # What was dropped has no gradient.
        torch.testing.assert_close(w.grad, x.detach().t() @ (2.0 * (y != 0)))
    assert taken[2:] == ["forward", "backward"]  # the first backward pass may have to be compiled


@pytest.mark.parametrize("dropped", [0.0, 0.5])
def test_random_numbers_are_kept_only_where_some_are_drawn(dropped, monkeypatch):
    """To keep the generator's state takes longer than a small product."""
    states = []
    monkeypatch.setattr(torch, "get_rng_state", lambda get=torch.get_rng_state: states.append(get()) or states[-1])

    def attention(x, w):
        return F.scaled_dot_product_attention(x[None], x[None], (x @ w)[None], dropout_p=dropped)

    compiled = torchmux.compile(attention, backend="aot_eager", fullgraph=True)
    for _ in range(3):
        states.clear()
        compiled(*inputs()).sum().backward()
    assert bool(states) == (dropped > 0)


def test_subclasses_take_the_long_way(taken):
    class Tagged(torch.Tensor):
        pass

    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    gradients_of(compiled, USES["first result"])
    with pytest.raises(RuntimeError, match="tensor subclass"):
        compiled(*inputs())[0].backward(torch.ones(3, device=device).as_subclass(Tagged))
    assert taken[-1] == "long"


def test_unused_input():
    compiled = torchmux.compile(lambda x, w: x * 2, backend="native", fullgraph=True)
    for _ in range(2):
        x, w = inputs()
        compiled(x, w).sum().backward()
        assert w.grad is None
        assert x.grad.eq(2).all()


def test_results_without_a_gradient(taken):
    """A result that is not differentiated has none, and not one of zeros, which an infinite derivative would show."""

    def program(x, w):
        return x.sqrt(), x * w, w.sin()

    compiled = torchmux.compile(program, backend="native", fullgraph=True)
    for wanted in ((0,), (1, 2), (2,), (2,), (1,)):
        x, w = (torch.full((3,), n, device=device, requires_grad=True) for n in (0.0, 1.0))
        found = []
        for function in (program, compiled):
            results = function(x, w)
            leaves = torch.autograd.grad([results[i].sum() for i in wanted], (x, w), allow_unused=True)
            found.append(leaves)
        for got, expected in zip(found[1], found[0], strict=True):
            assert (got is None) is (expected is None)
            assert got is None or torch.equal(got, expected)
    assert taken.count("forward") == 5


def test_sizes_of_what_the_graph_does_not_read(taken):
    """Autocast casts the weight outside of the graph, which still reads its sizes."""
    layer, norm = torch.nn.Linear(7, 7).to(device), torch.nn.GroupNorm(3, 6).to(device)
    compiled = torchmux.compile(lambda x: norm(layer(x)), backend="native", dynamic=True)
    for count in (2, 3, 5):
        x = torch.randn(count, 6, 7, device=device)
        with torch.autocast(device.type, torch.bfloat16):
            result, expected = compiled(x), norm(layer(x))
        torch.testing.assert_close(result, expected, atol=0.05, rtol=0.05)
        result.float().sum().backward()


def test_autocast_is_short(taken):
    """A region of autocast casts a weight once, whoever uses it, and passes are as short as elsewhere."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Conv1d(4, 2, 3)).to(device)
    compiled = torchmux.compile(model, backend="native", fullgraph=True)
    x, found = torch.randn(3, 4, 8, device=device), []
    for function in (model, compiled, compiled):
        model.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            before = torch.nn.functional.linear(x, model[0].weight)
            with torch.no_grad():
                model[0].weight.mul_(1.0 if function is model else 3.0)  # the region keeps its cast
            y = function(x)
        with torch.no_grad():
            model[0].weight.div_(1.0 if function is model else 3.0)
        (before.float().sum() + y.float().sum()).backward()
        found.append([y, *[p.grad.clone() for p in model.parameters()]])
    for got in found[1:]:
        for a, b in zip(got, found[0], strict=True):
            torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)
    assert taken == ["forward", "long", "forward", "backward"]


def test_what_is_still_communicated_is_waited_for(run_python):
    """AOTAutograd's function waits for such an argument, which has no memory of its own."""
    code = """
import torch, torch.distributed as dist, torchmux
from torch.distributed import _functional_collectives as functional
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
compiled = torchmux.compile(lambda x, w: x * w, backend="native", fullgraph=True)
w = torch.randn(4, 6, requires_grad=True)
for _ in range(2):
    compiled(functional.all_reduce(torch.full((4, 6), 3.0), "sum", dist.group.WORLD), w).sum().backward()
print(float((w.grad - 6).abs().max()))
dist.destroy_process_group()
"""
    assert run_python(code) == "0.0\n"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("message", [(), ("too small",)], ids=["bare", "with a message"])
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_assertions_about_numbers_are_not_dead_code(backend, message, training):
    def f(x):
        torch._assert_async((x > -1).all(), *message)
        return x * 2

    compiled = torchmux.compile(f, backend=backend)
    compiled(torch.ones(3, requires_grad=training))
    with pytest.raises(RuntimeError, match=message[0] if message else "nonzero"):
        compiled(torch.full((3,), -2.0, requires_grad=training))


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_results_that_no_input_has_a_gradient_of_require_one(backend: str) -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, ord=0)

    x = torch.randn(3, requires_grad=True)
    compiled = torchmux.compile(count, backend=backend)
    for function in (count, compiled):
        result = function(x)
        assert result.requires_grad
        assert torch.autograd.grad(result, [x], allow_unused=True) == (None,)
