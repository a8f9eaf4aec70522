"""Dtypes that are asked for beside those of the inputs, reductions over planes of every size, and long ranges."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/widths")

PLANES = ((1, 7), (3, 3), (5, 5), (4, 8), (7, 7), (1, 17), (13, 5))


@case(reference=False)
def wider_than_the_inputs(trial: Trial) -> Any:
    """What is asked for in float64 is computed in float64, from the numbers as they are."""
    x, wide = trial.tensor(5, 257, low=0.1, high=1.0), torch.float64

    def f(x: torch.Tensor, h: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for t in (x, h):
            found += [
                t.sum(dtype=wide), t.sum(1, dtype=wide), t.mean(0, dtype=wide), t.mean(dtype=wide),
                t.cumsum(1, dtype=wide), t[:, :9].prod(1, dtype=wide), t[:, :9].cumprod(1, dtype=wide),
                t.softmax(1, dtype=wide), t.log_softmax(0, dtype=wide), t.nansum(1, dtype=wide),
                t.norm(dim=1, dtype=wide),
                torch.linalg.vector_norm(t, dim=0, dtype=wide), t.float_power(1.5), t.to(wide) / 3, t.double().sqrt(),
                t * torch.tensor([3.0], dtype=wide, device=t.device), t.double() @ t.double().t(), t.double().log(),
                F.softmin(t, 1, dtype=wide), t.to(wide).mean(1), (t.double() + 1e-12).sum(0),
                t.double() - t.double().mean(),
            ]  # fmt: skip
        return found

    return trial.run(f, x, x.half())


@case(terms=257)
def of_half_types(trial: Trial) -> Any:
    """Sums of half precision that are asked for in float32 are not rounded to half precision first, nor the inputs."""
    x = trial.tensor(6, 257)

    def f(x: torch.Tensor, h: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        wide, found = torch.float32, []
        for t in (h, b):
            found += [
                t.sum(1, dtype=wide), t.mean(0, dtype=wide), t.softmax(1, dtype=wide), t.log_softmax(1, dtype=wide),
                t.float().sum(1), t.float() * 1.001, t.norm(dim=1, dtype=wide), (t.float() * t.float()).sum(1),
                torch.add(t, x), t * x, torch.where(t > 0, t, x), torch.maximum(t.float(), x), torch.cat([t, x]),
            ]  # fmt: skip
        return [*found, x.half().float() + 0, x.bfloat16().float() * 1, h + b, torch.cat([h, b])]

    return trial.run(f, x, x.half(), x.bfloat16())


@case(elementwise=True)
def numbers_beside_half_types(trial: Trial) -> Any:
    """A number that half precision does not have keeps its digits beside a tensor that is half precision."""
    x = trial.tensor(512, low=1.0, high=2.0)

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        found = []
        for dtype in (torch.float16, torch.bfloat16):
            number = 1 + 0.49 * torch.finfo(dtype).eps
            found += [x.to(dtype) * number, number * x.to(dtype) * 1.0, x.to(dtype).mul(number)]
        return found

    return trial.run(f, x)


@case(terms=4096)
def vectors_of_half_types(trial: Trial) -> Any:
    """Products with a vector, or with one row or column, are summed in a type that is wide enough."""
    halves = torch.float16, torch.bfloat16
    given = [trial.tensor(*shape, dtype=t, low=0.0, high=0.5) for t in halves for shape in ((5, 4096), (4096,))]

    def f(given: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for a, b in zip(given[::2], given[1::2], strict=True):
            found += [a @ b, b @ a.t(), torch.dot(b, b), torch.mv(a, b), a @ b[:, None], F.linear(b, a), b.inner(a)]
        return found

    return trial.run(f, given)


@case(terms=512, draws=12)
def planes(trial: Trial) -> Any:
    """Reductions over two and three dimensions, of which every product of sizes occurs, kept or not."""

    def f(images: list[torch.Tensor]) -> list[torch.Tensor]:
        found = []
        for x in images:
            found += [
                x.sum((2, 3)), x.mean((-2, -1), keepdim=True), x.amax((2, 3)), x.mean((1, 2)), x.mean((0, 2, 3)),
                x.sum((0, 3)), x.amin((0, 2)),
            ]  # fmt: skip
        return found

    images = [trial.tensor(2, 3, *plane) for plane in PLANES]
    return trial.run(f, images), trial.run(f, [x.to(memory_format=torch.channels_last) for x in images[2::4]])


@case(terms=512)
def scans_over_each_dimension(trial: Trial) -> Any:
    """Running sums, products and extremes, flips, sorts and softmax over each of four dimensions, not only the last."""

    def f(x: torch.Tensor) -> list[Any]:
        found: list[Any] = []
        for d in (0, 1, 2, 3, -1, -2, -3, -4):
            found += [
                x.cumsum(d), x.cumprod(d), x.cummax(d), x.cummin(d), x.logcumsumexp(d), x.flip(d), x.roll(1, d),
                x.softmax(d), x.log_softmax(d), x.argmax(d), x.amin(d), x.sum(d), x.prod(d), x.var(d), x.any(d),
                x.sort(dim=d, stable=True).indices, x.topk(2, d).values, x.diff(dim=d), x.norm(dim=d),
                x.median(d).values,
                F.normalize(x, dim=d), F.glu(x[..., :2, :, :2, :2].repeat(2, 2, 1, 1), d) if d in (0,
                -4) else x.mean(d),
            ]  # fmt: skip
        return found

    return trial.run(f, trial.tensor(2, 4, 3, 5))


@case(reference=False, cancels=True)
def long_ranges(trial: Trial) -> Any:
    """Numbers of a range are computed each from its place, not from the one before; ends are exact; steps back."""
    device = trial.device

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.arange(0, 100, 0.1, device=device), torch.arange(5.0, -300.0, -0.7, device=device),
            torch.linspace(-1.3, 2.9, 1001, device=device), torch.linspace(0, 1, 10, device=device),
            torch.linspace(3, -3, 7, dtype=torch.float64, device=device), torch.linspace(2, 9, 1, device=device),
            torch.arange(10, device=device) * 0.1, torch.arange(2.5, 40, 1.25, device=device, dtype=torch.float64),
            torch.arange(7, -8, -3, device=device), torch.arange(0, 5, 2, dtype=torch.int16, device=device),
            torch.linspace(0, 9, 5, dtype=torch.int64, device=device), torch.logspace(0, 2, 5, base=3.0, device=device),
            torch.eye(3, 5, device=device), torch.full((2,), 7, device=device),
            torch.tril_indices(3, 4, 1, device=device),
            x + torch.arange(len(x), device=device) / len(x),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(9))


@case("training")
def every_step_of_convolutions(trial: Trial) -> Any:
    """Each dimension of a volume has its own step, padding and dilation; groups of each size, with a bias."""
    volume, image, row = trial.tensor(2, 4, 5, 6, 7), trial.tensor(2, 6, 9, 8), trial.tensor(2, 6, 15)
    weights = [trial.tensor(*s) for s in ((4, 2, 2, 3, 2), (6, 6, 3, 2), (12, 1, 3, 3), (9, 2, 3), (6, 1, 5))]

    def f(v: torch.Tensor, i: torch.Tensor, r: torch.Tensor, b: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv3d(v, w[0], b[:4], (1, 2, 3), (0, 1, 2), (2, 1, 1), 2), F.conv3d(v, w[0], stride=(2, 1, 2), groups=2),
            F.conv2d(i, w[1], b[:6], (3, 1), (2, 0), (1, 3)), F.conv2d(i, w[2], b, (1, 2), 1, (2, 1), 6),
            F.conv1d(r, w[3], b[:9], 2, 2, 1, 3), F.conv1d(r, w[4], b[:6], 1, 4, 2, 6),
            F.conv1d(r, w[3], b[:9], groups=3),
            F.conv1d(r, w[4], b[:6], padding="same", dilation=2, groups=6), F.conv2d(i[:, :, :3, :2], w[1], b[:6]),
            F.conv_transpose3d(v, w[0], None, (2, 1, 3), (1, 0, 1), (1, 0, 2), 1, (1, 2, 1)),
            F.lp_pool2d(i, 3.0, 2), F.lp_pool2d(i, 1.0, (2, 3), (3, 1)), F.lp_pool1d(r, 4.0, 3, 2, True),
        ]  # fmt: skip

    return with_gradients(trial, f, volume, image, row, trial.tensor(12), *weights)
