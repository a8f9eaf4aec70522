"""What a forward graph saves for backward, and buffers that it writes to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

import torchmux
from torchmux.backends.common.pipeline import aliasing, aot, saved


class _CountsCalls(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        count.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * x, None


def copied_and_changed(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    y = w * buffer.clone()
    with torch.no_grad():
        buffer.add_(1)
    return y.sin()


def unseen(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    y = w * buffer
    buffer.data.add_(1)
    return y


def shown(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    y = w * buffer.clone() * buffer.view(2, 2).clone().flatten()
    buffer.mul_(3)
    return y.exp(), buffer.view(2, 2)


def twice(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    buffer[1:3] = 5.0
    y = w * buffer.clone()
    buffer[0] = 7.0
    return y * 2


def exchanged(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    before = buffer.clone()
    buffer.copy_(w.detach() * 2)
    return (w * before).sin() * w


def depends(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    y = (w * buffer.clone()).relu()
    buffer.add_(y.detach().mean())
    return y.cumsum(0)


def counted(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    return _CountsCalls.apply(w, buffer) * buffer.clone()


def statistics(w: torch.Tensor, buffer: torch.Tensor) -> Any:
    rows = torch.cat([w.view(2, 2), w.view(2, 2) ** 2 + 1])
    return F.batch_norm(rows, buffer[:2], buffer[2:], training=True) ** 2


PROGRAMS = [copied_and_changed, unseen, shown, twice, exchanged, depends, counted, statistics]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["native", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_buffers_that_are_read_and_written(program: Any, backend: str, dynamic: bool | None) -> None:
    call = torchmux.compile(program, backend=backend, dynamic=dynamic)
    weights = [torch.tensor([0.3, -0.7, 1.1, 0.2], requires_grad=True) for _ in range(2)]
    buffers = [torch.tensor([1.5, 0.5, 2.0, 1.0]) for _ in range(2)]
    for _ in range(3):
        for run, w, buffer in zip((call, program), weights, buffers, strict=True):
            found = run(w, buffer)
            first = found[0] if isinstance(found, tuple) else found
            (first * torch.arange(first.numel()).view_as(first)).sum().backward()
        torch.testing.assert_close(buffers[0], buffers[1])
        torch.testing.assert_close(weights[0].grad, weights[1].grad, rtol=1e-4, atol=1e-5)


def test_statistics_are_written_by_the_graph() -> None:
    ours = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    eager = copy.deepcopy(ours)
    call = torchmux.compile(ours, backend="native")
    for x in torch.randn(3, 5, 3):
        call(x).square().sum().backward()
        eager(x).square().sum().backward()
    for name, buffer in ours.named_buffers():
        torch.testing.assert_close(buffer, eager.get_buffer(name))
    (graph,) = torchmux.report(call).graphs
    assert "overwritten(" in graph.report.output_code[1]  # the host function says which inputs its kernels change


def _graph(names: str) -> tuple[torch.fx.Graph, dict[str, torch.fx.Node]]:
    graph, nodes = torch.fx.Graph(), {}
    for name in names.split():
        nodes[name] = graph.placeholder(name)
        nodes[name].meta["val"] = torch.empty(2, 3)
    return graph, nodes


def test_bases_take_the_places_of_views() -> None:
    """Outputs and placeholders stay in the same order; a part is saved as it is, unless the whole is saved as well."""
    forward, f = _graph("w x")
    f["y"] = forward.call_function(torch.ops.aten.sin.default, (f["x"],))
    f["part"] = forward.call_function(torch.ops.aten.select.int, (f["y"], 0, 0))
    f["flat"] = forward.call_function(torch.ops.aten.view.default, (f["y"], [6]))
    f["turned"] = forward.call_function(torch.ops.aten.t.default, (f["w"],))
    for name, value in (("y", torch.empty(2, 3)), ("part", torch.empty(3)), ("flat", torch.empty(6))):
        f[name].name, f[name].meta["val"] = name, value
    f["turned"].name, f["turned"].meta["val"] = "turned", torch.empty(3, 2)
    forward.output((f["y"], f["turned"], f["part"], f["x"], f["flat"]))
    backward, b = _graph("turned part x flat tangents_1")
    total = backward.call_function(torch.ops.aten.sum.default, (b["turned"],))
    more = backward.call_function(torch.ops.aten.mul.Tensor, (b["flat"], total))
    backward.output((more, b["part"], b["x"]))
    assert saved.save_bases(forward, backward, 1)
    backward.lint()
    kept = [n.name for n in forward.output_node().args[0][1:]]
    assert kept == ["w", "part", "x", "y"]
    assert [n.name for n in backward.find_nodes(op="placeholder")] == [*kept, "tangents_1"]
    assert [n.target for n in backward.nodes if aliasing.is_view(n)].count(torch.ops.aten.t.default) == 1
    assert more.args[0].target is torch.ops.aten.view.default
    assert saved.save_bases(forward, backward, 1)
    backward.lint()
    assert [n.name for n in backward.find_nodes(op="placeholder")] == ["w", "x", "y", "tangents_1"]
    assert not saved.save_bases(forward, backward, 1)


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_results_of_equal_operators_have_their_own_memory(backend: str) -> None:
    """Of equal operators one is computed, but not where eager returns a result of each, of several or not."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        twice = torch.linalg.slogdet(x)
        return torch.linalg.inv(x), torch.linalg.inv_ex(x).inverse, x.sin(), x.sin(), twice[0], twice[0]

    x = (torch.randn(3, 3) + 4 * torch.eye(3)).requires_grad_()
    for results in (f(x), torchmux.compile(f, backend=backend)(x)):
        assert len({r.untyped_storage().data_ptr() for r in results}) == 5
        torch.testing.assert_close(results, f(x))


def test_a_saved_view_may_be_a_view_of_another() -> None:
    """Both are made again: the one of what it shows, the other of that one."""
    forward, f = _graph("x")
    f["y"] = forward.call_function(torch.ops.aten.sin.default, (f["x"],))
    f["rows"] = forward.call_function(torch.ops.aten.unsqueeze.default, (f["y"], -1))
    f["wide"] = forward.call_function(torch.ops.aten.expand.default, (f["rows"], [2, 3, 4]))
    for name, value in (("y", torch.empty(2, 3)), ("rows", torch.empty(2, 3, 1)), ("wide", torch.empty(2, 3, 4))):
        f[name].name, f[name].meta["val"] = name, value
    forward.output((forward.call_function(torch.ops.aten.cos.default, (f["x"],)), f["rows"], f["wide"]))
    backward, b = _graph("rows wide tangents_1")
    product = backward.call_function(torch.ops.aten.mul.Tensor, (b["rows"], b["wide"]))
    backward.output((product,))
    assert saved.save_bases(forward, backward, 1)
    backward.lint()
    rows, wide = product.args
    assert wide.args[0] is rows and rows.args[0].name == "y"
    assert [n.name for n in backward.find_nodes(op="placeholder")] == ["y", "tangents_1"]


def test_what_eager_detaches_is_computed_again() -> None:
    """The gradient of ``tanh`` has a formula of its result, which is one of many that lead to what is saved anyway."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = x @ w
        return (torch.tanh(h * 0.7) * torch.sigmoid(h)) @ w

    x, w = torch.randn(5, 8, requires_grad=True), torch.randn(8, 8)
    assert sorted(tuple(t.shape) for t in _saved_of(f, x, w)) == [(5, 8), (8, 8)]


def test_signs_are_saved_of_relu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte for each element, where nothing else of the result is needed; on a GPU, which a CPU stands for here."""
    monkeypatch.setattr(saved, "SIGNS", ("cpu",))

    def signs(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.batch_norm(x, None, None, w, training=True)).sum(-1)

    def numbers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(x) @ w

    def checkpointed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.utils.checkpoint.checkpoint(signs, x, w, use_reentrant=False)

    x = torch.randn(6, 8)
    x[:, 0] = torch.nan
    assert torch.bool in [t.dtype for t in _saved_of(signs, x.requires_grad_(), torch.rand(8, requires_grad=True))]
    assert torch.bool not in [t.dtype for t in _saved_of(checkpointed, x, torch.rand(8, requires_grad=True))]
    learned = torch.randn(8, 3, requires_grad=True)
    assert [t.dtype for t in _saved_of(numbers, x, learned)] == [torch.float32] * 2


def test_copies_of_inputs_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones, on a GPU; an input that changes until then is refused as in eager."""
    monkeypatch.setattr(saved, "_COPIES", {"cpu": 400})

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.t().contiguous() * w).sin()

    x, w = torch.randn(9, 12), torch.randn(12, 9, requires_grad=True)
    assert sorted(tuple(t.shape) for t in _saved_of(f, x, w)) == [(9, 12), (12, 9)]
    result = torchmux.compile(f, backend="native")(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def _saved_of(f: Any, *args: torch.Tensor) -> list[torch.Tensor]:
    """What the forward graph of ``f`` saves; gradients are those of eager."""
    found: list[torch.Tensor] = []
    usual = saved.bases_saved

    def noting(split: Any) -> Any:
        def split_and_note(joint: Any, *given: Any, num_fwd_outputs: int, **more: Any) -> Any:
            forward, backward = usual(split)(joint, *given, num_fwd_outputs=num_fwd_outputs, **more)
            found.extend(node.meta["val"] for node in forward.graph.output_node().args[0][num_fwd_outputs:])
            return forward, backward

        return split_and_note

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aot, "bases_saved", noting)
        result = torchmux.compile(f, backend="native")(*args)
    learned = [a for a in args if a.requires_grad]
    slope = torch.randn_like(result)
    expected = torch.autograd.grad(f(*args), learned, slope)
    torch.testing.assert_close(torch.autograd.grad(result, learned, slope), expected, equal_nan=True)
    return found


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("native", marks=pytest.mark.slow)])
def test_checks_of_linear_algebra_stay_in_training(backend: str) -> None:
    """Whatever the result is used for: nothing, this graph's backward pass, or another check's."""

    def unused(x: torch.Tensor) -> torch.Tensor:
        torch.linalg.inv(x)
        return x * 2

    def twice(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.solve(torch.linalg.inv(x), x.sin()).cos()

    good = torch.randn(3, 4, 4) + 4 * torch.eye(4)
    bad = good.clone()
    bad[1] = 0
    for program in (unused, twice):
        compiled = torchmux.compile(program, backend=backend)
        x, y = (good.clone().requires_grad_() for _ in range(2))
        compiled(x).sum().backward()
        program(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-3, atol=1e-4)
        assert not [each for each in torchmux.report(compiled).fallbacks if "with_effects" in str(each.op)]
        for run in (compiled, program):
            with pytest.raises(torch.linalg.LinAlgError, match="Batch element 1"):
                run(bad.clone().requires_grad_())
