"""Nested tensors in the jagged layout: one graph for rows of any length."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchmux

LENGTHS = ((2, 2), (3, 2), (4, 5), (5, 3))


def nested(*lengths):
    torch.manual_seed(sum(lengths))
    return torch.nested.nested_tensor([torch.randn(n, 4) for n in lengths], layout=torch.jagged)


def pointwise(n):
    return n.sin() * 2 + n


def product(n):
    return F.layer_norm(F.linear(n, torch.full((3, 4), 0.5)), (3,)).relu()


def parts(n):
    return n.values() * n.dim(), n.offsets().diff(), n.size(0), n.size(-1), n.is_nested, n.layout is torch.jagged


def padded(n):
    return torch.nested.to_padded_tensor(n * 2, 0.0), n.sum(dim=1)


def made_inside(n):
    made = torch.nested.nested_tensor_from_jagged(n.values() + 1, n.offsets())
    return (made * n).values()


def attention(n):
    query = n.unflatten(-1, [2, 2]).transpose(1, 2)
    return F.scaled_dot_product_attention(query, query, query).transpose(1, 2).flatten(-2)


def plain(result):
    if isinstance(result, tuple):
        return tuple(map(plain, result))
    return result.values() if isinstance(result, torch.Tensor) and result.is_nested else result


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [pointwise, product, parts, padded, made_inside, attention])
def test_rows_of_any_length_take_one_graph(fn, backend):
    made_inside(nested(2, 2))  # torch makes what its views need at the first one
    compiled = torchmux.compile(fn, backend=backend)
    with torch.no_grad():
        for lengths in LENGTHS:
            n = nested(*lengths)
            torch.testing.assert_close(plain(compiled(n)), plain(fn(n)))
    report = torchmux.report(compiled)
    # which implementation of attention eager takes depends on the data
    assert (report.graph_count, len(report.breaks)) == ((2, 1) if fn is attention else (1, 0))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients(backend):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    compiled = torchmux.compile(model, backend=backend)
    for lengths in LENGTHS:
        n = nested(*lengths)
        found = []
        for each in (compiled, model):
            model.zero_grad()
            values = n.values().clone().requires_grad_()
            each(torch.nested.nested_tensor_from_jagged(values, n.offsets())).values().sum().backward()
            found.append((values.grad, model[0].weight.grad))
        torch.testing.assert_close(*found)
    assert torchmux.report(compiled).graph_count == 1


def test_another_number_of_rows():
    compiled = torchmux.compile(pointwise, backend="eager")
    for lengths in ((2, 2), (2, 2, 3), (1, 2, 3, 4)):
        n = nested(*lengths)
        assert torch.equal(compiled(n).values(), pointwise(n).values())


def test_rows_that_begin_elsewhere_do_not_match():
    def added(a, b):
        return a + b

    compiled = torchmux.compile(added, backend="eager")
    n, other = nested(2, 3), nested(2, 3)
    assert torch.equal(compiled(n, n).values(), (n + n).values())
    for call in (compiled, added):
        with pytest.raises(RuntimeError, match="cannot call binary pointwise function"):
            call(n, other)
    assert torch.equal(compiled(other, other).values(), (other + other).values())


def test_the_length_of_the_rows_is_no_number():
    def sized(n):
        return (n * 2).values(), n.size(1) == n.size(1), n.shape[0]

    compiled = torchmux.compile(sized, backend="eager")
    for lengths in LENGTHS:
        n = nested(*lengths)
        torch.testing.assert_close(compiled(n), sized(n))
