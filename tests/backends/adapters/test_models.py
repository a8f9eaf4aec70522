"""Small models of transformers, random weights, through each backend: the numbers, the share, the batch sizes."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import pytest
import torch
from tiers import slow_but

pytestmark = pytest.mark.sampled(2)

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
        return t.BertModel(t.BertConfig(**SMALL, vocab_size=100)), lambda n: {"input_ids": text(n)["input_ids"]}
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


MODELS = ("bert", "gpt2", "llama", "vit", "resnet")


def tensors(output: Any) -> list[torch.Tensor]:
    return [v for v in output.to_tuple() if isinstance(v, torch.Tensor)]


def assert_as_eager(compiled: Any, model: torch.nn.Module, given: dict[str, Any]) -> None:
    with torch.no_grad():
        for got, wanted in zip(tensors(compiled(**given)), tensors(model(**given)), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=2e-5)
            assert got.stride() == wanted.stride()


def of(backend: str, names: Any) -> list[Any]:
    """Parameters ``(backend, name)``, skipped where the runtime of the backend is not installed."""
    absent = importlib.util.find_spec(RUNTIMES[backend]) is None
    needs = pytest.mark.skipif(absent, reason=f"needs {RUNTIMES[backend]}")
    given = [name if hasattr(name, "marks") else pytest.param(name) for name in names]
    return [pytest.param(backend, *p.values, marks=[*p.marks, needs]) for p in given]


RUNTIMES = {"onnxrt": "onnxruntime", "tvm": "tvm"}
LEAST_SHARE = {"onnxrt": 1.0, "tvm": 0.9}


@pytest.mark.parametrize(
    ("backend", "name"),
    [*of("onnxrt", MODELS), *of("tvm", slow_but([*MODELS, "t5"], "gpt2", "resnet"))],
)
def test_inference(compile_model, backend: str, name: str) -> None:
    model, inputs = build(name)
    model.eval()
    compiled, reports = compile_model(model, backend, dynamic=False)
    assert_as_eager(compiled, model, inputs(2))
    assert all(r.share >= LEAST_SHARE[backend] for r in reports)
    if backend == "onnxrt":
        assert [r.partitions for r in reports] == [1]
    else:
        assert all(r.library_calls for r in reports)


@pytest.mark.parametrize(
    ("backend", "name"),
    [*of("onnxrt", slow_but(MODELS, "gpt2", "resnet", "vit")), *of("tvm", slow_but(["bert", "resnet"], "resnet"))],
)
def test_every_batch_with_one_compilation(compile_model, backend: str, name: str) -> None:
    model, inputs = build(name)
    model.eval()
    options = {"freeze": True} if backend == "onnxrt" else None
    compiled, reports = compile_model(model, backend, dynamic=True, options=options)
    for rows in (2, 5, 3):
        assert_as_eager(compiled, model, inputs(rows))
    (report,) = reports
    assert report.share >= LEAST_SHARE[backend]


def without_dropout(model: torch.nn.Module) -> torch.nn.Module:
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    if hasattr(model.config, "attention_probs_dropout_prob"):
        model.config.attention_probs_dropout_prob = 0.0
    return model


@pytest.mark.parametrize(
    ("backend", "name"),
    [*of("onnxrt", slow_but(MODELS, "gpt2", "resnet")), *of("tvm", slow_but(["bert", "resnet"], "bert"))],
)
def test_training(compile_model, backend: str, name: str) -> None:
    model, inputs = build(name)
    without_dropout(model).train()
    twin = copy.deepcopy(model)
    compiled, reports = compile_model(model, backend, dynamic=False)
    given = inputs(2)
    found = []
    for owner, call in ((model, compiled), (twin, twin)):
        outputs = tensors(call(**given))
        sum(o.square().mean() for o in outputs).backward()
        found.append((outputs, [p.grad for p in owner.parameters() if p.grad is not None]))
    (got, mine), (wanted, theirs) = found
    torch.testing.assert_close(got, wanted, rtol=1e-3, atol=1e-5)
    assert len(mine) == len(theirs)
    largest = max(g.abs().max() for g in theirs)
    for a, b in zip(mine, theirs, strict=True):
        if backend == "onnxrt":
            assert (a - b).abs().max() <= 1e-5 * largest
        else:
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    for a, b in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert all(r.share >= (0.95 if backend == "onnxrt" else 0.9) for r in reports)


@pytest.mark.sampled(2)
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
