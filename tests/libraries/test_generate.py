"""``generate`` of transformers: greedy, by sampling and with beams, with each kind of cache."""

from __future__ import annotations

import pytest
import torch

import torchmux

pytest.importorskip("transformers")

from .programs import llama

pytestmark = pytest.mark.libraries

WAYS = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 5},
    "beams": {"do_sample": False, "num_beams": 2},
}


def generated(model, way, **more):
    torch.manual_seed(0)
    prompt = torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]])
    return model.generate(prompt, max_new_tokens=4, min_new_tokens=4, pad_token_id=0, **WAYS[way], **more)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return llama()


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("backend", ["eager", "native", "onnxrt", "openvino", "tvm"])
def test_generate(model, backend, cache):
    more = {"cache_implementation": "static", "disable_compile": True} if cache == "static" else {}
    compiled = torchmux.compile(model, backend=backend)
    for way in WAYS:
        assert torch.equal(generated(compiled, way, **more), generated(model, way, **more)), way
    report = torchmux.report(compiled)
    assert report.graph_count
    assert not report.breaks


def test_generate_compiles_with_our_backend(model):
    from transformers import CompileConfig

    config = CompileConfig(backend="torchmux_native", mode=None)
    config._compile_all_devices = True  # it compiles for GPUs only, otherwise
    found = generated(model, "greedy", cache_implementation="static", compile_config=config)
    assert torch.equal(found, generated(model, "greedy"))
