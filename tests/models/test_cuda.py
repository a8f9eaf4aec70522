"""The five models on a GPU: run by ``pytest -m gpu`` where there is one."""

from __future__ import annotations

import copy

import pytest
import torch

import torchmux

from .zoo import NAMES, assert_equal, assert_one_graph, compile_or_skip, inputs_for, make

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def _on_gpu(name, dtype=torch.float32):
    model = make(name).to("cuda", dtype)
    inputs = {k: v.to("cuda") for k, v in inputs_for(name, model).items()}
    return model, {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_eager_computes_the_bits_of_torchs_capture(name, dtype):
    """On a GPU transformers builds other attention masks while it is compiled, under torch's tracer as under ours."""
    model, inputs = _on_gpu(name, dtype)
    with torch.no_grad():
        expected = torch.compile(model, backend="eager")(**inputs)
        torch.compiler.reset()  # before 2.13 code that it compiled often enough is captured by nobody any more
        compiled = torchmux.compile(model, backend="eager", fullgraph=True)
        for _ in range(2):
            assert_equal(compiled(**inputs), expected)
        plain = model(**inputs)
    torch.testing.assert_close(compiled(**inputs)[0], plain[0], rtol=1.6e-2, atol=1e-2 if dtype.itemsize < 4 else 1e-5)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", NAMES)
def test_inference(name, backend):
    model, inputs = _on_gpu(name)
    compiled = compile_or_skip(model, backend)
    with torch.no_grad():
        expected, found = model(**inputs), compiled(**inputs)
    torch.testing.assert_close(found[0], expected[0], rtol=2e-3, atol=2e-3)
    report = torchmux.report(compiled)
    assert_one_graph(report)
    assert not report.fallbacks


@pytest.mark.parametrize("name", NAMES)
def test_training_step(name):
    model, inputs = _on_gpu(name)
    twin = copy.deepcopy(model)
    compiled = torchmux.compile(model, backend="aot_eager")
    for each in (compiled, twin):
        torch.manual_seed(0)
        each(**inputs)[0].float().square().mean().backward()
    for (key, a), (_, b) in zip(model.named_parameters(), twin.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), key
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-4)


def test_a_device_change_is_guarded():
    def fn(x):
        return x * 2 + 1

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    for device in ("cpu", "cuda", "cpu"):
        x = torch.ones(3, device=device)
        assert torch.equal(compiled(x), fn(x))
    assert torchmux.report(compiled).graph_count == 2


def test_autocast_on_the_gpu():
    layer = torch.nn.Linear(8, 8, device="cuda")

    def fn(x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return layer(x)

    x = torch.randn(4, 8, device="cuda")
    for backend in ("eager", "aot_eager"):
        found = torchmux.compile(fn, backend=backend, fullgraph=True)(x)
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, fn(x))


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_weights_are_cast_together(mode):
    """Training in regions of autocast, in one of which a weight changes between two calls: eager keeps its cast."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    model = model.cuda()
    twin = copy.deepcopy(model)
    compiled = torchmux.compile(twin, backend="native", mode=mode)
    x = torch.randn(16, 64, device="cuda")

    def step(run, weights, changes):
        optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            losses = [run(x).float().square().mean()]
            if changes:
                with torch.no_grad():
                    weights[0].weight.mul_(4)
                losses.append(run(x).float().square().mean())
        sum(losses).backward()
        optimizer.step()
        return [loss.item() for loss in losses] + [float(p.grad.norm()) for p in weights.parameters()]

    for number in range(6):
        expected, found = step(model, model, number == 4), step(compiled, twin, number == 4)
        torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=0.02, atol=0.002)
        for each in (model, twin):
            each.zero_grad()
    assert not torchmux.report(compiled).fallbacks


def test_a_recording_of_the_program_has_its_own_casts():
    """The program records a CUDA graph of its own around compiled code."""
    layer = torch.nn.Linear(64, 64, device="cuda")
    compiled, x = torchmux.compile(layer, backend="native"), torch.randn(16, 64, device="cuda")

    def run():
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            return compiled(x)

    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = run()
    with torch.no_grad():
        layer.weight.mul_(2)
    graph.replay()
    torch.testing.assert_close(found, run(), rtol=0.02, atol=0.02)
