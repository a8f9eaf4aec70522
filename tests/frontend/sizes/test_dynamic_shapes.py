"""Static first, then dynamic in what changed; marks, integers, and exact guards."""

import functools
import math

import pytest
import torch

import torchmux


def _run(fn, calls, **how):
    compiled = torchmux.compile(fn, backend="eager", fullgraph=True, **how)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args), rtol=0, atol=0)
    return torchmux.report(compiled)


def flatten(x):
    return (x * 2).reshape(x.shape[0] * x.shape[1], -1).sum(0)


def test_one_recompilation_then_any_batch():
    report = _run(flatten, [(torch.ones(n, 3, 4),) for n in (4, 6, 8, 33, 2)])
    assert report.graph_count == 2
    assert len(report.recompiles) == 1
    assert "size mismatch at index 0" in report.recompiles[0]


def test_dynamic_true_needs_one_graph():
    assert _run(flatten, [(torch.ones(n, n + 1, 7),) for n in (4, 9, 8)], dynamic=True).graph_count == 1


def test_dynamic_false_compiles_each_shape():
    assert _run(flatten, [(torch.ones(n, 3, 4),) for n in (4, 6, 8)], dynamic=False).graph_count == 3


def test_zero_and_one_are_specialized():
    report = _run(flatten, [(torch.ones(n, 3, 4),) for n in (4, 6, 1, 9, 1)])
    assert report.graph_count == 3


def test_branches_on_sizes_are_guarded_exactly():
    def fn(x):
        return x + 1 if x.shape[0] > 5 else x - 1

    report = _run(fn, [(torch.ones(n),) for n in (4, 8, 3, 6, 5, 100)])
    assert report.graph_count == 3
    assert any("x.size()[0]" in reason for reason in report.recompiles)


def test_mark_dynamic_from_the_first_call():
    x = torch.ones(8, 4)
    torchmux.mark_dynamic(x, 0, min=2, max=32)
    assert _run(flatten_two, [(x,), (torch.ones(16, 4),), (torch.ones(31, 4),)]).graph_count == 1


def test_outside_the_bounds_of_a_mark_is_compiled_anew():
    x = torch.ones(8, 4)
    torchmux.mark_dynamic(x, 0, min=2, max=32)
    assert _run(flatten_two, [(x,), (torch.ones(40, 4),)]).graph_count == 2


def flatten_two(x):
    return x.reshape(-1)


def test_mark_dynamic_refuses_a_dimension_that_is_not_there():
    with pytest.raises(IndexError, match="dimension 3 of a tensor with 2 dimensions"):
        torchmux.mark_dynamic(torch.ones(2, 2), 3)


def test_integer_arguments_become_symbolic():
    def fn(x, n):
        return x[:n] * n

    assert _run(fn, [(torch.arange(16.0), n) for n in (4, 6, 9, 12)]).graph_count == 2


def test_equal_sizes_are_one_symbol_and_guarded():
    def fn(x, y):
        return x @ y

    calls = [(torch.ones(2, n), torch.ones(n, 3)) for n in (4, 5, 6)]
    assert _run(fn, calls).graph_count == 2


def test_sizes_are_inputs_of_the_graph():
    compiled = torchmux.compile(flatten, backend="eager", dynamic=True)
    compiled(torch.ones(4, 3, 5))
    graph = torchmux.report(compiled).graphs[0].graph
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    assert any(isinstance(n.meta["example_value"], torch.SymInt) for n in placeholders)
    assert isinstance(placeholders[-1].meta["example_value"], torch.Tensor)


def test_backends_get_torchs_graph_convention():
    seen = {}

    def backend(gm, example_inputs):
        seen["inputs"] = example_inputs
        seen["placeholders"] = [n for n in gm.graph.nodes if n.op == "placeholder"]
        seen["output"] = next(n for n in gm.graph.nodes if n.op == "output")
        return gm

    layer = torch.nn.Linear(4, 2)
    compiled = torchmux.compile(layer, backend=backend)
    compiled(torch.ones(3, 4))
    assert len(seen["inputs"]) == len(seen["placeholders"]) == 3
    assert any(x is layer.weight for x in seen["inputs"])
    assert isinstance(seen["output"].args[0], tuple)


def test_a_size_that_becomes_a_constant_on_the_way_is_guarded():
    def fn(x):
        return x.sum() * len([0] * x.shape[0])

    _run(fn, [(torch.ones(n),) for n in (2, 3, 5, 6, 3)])


def test_an_integer_that_becomes_a_constant_on_the_way_is_guarded():
    def fn(x, n):
        return x * len(range(n))

    _run(fn, [(torch.ones(2), n) for n in (2, 3, 5, 6, 3)])


def test_tensors_of_sizes_are_made_in_one_graph():
    def f(x):
        height, width = x.shape
        sizes = torch.tensor([[height, width * 2], [7, True]])
        return (
            x.sum() * sizes,
            torch.tensor(x.shape, dtype=torch.float32),
            torch.tensor([len(x), 0.5]),
            torch.tensor(width),
        )

    compiled = torchmux.compile(f, backend="eager", dynamic=True, fullgraph=True)
    for n in (3, 4, 9, 17):
        x = torch.ones(n, n + 1)
        for got, wanted in zip(compiled(x), f(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)
    assert torchmux.report(compiled).graph_count == 1


ADDED = [3]


@functools.lru_cache
def added(n):
    return n + ADDED[0]


def test_a_cached_function_that_reads_more_than_its_arguments_gives_what_is_in_the_cache():
    compiled = torchmux.compile(lambda x: x * added(x.shape[0]), backend="eager")
    for size in (4, 5, 6):
        assert compiled(torch.ones(size))[0] == size + 3
    ADDED[0] = 10
    try:
        assert [compiled(torch.ones(size))[0] for size in (5, 6, 7)] == [8, 9, 17]
    finally:
        ADDED[0] = 3


def test_what_a_model_holds_is_a_constant_until_it_changes():
    """Under ``dynamic=True`` arguments are symbolic at once; numbers of models, globals and closures are code."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.heads = 0.125, 4

        def forward(self, x, factor):
            return x.view(self.heads, -1) * self.scale * factor * math.pi

    model = Scaled()
    compiled = torchmux.compile(model, backend="eager", dynamic=True)
    for scale in (0.125, 0.25, 0.5):
        model.scale = scale
        for factor in (2.0, 3.0):
            x = torch.randn(8)
            torch.testing.assert_close(compiled(x, factor), model(x, factor))
    assert torchmux.report(compiled).graph_count == 2
