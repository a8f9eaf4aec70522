"""Elements that meet at one place, in all the ways in which they are combined."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchmux

REDUCES = ("sum", "mean", "prod", "amax", "amin")


def every(a, at, source, wide):
    answers = []
    for reduce in REDUCES:
        for include_self in (True, False):
            answers.append(a.scatter_reduce(0, at, source, reduce, include_self=include_self))
            answers.append(a.scatter_reduce(1, wide, source, reduce, include_self=include_self))
    return answers


def own(function, *args):
    """What the compiled function returns, all of it computed by native."""
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    results = compiled(*args)
    report = torchmux.report(compiled)
    assert not report.library_calls, report
    assert report.share == 1.0
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8], ids=str)
def test_every_way(dtype):
    torch.manual_seed(0)
    a, source = (torch.randint(0, 9, shape).to(dtype) for shape in ((6, 5), (7, 5)))
    if dtype.is_floating_point:
        source[2, 1], source[3, 3] = torch.nan, torch.inf
    at = torch.randint(0, 5, (7, 1)).expand(7, 5)
    wide = torch.randint(0, 4, (6, 5))
    for got, expected in zip(own(every, a, at, source, wide), every(a, at, source, wide), strict=True):
        torch.testing.assert_close(got, expected, equal_nan=True)


def test_gradients():
    def total(a, at, source):
        return sum(a.scatter_reduce(0, at, source, r, include_self=False).sin().sum() for r in ("sum", "mean", "amax"))

    torch.manual_seed(0)
    leaves = [torch.randn(6, 4, requires_grad=True), torch.randn(9, 4, requires_grad=True)]
    at = torch.randint(0, 6, (9, 4))
    found = []
    for function in (total, torchmux.compile(total, backend="native", fullgraph=True)):
        found.append(torch.autograd.grad(function(leaves[0], at, leaves[1]), leaves))
    for got, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(got, expected)


def test_index_out_of_range():
    compiled = torchmux.compile(lambda a, at, s: a.scatter_reduce(0, at, s, "amax"), backend="native")
    with pytest.raises((RuntimeError, IndexError), match="out of bounds"):
        compiled(torch.zeros(3), torch.tensor([3]), torch.zeros(1))


def test_bags():
    def bags(at, weight, by):
        return (
            F.embedding_bag(at, weight, mode="sum", padding_idx=2),
            F.embedding_bag(at, weight, mode="sum", per_sample_weights=by),
            F.embedding_bag(at, weight, mode="sum", per_sample_weights=by, padding_idx=0),
        )

    torch.manual_seed(0)
    given = torch.randint(0, 5, (6, 7)), torch.randn(5, 8), torch.randn(6, 7)
    with torch.no_grad():
        for got, expected in zip(own(bags, *given), bags(*given), strict=True):
            torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_bags_at_offsets(kind, dtype):
    """Means, and sums of what has no quick kernel in torch; bags may be empty, also the first and the last ones."""

    def bags(at, weight, offsets, by):
        return (
            F.embedding_bag(at, weight, offsets),
            F.embedding_bag(at, weight.double(), offsets, mode="sum"),
            F.embedding_bag(at, weight.double(), offsets, mode="sum", per_sample_weights=by.double(), padding_idx=2),
        )

    at, weight, by = torch.randint(0, 9, (40,), dtype=kind), torch.randn(9, 19, dtype=dtype), torch.randn(40)
    for ends in ([0, 3, 7, 20], [0], [0, 0, 5, 5, 40, 40], list(range(40))):
        torchmux.reset()
        offsets = torch.tensor(ends, dtype=kind)
        with torch.no_grad():
            for got, expected in zip(own(bags, at, weight, offsets, by), bags(at, weight, offsets, by), strict=True):
                torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("ends", [[1, 3], [0, 9], [-1, 2]])
def test_offsets_are_verified(ends):
    torchmux.reset()
    compiled = torchmux.compile(F.embedding_bag, backend="native", strict="own")
    at, weight = torch.arange(6), torch.randn(10, 4)
    errors = []
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(at, weight, torch.tensor([0, 2])), F.embedding_bag(at, weight, torch.tensor([0, 2]))
        )
        for function in (F.embedding_bag, compiled):
            with pytest.raises(RuntimeError) as raised:
                function(at, weight, torch.tensor(ends))
            errors.append(str(raised.value).splitlines()[0])
        with pytest.raises(RuntimeError, match="not in the valid range"):
            compiled(at + 8, weight, torch.tensor([0, 2]))
        torchmux.reset()
        for middle in (5, -(2**62), 2**62):  # of offsets that decrease, anything, but nothing elsewhere
            compiled(at, weight, torch.tensor([0, middle, 3]))
    assert errors[0].startswith(errors[1]), errors


def test_gradients_of_bags() -> None:
    """Bags of one size, of several, and without elements; of equal elements, a maximum is the first."""

    def bags(weight, by, matrix, at, *offsets):
        found = [F.embedding_bag(matrix, weight, mode=mode) for mode in ("sum", "mean", "max")]
        found += [F.embedding_bag(matrix, weight, mode="sum", per_sample_weights=by.view(matrix.shape))]
        found += [F.embedding_bag(at, weight, ends, mode="sum", per_sample_weights=by) for ends in offsets[:2]]
        found += [
            F.embedding_bag(at, weight, ends, mode=mode, include_last_offset=last)
            for mode in ("sum", "mean", "max")
            for ends, last in zip(offsets, (False, False, True), strict=True)
        ]
        return torch.cat(found)

    torch.manual_seed(0)
    weight = torch.randn(9, 6)
    weight[2] = weight[5]
    at = torch.randint(0, 9, (40,))
    ends = [torch.tensor(e) for e in ([0, 3, 7, 20], [0, 3, 3, 40], [0, 0, 20, 40])]
    results = []
    for function in (bags, torchmux.compile(bags, backend="native", fullgraph=True)):
        leaf, by = weight.clone().requires_grad_(), torch.linspace(-2, 3, 40).requires_grad_()
        total = function(leaf, by, at.view(8, 5), at, *ends)
        total.backward(torch.linspace(-1, 1, total.numel()).view_as(total))
        results.append((total, leaf.grad, by.grad))
    for got, expected in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)
    told = str(torchmux.report(function))
    assert "_embedding_bag_backward" not in told
    assert "_embedding_bag_per_sample_weights_backward" not in told


def test_functions_are_computed_ahead():
    """Where numbers and places are results of functions, vectors compute them, and the loop in order reads them."""

    def function(a, x, y):
        at = (torch.atan2(x, y) * 3 + 10).long()
        return a.scatter_reduce(0, at, torch.exp(x), "amax", include_self=False), a.index_add(0, at, torch.tanh(y))

    args = torch.randn(20), torch.randn(300), torch.randn(300)
    compiled = torchmux.compile(function, backend="native", fullgraph=True)
    for got, expected in zip(compiled(*args), function(*args), strict=True):
        torch.testing.assert_close(got, expected)
    code = torchmux.report(compiled).graphs[0].report.output_code[0]
    in_order = [part for part in code.split("NOINLINE") if "check(" in part]
    assert in_order and not any(f"m_{name}(" in part for part in in_order for name in ("atan2", "exp", "tanh"))


@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("target", ["triton"], indirect=True)
def test_elsewhere_torch_combines(check, target, reduce):
    """Triton has atomic additions; what is combined otherwise is refused, and computed by torch."""

    def function(a, at, source):
        return a.scatter_reduce(0, at, source, reduce)

    report = check(function, torch.randn(5), torch.randint(0, 5, (20,)), torch.randn(20), strict=False)
    assert bool(report.fallbacks) is (reduce not in ("sum", "mean"))


def test_the_gradient_of_an_embedding_of_many_rows_in_half_precision(capture):
    """Sums of rows that several indices take are float32, and rounded once."""
    table, rows = torch.randn(40, 6).bfloat16().requires_grad_(), torch.tensor([[3, 9, 3, 3, 39], [3, 0, 9, 3, 7]])

    def f(t, r):
        return F.embedding(r, t, padding_idx=7) * torch.linspace(0.1, 2, 60).view(2, 5, 6).bfloat16()

    captured = capture(f, table, rows)
    compiled = captured.compile("native", training=True, strict=True)
    gradient = torch.randn(2, 5, 6).bfloat16()
    (got,) = torch.autograd.grad(captured.run(compiled, table, rows), table, gradient)
    scaled = (gradient * torch.linspace(0.1, 2, 60).view(2, 5, 6).bfloat16()).float()
    wanted = torch.zeros(40, 6).index_add(0, rows.view(-1), scaled.view(10, 6))
    wanted[7] = 0
    torch.testing.assert_close(got, wanted.bfloat16(), rtol=0, atol=0)
