"""tvm on small graphs: what is so of TVM alone; test_contract.py has what holds of every adapter."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from as_eager import Held, Mlp

import torchmux
from torchmux.config import config
from torchmux.registry import FallbackRefused

tvm = pytest.importorskip("tvm")

sizes_are_numbers = pytest.mark.skipif(
    tuple(map(int, tvm.__version__.split(".")[:2])) < (0, 27),
    reason="before TVM 0.27 a part that computes with a size as a number is compiled for each shape",
)


@pytest.fixture
def check(capture) -> Held:
    return Held(capture, "tvm")


def test_library_calls_are_told_apart(check) -> None:
    assert check(Mlp(), torch.randn(3, 8)).kinds == {"own": 4, "library": 2}
    assert check(Mlp(), torch.randn(3, 8), options={"library": "none"}).kinds == {"own": 6}


@pytest.mark.parametrize("shape", [(64, 1024), (3, 5, 77), (2, 1), (1, 640)])
def test_rows(check, shape) -> None:
    def f(x):
        y = (x * 2 + 1).softmax(-1) * x
        return y.mean(-1), F.layer_norm(y + x, shape[-1:]), F.log_softmax(x, -1), x.amax(-1, keepdim=True) - x

    check(f, torch.randn(shape))


def test_columns_and_whole_sums(check) -> None:
    x = torch.randn(130, 70)
    check(lambda x: (x.sum(0), x.mean(), x.amax(0), (x * x).sum(), x.softmax(0)), x)


def test_a_norm_of_squares(check) -> None:
    weight = torch.randn(96)
    check(lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, torch.randn(2, 9, 96), weight)


@pytest.mark.parametrize("shape", [(400, 1000), (300000,), (3, 2048, 50)])
def test_long_sums_lose_no_digits(capture, shape) -> None:
    x = torch.rand(shape) + 1
    captured = capture(lambda x: (x.sum(), x.mean()), x)
    found = captured.run(captured.compile("tvm", strict=True), x)
    for result, wanted in zip(found, (x.double().sum(), x.double().mean()), strict=True):
        assert abs(result.item() / wanted.item() - 1) < 3e-7


@pytest.mark.parametrize("statistics", [True, False])
def test_batch_norm_in_training(check, statistics: bool) -> None:
    x, mean, variance = torch.randn(6, 5, 3), torch.zeros(5), torch.ones(5)

    def function(x, mean, variance):
        kept = (mean.clone(), variance.clone()) if statistics else (None, None)
        return (F.batch_norm(x, *kept, training=True), *(t for t in kept if t is not None))

    assert check(function, x, mean, variance).share == 1.0


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.sigmoid, torch.erf])
def test_elementary_functions_everywhere(capture, function) -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 88.7, 89.0, -103.0, -104.5, 1e-6])
    x = torch.cat([special, torch.linspace(-20, 20, 1013), torch.randn(1000)])
    captured = capture(lambda x: function(x), x)
    got, wanted = captured.run(captured.compile("tvm", strict=True), x), function(x)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-7, equal_nan=True)


def test_activations(check) -> None:
    x = torch.cat([torch.linspace(-20, 20, 1013), torch.randn(1000)])
    check(lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.leaky_relu(x)), x)


def test_arguments_that_the_importer_overlooks(check) -> None:
    def f(x, n):
        return torch.add(x, x, alpha=3), torch.sub(x, n, alpha=2), torch.rsub(x, n, alpha=2), n * 0.5, n < 2.5

    check(f, torch.randn(4), torch.arange(4))


def test_matrix_products_keep_their_dtype(capture) -> None:
    x = torch.randn(5, 5, dtype=torch.float64)
    for library in ("torch", "none"):
        compiled = capture(lambda x: torch.mm(x, x) + 1, x).compile("tvm", options={"library": library})
        assert torch.equal(compiled(x)[0], torch.mm(x, x) + 1) or library == "none"
        torch.testing.assert_close(compiled(x)[0], torch.mm(x, x) + 1)


def test_inputs_of_any_strides_and_alignment(capture) -> None:
    def f(x, y):
        return x.relu() + y.sigmoid(), torch.mm(x, y.t())

    x, y = torch.randn(40, 64), torch.randn(64, 40)
    captured = capture(f, y.t(), x)
    compiled = captured.compile("tvm", strict=True)
    unaligned = torch.randn(64 * 40 + 1)[1:].view(40, 64)
    for given in ((y.t(), x), (x, y.t()), (torch.randn(40, 128)[:, ::2], x), (unaligned, unaligned)):
        for a, b in zip(captured.run(compiled, *given), f(*given), strict=True):
            torch.testing.assert_close(a, b)


def test_kernels_of_torch_take_views(check) -> None:
    def f(q, w):
        heads = torch.mm(q, w).view(6, 4, 8).transpose(0, 1)
        out = F.scaled_dot_product_attention(heads[None], heads[None], heads[None])
        return out.transpose(1, 2).reshape(6, 32) + q, out

    check(f, torch.randn(6, 32), torch.randn(32, 32))


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_row_put_into_a_tensor_with_gaps(check, index) -> None:
    x = torch.randn(4, 6, 5)[::2, ::2]
    check(lambda x, row: torch.select_scatter(x, row, 1, index), x, torch.randn(2, 5), exact=True)


def test_convolutions(capture) -> None:
    one, two = torch.randn(8, 3, 3, 3), torch.randn(4, 8, 1, 1)
    mean, variance = torch.randn(8), torch.rand(8) + 0.5

    def f(x, one, two, mean, variance):
        normal = F.batch_norm(F.conv2d(x, one, padding=1), mean, variance)
        return F.conv2d(F.max_pool2d(normal.relu(), 2), two)

    for x in (torch.randn(2, 3, 10, 10), torch.randn(2, 3, 10, 10).to(memory_format=torch.channels_last)):
        captured = capture(f, x, one, two, mean, variance)
        compiled = captured.compile("tvm", strict=True)
        got, wanted = captured.run(compiled, x, one, two, mean, variance), f(x, one, two, mean, variance)
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        assert got.stride() == wanted.stride()


def test_windows_of_volumes_see_what_is_not_a_number(check) -> None:
    x = torch.randn(1, 2, 4, 4, 4)
    x[0, 0, 0, 0, 0], x[0, 1] = float("nan"), -float("inf")

    def f(x):
        one, other = F.max_pool3d(x, 2), F.max_pool3d(x, 3, 2, 1)
        return one != one, one == -float("inf"), other != other, other == -float("inf")

    check(f, x, exact=True)


def test_an_index_out_of_bounds_raises_as_in_eager(capture) -> None:
    table, at = torch.randn(5, 4), torch.tensor([0, 4])
    captured = capture(lambda t, i: F.embedding(i, t) * 2, table, at)
    compiled = captured.compile("tvm", strict=True)
    torch.testing.assert_close(captured.run(compiled, table, at), F.embedding(at, table) * 2)
    with pytest.raises(IndexError):
        captured.run(compiled, table, torch.tensor([0, 5]))


def test_an_operator_that_tvm_computes_otherwise_is_found(capture, monkeypatch, tmp_path) -> None:
    from tvm import relax

    from torchmux.backends.tvm.relax import handlers

    def wrong(t, node):
        return t.emit(relax.op.cos(t.env[node.args[0]]))

    monkeypatch.setitem(handlers.HANDLERS, torch.ops.aten.sin.default, wrong)
    x = torch.randn(9)
    with config.patch(cache_dir=tmp_path):
        for _ in range(2):  # the refusal is in the cache the second time
            captured = capture(lambda x: (x.relu() * 3, x.exp().sin()), x)
            compiled = captured.compile("tvm")
            for a, b in zip(captured.run(compiled, x), (x.relu() * 3, x.exp().sin()), strict=True):
                torch.testing.assert_close(a, b)
            assert [p.op for p in compiled.report.fallbacks] == ["aten.sin.default"]
            assert "does not match torch" in compiled.report.fallbacks[0].reason


def counted(monkeypatch) -> list[object]:
    """A list that grows with each module that TVM builds."""
    from torchmux.backends.tvm.codegen import build

    built, build_one = [], build.compile_module
    monkeypatch.setattr(build, "compile_module", lambda *args: built.append(args) or build_one(*args))
    return built


def test_one_artifact_for_all_sizes(capture, monkeypatch) -> None:
    net = Mlp()
    with config.patch(cache_enabled=False):
        built = counted(monkeypatch)
        captured = capture(net, torch.randn(3, 5, 8), dynamic={0: [0, 1]})
        compiled = captured.compile("tvm", strict=True, options={"shape_limit": 1})
        for rows, columns in ((3, 5), (2, 300), (64, 2), (1, 1)):
            x = torch.randn(rows, columns, 8)
            with torch.no_grad():
                torch.testing.assert_close(captured.run(compiled, x), net(x))
        assert len(built) == 1
        assert compiled.report.kinds == {"own": 7, "library": 2}


def test_what_needs_its_sizes_has_one_artifact_per_shape_up_to_a_limit(capture, caplog, monkeypatch) -> None:
    def every_second(x):
        return x[::2].relu() + 1

    captured = capture(every_second, torch.randn(3, 8), dynamic={0: [0]})
    compiled = captured.compile("tvm", strict=False, options={"shape_limit": 2})
    assert compiled.report.share == 1.0
    assert "tvm compiles for each shape, up to 2: " in " ".join(compiled.report.notes)
    for rows in (3, 2, 64, 3):
        caplog.clear()
        x = torch.randn(rows, 8)
        with torch.no_grad():
            torch.testing.assert_close(captured.run(compiled, x), every_second(x))
        assert ("shape_limit" in caplog.text) == (rows == 64)
    strict = captured.compile("tvm", strict=True, options={"shape_limit": 1})
    with torch.no_grad(), pytest.raises(FallbackRefused, match="shape_limit"):
        captured.run(strict, torch.randn(5, 8))


@sizes_are_numbers
def test_sizes_in_the_graph(capture) -> None:
    def f(x):
        n = x.size(0)
        return x.view(n * 2, -1).softmax(-1).reshape(n, -1) + n, torch.arange(n), torch.full((n,), n, dtype=torch.float)

    captured = capture(f, torch.randn(4, 6), dynamic={0: [0]})
    compiled = captured.compile("tvm", strict=True, options={"shape_limit": 1})
    for rows in (4, 3, 70):
        x = torch.randn(rows, 6)
        for got, wanted in zip(captured.run(compiled, x), f(x), strict=True):
            torch.testing.assert_close(got, wanted)


def views(x):
    return x.transpose(0, 1) + 1, x[:, 1], x[1:], x[:-2] * 2, x[-1], x.unsqueeze(1).expand(-1, 3, -1), x.flatten()


def pieces(x):
    a, b = x.split([2, 4], 1)
    return torch.cat([b, a], 1), torch.stack([a, a]), x.chunk(3, 1)[1], torch.cat([x, x[1:]])


def rows(x):
    return x.softmax(0), x.mean(), x.sum(0), F.layer_norm(x, x.shape[1:]), x.amax(0), x.cumsum(0)


def products(x):
    return x @ x.transpose(0, 1), torch.addmm(x, x, x.new_ones(6, 6)), x.new_zeros(x.shape), (x[:, :3] @ x[:3]).relu()


def taken(x):
    at = torch.arange(x.shape[0])
    return x[at], x[:, at[:3] % 6], torch.where(x > 0, x, x.shape[0]), x.gather(0, at[:, None].expand(-1, 6)), x.tril()


@pytest.mark.parametrize("function", [pytest.param(views, marks=sizes_are_numbers), pieces, rows, products, taken])
def test_every_size_by_one_artifact(function, capture, monkeypatch) -> None:
    with config.patch(cache_enabled=False):
        built = counted(monkeypatch)
        captured = capture(function, torch.randn(5, 6), dynamic={0: [0]})
        compiled = captured.compile("tvm", strict=True)
        built.clear()
        for size in (5, 7, 40):
            x = torch.randn(size, 6)
            for got, wanted in zip(captured.run(compiled, x), function(x), strict=True):
                assert got.shape == wanted.shape
                assert got.stride() == wanted.stride()
                torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        assert not built


@pytest.mark.parametrize("dynamic", [None, {0: [0]}, {0: [1]}])
def test_kernels_are_fused_and_scheduled(dynamic, capture, monkeypatch, caplog) -> None:
    from torchmux.backends.tvm.codegen import build

    found, scheduled = [], build.schedule.scheduled
    monkeypatch.setattr(build.schedule, "scheduled", lambda f: found.append(scheduled(f)) or found[-1])
    x = torch.randn(256, 512)
    functions = {
        "chain": lambda x: F.gelu(x + 1) * 2 - x,
        "transposed": lambda x: (x.t() + 1).relu() * 2,
        "rows": lambda x: (x * 2).softmax(-1) * x,
        "norm": lambda x: F.layer_norm(x.relu(), x.shape[-1:]),
    }
    caplog.set_level("DEBUG", "torchmux.tvm")
    with config.patch(cache_enabled=False):
        for name, function in functions.items():
            found.clear()
            caplog.clear()
            captured = capture(function, x, dynamic=dynamic)
            compiled = captured.compile("tvm", strict=True, options={"check": False})
            assert len(found) == 1, name
            assert "T.parallel" in str(found[0]), name
            assert not any("as it is" in r.getMessage() for r in caplog.records if r.name == "torchmux.tvm"), name
            if name in ("chain", "transposed"):
                assert str(found[0]).count("T.sblock(") == 2  # the root is one
            with torch.no_grad():
                torch.testing.assert_close(captured.run(compiled, x), function(x), rtol=1e-4, atol=1e-5)


def test_a_target_of_ones_own(check) -> None:
    options = {"target": '{"kind": "llvm", "mcpu": "x86-64"}', "opt_level": 1}
    check(lambda x: x.exp().softmax(-1), torch.randn(3, 8), options=options)


@pytest.mark.slow
def test_a_second_process_compiles_nothing_and_imports_no_compiler(run_python) -> None:
    code = """
import sys
import torch
import torchmux
def run(f, x):
    compiled = torchmux.compile(f, backend="tvm", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), f(x))
    report, = (entry.report for entry in torchmux.report(compiled).graphs)
    print(report.cache_hits, "tvm" in sys.modules)
run(lambda x: torch.softmax(x, 1).relu() @ x.t(), torch.ones(3, 5))
run(lambda x: torch.softmax(x, 1) * 2, torch.full((2, 3), 0.5))  # the compiler comes after the runtime library
"""
    assert run_python(code).split() == ["0", "True", "0", "True"]
    assert run_python(code.replace("(2, 3)", "(2, 4)")).split() == ["1", "False", "0", "True"]


def test_code_for_another_processor_is_not_restored(check, monkeypatch, tmp_path) -> None:
    from torchmux.backends.tvm import compiler

    artifacts, restore = [], compiler.Tvm.restore
    monkeypatch.setattr(
        compiler.Tvm, "restore", lambda self, text, held: artifacts.append(text) or restore(self, text, held)
    )
    with config.patch(cache_dir=tmp_path):
        for _ in range(2):
            check(Mlp(), torch.randn(3, 8))
        (artifact,) = artifacts
        assert restore(compiler.Tvm(), artifact, {}) is not None
        monkeypatch.setattr(compiler, "_processor", lambda: "another")
        assert restore(compiler.Tvm(), artifact, {}) is None


def test_a_chain_of_clamps_stays_small(capture) -> None:
    """Each reads what it limits twice: written into one another, twelve of them would be four thousand expressions."""

    def f(x):
        for limit in range(12, 0, -1):
            x = (x.exp() * 0.5).clamp(-limit, limit)
        return x

    x = torch.randn(4, 8)
    captured = capture(f, x)
    compiled = captured.compile("tvm", strict=True)
    torch.testing.assert_close(captured.run(compiled, x), f(x))


def test_numbers_that_may_be_negative_have_an_artifact_each(capture) -> None:
    """TVM takes it that no variable of a shape is negative; an integer argument may count from the end."""

    def f(x, i):
        n = x.size(0)
        return x[i] + 1, x.narrow(0, i, 1) * 2, x[n - 4] * 2, x[n - 4 : n - 3] + 1

    torchmux.reset()
    compiled = torchmux.compile(f, backend="tvm", dynamic=True)
    with torch.no_grad():
        for size, i in ((6, 1), (6, 2), (5, -1), (6, -3), (3, 2), (3, -2)):  # n - 4 is negative in the last two
            x = torch.randn(size, 5)
            for got, wanted in zip(compiled(x, i), f(x, i), strict=True):
                torch.testing.assert_close(got, wanted)
    notes = [note for entry in torchmux.report(compiled).graphs for note in entry.report.notes]
    assert any("may be negative" in note for note in notes)
    torchmux.reset()


@pytest.mark.parametrize(
    ("number", "dtype"),
    [(float("-inf"), torch.float32), (float("nan"), torch.float32), (2, torch.float32), (3, torch.int32)],
)
def test_masked_fill(number, dtype) -> None:
    def f(x):
        return x.masked_fill(x[:, :1] > 0, number) * 2

    x = (torch.randn(3, 4) * 9).to(dtype)
    torch.testing.assert_close(torchmux.compile(f, backend="tvm", strict=True)(x), f(x), equal_nan=True)


def test_where_sizes_follow_from_data_no_numbers_are_made_up(monkeypatch) -> None:
    """What TVM compiles for given sizes only stays torch's, and the rest of the graph is compiled."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from torchmux.backends.tvm import compiler
    from torchmux.registry.errors import NodesRefused
    from torchmux.registry.spec import CompileRequest

    env, graph = ShapeEnv(), torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    first, other = (graph.call_function(torch.ops.aten.exp.default, (node,)) for node in (x, y))
    graph.output((first, other))
    with FakeTensorMode(shape_env=env):
        unknown, known = torch.empty(env.create_unbacked_symint(), 3), torch.empty(3)
    for node, value in ((x, unknown), (first, unknown), (y, known), (other, known)):
        node.meta["val"] = value

    def for_given_sizes(*_: object) -> None:
        raise ValueError("a size is no number")

    adapter = compiler.Tvm()
    monkeypatch.setattr(adapter, "_compile_one", for_given_sizes)
    with pytest.raises(NodesRefused) as refused:
        adapter.compile(torch.fx.GraphModule({}, graph), [unknown, known], CompileRequest("tvm"))
    assert refused.value.reasons == {first.name: "sizes that follow from data: a size is no number"}


def test_products_and_quotients_keep_their_order() -> None:
    """LLVM, which may reorder sums, would multiply a quotient first, and join numbers that multiply in turn."""

    def f(x, y):
        return (x / y) * y, y * (x / y), (x * 1e30) * 1e-30, (3e-30 / x) * 1e30, (x * y) * x, (x * 1e20) * (y * 1e20)

    x = torch.tensor([1e20, 3e37, 1e-30, 3e-20, 0.3, -2.7, 5.5, -7.0])
    y = torch.tensor([1e-20, 1e-10, 1e30, 7.0, 0.1, -0.3, 3.0, 1e20])
    for got, wanted in zip(torchmux.compile(f, backend="tvm", strict=True)(x, y), f(x, y), strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=0)


def test_a_size_that_becomes_zero_is_not_folded() -> None:
    compiled = torchmux.compile(lambda x: x * max(x.shape[0] - 6, -x.shape[1]), backend="tvm", dynamic=True)
    compiled(torch.randn(4, 5))
    x = torch.full((6, 3), float("inf"))
    assert compiled(x).isnan().all()
