"""Small models of transformers, random weights, through tvm: the numbers, the share, the batch sizes, training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiers import slow_but

pytest.importorskip("tvm")
transformers = pytest.importorskip("transformers")

SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}


def text(rows: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(0, 100, (rows, 16)), "use_cache": False}


def image(rows: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(rows, 3, 32, 32)}


def both(rows: int) -> dict[str, Any]:
    return {"input_ids": text(rows)["input_ids"], "decoder_input_ids": text(rows)["input_ids"], "use_cache": False}


def build(name: str) -> tuple[torch.nn.Module, Any]:
    torch.manual_seed(0)
    t = transformers
    if name == "bert":
        still = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return t.BertModel(t.BertConfig(**SMALL, **still, vocab_size=100)), lambda n: {
            "input_ids": text(n)["input_ids"]
        }
    if name == "gpt2":
        ends = {"bos_token_id": 1, "eos_token_id": 2}
        return t.GPT2Model(t.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=100, **ends)), text
    if name == "llama":
        return t.LlamaModel(t.LlamaConfig(**SMALL, num_key_value_heads=2, vocab_size=100)), text
    if name == "vit":
        return t.ViTModel(t.ViTConfig(**SMALL, image_size=32, patch_size=8)), image
    if name == "t5":
        return t.T5Model(t.T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=100)), both
    config = t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic")
    return t.ResNetModel(config), image


def tensors(output: Any) -> list[torch.Tensor]:
    return [v for v in output.to_tuple() if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("name", slow_but(["bert", "gpt2", "llama", "vit", "resnet", "t5"], "gpt2", "resnet"))
def test_inference(compile_model, name: str) -> None:
    model, inputs = build(name)
    model.eval()
    compiled, reports = compile_model(model, "tvm", dynamic=False)
    given = inputs(2)
    with torch.no_grad():
        for got, wanted in zip(tensors(compiled(**given)), tensors(model(**given)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
            assert got.stride() == wanted.stride()
    assert all(r.share >= 0.9 for r in reports)
    assert any("torch's kernels" in note for r in reports for note in r.notes)


@pytest.mark.parametrize("name", slow_but(["bert", "resnet"], "resnet"))
def test_every_batch(compile_model, name: str) -> None:
    model, inputs = build(name)
    model.eval()
    compiled, reports = compile_model(model, "tvm", dynamic=True)
    for rows in (2, 5, 3):
        given = inputs(rows)
        with torch.no_grad():
            for got, wanted in zip(tensors(compiled(**given)), tensors(model(**given)), strict=True):
                torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
    assert len(reports) == 1
    assert reports[0].share >= 0.9


@pytest.mark.parametrize("name", slow_but(["bert", "resnet"], "bert"))
def test_training(compile_model, name: str) -> None:
    model, inputs = build(name)
    model.train()
    given = inputs(2)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    found = []
    compiled, reports = compile_model(model, "tvm", dynamic=False)
    for call in (model, compiled):
        model.load_state_dict(state)
        model.zero_grad()
        outputs = tensors(call(**given))
        sum(o.square().mean() for o in outputs).backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append([*outputs, *gradients, *(b.clone() for b in model.buffers())])
    assert len(found[0]) == len(found[1])
    for got, wanted in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    assert all(r.share >= 0.9 for r in reports)
