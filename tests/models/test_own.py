"""The zoo's own models: one graph each, and the results of eager."""

from __future__ import annotations

import pytest
import torch

import torchmux
from torchmux.zoo import WORKLOADS
from torchmux.zoo.own import Chain, GraphNetwork, Mlp, Tagger, UNet

EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 3], [1, 1, 1, 0, 0, 8, 8, 8, 8, 0, 2, 3]])
MODELS = {
    "mlp": lambda: (Mlp(), {"x": torch.randn(3, 64)}),
    "chain": lambda: (Chain(), {"x": torch.randn(5, 7), "y": torch.randn(5, 7)}),
    "tagger": lambda: (Tagger(50, 8, 4), {"tokens": torch.randint(0, 50, (2, 5))}),
    "graph": lambda: (GraphNetwork(4, 8, 2, 2, 3), {"features": torch.randn(9, 4), "edges": EDGES}),
    "unet": lambda: (UNet(3, 8, 2), {"images": torch.randn(2, 3, 8, 8), "times": torch.tensor([3.0, 700.0])}),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("native", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_inference_and_training(name, backend):
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    compiled = torchmux.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-5)
    if not list(model.parameters()):
        return
    model(**inputs).square().sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    compiled(**inputs).square().sum().backward()
    for where, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, expected[where], rtol=1e-3, atol=1e-3, msg=lambda m, w=where: f"{w}: {m}"
        )


def test_the_attention_of_a_graph_ignores_nodes_without_edges():
    """A node that no edge ends in keeps what it is, and gets nothing but finite numbers."""
    model = GraphNetwork(4, 8, 2, 1, 3)
    found = model(torch.randn(3, 4), torch.tensor([[0, 1], [1, 1]]))
    assert torch.isfinite(found).all()


@pytest.mark.parametrize("name", ["mlp", "chain", "gnn", "lstm", "unet"])
def test_workloads_have_the_batch_that_is_asked_for(name):
    sizes = [next(iter(WORKLOADS[name].build(batch)[1].values())).shape[0] for batch in (1, 3)]
    assert sizes[1] == 3 * sizes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, workload in WORKLOADS.items() if workload.transformers])
def test_workloads_of_transformers(name):
    pytest.importorskip("transformers")
    model, inputs = WORKLOADS[name].build(2, training=True)
    assert model.training
    with torch.no_grad():
        model.eval()(**inputs)
