"""``torch.utils.checkpoint`` in one graph: the same numbers, and backward computes again what it is told to."""

from __future__ import annotations

import functools
import sys

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as torch_checkpoint
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import torchmux
from torchmux import torch_internals as ti

from ..training import BACKENDS, agree, broke, matrix, vector

FACTOR = 2.0


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


class Block(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 4)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, scale=1.0):
        return self.last(self.dropout(self.first(x).tanh())) * scale


class Checkpointed(nn.Module):
    def __init__(self, dropout=0.0, **options):
        super().__init__()
        self.blocks = nn.ModuleList([Block(dropout) for _ in range(2)])
        self.options = options

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, **self.options)
        return x.sin()


def batch(grad=True):
    return torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_(grad)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_values_and_gradients(backend, reentrant, dropout):
    model = Checkpointed(dropout, use_reentrant=reentrant)
    agree(model, batch(), backend=backend, parameters=tuple(model.parameters()), seed=3)


def test_random_numbers_are_the_same_when_it_is_run_again(backend):
    """With gradients of ones, those of dropout are its mask: a second mask would show."""

    def function(x):
        twice = lambda x: nn.functional.dropout(x, 0.5) * nn.functional.dropout(x, 0.5)  # noqa: E731
        return checkpoint(twice, x, use_reentrant=False)

    compiled = agree(function, batch(), backend=backend, seed=1)
    agree(function, batch(), backend=backend, seed=2, compiled=compiled)


def test_draws_that_nothing_uses_are_drawn_once(backend):
    def function(x):
        torch.rand_like(x)
        y = checkpoint(nn.functional.dropout, x, 0.5, use_reentrant=False)
        torch.rand_like(x)
        return nn.functional.dropout(y, 0.5)

    agree(function, batch(), backend=backend, seed=4)


def test_arguments_by_name_and_structured_results(backend):
    def inner(x, *, scale, pair):
        y = x * scale + pair[1]
        return {"first": (y, y.exp()), "count": 3, "given": x, "list": [pair[0] * 2]}

    def function(x):
        found = checkpoint(inner, x, scale=2.0, pair=(x + 1, x.cos()), use_reentrant=False)
        assert found["given"] is x
        found["list"].append(x)
        return found["first"], found["list"], found["count"] * x

    agree(function, vector(), backend=backend)


def test_inside_of_each_other(backend):
    def inner(x):
        return checkpoint(torch.exp, x.sin(), use_reentrant=False) * 2

    agree(lambda x: checkpoint(inner, x, use_reentrant=False) + 1, vector(), backend=backend)


class Taken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        return ctx.saved_tensors[0] * grad * 3


@pytest.mark.parametrize("reentrant", [False, True])
def test_around_an_autograd_function(backend, reentrant):
    agree(lambda x: checkpoint(lambda y: Taken.apply(y * 2), x, use_reentrant=reentrant), vector(), backend=backend)


# --- what is kept and what is computed again ----------------------------------------------------------------------


def kept(function, x):
    """How many tensors autograd keeps for backward."""
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        function(x)
    return len(packed)


def long(x):
    for _ in range(4):
        x = x.sin().exp()
    return x


def test_eager_graphs_checkpoint_for_real():
    x = vector()

    def function(x):
        return checkpoint(long, x, use_reentrant=False)

    compiled = torchmux.compile(function, backend="eager", fullgraph=True)
    assert kept(compiled, x) == kept(function, x) < 8
    assert kept(torchmux.compile(long, backend="eager"), x) == 8


@pytest.fixture
def graphs():
    """The operators of the forward and the backward graph that a compiler gets."""
    found = {}

    class Compiler:
        decompositions = {}

        def supports(self, node):
            return True

        def compile(self, gm, example_inputs, request):
            names = [str(node.target) for node in gm.graph.nodes if node.op == "call_function"]
            found.setdefault(request.phase, []).extend(names)
            return gm.forward

    torchmux.register_backend(Compiler, name="graphs_of_checkpoint", graph="aten", training=True, dynamic_shapes=True)
    yield found
    torchmux.unregister_backend("graphs_of_checkpoint")


def run(function, x):
    torchmux.compile(function, backend="graphs_of_checkpoint", fullgraph=True)(x).sum().backward()


def test_compilers_are_told_what_to_compute_again(graphs):
    run(lambda x: checkpoint(lambda y: (y @ y).relu() @ y, x, use_reentrant=False), matrix())
    assert "aten.mm.default" in graphs["forward"]
    assert graphs["backward"].count("aten.mm.default") > 3  # one of them is of forward


def test_a_policy_says_what_to_keep(graphs):
    run(lambda x: checkpoint(lambda y: (y @ y).relu() @ y, x, use_reentrant=False, context_fn=keep_products), matrix())
    assert graphs["backward"].count("aten.mm.default") == 4


def policy(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


keep_products = functools.partial(create_selective_checkpoint_contexts, policy)


def test_selective_checkpointing(backend):
    def function(x):
        context = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(lambda y: (y @ y).relu() @ y, x, use_reentrant=False, context_fn=context)

    agree(function, matrix(), backend=backend)


# --- guards -------------------------------------------------------------------------------------------------------


def test_what_it_reads_is_guarded(backend, monkeypatch):
    scale = 1.0

    def inner(x):
        return x.exp() * scale * FACTOR

    def function(x):
        return checkpoint(inner, x, use_reentrant=False)

    compiled = agree(function, vector(), backend=backend)
    scale = 3.0
    agree(function, vector(), backend=backend, compiled=compiled)
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 5.0)
    agree(function, vector(), backend=backend, compiled=compiled)


def test_the_option_of_a_module_is_guarded(backend):
    model = Checkpointed(use_reentrant=False)
    compiled = agree(model, batch(), backend=backend, parameters=tuple(model.parameters()))
    model.options["use_reentrant"] = True
    agree(model, batch(), backend=backend, parameters=tuple(model.parameters()), compiled=compiled)


# --- what ends the graph ------------------------------------------------------------------------------------------

SEEN = []


def counts(x):
    SEEN.append(1)
    return x.sin()


def advances(iterator):
    return next(iterator) * 2


NORM = nn.BatchNorm1d(4)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: checkpoint(counts, x, use_reentrant=False), "function counts changes list"),
        (lambda x: checkpoint(advances, iter([x, x]), use_reentrant=False), "which it may advance"),
        (lambda x: checkpoint(NORM, x, use_reentrant=False), "changes"),
        (lambda x: checkpoint(lambda y: y.add_(1).sin(), x * 2, use_reentrant=False), "in place"),
        (lambda x: checkpoint(nn.functional.dropout, x, use_reentrant=False, preserve_rng_state=False), "random"),
        (lambda x: checkpoint(lambda y: y * torch.is_grad_enabled(), x, use_reentrant=True), "grad mode"),
    ],
)
def test_what_cannot_be_run_again_in_a_graph_runs_in_eager(backend, function, words):
    compiled = torchmux.compile(function, backend=backend)
    compiled(batch())
    assert words in broke(compiled)


def test_side_effects_happen_as_often_as_in_eager(backend):
    SEEN.clear()
    out = torchmux.compile(lambda x: checkpoint(counts, x, use_reentrant=False), backend=backend)(vector())
    assert len(SEEN) == 1
    out.sum().backward()
    assert len(SEEN) == 2


def test_running_statistics_are_eagers(backend):
    norms = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    for norm, wrap in zip(norms, (lambda f: f, functools.partial(torchmux.compile, backend=backend)), strict=True):
        wrap(lambda x, norm=norm: checkpoint(norm, x, use_reentrant=False))(batch()).sum().backward()
    torch.testing.assert_close(norms[0].state_dict(), norms[1].state_dict())


def test_exceptions_of_the_user(backend):
    def fails(x):
        raise ValueError("not this one")

    def caught(x):
        try:
            return checkpoint(fails, x, use_reentrant=False)
        except ValueError as error:
            return x * 2, str(error)

    assert torchmux.compile(caught, backend=backend)(vector())[1] == "not this one"
    with pytest.raises(ValueError, match="not this one"):
        torchmux.compile(lambda x: checkpoint(fails, x, use_reentrant=False), backend=backend)(vector())


def test_sequences_of_checkpoints(backend):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU())

    def function(x):
        return torch_checkpoint.checkpoint_sequential(model, 2, x, use_reentrant=False)

    agree(function, batch(), backend=backend, parameters=tuple(model.parameters()), breaks=None)


def product_of_a_list(x):
    return checkpoint(lambda both: both[0] * both[1], [x, x + 1], use_reentrant=True)


def results_in_a_dictionary(x):
    return checkpoint(lambda y: {"doubled": y * 2}, x, use_reentrant=True)["doubled"]


def results_unchanged(x):
    return checkpoint(lambda y: y, x, use_reentrant=True)


def test_the_old_way_sees_tensors_that_are_arguments_and_results(backend):
    """Nothing requires gradients where no argument does; what autograd does not see runs in eager."""
    for grad in (False, True):
        with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
            agree(product_of_a_list, vector(grad=grad), backend=backend)
    agree(results_in_a_dictionary, vector(), backend=backend, breaks=1)
    agree(results_unchanged, vector(), backend=backend, breaks=1)


@pytest.mark.skipif(not ti.checkpoints_by_decorators(), reason="new in torch 2.14")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_decorators(backend):
    """A method, and a function that is decorated while the model runs."""
    recomputed = checkpoint(use_reentrant=False)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        @checkpoint(use_reentrant=False)
        def block(self, x, scale=2):
            return self.linear(x).sin() * scale

        def forward(self, x):
            return recomputed(lambda x: x.cos() * 3)(self.block(x, scale=3)) + self.block(x)

    model = Model()
    x, y = (torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_() for _ in range(2))
    compiled = torchmux.compile(model, backend=backend, fullgraph=True)
    result, expected = compiled(x), model(y)
    torch.testing.assert_close(result, expected)
    result.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.skipif(not ti.checkpoints_by_decorators(), reason="new in torch 2.14")
def test_hooks_of_saved_tensors_break():
    compiled = torchmux.compile(
        lambda x: checkpoint(torch.sin, x, use_reentrant=False, respect_saved_tensors_hooks=True) + 1, backend="eager"
    )
    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    (graph_break,) = torchmux.report(compiled).breaks
    assert "hooks of saved tensors" in graph_break.reason
