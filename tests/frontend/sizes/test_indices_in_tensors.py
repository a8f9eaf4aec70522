"""Integers in tensors as indices: views at places that only the data tells."""

from __future__ import annotations

import copy

import pytest
import torch

import torchmux


def reads(x, i):
    return x[i] + 1, x[:, i], x[None, i, ..., 0], x[i][i], x[i, i]


def writes(x, i):
    x[i] = 5
    return x + 1


def writes_rows(x, i):
    x[:, i] = torch.ones(3) * 7
    x[i] += 1
    return x + 1


def writes_to_the_view(x, i):
    row = x[i]
    row.add_(1)
    return row, x.sum()


def writes_at_a_number(x, i):
    number = i.item()
    x[number] = 3
    x[..., number] *= 2
    return x * 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("function", [reads, writes, writes_rows, writes_to_the_view, writes_at_a_number])
def test_one_graph(function, dtype, backend):
    compiled = torchmux.compile(function, backend=backend, fullgraph=True)
    for at in (1, 2, -1, 0, -3):
        given = torch.arange(9.0).reshape(3, 3)
        mine = copy.deepcopy(given)
        expected, got = function(given, torch.tensor(at, dtype=dtype)), compiled(mine, torch.tensor(at, dtype=dtype))
        torch.testing.assert_close((got, mine), (expected, given), rtol=0, atol=0)
    assert torchmux.report(compiled).graph_count == 1
    with pytest.raises((IndexError, RuntimeError)):
        compiled(torch.ones(3, 3), torch.tensor(7, dtype=dtype))


@pytest.mark.parametrize("index", [torch.tensor(True), torch.tensor([1]), torch.tensor([[0, 1]])])
def test_what_is_no_integer_selects_as_before(index):
    def function(x, i):
        x[i] = 4
        return x[i] if i.dim() else x

    for full in (False, True):
        if full and not index.dim():
            continue  # a mask, whose result has a size that depends on data
        compiled = torchmux.compile(function, backend="eager", fullgraph=full)
        x, y = torch.ones(3, 2), torch.ones(3, 2)
        assert torch.equal(compiled(x, index), function(y, index)) and torch.equal(x, y)


def test_without_fullgraph_it_ends_the_graph():
    compiled = torchmux.compile(reads, backend="eager")
    x = torch.arange(9.0).reshape(3, 3)
    for at in (1, 2, -1):
        torch.testing.assert_close(compiled(x, torch.tensor(at)), reads(x, torch.tensor(at)))
    assert torchmux.report(compiled).breaks
