"""Recurrent layers as one call of cuDNN: on a GPU, and with a stand-in for cuDNN that counts its calls on a CPU."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
from torch import nn

import torchmux
from torchmux.backends.common import recurrent

KINDS = [nn.GRU, nn.LSTM, nn.RNN]
FORMS = [{}, {"batch_first": True, "bidirectional": True, "num_layers": 2}, {"bias": False}]


class _StandIn:
    """Computes what cuDNN does by torch's own layers for CPUs, with as much for backward as ``reserve`` says."""

    reserve = 77

    def __init__(self) -> None:
        self.calls: list[str] = []

    @staticmethod
    def _layer(x, weights, a_layer, state, cell, how):
        how = recurrent._How(*how)
        name = next(name for name, mode in recurrent._MODES.items() if mode == how.mode)
        states = state if cell is None else (state, cell)
        sizes = a_layer >= 4, how.layers, 0.0, how.training, how.both_ways, how.batch_first
        return getattr(torch._VF, name)(x, states, weights, *sizes)

    def run(self, x, weights, a_layer, state, cell, *how):
        self.calls.append("forward")
        with torch.no_grad():
            results = [each.clone() for each in self._layer(x, weights, a_layer, state, cell, how)]
        results += [x.new_empty(0)] * (3 - len(results))
        return *results, torch.zeros(self.reserve, dtype=torch.uint8)

    def run_backward(self, gradient, of_state, of_cell, x, weights, a_layer, state, cell, _, reserve, wanted, *how):
        self.calls.append("backward")
        assert reserve.shape == (self.reserve,)
        given = [x, state, *([] if cell is None else [cell]), *weights]
        with torch.enable_grad():
            x, state, *rest = leaves = [each.detach().requires_grad_() for each in given]
            cell, weights = (None, rest) if cell is None else (rest[0], rest[1:])
            results = self._layer(x, weights, a_layer, state, cell, how)
            found = list(torch.autograd.grad(results, leaves, [gradient, of_state, of_cell][: len(results)]))
        if cell is None:
            found.insert(2, None)
        shown = [*wanted[:3], *[wanted[3]] * len(weights)]
        return [each.contiguous() if keep else x.new_empty(0) for each, keep in zip(found, shown, strict=True)]


@pytest.fixture
def stand_in(monkeypatch):
    made = _StandIn()
    monkeypatch.setattr(recurrent, "_has_cudnn", lambda x: True)
    monkeypatch.setattr(recurrent, "run_cudnn_rnn", made.run)
    recurrent._layouts.cache_clear()
    with torch.library._scoped_library("torchmux", "FRAGMENT") as library:
        library.impl("cudnn_rnn", made.run, "CPU")
        library.impl("cudnn_rnn_backward", made.run_backward, "CPU")
        yield made
    recurrent._layouts.cache_clear()


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("kind", KINDS)
def test_all_steps_are_one_call(stand_in, kind, form):
    layer, x = kind(3, 4, **form), torch.randn(2, 5, 3, requires_grad=True)
    expected = layer(x)[0]
    compiled = torchmux.compile(layer, backend="aot_eager", fullgraph=True)
    found = compiled(x)[0]
    torch.testing.assert_close(found, expected)
    leaves = [x, *layer.parameters()]
    gradients = torch.autograd.grad(expected.sin().sum(), leaves)
    torch.testing.assert_close(torch.autograd.grad(found.sin().sum(), leaves), gradients)
    assert stand_in.calls[-2:] == ["forward", "backward"]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x))


def test_native_calls_it_directly(stand_in):
    layer, x = nn.GRU(3, 4), torch.randn(2, 5, 3)
    compiled = torchmux.compile(lambda x: layer(x * 2)[0] + 1, backend="native")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), layer(x * 2)[0] + 1)
        stand_in.calls.clear()
        compiled(x)
    assert stand_in.calls == ["forward"]


def test_states_have_gradients_and_frozen_weights_none(stand_in):
    layer = nn.LSTM(3, 4).requires_grad_(False)
    x, state, cell = (torch.randn(*shape, requires_grad=True) for shape in ((2, 5, 3), (1, 5, 4), (1, 5, 4)))

    def step(x, state, cell):
        results, (state, cell) = layer(x, (state, cell))
        return results.sum() + (state * cell).sum()

    gradients = torch.autograd.grad(step(x, state, cell), [x, state, cell])
    found = torch.autograd.grad(torchmux.compile(step, backend="aot_eager")(x, state, cell), [x, state, cell])
    torch.testing.assert_close(found, gradients)
    assert "backward" in stand_in.calls


def test_dropout_between_layers_is_traced_in_steps(stand_in):
    """cuDNN draws its mask from a state of its own, which no trace has."""
    layer = nn.GRU(3, 4, 2, dropout=0.5)
    torchmux.compile(layer, backend="aot_eager")(torch.randn(2, 5, 3))
    assert not stand_in.calls
    torchmux.compile(layer.eval(), backend="aot_eager")(torch.randn(2, 5, 3))
    assert "forward" in stand_in.calls


# --- oneDNN's LSTM on a CPU ------------------------------------------------------------------------------------------

TWO = {"batch_first": True, "bidirectional": True, "num_layers": 2}


def _step(layer, x, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        results, (state, cell) = layer(x)
    loss = results.float().sin().sum() + (state * cell).float().sum()
    return [results, state, cell, *torch.autograd.grad(loss, [x, *layer.parameters()])]


@pytest.mark.parametrize(
    ("dtype", "autocast", "backend", "form"),
    [(torch.float32, False, "aot_eager", TWO), (torch.float32, False, "native", {"bias": False}),
     (torch.float32, True, "aot_eager", {}), (torch.bfloat16, False, "aot_eager", {})],
)  # fmt: skip
def test_an_lstm_in_training_is_eagers(dtype, autocast, backend, form):
    """To the last bit, as both call oneDNN once for each layer and direction."""
    torchmux.reset()  # sizes that an earlier test has seen to change are symbolic, and traced in steps
    layer, x = nn.LSTM(7, 5, **form).to(dtype), torch.randn(4, 3, 7).to(dtype).requires_grad_()
    compiled = torchmux.compile(layer, backend=backend, fullgraph=True)
    twin = _Compiled(layer, compiled)
    for found, expected in zip(_step(twin, x, autocast), _step(layer, x, autocast), strict=True):
        assert found.stride() == expected.stride()
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    if backend == "native":
        calls = [call.op for call in torchmux.report(compiled).library_calls]
        assert {"torchmux.onednn_lstm.default", "torchmux.onednn_lstm_backward.default"} <= set(calls)


class _Compiled:
    def __init__(self, layer, call):
        self.parameters, self.call = layer.parameters, call

    def __call__(self, x):
        return self.call(x)


def test_an_lstm_whose_input_has_no_gradient_and_whose_weights_are_partly_frozen():
    layer, x = nn.LSTM(3, 4), torch.randn(2, 5, 3)
    layer.bias_ih_l0.requires_grad_(False)
    leaves = [p for p in layer.parameters() if p.requires_grad]
    expected = torch.autograd.grad(layer(x)[0].sin().sum(), leaves)
    found = torch.autograd.grad(torchmux.compile(layer, backend="aot_eager")(x)[0].sin().sum(), leaves)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("without", ["onednn", "equal sizes"])
def test_an_lstm_that_eager_runs_in_steps_is_traced_in_steps(without):
    layer, x = nn.LSTM(3, 4, proj_size=2 if without == "equal sizes" else 0), torch.randn(2, 5, 3)
    enabled = without != "onednn"
    with torch.backends.mkldnn.flags(enabled=enabled), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # oneDNN has no projections
        compiled = torchmux.compile(layer, backend="native", fullgraph=True)
        torch.testing.assert_close(compiled(x)[0], layer(x)[0])
    assert not any("onednn" in str(call.op) for call in torchmux.report(compiled).library_calls)


# --- on a GPU ---------------------------------------------------------------------------------------------------------

on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
class TestOnAGpu:
    pytestmark = on_a_gpu

    def test_training(self, kind, form, dtype, mode):
        layer = kind(16, 32, **form).to("cuda", dtype)
        twin, x = copy.deepcopy(layer), torch.randn(6, 5, 16, device="cuda", dtype=dtype)
        compiled = torchmux.compile(layer, backend="native", mode=mode, fullgraph=True)
        for _ in range(4):
            given, same = x.clone().requires_grad_(), x.clone().requires_grad_()
            found, expected = compiled(given), twin(same)
            found[0].sin().sum().backward()
            expected[0].sin().sum().backward()
            torch.testing.assert_close(found, expected)
            assert found[0].stride() == expected[0].stride()
            torch.testing.assert_close(given.grad, same.grad)
            torch.testing.assert_close([p.grad for p in layer.parameters()], [p.grad for p in twin.parameters()])

    def test_inference(self, kind, form, dtype, mode):
        layer = kind(16, 32, **form).to("cuda", dtype).eval()
        x = torch.randn(6, 5, 16, device="cuda", dtype=dtype)
        compiled = torchmux.compile(layer, backend="native", mode=mode, fullgraph=True)
        with torch.no_grad():
            for _ in range(4):
                torch.testing.assert_close(compiled(x), layer(x), rtol=0, atol=0)


class TestOnAGpuOnce:
    pytestmark = on_a_gpu

    def test_autocast_and_projections(self):
        layer = nn.LSTM(16, 32, proj_size=8, batch_first=True).cuda()
        x = torch.randn(6, 5, 16, device="cuda")

        def step(x):
            with torch.autocast("cuda", torch.float16):
                return layer(x)[0]

        found, expected = torchmux.compile(step, backend="native")(x), step(x)
        assert found.dtype is expected.dtype
        torch.testing.assert_close(found, expected)

    def test_weights_in_memories_of_their_own(self):
        layer = nn.GRU(16, 32).cuda()
        compiled, x = torchmux.compile(layer, backend="native"), torch.randn(6, 5, 16, device="cuda")
        with torch.no_grad():
            compiled(x)
            for each in layer.parameters():
                each.data = each.data.clone()
            torch.testing.assert_close(compiled(x), layer(x))
