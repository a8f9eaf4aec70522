"""Training steps of the five models: loss, gradients and buffers as eager leaves them."""

from __future__ import annotations

import pytest
import torch
from tiers import slow_but

import torchmux

from .zoo import MODELS, NAMES, assert_equal, assert_one_graph, compile_or_skip, pair, train_step

# transformers logs a warning, once, where it computes GPT-2's loss: a call that writes a log runs in eager.
BREAKS = {"gpt2": "warning"}


def data(name, model, seed=0):
    return MODELS[name].example_with_targets(model, "tiny", 2, seed)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_one_step(name, backend):
    # Other compilers draw other random numbers.
    config = {} if backend == "eager" else no_dropout(name)
    model, twin = pair(name, **config)
    compiled = compile_or_skip(model, backend)
    if name in BREAKS:
        for trained, call in ((model, compiled), (twin, twin)):
            train_step(trained, call, data(name, trained))
            trained.zero_grad()
    found, expected = train_step(model, compiled, data(name, model)), train_step(twin, twin, data(name, twin))
    assert found.gradients.keys() == expected.gradients.keys()
    if backend == "eager":
        assert_equal(found.outputs, expected.outputs)
        assert all(torch.equal(g, expected.gradients[k]) for k, g in found.gradients.items())
        assert all(torch.equal(b, expected.buffers[k]) for k, b in found.buffers.items())
    else:
        torch.testing.assert_close(found.loss, expected.loss)
        torch.testing.assert_close(found.gradients, expected.gradients)
        torch.testing.assert_close(found.buffers, expected.buffers)
    report = torchmux.report(compiled)
    assert report.fallbacks == []
    assert {entry.report.phase for entry in report.graphs} == {"training"}
    if name in BREAKS:
        # Another test of this process may have had the warning written.
        assert all(BREAKS[name] in each.message() for each in report.breaks)
        assert report.graph_count == 1
    else:
        assert_one_graph(report)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", slow_but(NAMES, "llama", "resnet"))
def test_training_goes_on(name, backend):
    """Three steps of an optimizer: what one step changes, the next one sees."""
    model, twin = pair(name, **no_dropout(name))
    compiled = torchmux.compile(model, backend=backend)
    losses = []
    for trained, call in ((model, compiled), (twin, twin)):
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        for seed in range(3):
            losses.append(train_step(trained, call, data(name, trained, seed)).loss)
            optimizer.step()
    torch.testing.assert_close(losses[:3], losses[3:])
    torch.testing.assert_close(dict(model.named_parameters()), dict(twin.named_parameters()))
    torch.testing.assert_close(dict(model.named_buffers()), dict(twin.named_buffers()))


@pytest.mark.parametrize("name", NAMES)
def test_training_and_inference_in_turns(name):
    model, twin = pair(name)
    compiled = torchmux.compile(model, backend="eager")
    inputs = data(name, model)
    for _ in range(2):
        for training in (True, False):
            model.train(training)
            twin.train(training)
            torch.manual_seed(3)
            found = compiled(**inputs)
            torch.manual_seed(3)
            assert_equal(found, twin(**inputs))


def test_a_backend_that_does_not_train_says_so():
    class Inference:
        def supports(self, node):
            return True

        def compile(self, gm, example_inputs, request):
            return gm.forward

    backend = torchmux.BackendSpec("inference_only", "for this test", Inference, graph="aten", training=False)
    model, twin = pair("vit", **no_dropout("vit"))
    compiled = torchmux.compile(model, backend=backend)
    found, expected = train_step(model, compiled, data("vit", model)), train_step(twin, twin, data("vit", twin))
    torch.testing.assert_close(found.gradients, expected.gradients)
    report = torchmux.report(compiled)
    assert report.share == 0
    assert all("does not support training" in fallback.reason for fallback in report.fallbacks)
    with pytest.raises(torchmux.FallbackRefused, match="does not support training"):
        torchmux.compile(model, backend=backend, strict=True)(**data("vit", model))


def no_dropout(name):
    return {
        "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
        "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    }.get(name, {})
