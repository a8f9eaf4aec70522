"""openvino on small graphs: numbers, dtypes, shapes, strides, refusals, options, the cache, threads."""

from __future__ import annotations

import operator
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux
from torchmux.config import config
from torchmux.registry import CompilationFailed, FallbackRefused, InvalidOption, resolve

pytest.importorskip("openvino")


def check(capture, function, *args, exact: bool = False, dynamic=None, options=None):
    """Compile strictly, compare with eager, and return the report."""
    captured = capture(function, *args, dynamic=dynamic)
    compiled = captured.compile("openvino", strict=True, options=options)
    with torch.no_grad():
        got, wanted = captured.run(compiled, *args), function(*args)
    pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
    for a, b in pairs:
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert a.stride() == b.stride()
        torch.testing.assert_close(a, b, rtol=0 if exact else 1e-5, atol=0 if exact else 1e-5)
    return compiled.report


def refused(capture, function, *args) -> str:
    """Compile, compare with eager, which must have run all of it, and return the only reason."""
    captured = capture(function, *args)
    compiled = captured.compile("openvino")
    assert torch.equal(captured.run(compiled, *args), function(*args))
    assert compiled.report.share == 0.0
    (reason,) = {p.reason for p in compiled.report.fallbacks}
    return reason


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x):
        return self.two(F.gelu(F.layer_norm(self.one(x), (16,), self.norm.weight, self.norm.bias)))


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("freeze", [False, True])
def test_a_network(capture, freeze: bool) -> None:
    report = check(capture, Mlp(), torch.randn(3, 8), options={"freeze": freeze})
    assert report.share == 1.0
    assert report.partitions == 1


def test_float32_is_computed_in_float32(capture) -> None:
    a, b = torch.randn(64, 256), torch.randn(256, 64)
    wanted = (a.double() @ b.double()).float()
    captured = capture(lambda a, b: a @ b, a, b)

    def error(options) -> float:
        compiled = captured.compile("openvino", strict=True, options=options)
        return float((captured.run(compiled, a, b) - wanted).abs().max() / wanted.abs().max())

    assert error(None) < 1e-6
    try:
        rounded = error({"precision": "bf16"})
    except InvalidOption as refusal:
        assert "BF16" in str(refusal)
    else:
        assert 1e-4 < rounded < 1e-1


def test_a_precision_that_the_device_has_not_is_an_error() -> None:
    import openvino

    if "FP16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("this processor computes in half precision")
    with pytest.raises(InvalidOption, match="does not support FP16"):
        resolve("openvino", options={"precision": "f16"})


OPERATORS = [
    ("arithmetic", lambda x, y: (x + 2 * y, torch.sub(x, y, alpha=3), x / (y.abs() + 1), x**2, -x, x % 3)),
    ("rounding", lambda x, y: (x.round(), x.floor(), x.ceil(), x.sign())),
    ("comparisons", lambda x, y: (x > y, x == x, (x > 0) & (y > 0), x.isnan(), torch.where(x > 0, x, y))),
    ("activations", lambda x, y: (F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.elu(x), x.tanh())),
    ("reductions", lambda x, y: (x.sum(), x.mean(1), x.amax(0), x.var(1), x.softmax(-1), x.logsumexp(0))),
    ("order", lambda x, y: (x.sort(1)[0], x.sort(1)[1], x.topk(2, 1)[0], x.argmax(0))),
    ("shapes", lambda x, y: (torch.cat([x, y], 1), torch.stack([x, y]), x.flip(0), x.repeat(2, 1), F.pad(x, (1, 2)))),
    ("matrices", lambda x, y: (x @ y.t(), F.linear(x, y), torch.bmm(x[None], y.t()[None]))),
    ("masks", lambda x, y: (x.masked_fill(y > 0, -1.0), x.tril(), x.triu(1), x.clamp(-0.5, 0.5))),
]


# What OpenVINO would make something else of where a number is nan.
TORCHS = {
    "aten.sign.default", "aten.amax.default", "aten.logsumexp.default", "aten.sort.default", "aten.topk.default",
    "aten.argmax.default",
}  # fmt: skip


@pytest.mark.parametrize("function", [f for _, f in OPERATORS], ids=[name for name, _ in OPERATORS])
def test_operators(capture, function) -> None:
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    captured = capture(function, x, y)
    compiled = captured.compile("openvino")
    for got, wanted in zip(captured.run(compiled, x, y), function(x, y), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        assert got.stride() == wanted.stride()
    others = [p for p in compiled.report.fallbacks if p.op not in TORCHS]
    assert len(others) <= 1, others


def test_images(capture) -> None:
    def f(x, w, mean, variance):
        x = F.batch_norm(F.conv2d(x, w, padding=1), mean, variance).relu()
        return F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 1), F.interpolate(x, scale_factor=2.0), F.avg_pool2d(x, 2)

    check(capture, f, torch.randn(2, 3, 16, 16), torch.randn(8, 3, 3, 3), torch.randn(8), torch.rand(8) + 1)


def test_attention_whose_heads_share_keys(capture) -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    attend = F.scaled_dot_product_attention
    report = check(capture, lambda q, k: attend(q, k, k, is_causal=True, enable_gqa=True), q, k)
    assert report.share == 1.0


# --- dtypes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers(capture, dtype) -> None:
    x = torch.arange(1, 7).reshape(2, 3).to(dtype)
    check(capture, lambda x: (x + x, x * 3, torch.cat([x, x]), x > 2), x, exact=True)


def test_integers_that_do_not_fit_are_left_to_torch(capture, caplog) -> None:
    """OpenVINO's CPU plugin would compute 2**40 + 1 as 1."""
    captured = capture(lambda x: x + 1, torch.arange(3))
    compiled = captured.compile("openvino")
    assert compiled.report.share == 1.0
    large = torch.tensor([2**40, 5, -(2**33)])
    assert torch.equal(captured.run(compiled, large), large + 1)
    assert "may not fit" in caplog.text
    strict = captured.compile("openvino", strict=True)
    with pytest.raises(FallbackRefused, match="may not fit"):
        captured.run(strict, large)


def test_products_of_integers_are_refused_where_they_may_not_fit(capture) -> None:
    assert "32 bits" in refused(capture, lambda x, y: x * y, torch.arange(3), torch.arange(3))


def test_an_index_out_of_range_is_torchs_error(capture) -> None:
    table = torch.randn(5, 3)
    captured = capture(lambda i, t: F.embedding(i, t), torch.tensor([1, 4]), table)
    compiled = captured.compile("openvino", strict=False)
    with pytest.raises(IndexError):
        captured.run(compiled, torch.tensor([1, 5]), table)


def test_bools_in_and_out(capture) -> None:
    x, mask = torch.randn(4), torch.tensor([True, False, True, True])
    check(capture, lambda x, m: (torch.where(m, x, -x), (x > 0) & m, ~m), x, mask, exact=True)


def test_running_counts_of_bools(capture) -> None:
    check(capture, lambda m: (m.cumsum(0), m.sum()), torch.tensor([True, False, True, True]), exact=True)


def test_mixed_dtypes_are_promoted(capture) -> None:
    check(capture, lambda x, n: (x + n, n + 0.5, n < 2.5, n / 2), torch.randn(4), torch.arange(4))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.uint8])
def test_dtypes_that_would_be_computed_otherwise_are_refused(capture, dtype) -> None:
    reason = refused(capture, lambda x: x * 2 + 1, torch.ones(3, dtype=dtype))
    assert str(dtype).removeprefix("torch.") in reason


def test_bytes_are_converted(capture) -> None:
    x = torch.randint(0, 256, (2, 3), dtype=torch.uint8)
    check(capture, lambda x: x.float() / 255, x)


# --- shapes and strides -------------------------------------------------------------------------------------------


def test_tensors_without_elements_are_refused(capture) -> None:
    assert "without elements" in refused(capture, lambda x: x.relu().sum(1), torch.empty(0, 3))


def test_scalars_and_results_of_no_dimension(capture) -> None:
    check(capture, lambda x, s: (x * s, x.sum(), s.exp()), torch.randn(3, 2), torch.tensor(2.0))


def test_one_model_serves_every_size(capture) -> None:
    net = Mlp()
    captured = capture(net, torch.randn(3, 8), dynamic={0: [0]})
    compiled = captured.compile("openvino", strict=True)
    kept = []
    for rows in (3, 2, 64, 3):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            kept.append((captured.run(compiled, x), net(x)))
    for got, wanted in kept:  # results of earlier calls are not overwritten by later ones
        torch.testing.assert_close(got, wanted)


def test_sizes_in_the_graph(capture) -> None:
    def f(x):
        return x.view(x.size(0) * 2, -1).softmax(-1).reshape(x.size(0), -1) + x.size(0)

    captured = capture(f, torch.randn(4, 6), dynamic={0: [0]})
    compiled = captured.compile("openvino", strict=True)
    for rows in (4, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(captured.run(compiled, x), f(x))


def test_a_slice_is_written_with_what_was_written_into_a_slice(capture) -> None:
    """The frontend takes both for one assignment, and forgets what the first was written into."""

    def f(x, y, part):
        inner, picked = torch.slice_scatter(y, part, 2, 1, 4), torch.select_scatter(y, part[..., 0], 2, 3)
        return torch.slice_scatter(x, inner, 1, 0, 1), torch.select_scatter(x, picked[:, 0], 1, 2), y * 2

    check(capture, f, torch.randn(8, 4, 5), torch.randn(8, 1, 5), torch.randn(8, 1, 3), exact=True)


def test_results_have_torchs_shape_where_openvino_draws_a_reshape_away(capture) -> None:
    check(
        capture,
        lambda x: (p := torch.softmax((x + 1).view(6, 4, 5), -1), p.view(2, 3, 4, 5) * 2),
        torch.randn(2, 3, 4, 5),
    )


def test_broadcasts_to_no_dimension(capture) -> None:
    """They ended the process."""

    def f(x, n):
        return x.sum().expand([]) + 1, n.expand([]) * 2, torch.empty(()).copy_(x[0]) * 3

    check(capture, f, torch.randn(3), torch.tensor(7))


def test_openvino_may_know_a_size_that_torch_calls_symbolic() -> None:
    """The backward pass of a factorization fixes the sizes by and by."""

    def gradient(function, rows: int) -> torch.Tensor:
        x = torch.randn(3, rows, 5, generator=torch.Generator().manual_seed(rows)).requires_grad_()
        function(x).square().sum().backward()
        return x.grad

    def factor(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.lu_factor(x)[0]

    compiled = torchmux.compile(factor, backend="openvino")
    for rows in (5, 4):
        torch.testing.assert_close(gradient(compiled, rows), gradient(factor, rows))


def test_inputs_of_any_strides(capture) -> None:
    def f(x, y):
        return x.relu() + y.sigmoid()

    x, y = torch.randn(6, 4), torch.randn(4, 6)
    captured = capture(f, x.t(), y)
    compiled = captured.compile("openvino", strict=True)
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
    y, row, shown, same = captured.run(captured.compile("openvino", strict=True), x)
    assert row.data_ptr() == y.data_ptr()
    assert shown.data_ptr() == x.data_ptr()
    assert same is x


def test_changes_in_place_reach_the_caller(capture) -> None:
    captured = capture(lambda x: x.add_(1).relu() * 2, torch.randn(4))
    compiled = captured.compile("openvino", strict=True)
    x = torch.randn(4)
    wanted = x + 1
    got = captured.run(compiled, x)
    torch.testing.assert_close(x, wanted)
    torch.testing.assert_close(got, wanted.relu() * 2)


def test_results_outlive_the_compiled_graph(capture) -> None:
    x = torch.randn(5, 8)
    captured = capture(lambda x: x * 2, x, dynamic={0: [0]})
    compiled = captured.compile("openvino", strict=True)
    got = captured.run(compiled, x)
    del compiled, captured
    torch.testing.assert_close(got, x * 2)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_random_operators_are_left_to_torch(capture) -> None:
    def f(x):
        return F.dropout(x.relu(), 0.5, True).sigmoid()

    x = torch.randn(100)
    captured = capture(f, x)
    compiled = captured.compile("openvino")
    torch.manual_seed(1)
    got = captured.run(compiled, x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, f(x))
    assert compiled.report.fallbacks
    assert all("random" in p.reason for p in compiled.report.fallbacks)


def test_dropout_that_drops_nothing_is_no_fallback(capture) -> None:
    q = torch.randn(2, 4, 5, 8)
    check(capture, lambda q: F.scaled_dot_product_attention(q, q, q) + F.dropout(q, 0.5, False), q)


def test_an_operator_without_a_rule_is_reported(capture) -> None:
    def f(x):
        return torch.linalg.qr(x.relu()).R.sigmoid()

    x = torch.randn(3, 3)
    captured = capture(f, x)
    compiled = captured.compile("openvino")
    torch.testing.assert_close(captured.run(compiled, x), f(x))
    (fallback,) = compiled.report.fallbacks
    assert fallback.op == "aten.linalg_qr.default"
    assert "No conversion rule" in fallback.reason
    with pytest.raises(FallbackRefused, match="linalg_qr"):
        capture(f, x).compile("openvino", strict=True)


def test_an_operator_that_openvino_computes_otherwise_is_found_by_trial(capture, monkeypatch) -> None:
    from torchmux.backends.openvino import trial

    monkeypatch.setattr(trial, "_run", lambda compiled, inputs, wanted: [torch.zeros(3)])
    monkeypatch.setattr(trial, "_answers", {})
    with config.patch(cache_enabled=False):
        assert "computes something else" in refused(capture, lambda x: x.cos() + 7, torch.randn(3))


def test_a_result_that_is_never_written_is_found_by_trial() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from torchmux.backends.openvino import trial

    traced = make_fx(lambda x: torch.ops.aten.repeat(x, []), tracing_mode="fake")(torch.tensor(3.0))
    (node,) = (n for n in traced.graph.nodes if n.op == "call_function")
    for _ in range(5):  # what the memory held before is sometimes the right answer
        assert "computes something else: not a number" in trial._try(node)


def test_what_is_not_finite_in_one_result_only_is_a_difference() -> None:
    from torchmux.backends.openvino.trial import _difference

    wanted = torch.tensor([1.0, torch.inf, torch.nan])
    assert not _difference(wanted.clone(), wanted, False)
    for at, instead in ((0, torch.nan), (1, -torch.inf), (1, 1.0), (2, torch.inf), (2, 1.0)):
        got = wanted.clone()
        got[at] = instead
        assert _difference(got, wanted, False)


def test_a_compiler_that_raises_is_reported(capture, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    def broken(*args):
        raise RuntimeError("the compiler gave up")

    captured = capture(Mlp(), torch.randn(3, 8))
    captured.compile("openvino", strict=True)  # the trials are done now
    monkeypatch.setattr(runtime, "compile_model", broken)
    with config.patch(cache_enabled=False):
        compiled = captured.compile("openvino")
        assert {p.reason for p in compiled.report.fallbacks} == {"RuntimeError: the compiler gave up"}
        with pytest.raises(CompilationFailed, match="the compiler gave up"):
            captured.compile("openvino", strict=True)


# --- options ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "GPU.7"}, "finds no GPU.7 on this machine, which has 'CPU'"),
        ({"device": "CPUU"}, "no device 'CPUU'. Did you mean 'CPU'"),
        ({"device": 3}, "device"),
        ({"num_streams": 0}, "must be at least 1"),
        ({"freez": True}, "Did you mean 'freeze'"),
        ({"performance_hint": "FAST"}, "'LATENCY'"),
        ({"config": {"ENABLE_CPU_PINING": False}}, "Did you mean 'ENABLE_CPU_PINNING'"),
        ({"config": {"INFERENCE_PRECISION_HINT": "bf16"}}, "option 'precision'"),
    ],
)
def test_options_are_checked_before_there_is_a_graph(options, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        resolve("openvino", options=options)


def test_options_reach_openvino(capture, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    seen = []
    real = runtime.compile_model

    def spy(model, device, given):
        seen.append((device, dict(given)))
        return real(model, device, given)

    monkeypatch.setattr(runtime, "compile_model", spy)
    options = {"device": "AUTO", "performance_hint": "THROUGHPUT", "num_streams": 2, "config": {"PERF_COUNT": True}}
    with config.patch(cache_enabled=False):
        check(capture, Mlp(), torch.randn(3, 8), options=options)
    device, given = seen[-1]
    assert device in ("CPU", "GPU", "NPU")
    assert given["NUM_STREAMS"] == 2
    assert given["PERFORMANCE_HINT"] == "THROUGHPUT"
    assert given["PERF_COUNT"] is True
    assert given.get("INFERENCE_NUM_THREADS", torch.get_num_threads()) == torch.get_num_threads()


def test_one_compilation_leaves_nothing_to_the_next(capture) -> None:
    x = torch.randn(3, 8)
    captured = capture(Mlp(), x)
    before = captured.run(captured.compile("openvino"), x)
    captured.compile("openvino", options={"num_streams": 3, "performance_hint": "THROUGHPUT", "freeze": True})
    assert torch.equal(captured.run(captured.compile("openvino"), x), before)


def test_modes(capture) -> None:
    assert resolve("openvino", mode="throughput")
    with pytest.raises(InvalidOption, match="latency"):
        resolve("openvino", mode="latent")


def test_parameters_that_change_are_seen(capture, caplog) -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    captured = capture(net, x)
    live = captured.compile("openvino", strict=True)
    frozen = captured.compile("openvino", strict=True, options={"freeze": True})
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


# --- the cache ----------------------------------------------------------------------------------------------------


def test_the_compiled_model_comes_from_the_cache_the_second_time(capture, tmp_path) -> None:
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


def test_frozen_weights_count(capture, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        x, net, options = torch.randn(3, 8), Mlp(), {"freeze": True}
        assert check(capture, net, x, options=options).cache_hits == 0
        assert check(capture, net, x, options=options).cache_hits == 1
        assert check(capture, Mlp(), x, options=options).cache_hits == 0


def test_a_blob_that_openvino_does_not_take_is_made_again(capture, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    x = torch.randn(3, 8)
    check(capture, Mlp(), x)
    monkeypatch.setattr(runtime, "from_bytes", lambda *args: (_ for _ in ()).throw(RuntimeError("other version")))
    assert check(capture, Mlp(), x).cache_hits == 0


def test_a_second_process_does_not_compile(run_python) -> None:
    code = """
import torch
from torch.fx import symbolic_trace
from torchmux.backends.openvino import runtime, translate
from torchmux.registry import resolve
compiled_models = []
real = runtime.compile_model
runtime.compile_model = lambda *args: compiled_models.append(args) or real(*args)
x = torch.ones(3, 5)
gm = symbolic_trace(lambda x: (torch.softmax(x, 1).relu() * 5,))
compiled = resolve("openvino", strict=True).compile(gm, [x], training=False)
torch.testing.assert_close(compiled(x)[0], torch.softmax(x, 1) * 5)
print(compiled.report.cache_hits, len(compiled_models), translate._frontend.cache_info().currsize)
"""
    assert run_python(code).split()[::2] == ["0", "1"]
    assert run_python(code).split() == ["1", "0", "0"]


# --- running ------------------------------------------------------------------------------------------------------


def test_threads_may_call_at_once(capture) -> None:
    net, x = Mlp(), torch.randn(3, 8)
    captured = capture(net, x)
    compiled = captured.compile("openvino", strict=True)
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
    graph.output((graph.call_function(operator.add, (x, made)),))
    gm, x = torch.fx.GraphModule({}, graph), torch.randn(2)
    compiled = resolve("openvino", strict=True).compile(gm, [x], training=False)
    assert torch.equal(compiled(x)[0], x + torch.tensor([1.0, 2.0]))


def test_training(capture) -> None:
    net, x = Mlp(), torch.randn(3, 8)
    captured = capture(net, x)
    compiled = captured.compile("openvino", training=True)
    for _ in range(2):
        got, wanted = captured.run(compiled, x), net(x)
        torch.testing.assert_close(got, wanted)
        mine = torch.autograd.grad(got.square().sum(), list(net.parameters()))
        torch.testing.assert_close(mine, torch.autograd.grad(wanted.square().sum(), list(net.parameters())))
    assert compiled.report.fallbacks == []


def test_integers_of_another_tensors_shape(capture) -> None:
    """What is filled with a number does not depend on the integers whose shape it takes."""
    check(
        capture,
        lambda x: (torch.full_like(x, 7) + x, torch.zeros_like(x), torch.ones_like(x) + x, x.new_full((2,), 3)),
        torch.randint(-50, 50, (3, 4)),
        exact=True,
    )


def test_negative_indices_of_several_dimensions(capture) -> None:
    x = torch.randn(5, 6, 4)
    i, j = torch.tensor([[-1], [2]]), torch.tensor([0, -4, 3])
    check(capture, lambda x, i, j: (x[i, j], x[:, i, j]), x, i, j, exact=True)
