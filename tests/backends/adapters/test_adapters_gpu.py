"""onnxrt and tvm on tensors of a GPU: BERT, streams, and no move to the CPU that is not told."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import torchmux
from torchmux.config import config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def _has(backend: str) -> str:
    """Why ``backend`` cannot use the GPU here, if so."""
    if backend == "onnxrt":
        if importlib.util.find_spec("onnxruntime") is None:
            return "needs onnxruntime-gpu"
        import onnxruntime

        return "" if "CUDAExecutionProvider" in onnxruntime.get_available_providers() else "needs onnxruntime-gpu"
    if importlib.util.find_spec("tvm") is None:
        return "needs apache-tvm"
    import tvm

    return "" if tvm.cuda(0).exist else "this TVM finds no GPU"


@pytest.fixture(params=["onnxrt", "tvm"])
def backend(request, tmp_path):
    reason = _has(request.param)
    if reason:
        pytest.skip(reason)
    with config.patch(cache_dir=tmp_path):
        yield request.param


def f(x, w):
    return torch.softmax(torch.relu(x @ w) + 1, -1)


@pytest.mark.parametrize("size", ["tiny", "full"])
def test_bert(backend: str, size: str) -> None:
    pytest.importorskip("transformers")
    from torchmux.demo.models import MODELS

    family = MODELS["bert"]
    model = family.build(size).cuda()
    inputs = {name: value.cuda() for name, value in family.example(model, size, 2).items()}
    compiled = torchmux.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        wanted = model(**inputs).logits
        for _ in range(3):
            found = compiled(**inputs).logits
    assert found.is_cuda
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.share >= (0.95 if backend == "onnxrt" else 0.9), entry.report.fallbacks


def test_training(backend: str) -> None:
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, 8, device="cuda", requires_grad=True)
    compiled = torchmux.compile(f, backend=backend)
    compiled(x, w)[:, 0].sum().backward()
    found, w.grad = w.grad, None
    f(x, w)[:, 0].sum().backward()
    torch.testing.assert_close(found, w.grad, rtol=1e-3, atol=1e-5)


def test_one_artifact_for_all_sizes(backend: str) -> None:
    w = torch.randn(64, 64, device="cuda")
    compiled = torchmux.compile(f, backend=backend, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for rows in (7, 2, 300):
            x = torch.randn(rows, 64, device="cuda")
            torch.testing.assert_close(compiled(x, w), f(x, w), rtol=1e-3, atol=1e-4)
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.share == 1.0
    assert not any("each shape" in note for note in entry.report.notes)


def cancelling(x):
    both = (x + 1) - (x + 1), (x - x) * 0.5 + 1, (x - x).sum(), x + 1 - x, (x - x) / x, x * 1e38 * 10 - x * 1e38 * 10
    return *both, (x[:2] + 12582912.0) - 12582912.0, x * torch.zeros_like(x), x.relu() * 0.0


@pytest.mark.parametrize("batch", [2, 500])
def test_what_cancels_in_algebra_and_not_in_floats(backend: str, batch: int) -> None:
    x = torch.tensor([1.3, -2.6, float("nan"), float("inf")], device="cuda").repeat(batch)
    compiled = torchmux.compile(cancelling, backend=backend)
    with torch.no_grad():
        for found, wanted in zip(compiled(x), cancelling(x), strict=True):
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_streams(backend: str) -> None:
    """What runs before on torch's current stream is done when the part begins, and the part before what runs after."""
    w = torch.randn(512, 512, device="cuda") / 22
    compiled = torchmux.compile(f, backend=backend)
    with torch.no_grad():
        compiled(torch.randn(512, 512, device="cuda"), w)
        for stream in (torch.cuda.Stream(), torch.cuda.current_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x = torch.zeros(512, 512, device="cuda")
                torch.cuda._sleep(50_000_000)
                x += torch.arange(512.0, device="cuda") / 512
                found = compiled(x, w) * 2
                torch.cuda._sleep(10_000_000)
                wanted = f(x, w) * 2
            stream.synchronize()
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_parameters_that_change_are_seen(backend: str) -> None:
    net, x = torch.nn.Linear(8, 8).cuda(), torch.randn(4, 8, device="cuda")
    compiled = torchmux.compile(net, backend=backend)
    with torch.no_grad():
        compiled(x)
        net.weight.data.mul_(2)
        torch.testing.assert_close(compiled(x), net(x), rtol=1e-3, atol=1e-4)


def test_a_provider_for_the_cpu_is_not_given_tensors_of_the_gpu() -> None:
    if _has("onnxrt"):
        pytest.skip(_has("onnxrt"))
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, 8, device="cuda")
    compiled = torchmux.compile(f, backend="onnxrt", options={"providers": ["CPUExecutionProvider"]})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w), f(x, w))
    (entry,) = torchmux.report(compiled).graphs
    assert entry.report.share == 0.0
    assert "CPUExecutionProvider" in entry.report.fallbacks[0].reason
