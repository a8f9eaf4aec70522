"""What few points are computed by, and what reads them at other points, is one kernel on a GPU."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

pytestmark = pytest.mark.parametrize("target", ["triton"], indirect=True)


def overlaps(a, b):
    sides = (torch.minimum(a[:, None, 2:], b[None, :, 2:]) - torch.maximum(a[:, None, :2], b[None, :, :2])).clamp(min=0)
    common = sides[..., 0] * sides[..., 1]
    areas = [(x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b)]
    return common / (areas[0][:, None] + areas[1] - common)


def crossed(x, y):
    doubled = 2 * torch.linalg.cross(x, y)
    return y + x * doubled + torch.linalg.cross(x, doubled)


def turned(x, positions):
    angles = (positions[:, None].float() * torch.arange(8) / 8).repeat(1, 2)
    halves = torch.cat((-x[..., 8:], x[..., :8]), -1)
    return x * angles.cos() + halves * angles.sin()


def rows_at(x, y):
    places = (y * 9).floor().clamp(0, 10).long()
    return x[places] * (1 - y)[:, None] + x[places + 1] * y[:, None]


def nearest(x, y):
    return (x[:, None] - y).square().sum(-1).argmin(-1)


def pulled(x, masses):
    apart = x[:, None] - x
    return (apart * (masses / (apart.square().sum(-1) + 0.1))[..., None]).sum(1)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (overlaps, (torch.rand(7, 4), torch.rand(9, 4))),
        (crossed, (torch.randn(11, 3), torch.randn(11, 3))),
        (turned, (torch.randn(2, 3, 5, 16), torch.arange(5))),
        (rows_at, (torch.randn(12, 4), torch.rand(13))),
        (nearest, (torch.randn(13, 3), torch.randn(5, 3))),
        (pulled, (torch.randn(9, 3), torch.rand(9))),
    ],
)
def test_it_is_one_kernel(check, function, args) -> None:
    compiled = check(function, *args)
    assert compiled.output_code[0].count("@triton.jit") == 1


def test_what_is_read_in_one_order_or_checked_stays_apart(check) -> None:
    """Rows keep what they have computed, and an index out of range is found even if nothing reads its element."""
    rows = check(lambda x: F.softmax(torch.tanh(x), -1), torch.randn(5, 40))
    assert rows.output_code[0].count("tanh(") == 1

    def some(x, at):
        return x[at][::2] * 2 + x[at][1::2]

    def refused(x, at):
        return x[at][::2] * 2

    check(some, torch.randn(8), torch.tensor([1, 2, 3, -1]))
    check(refused, torch.randn(8), torch.tensor([1, 2, 3, 4]))


def test_sums_of_nothing(check) -> None:
    check(lambda x: x[:, :0].square().sum(1)[:, None] + x, torch.randn(3, 4))
    check(lambda x: (x[:, None, :0] - x[:, :0]).square().sum(2).amin(1), torch.randn(3, 4))


def test_a_long_chain_ends(check) -> None:
    """Each step reads two places of the one before: as one expression, it would double in each."""

    def chain(x):
        for _ in range(24):
            x = torch.tanh(x.roll(1, 0) * 0.5 + x.flip(0))
        return x

    assert check(chain, torch.randn(64)).output_code[0].count("tanh(") <= 4
