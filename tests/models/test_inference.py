"""Five real models through each backend: right results, one graph, and a report that leaves nothing out."""

from __future__ import annotations

import pytest
import torch
from tiers import slow_but

import torchmux

from .zoo import (
    BACKENDS,
    NAMES,
    assert_close_enough,
    assert_equal,
    assert_one_graph,
    compile_or_skip,
    inputs_for,
    make,
    subject_for,
)

# Operators that a backend leaves to torch, by model.
LEFT_TO_TORCH: dict[str, dict[str, set[str]]] = {}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NAMES)
def test_results_and_report(name, backend):
    subject = subject_for(name)
    compiled = compile_or_skip(subject.model, backend)
    with torch.no_grad():
        found = compiled(**subject.inputs)
        assert type(found) is type(subject.model(**subject.inputs))
    assert_close_enough(subject, found)
    report = torchmux.report(compiled)
    assert_one_graph(report)
    assert report.placements
    assert {p.placed_on for p in report.placements} <= {backend, "eager"}
    expected = LEFT_TO_TORCH.get(backend, {}).get(name, set())
    assert {fallback.op.split(".")[1] for fallback in report.fallbacks if fallback.placed_on != backend} == expected
    assert (report.share < 1) == bool(expected)
    text = str(report)
    for fallback in report.fallbacks:
        assert fallback.node and fallback.reason and fallback.where
        assert f"{fallback.node} ({fallback.op})" in text


@pytest.mark.parametrize("name", NAMES)
def test_eager_computes_the_same_bits(name):
    model = make(name)
    inputs = inputs_for(name, model)
    with torch.no_grad():
        expected = model(**inputs)
        compiled = torchmux.compile(model, backend="eager", fullgraph=True)
        for _ in range(3):
            assert_equal(compiled(**inputs), expected)
    assert_one_graph(torchmux.report(compiled))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_with_gradients_on(name):
    model = make(name)
    inputs = inputs_for(name, model)
    assert_equal(torchmux.compile(model, backend="eager")(**inputs), model(**inputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_the_dtype_of_the_model_stays(name, dtype):
    model = make(name).to(dtype)
    inputs = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs_for(name, model).items()}
    with torch.no_grad():
        assert_equal(torchmux.compile(model, backend="eager")(**inputs), model(**inputs))


@pytest.mark.parametrize("backend", slow_but(["eager", "aot_eager", "onnxrt"], "eager"))
@pytest.mark.parametrize("name", NAMES)
def test_growing_batches(name, backend):
    """The first change of a size makes it symbolic; later ones compile nothing."""
    model = make(name)
    compiled = compile_or_skip(model, backend)
    with torch.no_grad():
        for batch in (2, 3, 5, 4, 7):
            inputs = inputs_for(name, model, batch)
            found, expected = compiled(**inputs), model(**inputs)
            if backend == "eager":
                assert_equal(found, expected)
            else:
                torch.testing.assert_close(found.logits, expected.logits, rtol=1e-4, atol=1e-5)
    assert torchmux.report(compiled).graph_count == 2


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_padding_mask(name):
    model = make(name)
    inputs = inputs_for(name, model)
    mask = torch.ones_like(inputs["input_ids"])
    mask[1, -4:] = 0
    with torch.no_grad():
        compiled = torchmux.compile(model, backend="eager")
        assert_equal(compiled(**inputs, attention_mask=mask), model(**inputs, attention_mask=mask))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_cache_of_keys_and_values(name):
    """A step on top of a filled cache; the model changes the cache that it is given."""
    model = make(name)
    inputs = inputs_for(name, model)
    compiled = torchmux.compile(model, backend="eager")
    token = torch.tensor([[1], [2]])
    with torch.no_grad():
        first, second = model(**inputs), compiled(**inputs)
        for _ in range(3):
            expected = model(token, past_key_values=first.past_key_values)
            found = compiled(token, past_key_values=second.past_key_values)
            assert_equal(found, expected)
            first, second = expected, found
        assert second.past_key_values.get_seq_length() == first.past_key_values.get_seq_length() == 15


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states(name):
    model = make(name)
    inputs = inputs_for(name, model)
    compiled = torchmux.compile(model, backend="eager")
    with torch.no_grad():
        found = compiled(**inputs, output_hidden_states=True)
        expected = model(**inputs, output_hidden_states=True)
        assert_equal(found, expected)
        assert len(found.hidden_states) == len(expected.hidden_states) > 1
        assert_equal(compiled(**inputs, return_dict=False), model(**inputs, return_dict=False))


def test_weights_that_change_between_calls():
    model = make("llama")
    inputs = inputs_for("llama", model)
    compiled = torchmux.compile(model, backend="aot_eager")
    with torch.no_grad():
        before = compiled(**inputs).logits
        model.lm_head.weight.mul_(2)
        torch.testing.assert_close(compiled(**inputs).logits, 2 * before)
    assert torchmux.report(compiled).graph_count == 1


def test_a_compiled_model_is_still_the_model():
    model = make("gpt2")
    compiled = torchmux.compile(model, backend="eager")
    assert compiled.config is model.config
    assert compiled.state_dict().keys() == model.state_dict().keys()
    assert compiled.get_input_embeddings() is model.get_input_embeddings()


def test_strict_names_what_would_not_run():
    model = make("gpt2").to(torch.bfloat16)
    compiled = compile_or_skip(model, "onnxrt", strict=True)
    with torch.no_grad(), pytest.raises(torchmux.FallbackRefused, match=r"(?s)aten\..*bfloat16"):
        compiled(**inputs_for("gpt2", model))


def test_strict_accepts_what_runs_whole():
    subject = subject_for("bert")
    compiled = compile_or_skip(subject.model, "onnxrt", strict=True)
    with torch.no_grad():
        assert_close_enough(subject, compiled(**subject.inputs))
