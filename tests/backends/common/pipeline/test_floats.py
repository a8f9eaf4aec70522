"""Floats that change from call to call: as symbols where a backend bears that, as constants where it does not."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import torchmux
from torchmux.backends.common.pipeline import floats

aten = torch.ops.aten
CALLS = (0.5, 0.25, 0.75, 1e-3, 2.0)


@pytest.fixture(autouse=True)
def fresh():
    torchmux.reset()


def _compiled(fn, backend):
    try:
        return torchmux.compile(fn, backend=backend, fullgraph=True)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))


def scaled(x, f):
    return x * (f * 2 + 1) - f / 3, (x + math.sqrt(f)) / f


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "onnxrt", "openvino", "tvm"])
def test_a_changing_float_is_one_more_graph(backend):
    compiled = _compiled(scaled, backend)
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    for f in CALLS:
        torch.testing.assert_close(compiled(x, f), scaled(x, f))
    report = torchmux.report(compiled)
    assert report.graph_count == 2, report.recompiles
    assert not report.fallbacks


def filled(x, f):
    return x * torch.full((4,), f) + torch.tensor([f, 2 * f, 3.0, 4.0]), torch.full((2, 3), f), torch.tensor(f)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native", "onnxrt", "openvino", "tvm"])
def test_a_tensor_of_a_changing_float(backend):
    compiled = _compiled(filled, backend)
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    for f in CALLS:
        found, expected = compiled(x, f), filled(x, f)
        torch.testing.assert_close(found, expected)
        assert [each.stride() for each in found] == [each.stride() for each in expected]
    report = torchmux.report(compiled)
    assert report.graph_count == 2, report.recompiles
    assert not report.fallbacks


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_a_float_that_is_too_large_for_a_tensor(backend):
    x = torch.ones(3)
    of_numbers = _compiled(lambda x, f: x * torch.tensor(f * 1e30), backend)
    for f in (1.0, 2.0, 1e20):
        assert torch.equal(of_numbers(x, f), x * torch.tensor(f * 1e30))
    filled_with = _compiled(lambda x, f: x * torch.full((3,), f * 1e30), backend)
    for f in (1.0, 2.0):
        assert torch.equal(filled_with(x, f), x * torch.full((3,), f * 1e30))
    with pytest.raises(RuntimeError, match="without overflow"):
        filled_with(x, 1e20)


@pytest.mark.parametrize("backend", ["aot_eager", "onnxrt"])
def test_a_changing_float_in_training(backend):
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))

    def loss(x, f):
        y = torch.add(F.leaky_relu(x @ weight.t(), f), x[:, :2], alpha=f).clamp(-f, 1 + f)
        return (y * f).masked_fill(x[:, :2] > 1, f).sum() if f > 0.2 else y.sum()

    compiled = _compiled(loss, backend)
    for f in CALLS:
        x = torch.linspace(-2, 2, 12).reshape(4, 3) * f
        both = []
        for each in (loss, compiled):
            weight.grad = None
            value = each(x, f)
            value.backward()
            both.append((value.detach(), weight.grad))
        torch.testing.assert_close(*both)
    report = torchmux.report(compiled)
    assert report.graph_count == 3, report.recompiles  # one for the first, and one for each side of the branch
    assert not report.fallbacks


def test_a_step_without_gradients_is_no_training_graph():
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.9)
    compiled = _compiled(optimizer.step, "aot_eager")
    expected, moment = torch.ones(4), torch.zeros(4)
    for rate in (*CALLS, 0.1):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.arange(4.0)
        compiled()
        moment = moment * 0.9 + torch.arange(4.0)
        expected = expected - rate * moment
        torch.testing.assert_close(weight.detach(), expected)
    report = torchmux.report(compiled)
    assert report.graph_count == 2, report.recompiles  # the first makes the momentum
    assert {entry.report.phase for entry in report.graphs} == {"inference"}


@pytest.mark.slow
def test_inductor():
    test_a_changing_float_is_one_more_graph("inductor")


def test_the_bits_of_eager():
    compiled = _compiled(scaled, "eager")
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    for f in (*CALLS, 0.1, 1 / 3, 1e-17, 1e30):
        for found, expected in zip(compiled(x, f), scaled(x, f), strict=True):
            assert torch.equal(found, expected)


def test_bfloat16_is_multiplied_by_the_float_in_full():
    def fn(x, f):
        return x * f

    compiled = _compiled(fn, "aot_eager")
    x = torch.linspace(-2, 2, 64).bfloat16()
    for f in (0.5, 0.3, 1.0009765625, 0.7):
        assert torch.equal(compiled(x, f), fn(x, f))


def test_a_number_read_from_a_tensor_multiplies_in_the_backend():
    def fn(x):
        return x * x.abs().sum().item()

    compiled = _compiled(fn, "onnxrt")
    for seed in range(3):
        x = torch.rand(4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(compiled(x), fn(x))
    assert not torchmux.report(compiled).fallbacks


def test_a_backend_that_asks_for_constants_gets_them():
    asked = []

    def backend(gm, inputs):
        floats = [n.name for n in gm.graph.nodes if isinstance(n.meta.get("example_value"), torch.SymFloat)]
        if floats:
            asked.append(floats)
            symbols = {str(n.meta["example_value"].node.expr) for n in gm.graph.nodes if n.name in floats}
            raise torchmux.registry.errors.FloatsNeeded("mine", frozenset(symbols))
        return gm

    def fn(x, f):
        return x * f

    compiled = torchmux.compile(fn, backend=backend, fullgraph=True)
    for f in CALLS:
        torch.testing.assert_close(compiled(torch.ones(2), f), fn(torch.ones(2), f))
    assert len(asked) == 1, "it is asked once, and remembered"
    assert torchmux.report(compiled).graph_count == len(CALLS)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_a_float_that_becomes_too_large_for_float32(backend):
    def fn(x, f):
        return x * (f * f), x + f * 1e30, x / (f * f)

    compiled = _compiled(fn, backend)
    x = torch.tensor([1.0, -2.0, 0.0])
    for f in (2.0, 3.0, 1e10, 1e19, 3e19, -1e30, 1e200, math.inf):
        for found, expected in zip(compiled(x, f), fn(x, f), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=0, equal_nan=True)


OPERATORS = {
    "reversed": lambda x, t: t - x,
    "compared": lambda x, t: (x > t, x >= t, x < t, x <= t, x == t, x != t),
    "bounded": lambda x, t: (x.clamp(max=t), x.clamp(min=t), x.clamp(t, 5.0), x.clamp(0.5, t), x.clamp(t, t * 2)),
    "chosen": lambda x, t: (torch.where(x > t, x, t), x.masked_fill(x > 3, t), x.clone().fill_(t)),
    "divided": lambda x, t: (x % t, x // t, x.fmod(t)),
    "scaled": lambda x, t: (
        torch.add(x, x, alpha=t), torch.sub(x, x * 3, alpha=t), torch.lerp(x, x * 2, t),
        torch.addcmul(x, x, x, value=t), torch.addcdiv(x, x, x + 9, value=t), torch.add(x, t), torch.add(x, 2, alpha=t),
    ),
    "activations": lambda x, t: (
        F.leaky_relu(x, t), F.elu(x, t), F.softplus(x, t), F.hardtanh(x, t - 1, t), F.threshold(x, t, 0.5),
        F.threshold(x, 0.5, t), F.threshold(x, t, t),
    ),
    "made": lambda x, t: (torch.full_like(x, t), (t * t + 1) ** x),
    "products": lambda x, t: (
        torch.addmm(x[:4], x.view(4, 2), x.view(2, 4), alpha=t, beta=t * 2),
        torch.baddbmm(x[:4], x.view(1, 4, 2), x.view(1, 2, 4), alpha=t),
    ),
    "function of the number": lambda x, t: x * math.cos(t * 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_with_a_float_that_changes_are_compiled(name, dtype):
    program = OPERATORS[name]
    compiled = torchmux.compile(program, backend="native", strict=True)
    x = torch.tensor([0.0, -0.0, 1.5, float("nan"), float("inf"), -2.5, 0.25, 7.0], dtype=dtype)
    for t in (0.5, 0.25, 1.75, -0.3):
        torch.testing.assert_close(compiled(x, t), program(x, t), equal_nan=True)
    assert torchmux.report(compiled).graph_count == 2


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_an_operand_that_takes_the_same_number_as_a_number_keeps_it(backend):
    def program(x, t):
        return torch.nn.functional.leaky_relu(x, t).clamp(max=t), torch.nn.functional.leaky_relu(x, t) > t

    compiled = torchmux.compile(program, backend=backend, fullgraph=True)
    x = torch.linspace(-2, 2, 9)
    for t in (0.5, 0.25, 1.75):
        torch.testing.assert_close(compiled(x, t), program(x, t))


def test_gradients_of_a_deviation_over_a_symbolic_size_are_compiled():
    def standardized(x):
        return (x - x.mean(0)) / x.std(0)

    compiled = torchmux.compile(standardized, backend="native", dynamic=True)
    for rows in (5, 9):
        x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).square().sum().backward()
        standardized(y).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert not torchmux.report(compiled).fallbacks


def test_a_backend_that_takes_numbers_rounds_as_eager():
    """A scaled sum is one operator with one rounding, and two with tensors."""

    def step(p, g, rate):
        return p.add(g, alpha=-rate), p.sub(g, alpha=rate), torch._foreach_add([p], [g], alpha=rate)[0], p * rate

    compiled, p, g = torchmux.compile(step, backend="aot_eager"), torch.randn(40, 50), torch.randn(40, 50)
    for rate in CALLS:
        torch.testing.assert_close(compiled(p, g, rate), step(p, g, rate), rtol=0, atol=0)
    report = torchmux.report(compiled)
    assert report.graph_count == 2 and not report.fallbacks


def test_gradients_with_a_float_ahead_of_a_size():
    """A backward graph gets the float before the tensor whose size it reads."""

    def program(x, n, v, k):
        return x * v / n + x[:k].sum(), F.layer_norm(x, (3,))

    compiled = torchmux.compile(program, backend="native")
    for rows, n, v, k in ((4, 3, 0.5, 2), (6, 4, 0.75, 3), (8, 5, 0.25, 4)):
        x = torch.randn(rows, 3, dtype=torch.float64, requires_grad=True)
        found, wanted = (torch.autograd.grad(sum(map(torch.sum, f(x, n, v, k))), x)[0] for f in (compiled, program))
        torch.testing.assert_close(found, wanted)


def beside_halves(x, y, f):
    return (
        x * f, f * x + y, f - x, x - f, x / f, x == f, x < f, x >= f, x.clamp(-f, f), x.clamp(min=f),
        x.masked_fill(y > 0, f), F.hardtanh(y, -f, f),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_floats_beside_half_precision_count_as_in_eager(dtype):
    """Products take the number in full, and sums and comparisons round it first, on a CPU."""
    compiled = torchmux.compile(beside_halves, backend="native", dynamic=True, strict=True)
    x, y = torch.randn(9, 9).to(dtype), torch.randn(9, 9).to(dtype)
    x[0, :2] = torch.tensor([0.1, 1.7])
    for f in (0.1, 1.7, 2 / 3):
        for found, expected in zip(compiled(x, y, f), beside_halves(x, y, f), strict=True):
            assert found.dtype is expected.dtype
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert torchmux.report(compiled).graph_count == 1


def test_on_a_gpu_numbers_count_in_full_beside_half_precision():
    """Also where another number is an integer that changes; fake tensors tell without a GPU."""
    env = ShapeEnv()
    with FakeTensorMode(shape_env=env):
        x, source = torch.empty(4, 5, device="cuda", dtype=torch.bfloat16), ConstantSource("f")
        symbol, whole = (env.create_unspecified_symbol(value, source) for value in (0.3, 7))
        f, n = (
            env.create_symfloatnode(symbol, hint=0.3, source=source),
            env.create_symintnode(whole, hint=7, source=source),
        )
        gm = make_fx(lambda x, f, n: (aten.clamp.default(x, f, n), x * f, x < f, f - x))(x, f, n)
        floats.as_tensors(gm.graph)
    gm.graph.lint()
    converted = {node for node in gm.graph.nodes if node.target is aten._to_copy.default}
    for node in gm.graph.find_nodes(op="call_function", target=aten.mul.Tensor):
        assert set(node.all_input_nodes) <= converted
    results = [each.meta["val"].dtype for each in gm.graph.output_node().args[0]]
    assert results == [torch.bfloat16, torch.bfloat16, torch.bool, torch.bfloat16]
    computed = (node for node in gm.graph.nodes if node.op == "call_function" and node not in converted)
    assert torch.bfloat16 not in {node.meta["val"].dtype for node in computed}
