"""Backends that fail: the error with what helps to mend it, the fallback that is asked for, the check of results."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch
from torch import nn

import torchmux


def broken(gm, example_inputs):
    raise OSError("no compiler here")


def mutating(gm, example_inputs):
    """Changes the graph before it fails, as an unlucky rewriting pass would."""
    for node in list(gm.graph.nodes):
        if node.op == "call_function":
            node.target = torch.sub
    gm.recompile()
    raise OSError("half way")


def fn(x):
    return torch.add(x, 1) * 2


# --- errors -------------------------------------------------------------------------------------------------------


def test_the_error_holds_graph_and_reproducer(own_cache, tmp_path):
    torchmux.register_backend(torchmux.BackendSpec(name="never_works", summary="raises", load=broken, graph="torch"))
    try:
        with pytest.raises(torchmux.CompilationFailed, match="no compiler here") as caught:
            torchmux.compile(fn, backend="never_works")(torch.ones(2, 3).t())
        error = caught.value
        assert isinstance(error.__cause__, OSError)
        assert "torch.add(" in error.graph
        assert str(error.reproducer) in str(error)
        program = error.reproducer.read_text()
        assert "torch.empty_strided((3, 2), (1, 3), dtype=torch.float32" in program
    finally:
        torchmux.unregister_backend("never_works")
    works = program.replace("backend='never_works'", "backend='eager'") + "\nprint('it ran')\n"
    done = subprocess.run([sys.executable, "-c", works], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout == "it ran\n", done.stderr
    fails = f"import torchmux\nfrom torchmux import BackendSpec\ndef broken(gm, example_inputs): raise OSError('no')\n\
torchmux.register_backend(BackendSpec(name='never_works', summary='raises', load=broken, graph='torch'))\n{program}"
    done = subprocess.run([sys.executable, "-c", fails], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert "CompilationFailed" in done.stderr


def test_the_reproducer_makes_inputs_and_imports(own_cache, tmp_path):
    net = nn.Sequential(nn.Embedding(5, 4), nn.GELU(), nn.Linear(4, 2).double()).to(torch.float64)

    def program(index, mask):
        return net(index).masked_fill(mask, 0.0)

    with pytest.raises(torchmux.CompilationFailed) as caught:
        torchmux.compile(program, backend=broken)(torch.tensor([1, 2]), torch.tensor([[True], [False]]))
    text = caught.value.reproducer.read_text()
    works = text.replace("backend='broken'", "backend='eager'") + "\nprint('it ran')\n"
    done = subprocess.run([sys.executable, "-c", works], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.stdout == "it ran\n", done.stderr + works


def test_where_nothing_can_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with torchmux.config.patch(cache_dir=tmp_path / "file"), pytest.raises(torchmux.CompilationFailed) as caught:
        torchmux.compile(fn, backend=broken)(torch.ones(2))
    assert caught.value.reproducer is None
    assert "torch.add(" in caught.value.graph


def test_not_callable():
    with pytest.raises(torchmux.CompilationFailed, match=r"returned 3 \(int\)"):
        torchmux.compile(fn, backend=lambda gm, example_inputs: 3)(torch.ones(2))


# --- suppress_errors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [broken, mutating, lambda gm, example_inputs: None])
def test_suppress_errors_runs_the_graph_in_torch(backend, caplog):
    compiled = torchmux.compile(fn, backend=backend, fullgraph=True)
    with torchmux.config.patch(suppress_errors=True):
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    (message,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert message.startswith("torch runs a graph that ")
    report = torchmux.report(compiled)
    assert report.share == 0
    assert all(p.placed_on == "eager" and "CompilationFailed" in p.reason for p in report.fallbacks)


def test_suppress_errors_does_not_overrule_strict_or_fullgraph():
    with torchmux.config.patch(suppress_errors=True):
        with pytest.raises(torchmux.CompilationFailed):
            torchmux.compile(fn, backend=broken, strict=True)(torch.ones(2))
        with pytest.raises(torchmux.Unsupported):
            torchmux.compile(lambda x: (torchmux.graph_break(), x + 1), backend="eager", fullgraph=True)(torch.ones(2))


# --- verify_correctness -------------------------------------------------------------------------------------------


@pytest.fixture
def verifying():
    with torchmux.config.patch(verify_correctness=True):
        yield


def off_by(delta, place=0):
    def backend(gm, example_inputs):
        def run(*args):
            results = list(gm.forward(*args))
            results[place] = results[place] + delta
            return tuple(results)

        return run

    return backend


def two(x):
    y = x.exp()
    return y, y.sum(0) - x


def test_a_wrong_result_is_named(verifying):
    compiled = torchmux.compile(two, backend=off_by(0.5, place=1))
    for _ in range(2):  # not believed the second time either
        with pytest.raises(
            torchmux.NumericsError, match=r"result 1 \(sub, .*sub at .*test_backend_call.py:\d+\) .* up to 0.5"
        ):
            compiled(torch.ones(3, 2))


def test_right_results_pass(verifying):
    for backend in ("eager", "aot_eager", off_by(0.0)):
        torchmux.reset()
        assert torch.equal(torchmux.compile(two, backend=backend)(torch.ones(3, 2))[0], torch.ones(3, 2).exp())


def test_as_precise_as_eager_is_enough(verifying):
    """Another order of summing differs from eager, but not from the truth by more than eager does."""

    def backend(gm, example_inputs):
        return lambda x: (x.flip(0).double().sum(0).float(),)

    x = torch.randn(100_000, 2) * 1000 + 5000
    compiled = torchmux.compile(lambda x: x.sum(0), backend=backend)
    torch.testing.assert_close(compiled(x), x.sum(0), rtol=1e-5, atol=0)


def test_wrong_kinds_of_results(verifying):
    for run, words in (
        (lambda x: (x.double() + 1,), "dtype torch.float64 instead of torch.float32"),
        (lambda x: (x[:1] + 1,), "has shape"),
        (lambda x: (None,), "is None instead of"),
        (lambda x: (x + 1, x), "returned 2 results for a graph with 1"),
        (lambda x: (torch.full_like(x, float("nan")),), "differs by up to inf"),
    ):
        torchmux.reset()
        with pytest.raises(torchmux.NumericsError, match=words):
            torchmux.compile(lambda x: x + 1, backend=lambda gm, inputs, run=run: run)(torch.ones(3))


def test_inputs_that_are_changed(verifying):
    def fn(x):
        x.add_(1)
        return x * 2

    x = torch.ones(3)
    assert torch.equal(torchmux.compile(fn, backend="eager")(x), torch.full((3,), 4.0))
    assert torch.equal(x, torch.full((3,), 2.0))

    torchmux.reset()
    with pytest.raises(torchmux.NumericsError, match="the value it leaves in input l_x"):
        torchmux.compile(fn, backend=lambda gm, inputs: lambda x: ((x + 1) * 2,))(torch.ones(3))


def test_wrong_gradients(verifying):
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = torch.ones(3, requires_grad=True)
    with pytest.raises(torchmux.NumericsError, match="the gradient of input l_x .* differs by up to 1"):
        torchmux.compile(lambda x: x * 2, backend=lambda gm, inputs: lambda x: (Wrong.apply(x),))(x)
    torchmux.reset()
    y = torchmux.compile(lambda x: x * 2, backend="aot_eager")(x)
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


def test_random_numbers_are_the_same(verifying):
    def fn(x):
        return x + torch.rand(3)

    torch.manual_seed(0)
    expected = fn(torch.ones(3))
    torch.manual_seed(0)
    assert torch.equal(torchmux.compile(fn, backend="eager")(torch.ones(3)), expected)


def test_models_verify(verifying):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
    compiled = torchmux.compile(net, backend="aot_eager")
    x = torch.randn(2, 3, 6, 6)
    before = int(net[1].num_batches_tracked)
    compiled(x).sum().backward()
    assert int(net[1].num_batches_tracked) == before + 1
