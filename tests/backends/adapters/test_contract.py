"""What a user sees of any adapter: numbers, dtypes, shapes, strides, refusals, options, the cache, threads.

What is so of one runtime alone stands in the folder of its backend.
"""

from __future__ import annotations

import importlib.util
import threading

import pytest
import torch
import torch.nn.functional as F
from as_eager import Held, Mlp
from torch import nn

from torchmux.config import config
from torchmux.registry import FallbackRefused, InvalidOption, resolve

RUNTIMES = {"onnxrt": "onnxruntime", "openvino": "openvino", "tvm": "tvm"}


def each(table: dict[str, list]) -> list:
    """Parameters ``(backend, value)``, skipped where the runtime of the backend is not installed."""
    return [
        pytest.param(name, value, id=f"{name}-{value}".replace(" ", ""), marks=_needs(name))
        for name, values in table.items()
        for value in values
    ]


def _needs(backend: str):
    module = RUNTIMES.get(backend, "torch")
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"needs {module}")


BACKENDS = [pytest.param(name, marks=_needs(name)) for name in RUNTIMES]
FREEZING = [p for p in BACKENDS if p.values[0] != "tvm"]
every = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture
def check(capture, backend: str) -> Held:
    return Held(capture, backend)


# --- numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "options"),
    each(
        {
            "onnxrt": [{"freeze": False}, {"freeze": True}],
            "openvino": [{"freeze": False}, {"freeze": True}],
            "tvm": [{"library": "torch"}, {"library": "none"}],
        }
    ),
)
def test_a_network(check, options) -> None:
    report = check(Mlp(), torch.randn(3, 8), options=options)
    assert report.share == 1.0
    assert report.partitions == 1


@every
def test_training(capture, backend: str) -> None:
    net, x = Mlp(), torch.randn(6, 8, requires_grad=True)
    captured = capture(net, x)
    compiled = captured.compile(backend, training=True, strict=True)
    inputs = [x, *net.parameters()]
    for _ in range(2):
        got, wanted = captured.run(compiled, x), net(x)
        torch.testing.assert_close(got, wanted)
        mine = torch.autograd.grad(got.square().sum(), inputs)
        torch.testing.assert_close(mine, torch.autograd.grad(wanted.square().sum(), inputs), rtol=1e-4, atol=1e-5)
    assert compiled.report.phase == "training"
    assert compiled.report.share == 1.0


# --- dtypes -------------------------------------------------------------------------------------------------------


EXACT = [torch.int64, torch.int32, torch.float64, torch.uint8]  # products of integers need not fit in OpenVINO


@pytest.mark.parametrize(
    ("backend", "dtype"),
    each({"onnxrt": EXACT, "tvm": EXACT}),
)
def test_other_dtypes(check, dtype) -> None:
    x = torch.arange(1, 7).reshape(2, 3).to(dtype)
    check(lambda x, y: x * y + x, x, x + 1, exact=True)


@every
def test_bools_in_and_out(check) -> None:
    x, mask = torch.randn(4), torch.tensor([True, False, True, True])
    check(lambda x, m: (torch.where(m, x, -x), (x > 0) & m, ~m), x, mask, exact=True)


@every
def test_mixed_dtypes_are_promoted(check) -> None:
    check(lambda x, n: (x + n, n + 0.5, n < 2.5, n / 2), torch.randn(4), torch.arange(4))


HALF = [torch.float16, torch.bfloat16, torch.complex64]


@pytest.mark.parametrize(
    ("backend", "dtype"),
    each({"onnxrt": HALF, "openvino": [*HALF, torch.float64, torch.uint8], "tvm": HALF}),
)
def test_dtypes_that_would_be_computed_otherwise_are_refused(check, dtype) -> None:
    reason = check.refused(lambda x: x * 2 + 1, torch.ones(3, dtype=dtype))
    assert str(dtype).removeprefix("torch.") in reason


# --- shapes and strides -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "words"),
    each({"onnxrt": ["without elements"], "openvino": ["without elements"], "tvm": ["a size of zero"]}),
)
def test_tensors_without_elements_are_refused(check, words: str) -> None:
    assert words in check.refused(lambda x: x.relu().sum(1), torch.empty(0, 3))


@every
def test_scalars_and_results_of_no_dimension(check) -> None:
    check(lambda x, s: (x * s, x.sum(), s.exp()), torch.randn(3, 2), torch.tensor(2.0))


@every
def test_one_compilation_serves_every_size(capture, backend: str) -> None:
    net = Mlp()
    captured = capture(net, torch.randn(3, 8), dynamic={0: [0]})
    compiled = captured.compile(backend, strict=True)
    kept = []
    for rows in (3, 2, 64, 3):
        x = torch.randn(rows, 8)
        with torch.no_grad():
            kept.append((captured.run(compiled, x), net(x)))
    for got, wanted in kept:  # results of earlier calls are not overwritten by later ones
        torch.testing.assert_close(got, wanted)


@every
def test_sizes_in_the_graph(capture, backend: str) -> None:
    def f(x):
        return x.view(x.size(0) * 2, -1).softmax(-1).reshape(x.size(0), -1) + x.size(0)

    captured = capture(f, torch.randn(4, 6), dynamic={0: [0]})
    compiled = captured.compile(backend, strict=True)
    for rows in (4, 3):
        x = torch.randn(rows, 6)
        torch.testing.assert_close(captured.run(compiled, x), f(x))


@every
def test_results_of_known_and_of_unknown_size(check) -> None:
    """onnxruntime allocates those whose size depends on the call, and lists all in its own order."""
    check(lambda x: (x + 1, x.sum(0), x * 2, x.mean()), torch.randn(4, 6), dynamic={0: [0]})


@every
def test_inputs_of_any_strides(capture, backend: str) -> None:
    def f(x, y):
        return x.relu() + y.sigmoid()

    x, y = torch.randn(6, 4), torch.randn(4, 6)
    captured = capture(f, x.t(), y)
    compiled = captured.compile(backend, strict=True)
    torch.testing.assert_close(captured.run(compiled, x.t(), y), f(x.t(), y))
    wide = torch.randn(4, 12)
    torch.testing.assert_close(captured.run(compiled, wide[:, ::2], y), f(wide[:, ::2], y))


@every
def test_results_have_eagers_strides(check) -> None:
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    check(lambda x: (x.relu(), x.relu().transpose(1, 2), x.relu().flatten(1)), x)


@every
def test_results_share_memory_as_in_eager(capture, backend: str) -> None:
    def f(x):
        y = x.relu()
        return y, y[0], x.t(), x, x.clone(), x.clone().view(-1)

    x = torch.randn(3, 3)
    captured = capture(f, x)
    # OpenVINO refuses a copy that changes nothing.
    y, row, shown, same, copy, flat = captured.run(captured.compile(backend, strict=backend != "openvino"), x)
    assert row.data_ptr() == y.data_ptr()
    assert shown.data_ptr() == x.data_ptr()
    assert same is x
    assert len({t.data_ptr() for t in (x, y, copy, flat)}) == 4


@every
def test_views_among_the_results_are_of_the_caller(capture, backend: str) -> None:
    def f(x):
        y = x.relu()
        return y, y[0], x.t(), x

    x = torch.randn(3, 3)
    captured = capture(f, x)
    y, row, shown, same = captured.run(captured.compile(backend, strict=True), x)
    assert row.data_ptr() == y.data_ptr()
    assert shown.data_ptr() == x.data_ptr()
    assert same is x


@every
def test_changes_in_place_reach_the_caller(capture, backend: str) -> None:
    captured = capture(lambda x: x.add_(1).relu() * 2, torch.randn(4))
    compiled = captured.compile(backend, strict=True)
    x = torch.randn(4)
    wanted = x + 1
    got = captured.run(compiled, x)
    torch.testing.assert_close(x, wanted)
    torch.testing.assert_close(got, wanted.relu() * 2)


@every
def test_results_outlive_the_compiled_graph(capture, backend: str) -> None:
    x = torch.randn(5, 8)
    captured = capture(lambda x: x * 2, x, dynamic={0: [0]})
    compiled = captured.compile(backend, strict=True)
    got = captured.run(compiled, x)
    del compiled, captured
    torch.testing.assert_close(got, x * 2)


# --- refusals -----------------------------------------------------------------------------------------------------


@every
def test_random_operators_are_left_to_torch(capture, backend: str) -> None:
    def f(x):
        return F.dropout(x.relu(), 0.5, True).sigmoid()

    x = torch.randn(100)
    captured = capture(f, x)
    compiled = captured.compile(backend)
    torch.manual_seed(1)
    got = captured.run(compiled, x)
    torch.manual_seed(1)
    torch.testing.assert_close(got, f(x))
    assert compiled.report.fallbacks
    assert all("random" in p.reason for p in compiled.report.fallbacks)


@every
def test_dropout_that_drops_nothing_is_no_fallback(check) -> None:
    q = torch.randn(2, 4, 5, 8)
    check(lambda q: F.scaled_dot_product_attention(q, q, q) + F.dropout(q, 0.5, False), q)


@pytest.mark.parametrize(
    ("backend", "words"),
    each(
        {
            "onnxrt": ["the ONNX exporter has no translation"],
            "openvino": ["No conversion rule"],
            "tvm": ["TVM's PyTorch frontend has no converter"],
        }
    ),
)
def test_an_operator_that_the_runtime_has_not_is_reported(capture, backend: str, words: str) -> None:
    def f(x):
        return torch.linalg.qr(x.relu()).R.sigmoid()

    x = torch.randn(3, 3)
    captured = capture(f, x)
    compiled = captured.compile(backend)
    torch.testing.assert_close(captured.run(compiled, x), f(x))
    (fallback,) = compiled.report.fallbacks
    assert fallback.op == "aten.linalg_qr.default"
    assert words in fallback.reason
    with pytest.raises(FallbackRefused, match="linalg_qr"):
        capture(f, x).compile(backend, strict=True)


# --- options ------------------------------------------------------------------------------------------------------

REFUSED = {
    "onnxrt": [
        ({"providers": ["CUDAExecutionProvide"]}, "no provider 'CUDAExecutionProvide'"),
        ({"providers": []}, "at least one"),
        ({"intra_op_num_threads": 0}, "must be at least 1"),
        ({"freez": True}, "Did you mean 'freeze'"),
        ({"graph_optimization_level": "most"}, "'all'"),
        ({"providers": [("CUDAExecutionProvide", {"device_id": "0"})]}, "no provider 'CUDAExecutionProvide'"),
        ({"session_options": {"enable_mem_patern": True}}, "Did you mean 'enable_mem_pattern'"),
        ({"session_options": {"intra_op_num_threads": 1}}, "Set the option 'intra_op_num_threads'"),
        ({"session_options": {"enable_mem_pattern": "yes"}}, "does not take 'yes'"),
    ],
    "openvino": [
        ({"device": "GPU.7"}, "finds no GPU.7 on this machine, which has 'CPU'"),
        ({"device": "CPUU"}, "no device 'CPUU'. Did you mean 'CPU'"),
        ({"device": 3}, "device"),
        ({"num_streams": 0}, "must be at least 1"),
        ({"freez": True}, "Did you mean 'freeze'"),
        ({"performance_hint": "FAST"}, "'LATENCY'"),
        ({"config": {"ENABLE_CPU_PINING": False}}, "Did you mean 'ENABLE_CPU_PINNING'"),
        ({"config": {"INFERENCE_PRECISION_HINT": "bf16"}}, "option 'precision'"),
    ],
    "tvm": [
        ({"library": "mkl"}, "'torch' or 'none'"),
        ({"opt_level": 4}, "between 0 and 3"),
        ({"shape_limit": 0}, "must be at least 1"),
        ({"target": "llvm"}, "JSON"),
        ({"target": '{"kind": "metal"}'}, "for tensors on the CPU"),
        ({"opt_levl": 1}, "Did you mean 'opt_level'"),
    ],
}


@pytest.mark.parametrize(("backend", "refused"), each(REFUSED))
def test_options_are_checked_before_there_is_a_graph(backend: str, refused) -> None:
    options, words = refused
    with pytest.raises(InvalidOption, match=words):
        resolve(backend, options=options)


@every
def test_one_compilation_leaves_nothing_to_the_next(capture, backend: str) -> None:
    others = {
        "onnxrt": {"intra_op_num_threads": 1, "graph_optimization_level": "disabled", "freeze": True},
        "openvino": {"num_streams": 3, "performance_hint": "THROUGHPUT", "freeze": True},
        "tvm": {"library": "none", "opt_level": 1},
    }
    x = torch.randn(3, 8)
    captured = capture(Mlp(), x)
    before = captured.run(captured.compile(backend), x)
    captured.compile(backend, options=others[backend])
    assert torch.equal(captured.run(captured.compile(backend), x), before)


# --- parameters ---------------------------------------------------------------------------------------------------


@every
def test_parameters_that_change_are_seen(capture, backend: str, caplog) -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    captured = capture(net, x)
    compiled = captured.compile(backend, strict=True)
    with torch.no_grad():
        torch.testing.assert_close(captured.run(compiled, x), net(x))
        net.weight.mul_(2)
        torch.testing.assert_close(captured.run(compiled, x), net(x))
        net.weight.data.mul_(2)  # torch keeps no count of this
        torch.testing.assert_close(captured.run(compiled, x), net(x))
        net.bias.data = torch.ones(2)
        torch.testing.assert_close(captured.run(compiled, x), net(x))
    assert "constants" not in caplog.text


@pytest.mark.parametrize("backend", FREEZING)
def test_frozen_parameters_that_change_are_seen(capture, backend: str, caplog) -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    captured = capture(net, x)
    frozen = captured.compile(backend, strict=True, options={"freeze": True})
    with torch.no_grad():
        captured.run(frozen, x)
        net.weight.data.mul_(2)  # torch keeps no count of this, so a frozen graph may overlook it
        captured.run(frozen, x)
        assert "constants" not in caplog.text
        net.weight.mul_(2)
        torch.testing.assert_close(captured.run(frozen, x), net(x))
        assert caplog.text.count("recompiling with their new values") == 1
        net.bias.data = torch.ones(2)
        torch.testing.assert_close(captured.run(frozen, x), net(x))
        captured.run(frozen, x)
        assert caplog.text.count("recompiling with their new values") == 2


@every
def test_constants_of_the_graph(backend: str) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    made = graph.call_function(torch.tensor, ([1.0, 2.0],))
    graph.output((graph.call_function(torch.add, (x, made)),))
    gm, x = torch.fx.GraphModule({}, graph), torch.randn(2)
    compiled = resolve(backend, strict=True).compile(gm, [x], training=False)
    assert torch.equal(compiled(x)[0], x + torch.tensor([1.0, 2.0]))


# --- the cache, threads -------------------------------------------------------------------------------------------


@every
def test_the_code_comes_from_the_cache_the_second_time(check, tmp_path) -> None:
    with config.patch(cache_dir=tmp_path):
        x = torch.randn(3, 8)
        assert check(Mlp(), x).cache_hits == 0
        assert check(Mlp(), x).cache_hits == 1  # other weights, same graph
        assert check(Mlp(), torch.randn(4, 8)).cache_hits == 0
        for path in (tmp_path / "artifacts").rglob("*"):
            if path.is_file():
                path.write_bytes(path.read_bytes()[:-3])
        assert check(Mlp(), x).cache_hits == 0  # damaged, so made again
        assert check(Mlp(), x).cache_hits == 1
    with config.patch(cache_enabled=False):
        assert check(Mlp(), x).cache_hits == 0


@every
def test_threads_may_call_at_once(capture, backend: str) -> None:
    net, x = Mlp(), torch.randn(3, 8)
    captured = capture(net, x)
    compiled = captured.compile(backend, strict=True)
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
