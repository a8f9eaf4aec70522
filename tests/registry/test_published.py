"""Our backends under ``torch.compile``, where torch's own tracer stands in front."""

from __future__ import annotations

import copy
import importlib.metadata
import random

import pytest
import torch
from tiers import slow_but

import torchmux
from torchmux.registry import catalog, published
from torchmux.registry.discovery import OUR_GROUP, TORCH_GROUP
from torchmux.registry.spec import BackendSpec

pytestmark = pytest.mark.sampled(2)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.linear(x)) + x.shape[0]


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("backend", ["torchmux_eager", "torchmux_aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_torch_compile(backend, training):
    model = Model()
    x = torch.randn(2, 4)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    with torch.set_grad_enabled(training):
        torch.testing.assert_close(compiled(x), model(x))
    if training:
        expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
        torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), list(model.parameters())), expected)


def test_the_backend_is_really_asked(own_catalog, monkeypatch):
    seen = []

    def compiler(gm, example_inputs, **options):
        seen.append(options)
        return gm.forward

    own_catalog.remove("eager")
    from torchmux.registry import register_backend

    register_backend(BackendSpec("eager", "", compiler, training=True))
    torch.compile(Model(), backend="torchmux_eager")(torch.randn(2, 4))
    assert seen == [{}]


def test_torch_lists_them():
    listed = torch._dynamo.list_backends()
    assert {"torchmux_eager", "torchmux_aot_eager", "torchmux_onnxrt"} <= set(listed)


def test_each_living_backend_of_ours_is_published():
    ours = {e.name for e in importlib.metadata.entry_points(group=OUR_GROUP) if e.dist.name == "torchmux"}
    living = {name for name in ours if isinstance(catalog.CATALOG.find(name).describe(), BackendSpec)}
    entries = [e for e in importlib.metadata.entry_points(group=TORCH_GROUP) if e.dist.name == "torchmux"]
    assert {e.name for e in entries} == {f"torchmux_{name}" for name in living}
    assert all(e.load() is e.load() is getattr(published, e.name.removeprefix("torchmux_")) for e in entries)


def test_errors_reach_torchs_user(own_catalog):
    own_catalog.remove("eager")
    with pytest.raises(Exception, match="There is no backend 'eager'"):
        torch.compile(Model(), backend="torchmux_eager")(torch.randn(2, 4))


def test_private_names_are_not_backends():
    assert not hasattr(published, "_nothing")


class Floats(torch.nn.Module):
    """Floats of every kind that a graph may need as constants: of operators, of arithmetic, of branches."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.eps, self.scale, self.p = 1e-5, 0.5, 0.0

    def forward(self, x, lr):
        y = torch.nn.functional.layer_norm(self.linear(x), (8,), eps=self.eps)
        y = torch.nn.functional.dropout(y, self.p) * self.scale
        y = torch.nn.functional.leaky_relu(y, negative_slope=lr)
        return torch.add(y, x, alpha=lr / 2) if lr < 0.5 else torch.clamp(y, max=lr)


@pytest.mark.parametrize(
    "backend", slow_but(["eager", "aot_eager", "native", "onnxrt", "openvino", "tvm"], "eager", "onnxrt")
)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.sampled(2)
def test_floats_that_change(backend, training):
    try:
        torchmux.registry.resolve(backend)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model = Floats()
    compiled = torch.compile(model, backend=f"torchmux_{backend}", dynamic=True, fullgraph=True)
    state = random.Random(18)
    with torch.set_grad_enabled(training):
        for rows in (5, 3, 5, 6, 5, 7):
            model.eps, model.scale, model.p = (state.choice(of) for of in ((1e-5, 0.25), (0.5, 2.0), (0.0, 1.0)))
            x, lr = torch.randn(rows, 8), state.choice((0.125, 0.25, 0.75))
            found, expected = compiled(x, lr), model(x, lr)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
            if training:
                pair = [torch.autograd.grad(y.square().sum(), model.linear.weight)[0] for y in (found, expected)]
                torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.GELU()),
        torch.nn.LayerNorm(8),
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.0)),
    ],
    ids=["batch_norm", "layer_norm", "dropout"],
)
def test_training_with_symbolic_sizes(model):
    expected_model = copy.deepcopy(model)
    compiled = torch.compile(model, backend="torchmux_native", dynamic=True)
    for rows in (5, 3):
        x = torch.randn(rows, 8)
        found, expected = compiled(x), expected_model(x)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
    for one, other in zip(model.parameters(), expected_model.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_outside_of_a_capture_the_error_is_ours():
    def refuses(gm, inputs):
        raise torchmux.registry.errors.FloatsNeeded("mine", frozenset({"zf1"}))

    torchmux.register_backend(refuses, name="wants_floats")
    try:
        with pytest.raises(torchmux.registry.errors.FloatsNeeded):
            torchmux.lookup_backend("wants_floats")(torch.fx.symbolic_trace(torch.nn.ReLU()), [torch.ones(1)])
        compiled = torch.compile(lambda x: x + 1, backend=torchmux.lookup_backend("wants_floats"))
        with pytest.raises(Exception, match="zf1"):  # and no attempt without end
            compiled(torch.ones(1))
    finally:
        torchmux.unregister_backend("wants_floats")


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_the_modes_of_torch(backend, mode):
    compiled = torch.compile(lambda x: x.sin() + 1, backend=f"torchmux_{backend}", mode=mode)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() + 1)
