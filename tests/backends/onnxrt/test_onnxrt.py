"""onnxrt on small graphs: numbers, dtypes, shapes, strides, refusals, options, the cache, threads."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchmux.config import config
from torchmux.registry import FallbackRefused, InvalidOption, resolve

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def check(capture, function, *args, exact: bool = False, dynamic=None, options=None):
    """Compile strictly, compare with eager, and return the report."""
    captured = capture(function, *args, dynamic=dynamic)
    compiled = captured.compile("onnxrt", strict=True, options=options)
    with torch.no_grad():
        got, wanted = captured.run(compiled, *args), function(*args)
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
    for a, b in pairs:
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)
    return compiled.report


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.two(F.gelu(F.layer_norm(self.one(x), (16,), self.norm.weight, self.norm.bias)))


@pytest.mark.parametrize("freeze", [False, True])
def test_a_network(capture, freeze: bool) -> None:
    report = check(capture, Mlp(), torch.randn(3, 8), options={"freeze": freeze})
    assert report.share == 1.0
    assert report.partitions == 1


def test_composite_operators_stay_whole(capture) -> None:
    report = check(capture, Mlp(), torch.randn(3, 8))
    assert [p.op for p in report.placements] == [
        "aten.linear.default", "aten.layer_norm.default", "aten.gelu.default", "aten.linear.default"
    ]  # fmt: skip


def test_a_transposed_matrix_times_a_vector(capture) -> None:
    """onnxruntime would fuse the two and forget the transposition."""
    matrix, vector = torch.randn(3, 3), torch.randn(3)
    captured = capture(lambda m, v: m.t() @ (v * 2), matrix, vector)
    compiled = captured.compile("onnxrt")
    torch.testing.assert_close(captured.run(compiled, matrix, vector), matrix.t() @ (vector * 2))
    assert any("transposition" in (p.reason or "") for p in compiled.report.placements)


def test_one_session_serves_every_size(capture) -> None:
    net = Mlp()
    captured = capture(net, torch.randn(3, 8), dynamic={0: [0]})
    compiled = captured.compile("onnxrt", strict=True)
    for rows in (3, 2, 64):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(captured.run(compiled, x), net(x))


def test_sizes_in_the_graph(capture) -> None:
    def f(x):
        return x.view(x.size(0) * 2, -1).softmax(-1).reshape(x.size(0), -1) + x.size(0)

    captured = capture(f, torch.randn(4, 6), dynamic={0: [0]})
    compiled = captured.compile("onnxrt", strict=True)
    for rows in (4, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(captured.run(compiled, x), f(x))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.uint8])
def test_other_dtypes(capture, dtype) -> None:
    x = torch.arange(1, 7).reshape(2, 3).to(dtype)
    check(capture, lambda x, y: x * y + x, x, x + 1, exact=True)


def test_bools_in_and_out(capture) -> None:
    x, mask = torch.randn(4), torch.tensor([True, False, True, True])
    check(capture, lambda x, m: (torch.where(m, x, -x), (x > 0) & m, ~m), x, mask, exact=True)


def test_mixed_dtypes_are_promoted(capture) -> None:
    check(capture, lambda x, n: (x + n, n + 0.5, n < 2.5, n / 2), torch.randn(4), torch.arange(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_dtypes_that_would_be_computed_otherwise_are_refused(capture, dtype) -> None:
    x = torch.ones(3, dtype=dtype)
    captured = capture(lambda x: x * 2 + 1, x)
    compiled = captured.compile("onnxrt")
    assert torch.equal(captured.run(compiled, x), x * 2 + 1)
    assert compiled.report.share == 0.0
    assert str(dtype).removeprefix("torch.") in compiled.report.fallbacks[0].reason


def test_tensors_without_elements_are_refused(capture) -> None:
    x = torch.empty(0, 3)
    captured = capture(lambda x: x.relu().sum(1), x)
    compiled = captured.compile("onnxrt")
    assert captured.run(compiled, x).shape == (0,)
    assert "without elements" in compiled.report.fallbacks[0].reason


def test_scalars_and_results_of_no_dimension(capture) -> None:
    check(capture, lambda x, s: (x * s, x.sum(), s.exp()), torch.randn(3, 2), torch.tensor(2.0))


def test_inputs_of_any_strides(capture) -> None:
    def f(x, y):
        return x.relu() + y.sigmoid()

    x, y = torch.randn(6, 4), torch.randn(4, 6)
    captured = capture(f, x.t(), y)
    compiled = captured.compile("onnxrt", strict=True)
    torch.testing.assert_close(captured.run(compiled, x.t(), y), f(x.t(), y))
    wide = torch.randn(4, 12)
    torch.testing.assert_close(captured.run(compiled, wide[:, ::2], y), f(wide[:, ::2], y))


def test_results_have_eagers_strides(capture) -> None:
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    check(capture, lambda x: (x.relu(), x.relu().transpose(1, 2), x.relu().flatten(1)), x)


def test_results_share_memory_as_in_eager(capture) -> None:
    def f(x):
        y = x.relu()
        return y, y[0], x.t(), x

    x = torch.randn(3, 3)
    captured = capture(f, x)
    y, row, shown, same = captured.run(captured.compile("onnxrt", strict=True), x)
    assert row.data_ptr() == y.data_ptr()
    assert shown.data_ptr() == x.data_ptr()
    assert same is x


def test_random_operators_are_left_to_torch(capture) -> None:
    def f(x):
        return F.dropout(x.relu(), 0.5, True).sigmoid()

    x = torch.randn(100)
    captured = capture(f, x)
    compiled = captured.compile("onnxrt")
    torch.manual_seed(1)
    got = captured.run(compiled, x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, f(x))
    assert all("random" in p.reason for p in compiled.report.fallbacks)
    assert compiled.report.fallbacks


def test_dropout_that_drops_nothing_is_no_fallback(capture) -> None:
    q = torch.randn(2, 4, 5, 8)
    check(capture, lambda q: F.scaled_dot_product_attention(q, q, q) + F.dropout(q, 0.5, False), q)


def test_an_operator_without_translation_is_reported(capture) -> None:
    def f(x):
        return torch.linalg.qr(x.relu()).R.sigmoid()

    x = torch.randn(3, 3)
    captured = capture(f, x)
    compiled = captured.compile("onnxrt")
    torch.testing.assert_close(captured.run(compiled, x), f(x))
    assert [(p.op, p.reason) for p in compiled.report.fallbacks] == [
        ("aten.linalg_qr.default", "the ONNX exporter has no translation")
    ]
    with pytest.raises(FallbackRefused, match="linalg_qr"):
        capture(f, x).compile("onnxrt", strict=True)


def test_what_the_runtime_refuses_is_found_and_split_off(capture, tmp_path) -> None:
    def f(x, n):
        return x.relu(), torch.cumsum(n, 0) * 2

    x, n = torch.randn(4), torch.arange(4, dtype=torch.int16)
    captured = capture(f, x, n)
    with config.patch(cache_dir=tmp_path):
        for _ in range(2):  # the refusal is in the cache the second time
            compiled = captured.compile("onnxrt")
            got, wanted = captured.run(compiled, x, n), f(x, n)
            assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
            placed = {p.op: p for p in compiled.report.placements}
            assert placed["aten.relu.default"].placed_on == "onnxrt"
            assert all("int16" in p.reason for p in compiled.report.fallbacks)


def test_frozen_batch_norms_are_folded_into_convolutions(capture, monkeypatch, tmp_path) -> None:
    import onnx
    import onnxruntime

    kept, made = tmp_path / "optimized.onnx", onnxruntime.InferenceSession

    def keeping(model, settings, **rest):
        settings.optimized_model_filepath = str(kept)
        return made(model, settings, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", keeping)

    class Normalized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
            for tensor in (*self.norm.parameters(), self.norm.running_mean, self.norm.running_var):
                tensor.data.uniform_(0.5, 1.5)

        def forward(self, x):
            norm = self.norm
            x = F.batch_norm(self.convolution(x), norm.running_mean, norm.running_var, norm.weight, norm.bias)
            return x.relu()

    net = Normalized()
    with config.patch(cache_enabled=False):
        check(capture, net, torch.randn(2, 3, 9, 9), options={"freeze": True, "check": False})
    operators = {node.op_type for node in onnx.load(str(kept), load_external_data=False).graph.node}
    assert "Conv" in operators or "FusedConv" in operators
    assert not operators & {"BatchNormalization", "Relu", "Expand"}


def test_parameters_that_change_are_seen(capture, caplog) -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    captured = capture(net, x)
    live = captured.compile("onnxrt", strict=True)
    frozen = captured.compile("onnxrt", strict=True, options={"freeze": True})
    with torch.no_grad():
        captured.run(live, x), captured.run(frozen, x)
        net.weight.data.mul_(2)  # torch keeps no count of this, so a frozen graph may overlook it
        torch.testing.assert_close(captured.run(live, x), net(x))
        assert "constants" not in caplog.text
        net.weight.mul_(2)
        torch.testing.assert_close(captured.run(frozen, x), net(x))
        assert caplog.text.count("taken anew") == 1
        net.bias.data = torch.ones(2)
        torch.testing.assert_close(captured.run(frozen, x), net(x))
        torch.testing.assert_close(captured.run(live, x), net(x))
        captured.run(frozen, x)
        assert caplog.text.count("taken anew") == 2


def test_training(capture) -> None:
    x = torch.randn(3, 8, requires_grad=True)
    net = Mlp()
    captured = capture(net, x)
    compiled = captured.compile("onnxrt", training=True, strict=True)
    got, wanted = captured.run(compiled, x), net(x)
    torch.testing.assert_close(got, wanted)
    inputs = [x, *net.parameters()]
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), inputs), torch.autograd.grad(wanted.square().sum(), inputs), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    assert compiled.report.phase == "training"


class Statistics(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("variance", torch.ones(3))

    def forward(self, x):
        return torch.batch_norm(x, None, None, self.mean, self.variance, True, 0.1, 1e-5, False)


def test_batch_statistics_are_kept(capture) -> None:
    x = torch.randn(4, 3, 5, 5, requires_grad=True)
    net, twin = Statistics(), Statistics()
    captured = capture(net, x)
    compiled = captured.compile("onnxrt", training=True, strict=True)
    net.load_state_dict(twin.state_dict())
    for _ in range(2):
        torch.testing.assert_close(captured.run(compiled, x), twin(x), rtol=1e-5, atol=1e-5)
    for name in ("mean", "variance"):
        torch.testing.assert_close(getattr(net, name), getattr(twin, name))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"providers": ["CUDAExecutionProvide"]}, "no provider 'CUDAExecutionProvide'"),
        ({"providers": []}, "at least one"),
        ({"intra_op_num_threads": 0}, "must be at least 1"),
        ({"freez": True}, "Did you mean 'freeze'"),
        ({"graph_optimization_level": "most"}, "'all'"),
    ],
)
def test_options_are_checked_before_there_is_a_graph(options, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        resolve("onnxrt", options=options)


def test_options_reach_the_session(capture) -> None:
    options = {"intra_op_num_threads": 1, "inter_op_num_threads": 2, "graph_optimization_level": "disabled"}
    check(capture, Mlp(), torch.randn(3, 8), options=options)


def test_the_model_comes_from_the_cache_the_second_time(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        x = torch.randn(3, 8)
        assert check(capture, Mlp(), x).cache_hits == 0
        assert check(capture, Mlp(), x).cache_hits == 1  # other weights, same graph
        assert check(capture, Mlp(), torch.randn(4, 8)).cache_hits == 0
        for path in (tmp_path / "artifacts").rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-3])
        assert check(capture, Mlp(), x).cache_hits == 0  # damaged, so made again
        assert check(capture, Mlp(), x).cache_hits == 1
    with config.patch(cache_enabled=False):
        assert check(capture, Mlp(), x).cache_hits == 0


def test_a_second_process_needs_no_exporter(run_python) -> None:
    code = """
import sys, torch
from torch.fx import symbolic_trace
from torchmux.registry import resolve
x = torch.ones(3, 5)
gm = symbolic_trace(lambda x: (torch.softmax(x, 1).relu() * 3,))
compiled = resolve("onnxrt", strict=True).compile(gm, [x], training=False)
torch.testing.assert_close(compiled(x)[0], torch.softmax(x, 1) * 3)
print(compiled.report.cache_hits, "onnxscript" in sys.modules)
"""
    assert run_python(code).split() == ["0", "True"]
    assert run_python(code).split() == ["1", "False"]


def test_threads_may_call_at_once(capture) -> None:
    net, x = Mlp(), torch.randn(3, 8)
    captured = capture(net, x)
    compiled = captured.compile("onnxrt", strict=True)
    wrong: list[float] = []

    def work(seed: int) -> None:
        mine = torch.full((3, 8), float(seed))
        with torch.no_grad():
            wanted = net(mine)
            for _ in range(50):
                got = captured.run(compiled, mine)
                if not torch.allclose(got, wanted, atol=1e-5):
                    wrong.append(float((got - wanted).abs().max()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_constants_of_the_graph(capture) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.tensor, ([1.0, 2.0],))
    graph.output((graph.call_function(torch.add, (x, made)),))
    gm, x = torch.fx.GraphModule({}, graph), torch.randn(2)
    compiled = resolve("onnxrt", strict=True).compile(gm, [x], training=False)
    assert torch.equal(compiled(x)[0], x + torch.tensor([1.0, 2.0]))


def test_results_of_known_and_of_unknown_size(capture) -> None:
    """onnxruntime allocates those whose size depends on the call, and lists all in its own order."""
    check(capture, lambda x: (x + 1, x.sum(0), x * 2, x.mean()), torch.randn(4, 6), dynamic={0: [0]})
