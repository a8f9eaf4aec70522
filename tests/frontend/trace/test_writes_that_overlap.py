"""Operators that write to memory which they read as other elements run in eager, whatever eager makes of them."""

from __future__ import annotations

import pytest
import torch

import torchmux

FIRST = torch.tensor([0])


def _index_add(x):
    x[:1].index_add_(0, FIRST, x[:1])


def _index_copy(x):
    x.index_copy_(0, FIRST, x[1:2])


def _put(x):
    x.put_(torch.arange(9), x)


def _scatter(x):
    x.scatter_(0, torch.zeros(1, 3, dtype=torch.long), x[1:])


def _index_put(x):
    x[[0, 1]] = x[1:]


def _index_put_all(x):
    x[torch.arange(3)] = x.view(3, 3)


def _mask(x):
    x[x >= 0] = x.view(-1)


def _shift(x):
    x[1:] = x[:-1]


def _shift_with_gaps(x):
    x[:, 1:] = x[:, :-1]


def _swap_dims(x):
    x[:] = x.T


def _copy_with_gaps(x):
    x[:2, :2].copy_(x[1:, 1:])


def _add_with_gaps(x):
    x[:, 1:].add_(x[:, :-1])


def _product_in_place(x):
    x.addmm_(x, x)


def _batched_product(x):
    x[None].baddbmm_(x[None], x[None])


def _product_out(x):
    torch.matmul(x, x, out=x)


def _sum_out(x):
    torch.sum(x, 0, out=x[0])


def _cat_out(x):
    torch.cat([x[1:], x[:1]], out=x)


def _max_out(x):
    torch.max(x, 0, out=(x[0], torch.empty(3, dtype=torch.long)))


def _select_out(x):
    torch.index_select(x, 0, torch.tensor([2, 1, 0]), out=x)


WRITES = [f for name, f in sorted(globals().items()) if name.startswith("_") and getattr(f, "__code__", None)]


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__[1:])
def test_as_in_eager(write):
    def f(x, done):
        done.append(1)
        write(x)
        return x * 2

    outcomes = []
    for program in (f, torchmux.compile(f, backend="aot_eager")):
        x, done = torch.arange(9.0).reshape(3, 3).cos(), []
        try:
            result = program(x, done)
        except RuntimeError as error:
            result = torch.empty(0)
            done.append(str(error))
        outcomes.append((result, x, done))
    (ours, mine, my_errors), (theirs, given, errors) = outcomes
    assert torch.equal(ours, theirs) and torch.equal(mine, given) and my_errors == errors


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_apart_stays_in_one_graph(dynamic):
    """Columns beside each other, the halves of a tensor, the same elements, and what is computed before the write."""

    def f(x, flags):
        x[:, 0] = x[:, 1]
        x[..., ::2] = x[..., 1::2]
        x[:2].add_(x[2:])
        x[:] = x
        x.mul_(x.detach())
        x[1:] += x[:-1] * 2
        x[0, 1:], x[1, 1:] = x[2, 1:], x[3, 1:]
        torch.add(x, 1, out=x)
        x.addmm_(x * 1, x.new_ones(4, 4))
        x[[0, 1]] = x[[1, 0]]
        x.view(-1)[:2].copy_(x.view(-1)[2:4])
        flags[flags] = False
        return x.sigmoid()

    compiled = torchmux.compile(f, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    ours, theirs = torch.arange(16.0).reshape(4, 4).cos(), torch.arange(16.0).reshape(4, 4).cos()
    flags = torch.tensor([True, False])
    assert torch.allclose(compiled(ours, flags), f(theirs, torch.tensor([True, False])))
    assert torch.allclose(ours, theirs) and not flags.any()


def test_writes_to_what_the_graph_made_are_counted():
    """A compiler's results have counted none, so the number is known where the program asks."""

    def f(x):
        y = x + 1
        y.mul_(2)
        seen = y._version
        y.view(-1).exponential_().clamp_(max=2)
        return x * y._version, seen, y.detach()._version, (y * 1)._version

    compiled = torchmux.compile(f, backend="aot_eager", fullgraph=True)
    result, *counts = compiled(torch.ones(2))
    assert counts == list(f(torch.ones(2))[1:]) == [1, 3, 0]
    assert torch.equal(result, torch.full((2,), 3.0))


@pytest.mark.parametrize("part", [lambda t: t[0], lambda t: t.unbind(0)[1], lambda t: (t * 1).split(1)[0]])
def test_a_write_that_eager_refuses_comes_after_those_before_it(part):
    """Code for a view that may be written to is not run on one of a leaf, nor on one of several made together."""

    def f(x, log):
        x.add_(1)
        log.uniform_()

    compiled = torchmux.compile(f, backend="aot_eager")
    compiled((torch.ones(2, 4, requires_grad=True) * 1)[0], torch.zeros(2))
    outcomes = []
    for program in (compiled, f):
        log = torch.zeros(2)
        torch.manual_seed(3)
        with pytest.raises(RuntimeError, match="is a view and is being|a view of a leaf"):
            program(part(torch.ones(2, 4, requires_grad=True)), log)
        outcomes.append((log.tolist(), torch.rand(1).item()))
    assert outcomes[0] == outcomes[1]
