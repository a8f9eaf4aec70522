"""What a call shows of what its function reads beside its arguments."""

from __future__ import annotations

import pytest
import torch

from torchmux.conformance.case import Case, Trial
from torchmux.conformance.judging.shown import differences, observe


def _told(change):
    """What differs if calls of a layer do something to it besides."""

    def run(trial, change=lambda layer: None):
        torch.manual_seed(0)
        layer, x = trial.module(torch.nn.Linear(3, 2)), trial.tensor(4, 3)

        def function(x):
            change(layer)
            return layer(x)

        with torch.no_grad():
            return trial.compile(function)(x)

    case = Case("layer", run)
    found = observe(Case("layer", lambda trial: run(trial, change)), Trial())
    return [str(each) for each in differences(found, [(observe(case, Trial()), None)], case)]


def test_a_call_that_reads_only_is_no_difference():
    assert _told(lambda layer: None) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.weight.register_hook(lambda g: g),
        lambda layer: layer.weight.register_post_accumulate_grad_hook(lambda p: None),
        lambda layer: setattr(layer.weight, "grad", torch.zeros_like(layer.weight)),
        lambda layer: setattr(layer.weight, "data", layer.weight.data.clone()),
        lambda layer: layer.weight.requires_grad_(False),
        lambda layer: torch.autograd.graph.increment_version(layer.bias),
        lambda layer: layer.eval(),
        lambda layer: layer.register_forward_hook(lambda *args: None),
        lambda layer: setattr(layer, "packed", True),
    ],
    ids=["hook", "hook after gradients", "gradient", "memory", "need", "version", "mode", "hook of layer", "attribute"],
)
def test_what_a_call_does_to_a_layer_is_told(change):
    (told,) = _told(change)
    assert "what it reads" in told
