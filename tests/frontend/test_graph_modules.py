"""Modules of torch.fx as programs: compiled themselves, inside of others, changed, and exported."""

from __future__ import annotations

import pytest
import torch

import torchmux


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))


def negate(gm):
    """Change the graph of ``gm`` in place."""
    out = gm.graph.output_node()
    with gm.graph.inserting_before(out):
        out.args = (gm.graph.call_function(torch.neg, (out.args[0],)),)
    gm.recompile()


class Around(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


@pytest.mark.parametrize("wrap", [lambda gm: gm, lambda gm: gm.forward, Around], ids=["itself", "forward", "submodule"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_one_graph(wrap, backend, fullgraph):
    program, x = wrap(torch.fx.symbolic_trace(network())), torch.randn(4, 3, requires_grad=True)
    compiled = torchmux.compile(program, backend=backend, fullgraph=fullgraph)
    torch.testing.assert_close(compiled(x), program(x))
    compiled(x).sum().backward()  # what runs there is the backend's, and no program
    assert x.grad is not None
    report = torchmux.report(compiled)
    assert (report.graph_count, report.break_count) == (1, 0)
    assert torchmux.explain(program)(x).graph_count == 1


@pytest.mark.parametrize("wrap", [lambda gm: gm, Around], ids=["itself", "submodule"])
def test_a_changed_graph_is_captured_anew(wrap):
    gm, x = torch.fx.symbolic_trace(network()), torch.randn(4, 3)
    program = wrap(gm)
    compiled = torchmux.compile(program, backend="eager")
    for _ in range(3):
        for _ in range(2):
            assert torch.equal(compiled(x), program(x))
        negate(gm)
    assert torchmux.report(compiled).graph_count == 3


def test_a_graph_module_that_ran_in_eager_before():
    gm, x = torch.fx.symbolic_trace(network()), torch.randn(4, 3)
    torchmux.compile(lambda x: x + 1, backend=lambda graph, inputs: lambda *args: (gm(*args),))(x)
    compiled = torchmux.compile(gm, backend="eager")
    assert torch.equal(compiled(x), gm(x))
    assert torchmux.report(compiled).graph_count == 1


def test_the_graph_of_a_backend_is_no_program():
    """A backward pass inside of the compiled function runs the backend's code with the hook on."""
    linear = torch.nn.Linear(3, 2)

    def step(x):
        loss = linear(x).relu().sum()
        torchmux.graph_break()
        loss.backward()
        return loss.detach() + 1

    compiled, x = torchmux.compile(step, backend="aot_eager"), torch.randn(4, 3)
    expected = step(x)
    for _ in range(2):
        assert torch.equal(compiled(x), expected)
    assert torchmux.report(compiled).graph_count == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_programs(dynamic):
    model, x = Around(network()), torch.randn(4, 3)
    shapes = ({0: torch.export.Dim("batch", min=2, max=64)},) if dynamic else None
    exported = torch.export.export(model, (x,), dynamic_shapes=shapes).module()
    compiled = torchmux.compile(exported, backend="eager")
    for size in (4, 4, 7, 9) if dynamic else (4, 4):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x), model(x))
    report = torchmux.report(compiled)
    assert report.break_count == 0
    assert report.graph_count == (2 if dynamic else 1)
    with pytest.raises(AssertionError, match="Guard failed"):
        compiled(torch.randn(65 if dynamic else 5, 3))


class Rounds(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


def test_a_graph_inside_of_a_graph_is_not_captured_again():
    def program(x, weight):
        (Rounds.apply(x * weight) * 5).sum().backward()
        return weight.grad + 1

    compiled = torchmux.compile(program, backend="eager")
    weights = [torch.ones(2, requires_grad=True) for _ in range(2)]
    assert torch.equal(compiled(torch.ones(2), weights[0]), program(torch.ones(2), weights[1]))
    assert [graph.function for graph in torchmux.report(compiled).graphs] == [program.__qualname__] * 2


def test_a_returned_graph_is_no_module_of_the_program():
    """Torch's global hooks are called for the program's modules, and not for the graph that runs them."""
    model, seen = torch.nn.ReLU(), []
    compiled = torchmux.compile(lambda x: model(x), backend=lambda gm, inputs: gm)
    compiled(torch.ones(2))
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: seen.append(type(module)))
    try:
        assert compiled(torch.ones(2)).tolist() == [1, 1]
    finally:
        handle.remove()
    assert seen == [torch.nn.ReLU]


def test_a_returned_graph_has_the_hooks_that_its_backend_gave_it():
    def doubled(gm, inputs):
        gm.register_forward_hook(lambda module, given, results: tuple(2 * each for each in results))
        return gm

    assert torchmux.compile(lambda x: x + 1, backend=doubled)(torch.ones(2)).tolist() == [4, 4]
