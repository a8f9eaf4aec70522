"""Loops whose order matters, and what would go wrong if steps met in memory or in a name."""

from __future__ import annotations

import copy
import re

import pytest
import torch
import torch.nn.functional as F

import torchmux

from .conftest import assert_as_exact_as_eager


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


def test_kernels_that_read_memory_as_if_it_were_contiguous() -> None:
    """The gradient of ``weight_norm`` gets what a convolution's gradient wrote in channels last."""
    normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(3, 4, 3))
    modules = [copy.deepcopy(normed) for _ in range(3)]
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    modules[2].double()
    functions = (torchmux.compile(modules[0], backend="native"), *modules[1:])
    for function, given in zip(functions, (x, x, x.double()), strict=True):
        function(given).square().sum().backward()
    assert_as_exact_as_eager(*([p.grad for p in module.parameters()] for module in modules))


@torch.library.custom_op("torchmux_tests::rows_in_memory", mutates_args=())
def rows_in_memory(tensors: list[torch.Tensor], last: torch.Tensor) -> torch.Tensor:
    return torch.cat([t.view(-1)[:6] for t in (*tensors, last)])  # refuses what is not contiguous


@rows_in_memory.register_fake
def _(tensors: list[torch.Tensor], last: torch.Tensor) -> torch.Tensor:
    return last.new_empty(6 * len(tensors) + 6)


@pytest.mark.parametrize("dynamic", [False, True])
def test_operators_of_the_program_get_the_layouts_of_the_trace(dynamic: bool) -> None:
    layer = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)

    def program(x):
        y = layer(x)
        return rows_in_memory([y.contiguous(), (y + 1).contiguous()], (y * 2).contiguous()).sin()

    compiled = torchmux.compile(program, backend="native", fullgraph=True, dynamic=dynamic)
    for count in (2, 3):
        x = torch.randn(count, 3, 6, 6).to(memory_format=torch.channels_last)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), program(x))


def test_padding(check) -> None:
    def f(x):
        return (
            F.pad(x, (1, 2, 0, 3), value=2.5),
            F.pad(x * 2, (3, 1)),
            F.pad(x, (-1, 2)),
            F.pad(x, (2, 2), mode="reflect"),
        )

    check(f, torch.randn(4, 5, 18))


def test_weights_that_are_laid_out_anew_come_right_before_their_use(capture) -> None:
    """They would else be written ahead of all, and be in no cache any more."""
    layers = torch.nn.Sequential(*[torch.nn.Conv2d(128, 128, 3, padding=1) for _ in range(2)]).to(torch.bfloat16)
    image = torch.randn(1, 128, 16, 16, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    with torch.no_grad():
        compiled = capture(layers, image).compile("native", strict=True)
    steps = re.findall(r"= empty\(\(128, 128, 3, 3|torch\.convolution", "\n".join(compiled.report.output_code))
    assert len(steps) == 4 and steps[::2] == steps[:1] * 2 and steps[1::2] == ["torch.convolution"] * 2
