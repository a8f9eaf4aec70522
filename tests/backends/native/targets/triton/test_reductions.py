"""Reductions of all shapes that the printer has, run with Triton's interpreter against eager and float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchmux

pytestmark = [
    pytest.mark.parametrize("target", ["triton"], indirect=True),
    pytest.mark.usefixtures("target"),
]
R = torch.randn


def distances(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    mean = x.mean(-1, keepdim=True)
    return mean, ((x - mean) * (x - mean)).sum(-1)


def infinite(*shape: int) -> torch.Tensor:
    x = R(*shape)
    x[0, 3], x[1, 5], x[1, -1], x[2, -1] = float("inf"), float("inf"), -float("inf"), float("nan")
    return x


def special(*shape: int) -> torch.Tensor:
    x = R(*shape)
    x.view(-1)[::37] = -float("inf")
    x.view(-1)[5::501] = float("nan")
    x[0] = -float("inf")
    return x


def moments(x: torch.Tensor, dims: Any) -> tuple[torch.Tensor, ...]:
    found = torch.var_mean(x, dims)
    return found[0], found[1]


CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "several rows a program": (lambda x: (x.softmax(-1), x.argmin(-1)), (R(1200, 5),)),
    "long rows": (lambda x: (x.softmax(-1), x.argmax(-1)), (R(3, 20001),)),
    "long rows with special values": (lambda x: (x.softmax(-1), x.amax(-1)), (special(3, 20001),)),
    "moments of long rows": (lambda x: F.layer_norm(x * 3 + 100, (20001,)), (R(2, 20001),)),
    "moments of long rows, stored": (lambda x: moments(x + 7, -1), (R(2, 20001),)),
    "distances of rows with infinity": (distances, (infinite(4, 16_500),)),
    "distances from another number": (
        lambda x: ((x - x.sum(-1, keepdim=True) / 7) ** 2).sum(-1),
        (R(2, 16_500),),
    ),
    "few long rows": (lambda x: (x.sum(-1), x.amax(-1), (x > 3).any(-1)), (R(2, 20_000),)),
    "computed again by each reader": (
        lambda x, y: (lambda z: (z.sum(0), (z * z).sum(1)))((x - x[:, :1]) * y[:, :1]),
        (R(256, 200), R(256, 200)),
    ),
    "everything, unevenly": (lambda x: (x.sum(), x.argmax(), x.amin()), (R(50_003),)),
    "everything, with nan": (lambda x: (x.argmax(), x.amax(), x.argmin()), (special(4, 15_001),)),
    "columns": (lambda x: (x.sum(0), x.softmax(0), x.argmax(0)), (R(50, 70),)),
    "long columns": (lambda x: (x.sum(0), x.std(0)), (R(3000, 70),)),
    "long columns of halves": (lambda x: (x.sum(0), x.float().mean(0)), (R(3000, 70).bfloat16(),)),
    "columns in a batch": (lambda x: (x.sum(1), x.amax(1), x.softmax(1)), (R(2, 300, 33),)),
    "integers": (lambda x: (x.sum(), x[:9].prod(0), x.amax(0), x.argmin()), (torch.randint(-9, 9, (10_001, 2)),)),
    "small integers": (lambda x: (x.amax(-1), x.sum(-1)), (torch.randint(-99, 99, (5, 300), dtype=torch.int8),)),
    "moments of channels": (lambda x: moments(x, (0, 2, 3)), (R(16, 3, 60, 64) + 5,)),
    "moments of images": (lambda x: F.instance_norm(x), (R(2, 3, 60, 64),)),
    "cross entropy": (lambda x, t: F.cross_entropy(x, t), (R(40, 1000), torch.randint(0, 1000, (40,)))),
    "bools": (lambda x: (x.any(0), x.all(-1), x.any(), x.sum()), (R(300, 200) > 2,)),
    "running sums": (lambda x: (x.cumsum(1), x.cumsum(0), x[:, :50].cumprod(-1)), (R(3, 3000),)),
    "running sums of integers": (lambda x: (x.cumsum(-1), x.cumsum(0)), (torch.randint(-9, 9, (5, 70)),)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_a_reduction(check, name: str) -> None:
    function, args = CASES[name]
    check(function, *args)


AHEAD: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: F.layer_norm(x, (16_500,)),
    "log softmax and maximum": lambda x: (x.log_softmax(-1), x.amax(-1)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", AHEAD)
def test_rows_are_read_ahead(check, name: str) -> None:
    """More rows than programs, each too long for another one beside it."""
    report = check(AHEAD[name], R(300, 16_500).bfloat16())
    assert "ahead = tl.load(" in report.output_code[0]


def test_parts_share_a_pass(check) -> None:
    """Sums of squared distances from the mean are of the parts' own means, in the pass that makes these."""
    report = check(lambda x: moments(x, (0, 2, 3)), R(16, 3, 60, 64) + 5)
    assert report.output_code[1].count("launch(") == 2


def test_what_an_input_is_overwritten_with_is_kept() -> None:
    """Its other readers may compute it again, or take a product with their bias from the library."""

    def step(x, weight, bias, product, differences):
        y, z = x @ weight, x.float() - x[:, :1].float()
        product.copy_(y)
        differences.copy_(z)
        return F.gelu(y + bias, approximate="tanh"), z.sum(0), (z * z).sum(1)

    half = [R(256, 192).bfloat16(), R(192, 192).bfloat16() / 16, R(192).bfloat16(), R(256, 192).bfloat16()]
    eager, given = ([t.clone() for t in (*half, R(256, 192))] for _ in range(2))
    expected, found = step(*eager), torchmux.compile(step, backend="native")(*given)
    torch.testing.assert_close([*found, *given[:4]], [*expected, *eager[:4]], rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(given[4], eager[4])


CHANGING: dict[str, tuple[Callable[..., Any], tuple[int, ...], list[tuple[int, ...]]]] = {
    "columns": (lambda x: (x.mean(0), x.argmax(0)), (3000, 20), [(6001, 20), (5, 20), (1500, 41)]),
    "everything": (lambda x: (x.sum(), x.argmin(), x.amax()), (150, 333), [(2, 3), (301, 400), (1, 70_001)]),
    "moments of channels": (lambda x: moments(x, (0, 2, 3)), (16, 3, 60, 64), [(3, 3, 61, 64), (2, 4, 8, 9)]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHANGING)
def test_parts_of_sizes_that_change(check, name: str) -> None:
    """What was long in the first call is reduced in parts, of which there are as many as a later call needs."""
    function, first, others = CHANGING[name]
    assert check(function, R(*first), dynamic={0: range(len(first))}).output_code[1].count("launch(") > 1
    compiled = torchmux.compile(function, backend="native", dynamic=True)
    for shape in (first, *others):
        x = R(*shape) + 5
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-5 * x.numel() ** 0.5)
