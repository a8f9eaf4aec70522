"""Small models of transformers, random weights, through each backend: the numbers, the share, the batch sizes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def text(rows: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 100, (rows, 16)), "use_cache": False}


def image(rows: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(rows, 3, 32, 32)}


def build(name: str) -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    t = transformers
    if name == "bert":
        return t.BertModel(t.BertConfig(**SMALL, vocab_size=100)), lambda n: {"input_ids": text(n)["input_ids"]}
    if name == "gpt2":
        ends = {"bos_token_id": 1, "eos_token_id": 2}
        return t.GPT2Model(t.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=100, **ends)), text
    if name == "llama":
        return t.LlamaModel(t.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=100)), text
    if name == "vit":
        return t.ViTModel(t.ViTConfig(**SMALL, image_size=32, patch_size=8)), image
    config = t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic")
    return t.ResNetModel(config), image


MODELS = ("bert", "gpt2", "llama", "vit", "resnet")


def tensors(output: Any) -> list[torch.Tensor]:
    return [v for v in output.to_tuple() if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_onnxrt_runs_all_of_it(compile_model, name: str) -> None:
    pytest.importorskip("onnxruntime")
    model, inputs = build(name)
    model.eval()
    compiled, reports = compile_model(model, "onnxrt", dynamic=False)
    given = inputs(2)
    with torch.no_grad():
        for got, wanted in zip(tensors(compiled(**given)), tensors(model(**given)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
            assert got.stride() == wanted.stride()
    assert [r.share for r in reports] == [1.0]
    assert [r.partitions for r in reports] == [1]


@pytest.mark.parametrize("name", MODELS)
def test_onnxrt_takes_every_batch_with_one_session(compile_model, name: str) -> None:
    pytest.importorskip("onnxruntime")
    model, inputs = build(name)
    model.eval()
    compiled, reports = compile_model(model, "onnxrt", dynamic=True, options={"freeze": True})
    for rows in (2, 5, 3):
        given = inputs(rows)
        with torch.no_grad():
            for got, wanted in zip(tensors(compiled(**given)), tensors(model(**given)), strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
    assert [r.share for r in reports] == [1.0]


@pytest.mark.parametrize("name", MODELS)
def test_onnxrt_trains(compile_model, name: str) -> None:
    pytest.importorskip("onnxruntime")
    model, inputs = build(name)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if name == "bert":
        model.config.attention_probs_dropout_prob = 0.0
    twin = copy.deepcopy(model.train())
    compiled, reports = compile_model(model, "onnxrt", dynamic=False)
    given = inputs(2)
    found = []
    for owner, call in ((model, compiled), (twin, twin)):
        sum(o.square().mean() for o in tensors(call(**given))).backward()
        found.append([p.grad for p in owner.parameters() if p.grad is not None])
    largest = max(g.abs().max() for g in found[1])
    for got, wanted in zip(*found, strict=True):
        assert (got - wanted).abs().max() <= 1e-5 * largest
    for got, wanted in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(got, wanted)
    assert reports[0].share >= 0.95


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", MODELS)
def test_training_is_bit_equal(compile_model, name: str, backend: str) -> None:
    model, inputs = build(name)
    model.train()
    given = inputs(2)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = []
    compiled, reports = compile_model(model, backend, dynamic=False)
    for call in (model, compiled):
        model.load_state_dict(state)
        model.zero_grad()
        torch.manual_seed(1)
        outputs = tensors(call(**given))
        sum(o.square().sum() for o in outputs).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([*outputs, *gradients, *(b.clone() for b in model.buffers())])
    assert len(found[0]) == len(found[1])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert [r.share for r in reports] == [1.0]
