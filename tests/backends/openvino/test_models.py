"""openvino on small models through ``torchmux.compile``: results, share, batches, training, a second process."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import torchmux

pytest.importorskip("openvino")
transformers = pytest.importorskip("transformers")

from tiers import slow_but  # noqa: E402

from torchmux.demo.models import MODELS  # noqa: E402

SHARE = 0.95
NO_DROPOUT: dict[str, dict[str, Any]] = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def tensors(output: Any) -> list[torch.Tensor]:
    return [v for v in output.to_tuple() if isinstance(v, torch.Tensor)]


def assert_as_eager(compiled: Any, model: torch.nn.Module, inputs: dict[str, Any]) -> None:
    with torch.no_grad():
        for got, wanted in zip(tensors(compiled(**inputs)), tensors(model(**inputs)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
            assert got.stride() == wanted.stride()


def assert_placed(report: Any, share: float = SHARE) -> None:
    """Nearly all of it ran in OpenVINO, and what did not says why."""
    assert report.share >= share
    assert {p.placed_on for p in report.placements} <= {"openvino", "eager"}
    assert all(p.reason for p in report.fallbacks)


@pytest.mark.parametrize("name", MODELS)
def test_inference(name: str) -> None:
    model = MODELS[name].build("tiny")
    compiled = torchmux.compile(model, backend="openvino")
    assert_as_eager(compiled, model, MODELS[name].example(model, "tiny", 2, 0))
    report = torchmux.report(compiled)
    assert_placed(report, share=1.0)
    assert [entry.report.partitions for entry in report.graphs] == [1]


@pytest.mark.slow
def test_t5() -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    model = transformers.T5Model(transformers.T5Config(**sizes)).eval()
    ids = torch.randint(0, 100, (2, 16))
    compiled = torchmux.compile(model, backend="openvino")
    assert_as_eager(compiled, model, {"input_ids": ids, "decoder_input_ids": ids[:, :8]})
    assert_placed(torchmux.report(compiled))


@pytest.mark.parametrize("name", slow_but(MODELS, "bert", "resnet"))
def test_every_batch_with_few_compilations(name: str) -> None:
    model = MODELS[name].build("tiny")
    compiled = torchmux.compile(model, backend="openvino")
    reference = torchmux.compile(model, backend="eager")
    for batch in (2, 3, 5, 16, 64, 2):
        inputs = MODELS[name].example(model, "tiny", batch, 0)
        assert_as_eager(compiled, model, inputs)
        with torch.no_grad():
            reference(**inputs)
    report = torchmux.report(compiled)
    # How torch runs a convolution depends on the number of pixels, which is a guard that small images run into.
    assert report.graph_count == torchmux.report(reference).graph_count <= (3 if name == "resnet" else 2)
    assert all(entry.report.partitions == 1 for entry in report.graphs)


@pytest.mark.parametrize("name", slow_but(MODELS, "gpt2"))
def test_training(name: str) -> None:
    model = MODELS[name].build("tiny", **NO_DROPOUT.get(name, {})).train()
    twin = copy.deepcopy(model)
    compiled = torchmux.compile(model, backend="openvino")
    for seed in range(2):
        inputs = MODELS[name].example_with_targets(model, "tiny", 2, seed)
        for one, call in ((model, compiled), (twin, twin)):
            one.zero_grad()
            call(**inputs).loss.backward()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert (p.grad is None) == (q.grad is None)
            if q.grad is not None:
                torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))
    assert_placed(torchmux.report(compiled))


def test_strict() -> None:
    model = MODELS["bert"].build("tiny")
    inputs = MODELS["bert"].example(model, "tiny", 2, 0)
    assert_as_eager(torchmux.compile(model, backend="openvino", strict=True), model, inputs)
    training = torchmux.compile(MODELS["resnet"].build("tiny").train(), backend="openvino", strict=True)
    images = MODELS["resnet"].example_with_targets(MODELS["resnet"].build("tiny"), "tiny", 2, 0)
    with pytest.raises(torchmux.FallbackRefused, match="_log_softmax"):
        training(**images).loss.backward()


def test_under_torchs_own_frontend() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(net, backend="torchmux_openvino")(x), net(x))


@pytest.mark.slow
def test_a_second_process_compiles_nothing(run_python) -> None:
    code = """
import torch, torchmux
from torchmux.demo.models import MODELS
model = MODELS["bert"].build("tiny")
compiled = torchmux.compile(model, backend="openvino", strict=True)
with torch.no_grad():
    compiled(**MODELS["bert"].example(model, "tiny"))
print([entry.report.cache_hits for entry in torchmux.report(compiled).graphs])
"""
    assert run_python(code).strip() == "[0]"
    assert run_python(code).strip() == "[1]"
