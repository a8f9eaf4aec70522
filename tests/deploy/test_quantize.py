"""``torchmux.quantize`` with the real tools, where they are installed."""

from __future__ import annotations

import importlib.metadata
from unittest import mock

import pytest
import torch

import torchmux
from torchmux.deploy.quantizing import products, tools


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
    if missing := tools.BY_BACKEND[backend].missing():
        pytest.skip(f"needs {', '.join(missing)}")
    return backend


def checked(net, backend, calls, **options) -> torchmux.Quantized:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    quantized = torchmux.quantize(net, calls, backend=backend, **options)
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
    shown = str(quantized.report)
    assert f"int8 for {backend} by" in shown and "relative error" in shown and "times as fast" in shown
    return quantized


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "tvm"])
def test_weights_in_int8(backend, net):
    calls = [torch.randn(16, 32) for _ in range(4)]
    quantized = checked(net, installed(backend), calls, activations=False)
    assert torchmux.report(quantized.compiled).share == 1.0
    with pytest.raises(torchmux.Unsupported, match="no file format of its own"):
        quantized.save("net.file")


class Pictures(torch.nn.Module):
    """Convolutions that products of int8 take, and two that they do not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.each = torch.nn.Conv2d(8, 8, 3, groups=8)
        self.wide = torch.nn.Conv2d(8, 8, 3, dilation=2, bias=False)
        self.same = torch.nn.Conv2d(8, 8, (2, 3), padding="same")
        self.narrow = torch.nn.Conv2d(8, 4, 1, stride=2)
        self.pool = torch.nn.MaxPool2d(2)
        self.line = torch.nn.Conv1d(4, 4, 3, padding=1)
        self.last = torch.nn.Linear(16, 6)

    def forward(self, image, *, scale=1.0, unused=None):
        image = self.narrow(self.same(self.wide(torch.relu(self.each(self.norm(self.first(image)))))))
        return {"y": self.last(self.line(self.pool(image).flatten(2)).flatten(1)) * scale, "unused": unused}


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "tvm"])
def test_products_in_int8(backend, tmp_path):
    torch.manual_seed(0)
    model = Pictures().eval()
    calls = [{"image": torch.randn(n, 3, 14, 14), "scale": 2.0} for n in (1, 4, 2)]
    quantized = torchmux.quantize(model, calls, backend=installed(backend))
    report = quantized.report
    assert report.what == "weights and activations of 4 convolutions and 1 linear layers"
    assert [why for _, why in (each.split(": ") for each in report.left)] == [
        "there is no product of int8 for a convolution with groups=8",
        "PT2E does not quantize aten.conv1d.default",
    ]
    assert 1e-4 < report.accuracy[0].relative_error < 5e-2 and report.seconds > 0 and report.float_seconds > 0
    traced = torchmux.report(quantized.compiled)
    assert not traced.breaks and "aten._int_mm.default" in str(traced)

    image = torch.randn(3, 3, 14, 14)  # the first dimension is dynamic
    with torch.no_grad():
        found, wanted = quantized(image=image, scale=2.0), model(image, scale=2.0)
        assert found["unused"] is None
        assert (found["y"] - wanted["y"]).norm() < 5e-2 * wanted["y"].norm()
        with pytest.raises(torchmux.Unsupported, match=r"quantized for \['any', 3, 14, 14\]"):
            quantized(image=image[..., 1:], scale=2.0)
        if backend == "native":  # tvm compiles a part of a model with convolutions for each size, which no file takes
            torchmux.save(quantized.compiled, tmp_path / "int8.tmx")
            loaded = torchmux.load(tmp_path / "int8.tmx")
            assert torch.equal(loaded(image=image, scale=2.0)["y"], found["y"])
            sizes = {tensor.dtype: tensor.numel() for tensor in loaded.weights.values() if tensor.dim() == 2}
            assert torch.int8 in sizes and torch.float32 not in sizes


def test_products_of_int8_are_those_of_pt2e():
    """The graph that torchao makes is the reference; tails, biases, strides and zeros that are not 0."""
    installed("native")
    with tools._quiet():
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
        from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 5, (3, 2), stride=(2, 1), padding=(1, 0)), torch.nn.GELU(),
        torch.nn.Conv2d(5, 7, (2, 3), dilation=(1, 2), padding=(1, 2)), torch.nn.Flatten(2),
        torch.nn.Linear(15, 9, bias=False), torch.nn.Linear(9, 3),
    ).eval()  # fmt: skip
    x = torch.randn(2, 3, 4, 6) + 0.7
    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    with torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(net, (x,)).module(), quantizer)
        prepared(x)
        graph = convert_pt2e(prepared)
        wanted = graph(x)
        counts, left = products.lower(graph)
        assert counts == {"convolutions": 2, "linear layers": 2} and not left
        assert not [n for n in graph.graph.nodes if "quantized_decomposed" in str(n.target)]
        # Rounding of sums may move a number to the next of 255.
        torch.testing.assert_close(graph(x), wanted, atol=float(wanted.abs().max()) / 100, rtol=0)


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
    with pytest.raises(ValueError, match="for native and tvm, not onnxrt"):
        torchmux.quantize(net, x, activations=False)
    with pytest.raises(ValueError, match=r"model\.eval"):
        torchmux.quantize(Net(), x, backend="native")
    with pytest.raises(TypeError, match="takes an nn.Module"):
        torchmux.quantize(torch.relu, x, backend="native")

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    with (
        mock.patch.object(tools.importlib.metadata, "version", absent),
        pytest.raises(torchmux.BackendUnavailable, match=r"needs torchao: .*pip install 'torchmux\[quantize\]'"),
    ):
        torchmux.quantize(net, x, backend="native")
    installed("native")
    with pytest.raises(torchmux.QuantizationFailed, match="nothing in this model"):
        torchmux.quantize(torch.nn.ReLU().eval(), x, backend="native")
    with (
        mock.patch.object(products, "is_exact", lambda: False),
        pytest.raises(torchmux.QuantizationFailed, match="not exact on this processor.*activations=False"),
    ):
        torchmux.quantize(net, x, backend="native")

    with pytest.raises(torchmux.QuantizationFailed, match=r"some of torch\.bfloat16: call model\.float\(\) first"):
        torchmux.quantize(net.to(torch.bfloat16), [torch.ones(4, 32).bfloat16()], backend="native")
    net.float()

    class Asks(Net):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    with pytest.raises(torchmux.QuantizationFailed, match=r"does not quantize Asks.*activations=False"):
        torchmux.quantize(Asks().eval(), x, backend="native")


def test_one_row_without_a_batch():
    installed("native")
    net, x = torch.nn.Linear(8, 8).eval(), torch.randn(8)
    with torch.no_grad():
        assert (torchmux.quantize(net, [x], backend="native")(x) - net(x)).norm() < 5e-2 * net(x).norm()
