"""Our backends under ``torch.compile``, where torch's own tracer stands in front."""

from __future__ import annotations

import importlib.metadata

import pytest
import torch

from torchmux.registry import catalog, published
from torchmux.registry.discovery import OUR_GROUP, TORCH_GROUP
from torchmux.registry.spec import BackendSpec


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
