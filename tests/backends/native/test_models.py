"""Small models of transformers, random weights: outputs and gradients, judged by float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tiers import slow_but

transformers = pytest.importorskip("transformers")

from torchmux.demo.models import MODELS  # noqa: E402 - after the check that it can build any

STILL = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def build(name: str) -> tuple[Any, dict[str, torch.Tensor]]:
    model = MODELS[name].build("tiny", **STILL.get(name, {}))
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    return model, MODELS[name].example(model, "tiny", batch=2)


def in_double(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def error(got: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest error, relative to the largest value of its tensor, or a thousandth of the largest of all."""
    whole = max(float(e.abs().max()) for e in exact)
    return max(
        float((g.double() - e).abs().max()) / max(float(e.abs().max()), 1e-3 * whole)
        for g, e in zip(got, exact, strict=True)
    )


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled(2)
def test_inference(compile_model, name: str) -> None:
    model, inputs = build(name)
    compiled, reports = compile_model(model, "native", dynamic=False)
    exact = copy.deepcopy(model).double()
    with torch.no_grad():
        got, eager, wanted = compiled(**inputs).logits, model(**inputs).logits, exact(**in_double(inputs)).logits
    assert got.stride() == eager.stride()
    assert error([got], [wanted]) <= 2 * error([eager], [wanted]) + 1e-6
    assert all(r.share == 1.0 for r in reports)


@pytest.mark.parametrize("name", slow_but(["bert", "gpt2", "llama", "resnet"], "gpt2", "resnet"))
def test_training(compile_model, name: str) -> None:
    model, inputs = build(name)
    model.train()
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled, reports = compile_model(twin, "native", dynamic=False)
    calls = ((compiled, twin, inputs), (model, model, inputs), (exact, exact, in_double(inputs)))
    gradients = []
    for call, module, given in calls:
        call(**given).logits.pow(2).mean().backward()
        gradients.append([p.grad for p in module.parameters() if p.grad is not None])
    got, eager, wanted = gradients
    assert error(got, wanted) <= 2 * error(eager, wanted) + 1e-5
    assert all(r.share == 1.0 for r in reports)
