"""Models whose batch and sequence length change from call to call, and generation with a growing cache."""

from __future__ import annotations

import pytest
import torch
from tiers import slow_but
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)  # fmt: skip

import torchmux

WORDS = 50
BATCHES = ((2, 8), (3, 8), (4, 12), (5, 7), (2, 16), (1, 9))


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(5, WORDS, shape, generator=torch.Generator().manual_seed(sum(shape)))


def _bert():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = BertModel(BertConfig(vocab_size=WORDS, **sizes))
    return model, [{"input_ids": _ids(b, s), "attention_mask": torch.ones(b, s, dtype=torch.long)} for b, s in BATCHES]


def _gpt2():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=64))
    return model, [{"input_ids": _ids(b, s)} for b, s in BATCHES]


def _llama():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, num_key_value_heads=2, **sizes))
    return model, [{"input_ids": _ids(b, s)} for b, s in BATCHES]


def _t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    model = T5ForConditionalGeneration(T5Config(vocab_size=WORDS, decoder_start_token_id=0, **sizes))
    return model, [{"input_ids": _ids(b, s), "decoder_input_ids": _ids(b, s // 2)} for b, s in BATCHES[:5]]


def _vit():
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    model = ViTModel(ViTConfig(image_size=16, patch_size=8, **sizes))
    return model, [{"pixel_values": torch.rand(b, 3, 16, 16)} for b in (2, 3, 5, 1, 8)]


# What makes a model and its calls, and the number of graphs that torch's own Dynamo needs for these calls.
FORWARD = {"bert": (_bert, 4), "gpt2": (_gpt2, 4), "llama": (_llama, 4), "t5": (_t5, 3), "vit": (_vit, 3)}
GENERATE = {"gpt2": (_gpt2, 4), "llama": (_llama, 4), "t5": (_t5, 6)}


def _make(build):
    torch.manual_seed(0)
    model, calls = build()
    return model.eval(), calls


@pytest.mark.parametrize("name", FORWARD)
def test_changing_sizes(name):
    build, limit = FORWARD[name]
    model, calls = _make(build)
    compiled = torchmux.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad():
        for inputs in calls:
            torch.testing.assert_close(compiled(**inputs)[0], model(**inputs)[0], rtol=1e-4, atol=1e-5)
    report = torchmux.report(compiled)
    assert report.graph_count <= limit, report.recompiles


def _generate(model):
    options = {"do_sample": False, "pad_token_id": 0}
    return model.generate(_ids(2, 6), max_new_tokens=10, **options), model.generate(
        _ids(2, 4), max_new_tokens=6, **options
    )


@pytest.mark.parametrize("name", slow_but(GENERATE, "gpt2"))
def test_generation(name):
    build, limit = GENERATE[name]
    model, _ = _make(build)
    expected = _generate(model)
    compiled = torchmux.compile(model.forward, backend="eager")
    model.forward = compiled
    assert all(torch.equal(a, b) for a, b in zip(_generate(model), expected, strict=True))
    report = torchmux.report(compiled)
    assert not report.breaks
    assert report.graph_count <= limit, report.recompiles


@pytest.mark.slow
@pytest.mark.parametrize("name", FORWARD)
def test_dynamo_needs_as_many_for_changing_sizes(name):
    build, expected = FORWARD[name]
    model, calls = _make(build)
    graphs = []
    torch.compiler.reset()
    compiled = torch.compile(model, backend=lambda gm, inputs: graphs.append(gm) or gm)
    with torch.no_grad():
        for inputs in calls:
            compiled(**inputs)
    assert len(graphs) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATE)
def test_dynamo_needs_as_many_for_generation(name):
    build, expected = GENERATE[name]
    model, _ = _make(build)
    graphs = []
    torch.compiler.reset()
    model.forward = torch.compile(model.forward, backend=lambda gm, inputs: graphs.append(gm) or gm)
    _generate(model)
    assert len(graphs) == expected


@pytest.mark.parametrize("backend", ["aot_eager", "onnxrt", "openvino"])
@pytest.mark.parametrize("name", slow_but(["bert", "llama"], "llama"))
def test_backends(name, backend):
    model, calls = _make(FORWARD[name][0])
    try:
        compiled = torchmux.compile(model, backend=backend, dynamic=True)
    except torchmux.BackendUnavailable as error:
        pytest.skip(str(error))
    with torch.no_grad():
        for inputs in calls[:4]:
            torch.testing.assert_close(compiled(**inputs)[0], model(**inputs)[0], rtol=1e-3, atol=1e-4)
    report = torchmux.report(compiled)
    assert report.graph_count == 1, report.recompiles
    assert report.share > 0.5, report.fallbacks[:5]
