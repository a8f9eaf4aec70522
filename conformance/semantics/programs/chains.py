"""What compilers join, leave out or keep in another form when operators follow each other in chains."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/chains")


@case(reference=False)
def products_and_quotients(trial: Trial) -> Any:
    """Each product and quotient of a chain overflows, is zero and rounds by itself, in the order of the program."""
    infinity = float("inf")
    numbers = (
        0.0,
        -0.0,
        1e-30,
        -1e-30,
        3e-20,
        0.3,
        -2.7,
        5.5,
        -7.0,
        1e20,
        -1e20,
        3e37,
        infinity,
        -infinity,
        1e-38,
        9.0,
    )
    others = (2.0, 0.0, 1e30, 7.0, 0.1, -0.3, 3.0, -1e-3, 1e3, 1e-20, 1e20, 3e37, 1.0, infinity, 2.0, 1e30)
    x, y = trial.given(torch.tensor(numbers)), trial.given(torch.tensor(others))

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            (x / y) * y, y * (x / y), -(x / y) * y, (x * y) / y, (x / y) * (y / x), (x / y) * x * y, (x / y) / y,
            x * 1e30 * 1e30 * 1e-30, (x * 1e30) * 1e-30, (x * 1e-30) * 1e-30 * 1e30, (x / 1e-30) * 1e-30,
            (x * 1e-30) / 1e-30, x / 1e30 / 1e30 * 1e30, (3e-30 / x) * 1e30, 3e-30 / (x / 1e30), (x / y) * 1e10,
            (x * y) * x, x * x * y, (x * 1e20) * (y * 1e20), (-x) * (-y) * x, x / (x * x).sqrt(),
            1 / (1 / (x * y)), (x / y) * 1.0 * y, torch.where(x > 0, x / y, y) * y, (x * y).abs() * x, (x * y + x) * y,
            x * y / (x * 3), (x * 0.1) * 10, (x / 3) * 3, (x / 10) * 0.1, x * 3 / 7 * 7 / 3,
        ]  # fmt: skip

    return trial.run(f, x, y)


@case("float16", "bfloat16", reference=False)
def half_precision_beside_other_types(trial: Trial) -> Any:
    """What is computed in half precision is rounded before it meets a wider type, as if the program converted it: with
    conversions and without, numbers are the same, so that nothing is left of a difference."""
    x, y = trial.tensor(4, 8, dtype=torch.bfloat16), trial.tensor(4, 8, dtype=torch.bfloat16)
    h, w = trial.tensor(4, 8, dtype=torch.float16), trial.tensor(4, 8)

    def f(x: torch.Tensor, y: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        product, third, mean = (x * y).float(), (h / 3).float(), x.mean(-1, keepdim=True).float()
        return [
            (x * y + h) - (product + h.float()), (x * y) / h - product / h.float(), (h / 3 - x) - (third - x.float()),
            (x * y + w) - (product + w), (h / 3) / w - third / w, (x.mean(-1, keepdim=True) + w) - (mean + w),
            torch.where(w > 0, x * y, w) - torch.where(w > 0, product, w),
            torch.maximum(x * y, h) - torch.maximum(product, h.float()),
            ((x * y).double() + w.double()) - (product.double() + w.double()), (w - h.sum(0)) - (w - h.sum(0).float()),
            (x * y + h).sum(-1) - (product + h.float()).sum(-1), (x.exp() * w).amax(0) - (x.exp().float() * w).amax(0),
        ]  # fmt: skip

    return trial.run(f, x, y, h, w)


@case()
def views_of_what_was_written(trial: Trial) -> Any:
    """A result that is a view of a part shares its memory, also where the program has just written that part."""
    x = trial.tensor(5, 6)

    def written(x: torch.Tensor) -> list[torch.Tensor]:
        y = x.clone()
        y[1:] = -1
        y[:, 0].neg_()
        return [y, y[1:].t(), y[1:], y[:, 0].unsqueeze(0)]

    def filled(x: torch.Tensor) -> list[torch.Tensor]:
        y, z = x * 2, x.t() * 3
        y[2] = 0.5
        y[3:] = x[3:]
        z[:, 1:3].copy_(x.t()[:, :2])
        return [y[2].view(2, 3), y[3:].transpose(0, 1), y, z[:, 1:3].t(), z]

    return trial.run(written, x), trial.run(filled, x)


@case()
def attention_behind_masks(trial: Trial) -> Any:
    """Rows that a mask hides completely are zeros, by a bool or a number, for some heads or all, with gradients too."""
    x = trial.tensor(2, 2, 5, 8)
    seen = trial.given(torch.tensor([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 1, 1]]).bool())
    hidden = trial.given(torch.zeros(2, 1, 4, 5).masked_fill(torch.arange(40).view(2, 1, 4, 5) < 10, -torch.inf))

    def f(x: torch.Tensor, seen: torch.Tensor, hidden: torch.Tensor) -> list[torch.Tensor]:
        attend, few = F.scaled_dot_product_attention, x[:, :, :4]
        return [
            attend(few, x, x * 2, seen), attend(few, x * 0.5, x, hidden), attend(few, x, x, seen, scale=0.3) + 1,
            attend(few, x, x, hidden + seen.float()), attend(few, x, x),
        ]  # fmt: skip

    return trial.run(f, x, seen, hidden)


@case()
def extremes_that_are_scattered(trial: Trial) -> Any:
    """The largest and the smallest of what falls on one place are nan if one of it is, and infinite if all of it is."""
    nan, infinity = float("nan"), float("inf")
    x = trial.given(torch.tensor([[1.0, nan, 3.0, -1.0], [infinity, 2.0, 5.0, -infinity]]))
    s = trial.given(torch.tensor([[nan, 2.0, 1.0, 0.0], [4.0, nan, 0.5, -infinity]]))
    index = trial.given(torch.tensor([[0, 0, 2, 3], [1, 1, 0, 3]]))

    def f(x: torch.Tensor, s: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        return [
            x.scatter_reduce(1, index, s, how, include_self=own) for how in ("amax", "amin") for own in (True, False)
        ]

    return trial.run(f, x, s, index)
