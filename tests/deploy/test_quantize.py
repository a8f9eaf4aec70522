"""``torchmux.quantize`` with the real tools, where they are installed."""

from __future__ import annotations

import importlib.metadata
from unittest import mock

import pytest
import torch

import torchmux
from torchmux.deploy import quantizers


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(32, 64)
        self.last = torch.nn.Linear(64, 8)

    def forward(self, x, scale=1.0):
        y = self.last(torch.relu(self.first(x))) * scale
        return {"y": y, "nothing": None, "p": y.softmax(-1)}


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def installed(backend: str) -> str:
    if missing := quantizers.BY_BACKEND[backend].missing():
        pytest.skip(f"needs {', '.join(missing)}")
    return backend


def checked(net, backend, calls) -> torchmux.Quantized:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    quantized = torchmux.quantize(net, calls, backend=backend)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    logits, chances = quantized.report.accuracy
    assert (logits.name, chances.name) == ("['y']", "['p']")
    # Not the float32 model, and not far from it: what the report says is what a call shows.
    assert 1e-4 < logits.relative_error < 5e-2
    squares = [0.0, 0.0]
    for x in calls:
        with torch.no_grad():
            found, wanted = quantized(x), net(x)
        assert found["nothing"] is None and found["y"].dtype is torch.float32
        squares[0] += float((found["y"] - wanted["y"]).double().square().sum())
        squares[1] += float(wanted["y"].double().square().sum())
    assert (squares[0] / squares[1]) ** 0.5 == pytest.approx(logits.relative_error, rel=1e-3)
    assert f"int8 for {backend} by" in str(quantized.report) and "relative error" in str(quantized.report)
    return quantized


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "tvm"])
def test_weights_in_int8(backend, net):
    quantized = checked(net, installed(backend), [torch.randn(16, 32) for _ in range(4)])
    assert torchmux.report(quantized.compiled).share == 1.0
    with pytest.raises(torchmux.Unsupported, match="no file format of its own"):
        quantized.save("net.file")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["onnxrt", "openvino"])
def test_weights_and_activations_in_int8(backend, net, tmp_path):
    quantized = checked(net, installed(backend), [torch.randn(n, 32) for n in (16, 8, 16, 5)])
    path = tmp_path / ("net.onnx" if backend == "onnxrt" else "net.xml")
    quantized.save(path)
    x = torch.randn(3, 32)  # a size that was not there: the first dimension is dynamic
    if backend == "onnxrt":
        import onnxruntime

        session = onnxruntime.InferenceSession(path.read_bytes())
        alone = session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]
    else:
        import openvino

        alone = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(x.numpy())[0]
    torch.testing.assert_close(torch.from_numpy(alone), quantized(x)["y"])
    with pytest.raises(torchmux.Unsupported, match=r"quantized for \['any', 32\]"):
        quantized(torch.randn(3, 33))
    with pytest.raises(torchmux.Unsupported, match="another structure"):
        quantized(x, 2.0)


def test_what_cannot_be_quantized_is_refused(net):
    x = [torch.ones(4, 32)]
    with pytest.raises(ValueError, match="no tool for 'inductor'"):
        torchmux.quantize(net, x, backend="inductor")
    with pytest.raises(ValueError, match="at least one input"):
        torchmux.quantize(net, [], backend="native")
    with pytest.raises(ValueError, match=r"model\.eval"):
        torchmux.quantize(Net(), x, backend="native")
    with pytest.raises(TypeError, match="takes an nn.Module"):
        torchmux.quantize(torch.relu, x, backend="native")

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    with (
        mock.patch.object(quantizers.importlib.metadata, "version", absent),
        pytest.raises(torchmux.BackendUnavailable, match=r"needs torchao: .*pip install 'torchmux\[quantize\]'"),
    ):
        torchmux.quantize(net, x, backend="native")
    installed("native")
    with pytest.raises(torchmux.QuantizationFailed, match="nothing in this model"):
        torchmux.quantize(torch.nn.ReLU().eval(), x, backend="native")
