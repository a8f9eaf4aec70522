"""openvino on small graphs: what is so of OpenVINO alone; test_contract.py has what holds of every adapter."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from as_eager import Held, Mlp

import torchmux
from torchmux.config import config
from torchmux.registry import CompilationFailed, FallbackRefused, InvalidOption, resolve

pytest.importorskip("openvino")


@pytest.fixture
def check(capture) -> Held:
    return Held(capture, "openvino")


# --- numbers ------------------------------------------------------------------------------------------------------


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


def test_images(check) -> None:
    def f(x, w, mean, variance):
        x = F.batch_norm(F.conv2d(x, w, padding=1), mean, variance).relu()
        return F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 1), F.interpolate(x, scale_factor=2.0), F.avg_pool2d(x, 2)

    check(f, torch.randn(2, 3, 16, 16), torch.randn(8, 3, 3, 3), torch.randn(8), torch.rand(8) + 1)


def test_attention_whose_heads_share_keys(check) -> None:
    q, k = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8)
    attend = F.scaled_dot_product_attention
    report = check(lambda q, k: attend(q, k, k, is_causal=True, enable_gqa=True), q, k)
    assert report.share == 1.0


# --- dtypes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers(check, dtype) -> None:
    x = torch.arange(1, 7).reshape(2, 3).to(dtype)
    check(lambda x: (x + x, x * 3, torch.cat([x, x])), x, exact=True)
    if dtype is torch.int64:
        check(lambda x: x > 2, x, exact=True)
    else:
        assert "float32" in check.refused(lambda x: x > 2, x)


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


def test_products_of_integers_are_refused_where_they_may_not_fit(check) -> None:
    assert "32 bits" in check.refused(lambda x, y: x * y, torch.arange(3), torch.arange(3))


def test_an_index_out_of_range_is_torchs_error(capture) -> None:
    table = torch.randn(5, 3)
    captured = capture(lambda i, t: F.embedding(i, t), torch.tensor([1, 4]), table)
    compiled = captured.compile("openvino", strict=False)
    with pytest.raises(IndexError):
        captured.run(compiled, torch.tensor([1, 5]), table)


def test_running_counts_of_bools(check) -> None:
    check(lambda m: (m.cumsum(0), m.sum()), torch.tensor([True, False, True, True]), exact=True)


def test_bytes_are_converted(check) -> None:
    x = torch.randint(0, 256, (2, 3), dtype=torch.uint8)
    check(lambda x: x.float() / 255, x)


# --- shapes and strides -------------------------------------------------------------------------------------------


def test_a_slice_is_written_with_what_was_written_into_a_slice(check) -> None:
    """The frontend takes both for one assignment, and forgets what the first was written into."""

    def f(x, y, part):
        inner, picked = torch.slice_scatter(y, part, 2, 1, 4), torch.select_scatter(y, part[..., 0], 2, 3)
        return torch.slice_scatter(x, inner, 1, 0, 1), torch.select_scatter(x, picked[:, 0], 1, 2), y * 2

    check(f, torch.randn(8, 4, 5), torch.randn(8, 1, 5), torch.randn(8, 1, 3), exact=True)


def test_a_mean_over_other_dimensions_than_a_spread_is_no_norm(capture) -> None:
    """OpenVINO takes both for a norm, and in large images they are nearly equal on what the check makes up."""

    def f(x, y):
        spread = (x.var((1, 2), keepdim=True, correction=0) + 0.1).sqrt()
        own = (y.t().var(-1, keepdim=True, correction=0) + 0.1).sqrt()
        return (x - x.mean(2, keepdim=True)) / spread, (x - x.mean()) / spread, (y.t() - y.t().mean(0)) / own

    given = torch.randn(2, 3, 7) + torch.tensor([1.0, 5.0, 9.0])[:, None], torch.randn(5, 6) * 3
    compiled = (captured := capture(f, *given)).compile("openvino", options={"check": False})
    torch.testing.assert_close(captured.run(compiled, *given), f(*given))


def test_numbers_near_those_of_gelu_are_not_those_of_gelu(capture) -> None:
    """OpenVINO takes both for GELU, with an error that the check accepts beside larger results."""

    def f(x):
        return [
            0.5 * x * (1 + torch.tanh(0.8 * (x + 0.044715 * x**3))),
            0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.04475 * (x * x * x)))),
            0.5 * x * (1 + torch.tanh(torch.full_like(x, 0.798) * (x + 0.044715 * x**3))),
        ]

    compiled = (captured := capture(f, x := torch.linspace(-4, 4, 80))).compile("openvino", options={"check": False})
    torch.testing.assert_close(captured.run(compiled, x), f(x), rtol=1e-5, atol=2e-7)


def test_results_have_torchs_shape_where_openvino_draws_a_reshape_away(check) -> None:
    check(
        lambda x: (p := torch.softmax((x + 1).view(6, 4, 5), -1), p.view(2, 3, 4, 5) * 2),
        torch.randn(2, 3, 4, 5),
    )


def test_broadcasts_to_no_dimension(check) -> None:
    """They ended the process."""

    def f(x, n):
        return x.sum().expand([]) + 1, n.expand([]) * 2, torch.empty(()).copy_(x[0]) * 3

    check(f, torch.randn(3), torch.tensor(7))


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


# --- refusals -----------------------------------------------------------------------------------------------------


def test_an_operator_that_openvino_computes_otherwise_is_found_by_trial(check, monkeypatch) -> None:
    from torchmux.backends.openvino import trial

    monkeypatch.setattr(trial, "_run", lambda compiled, inputs, wanted: [torch.zeros(3)])
    monkeypatch.setattr(trial, "_answers", {})
    with config.patch(cache_enabled=False):
        assert "result differs from torch's" in check.refused(lambda x: x.cos() + 7, torch.randn(3))


def test_operators_are_tried_in_one_model_and_what_is_not_right_there_alone(capture, monkeypatch, tmp_path) -> None:
    from torchmux.backends.openvino import trial

    results, original = [], trial.compile_model

    def compile_model(model, *rest):
        results.append([each.get_node().input_value(0).get_node().get_type_name() for each in model.outputs])
        return original(model, *rest)

    monkeypatch.setattr(trial, "compile_model", compile_model)
    monkeypatch.setattr(trial, "_answers", {})
    with config.patch(cache_dir=tmp_path):
        capture(lambda x: x.sin() * x.cos() + x.exp().sum(0) + x.sign(), torch.randn(3, 5)).compile("openvino")
        assert [len(each) for each in results] == [8, 1]
        assert results[1] == ["Sign"], "its nan differs"
        trial._answers.clear()
        capture(lambda x: x.sin() * x.cos() + x.exp().sum(0) - x.sign(), torch.randn(3, 5)).compile("openvino")
        assert len(results) == 3, "the cache has the answers about all but the difference"


def test_a_result_that_is_never_written_is_found_by_trial() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    from torchmux.backends.openvino import trial

    traced = make_fx(lambda x: torch.ops.aten.repeat(x, []), tracing_mode="fake")(torch.tensor(3.0))
    (node,) = (n for n in traced.graph.nodes if n.op == "call_function")
    for _ in range(5):  # what the memory held before is sometimes the right answer
        assert "differs from torch's: nan or infinity" in trial._try(node)


def test_what_is_not_finite_in_one_result_only_is_a_difference() -> None:
    from torchmux.backends.openvino.trial import _difference

    wanted = torch.tensor([1.0, torch.inf, torch.nan])
    assert not _difference(wanted.clone(), wanted, False)
    for at, instead in ((0, torch.nan), (1, -torch.inf), (1, 1.0), (2, torch.inf), (2, 1.0)):
        got = wanted.clone()
        got[at] = instead
        assert _difference(got, wanted, False)


@pytest.mark.usefixtures("compiler_errors_fall_back")
def test_a_compiler_that_raises_is_reported(capture, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    def broken(*args):
        raise RuntimeError("the compiler gave up")

    captured = capture(Mlp(), torch.randn(3, 8))
    captured.compile("openvino", strict=True)  # the trials are done now
    monkeypatch.setattr(runtime, "compile_model", broken)
    with config.patch(cache_enabled=False):
        compiled = captured.compile("openvino")
        assert {p.reason for p in compiled.report.fallbacks} == {"compiler error: RuntimeError: the compiler gave up"}
        with pytest.raises(CompilationFailed, match="the compiler gave up"):
            captured.compile("openvino", strict=True)


# --- options ------------------------------------------------------------------------------------------------------


def test_counts_of_layers_are_in_the_report() -> None:
    options = {"config": {"PERF_COUNT": True}, "performance_hint": "THROUGHPUT", "num_streams": 1}
    for _ in range(2):  # with an empty cache and with a full one
        torchmux.reset()
        compiled = torchmux.compile(torch.nn.Linear(8, 4).eval(), backend="openvino", options=options)
        with torch.no_grad():
            for _ in range(3):
                compiled(torch.ones(3, 8))
        (note,) = torchmux.report(compiled).graphs[0].report.notes
        assert re.search(r"took \d+ µs in each of 3 calls, of which the slowest: \w+ \d+", note)
        (counts,) = [each for each in torchmux.artifacts(compiled) if each.kind == "openvino-counts"]
        assert "MatMul" in counts.text or "FullyConnected" in counts.text


def test_options_reach_openvino(check, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    seen = []
    real = runtime.compile_model

    def spy(model, device, given):
        seen.append((device, dict(given)))
        return real(model, device, given)

    monkeypatch.setattr(runtime, "compile_model", spy)
    options = {"device": "AUTO", "performance_hint": "THROUGHPUT", "num_streams": 2, "config": {"PERF_COUNT": True}}
    with config.patch(cache_enabled=False):
        check(Mlp(), torch.randn(3, 8), options=options)
    device, given = seen[-1]
    assert device in ("CPU", "GPU", "NPU")
    assert given["NUM_STREAMS"] == 2
    assert given["PERFORMANCE_HINT"] == "THROUGHPUT"
    assert given["PERF_COUNT"] is True
    assert given.get("INFERENCE_NUM_THREADS", torch.get_num_threads()) == torch.get_num_threads()


def test_threads_are_not_bound_to_cores(check, monkeypatch) -> None:
    # OpenVINO's default binds them to the first cores, which several processes would then share.
    from torchmux.backends.openvino import runtime

    real, found = runtime.compile_model, []

    def spy(*given: Any) -> Any:
        found.append(real(*given))
        return found[-1]

    monkeypatch.setattr(runtime, "compile_model", spy)
    with config.patch(cache_enabled=False):
        check(Mlp(), torch.randn(3, 8))
    assert found[-1].get_property("ENABLE_CPU_PINNING") is False


def test_modes(capture) -> None:
    assert resolve("openvino", mode="throughput")
    with pytest.raises(InvalidOption, match="latency"):
        resolve("openvino", mode="latent")


# --- the cache ----------------------------------------------------------------------------------------------------


def test_frozen_weights_count(check, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        x, net, options = torch.randn(3, 8), Mlp(), {"freeze": True}
        assert check(net, x, options=options).cache_hits == 0
        assert check(net, x, options=options).cache_hits == 1
        assert check(Mlp(), x, options=options).cache_hits == 0


def test_a_blob_that_openvino_does_not_take_is_made_again(check, monkeypatch) -> None:
    from torchmux.backends.openvino import runtime

    x = torch.randn(3, 8)
    check(Mlp(), x)
    monkeypatch.setattr(runtime, "from_bytes", lambda *args: (_ for _ in ()).throw(RuntimeError("other version")))
    assert check(Mlp(), x).cache_hits == 0


@pytest.mark.slow
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


def test_integers_of_another_tensors_shape(check) -> None:
    """What is filled with a number does not depend on the integers whose shape it takes."""
    check(
        lambda x: (torch.full_like(x, 7) + x, torch.zeros_like(x), torch.ones_like(x) + x, x.new_full((2,), 3)),
        torch.randint(-50, 50, (3, 4)),
        exact=True,
    )


def test_negative_indices_of_several_dimensions(check) -> None:
    x = torch.randn(5, 6, 4)
    i, j = torch.tensor([[-1], [2]]), torch.tensor([0, -4, 3])
    check(lambda x, i, j: (x[i, j], x[:, i, j]), x, i, j, exact=True)


# --- the comparison with torch ------------------------------------------------------------------------------------


def _losing_a_term(monkeypatch, times: int) -> list[Any]:
    """Let OpenVINO compile another graph the first ``times``; what it compiles from then on, in order."""
    from torchmux.backends.openvino import compiler

    compiled, real = [], compiler.to_openvino

    def to_openvino(gm):
        for node in gm.graph.nodes:
            if len(compiled) < times and node.target is torch.ops.aten.add.Tensor:
                node.replace_all_uses_with(node.args[0])
                break
        compiled.append(gm)
        return real(gm)

    monkeypatch.setattr(compiler, "to_openvino", to_openvino)
    return compiled


def _sum_of_two(x):
    return torch.sin(x) + torch.cos(x)


def test_a_model_that_differs_once_is_compiled_again(capture, monkeypatch, caplog) -> None:
    x = torch.randn(3, 8)
    captured, models = capture(_sum_of_two, x), _losing_a_term(monkeypatch, 1)
    with config.patch(cache_enabled=False), caplog.at_level(logging.WARNING, "torchmux"):
        compiled = captured.compile("openvino", strict=True)
    torch.testing.assert_close(captured.run(compiled, x), _sum_of_two(x))
    assert len(models) == 2
    assert "does not match torch" in caplog.text


def test_a_model_that_differs_twice_is_refused(capture, monkeypatch, tmp_path) -> None:
    x = torch.randn(3, 8)
    captured, models = capture(_sum_of_two, x), _losing_a_term(monkeypatch, 9)
    with config.patch(cache_dir=tmp_path):
        for count in (2, 4):  # nothing wrong is kept
            compiled = captured.compile("openvino")
            torch.testing.assert_close(captured.run(compiled, x), _sum_of_two(x))
            assert len(models) == count
            assert all("does not match torch" in p.reason for p in compiled.report.fallbacks)
            assert compiled.report.fallbacks
        unchecked = captured.compile("openvino", options={"check": False}, strict=True)
        assert not torch.allclose(captured.run(unchecked, x), _sum_of_two(x))
