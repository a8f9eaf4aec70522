"""Loops whose order matters, and what would go wrong if steps met in memory or in a name."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_sums_and_products_up_to_each_element(check, dtype) -> None:
    x = torch.randn(5, 7, 33).to(dtype)

    def f(x):
        return (x * 2).cumsum(-1) + 1, x.cumsum(0), x.cumsum(1), x.cumprod(1), x[0, 0].cumsum(0)

    check(f, x)


def test_writing_where_data_says(check) -> None:
    x, rows = torch.randn(9, 20), torch.tensor([3, 0, 3, 8, 3])
    places = torch.randint(0, 9, (4, 20))
    source = torch.randn(5, 20)

    def f(x, rows, places, source):
        return (
            x.index_add(0, rows, source * 2),
            x.index_put((rows,), source, accumulate=True),
            x.index_put((rows[:2], rows[2:4]), source[:2, 0]),
            x.scatter_add(0, places, source[:4].exp()),
            x.scatter(1, rows[:, None], 5.0),
            x[:5].scatter_add(1, rows[:, None], source[:, :1]),
            (x > 0).long().scatter_add(0, places, places),
        )

    report = check(f, x, rows, places, source)
    assert report.kinds.keys() == {"own"}  # no kernel of torch is called


@pytest.mark.parametrize("rest", [(), (4,)], ids=["numbers", "rows"])
def test_an_index_out_of_range_is_not_written_to(capture, rest) -> None:
    def function(x, at, y):
        return x.index_add(0, at, y)

    x, y = torch.zeros(3, *rest), torch.ones(2, *rest)
    captured = capture(function, x, torch.tensor([1, 2]), y)
    compiled = captured.compile("native", strict=True)
    for at in ([1, 3], [1, -1]):
        with pytest.raises((IndexError, RuntimeError)) as eager:
            function(x, torch.tensor(at), y)
        with pytest.raises(eager.type, match=re.escape(str(eager.value))):
            captured.run(compiled, x, torch.tensor(at), y)
        assert not x.any()


def test_symbolic_sizes_of_several_factors(check) -> None:
    """A row number is divided by the product of sizes, not by the first of them."""

    def f(x, mask):
        scores = x.softmax(-1) + mask.float()[:, None, None]
        return scores.amax(-1), (scores * 2).sum(-1), x.view(-1, 12).cumsum(0)

    check(f, torch.randn(2, 4, 7, 12), torch.rand(2, 12) > 0.5, dynamic={0: [2]})


def test_a_product_that_is_read_after_another_result_is_stored(check) -> None:
    def f(x, y, z):
        one, two = x @ z, y @ z
        scaled = one * x[:, :1]
        return scaled, scaled - two * 3 + one, F.relu(two)

    check(f, torch.randn(5, 5), torch.randn(5, 5), torch.randn(5, 5))


def test_equal_sizes_of_rows_and_channels(check) -> None:
    """Gradients of group norm: a kernel over groups and channels of which two loops have the same size."""

    def f(x, grad, weight):
        mean = x.view(2, 3, 3).mean(-1)
        parts = (grad * x).sum(-1) * weight, grad.sum(-1) * weight
        return (parts[1].sum(1) * mean[:, 0] - parts[0].sum(1)), parts[0] - parts[1] * mean, x * parts[1][..., None]

    check(f, torch.randn(2, 3, 3), torch.randn(2, 3, 3), torch.randn(3))


def test_random_numbers_are_drawn_in_eagers_order(capture) -> None:
    x = torch.randn(6, 4).t()

    def f(x):
        return F.dropout(x * 2, 0.5), F.dropout(x + 1, 1.0), torch.rand_like(x)

    captured = capture(f, x)
    compiled = captured.compile("native", strict=True)
    torch.manual_seed(3)
    wanted = f(x)
    torch.manual_seed(3)
    for got, eager in zip(captured.run(compiled, x), wanted, strict=True):
        torch.testing.assert_close(got, eager)


def test_padding(check) -> None:
    def f(x):
        return (
            F.pad(x, (1, 2, 0, 3), value=2.5),
            F.pad(x * 2, (3, 1)),
            F.pad(x, (-1, 2)),
            F.pad(x, (2, 2), mode="reflect"),
        )

    check(f, torch.randn(4, 5, 18))
