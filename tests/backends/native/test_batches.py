"""One compilation with a symbolic batch serves batches from 2 to 64; for convolutions it takes two."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.conformance import oracle
from torchmux.demo.models import MODELS

BATCHES = (2, 3, 5, 8, 17, 33, 64)
GRAPHS = {"resnet": 2}
"""torch's shapes of convolutions ask whether the batch is at least 16, for the kernel that it would choose."""
Inputs = dict[str, torch.Tensor]


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.softmax(self.two(F.gelu(self.norm(self.one(x)))), -1)


def _mlp() -> tuple[nn.Module, Callable[[int], Inputs]]:
    return Mlp(), lambda batch: {"x": torch.randn(batch, 64)}


def _t5() -> tuple[nn.Module, Callable[[int], Inputs]]:
    transformers = pytest.importorskip("transformers")
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    config = transformers.T5Config(vocab_size=50, decoder_start_token_id=0, use_cache=False, **sizes)

    def inputs(batch: int) -> Inputs:
        return {"input_ids": torch.randint(5, 50, (batch, 9)), "decoder_input_ids": torch.randint(5, 50, (batch, 6))}

    return transformers.T5ForConditionalGeneration(config).eval(), inputs


def _of_demo(name: str) -> Callable[[], tuple[nn.Module, Callable[[int], Inputs]]]:
    def build() -> tuple[nn.Module, Callable[[int], Inputs]]:
        pytest.importorskip("transformers")
        model = MODELS[name].build("tiny")
        if hasattr(model.config, "use_cache"):
            model.config.use_cache = False
        return model, lambda batch: MODELS[name].example(model, "tiny", batch, seed=batch)

    return build


MODELS_BY_NAME = {"mlp": _mlp, "t5": _t5} | {name: _of_demo(name) for name in ("bert", "gpt2", "vit", "resnet")}


def _result(found: Any) -> torch.Tensor:
    return found if isinstance(found, torch.Tensor) else found.logits


def _wide(inputs: Inputs) -> Inputs:
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


@pytest.mark.parametrize("name", [n if n == "mlp" else pytest.param(n, marks=pytest.mark.slow) for n in MODELS_BY_NAME])
def test_inference(name: str) -> None:
    torch.manual_seed(0)
    model, make = MODELS_BY_NAME[name]()
    exact = copy.deepcopy(model).double()
    compiled = torchmux.compile(model, backend="native", dynamic=True)
    with torch.no_grad():
        for batch in BATCHES:
            inputs = make(batch)
            got, eager, reference = (
                _result(compiled(**inputs)),
                _result(model(**inputs)),
                _result(exact(**_wide(inputs))),
            )
            assert oracle.compare_tensors(f"batch {batch}", got, eager, reference) is None
    report = torchmux.report(compiled)
    assert report.graph_count == GRAPHS.get(name, 1)
    assert not report.breaks


@pytest.mark.parametrize("name", [n if n == "mlp" else pytest.param(n, marks=pytest.mark.slow) for n in MODELS_BY_NAME])
def test_training(name: str) -> None:
    torch.manual_seed(0)
    model, make = MODELS_BY_NAME[name]()
    twin, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    compiled = torchmux.compile(model, backend="native", dynamic=True)
    for batch in BATCHES[::2]:
        inputs = make(batch)
        gradients = []
        for call, module, given in ((compiled, model, inputs), (twin, twin, inputs), (exact, exact, _wide(inputs))):
            module.zero_grad()
            _result(call(**given)).square().mean().backward()
            gradients.append({n: p.grad for n, p in module.named_parameters() if p.grad is not None})
        scale = oracle.largest(gradients[1].values())
        for key, (got, eager, reference) in {k: [g[k] for g in gradients] for k in gradients[1]}.items():
            assert oracle.compare_tensors(f"batch {batch}, {key}", got, eager, reference, scale=scale) is None
    assert torchmux.report(compiled).graph_count == GRAPHS.get(name, 1)
