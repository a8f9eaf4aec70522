"""Windows over sequences, images and volumes: every argument of convolutions, pooling, padding and resizing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/windows")


def with_gradients(trial: Trial, function: Callable[..., Sequence[torch.Tensor]], *given: torch.Tensor) -> Any:
    """Results and the gradients of all inputs, each element of a result with a weight of its own."""
    inputs = [x.detach().requires_grad_(x.is_floating_point()) for x in given]
    results = trial.run(function, *inputs)
    ends = [r for r in results if r.requires_grad]
    weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1)).to(r)[: r.numel()].view(r.shape) for r in ends]
    torch.autograd.backward(ends, weights)
    return [r.detach() for r in results], [x.grad for x in inputs]


def apart(trial: Trial, functions: Sequence[Callable[..., torch.Tensor]], *given: torch.Tensor) -> Any:
    """Results and gradients of functions, each of inputs of its own: in a sum of gradients, the nan of one would hide
    what is wrong with another."""
    count = len(given)

    def f(*inputs: torch.Tensor) -> list[torch.Tensor]:
        return [each(*inputs[at * count : (at + 1) * count]) for at, each in enumerate(functions)]

    return with_gradients(trial, f, *(x.clone() for _ in functions for x in given))


@case("training")
def convolutions(trial: Trial) -> Any:
    """Steps, padding and dilation that differ between dimensions, padding to the same size, groups, no batch."""
    image, row = trial.tensor(2, 4, 9, 10), trial.tensor(2, 6, 13)
    weights = [trial.tensor(*shape) for shape in ((6, 4, 3, 2), (6, 4, 4, 3), (8, 2, 3, 3), (9, 2, 4), (5, 4, 1, 1))]

    def f(image: torch.Tensor, row: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv2d(image, w[0], stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
            F.conv2d(image, w[1], padding="same"), F.conv2d(image, w[1], padding="same", dilation=(1, 2)),
            F.conv2d(image, w[1], padding="valid"), F.conv2d(image[0], w[0]), F.conv2d(image, w[2], groups=2),
            F.conv2d(image, w[2], stride=3, dilation=2, padding=2, groups=2), F.conv2d(image, w[4], stride=(4, 5)),
            F.conv1d(row, w[3], stride=2, dilation=3, padding=4, groups=3), F.conv1d(row[0], w[3], groups=3),
            F.conv2d(image[:, :, :2, :2], w[1], padding=3), F.conv2d(image, w[4]).mean((2, 3)),
        ]  # fmt: skip

    return with_gradients(trial, f, image, row, *weights)


@case("training")
def transposed_convolutions(trial: Trial) -> Any:
    """Transposed convolutions with groups, dilation, and output padding that differs between dimensions."""
    image, row, volume = trial.tensor(2, 4, 4, 5), trial.tensor(1, 4, 6), trial.tensor(1, 2, 2, 3, 2)
    weights = [trial.tensor(*shape) for shape in ((4, 3, 3, 2), (4, 3, 3), (2, 2, 2, 1, 2), (3,), (6,))]

    def f(image: torch.Tensor, row: torch.Tensor, volume: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv_transpose2d(image, w[0], w[3], stride=(2, 3), padding=(1, 0), output_padding=(1, 0)),
            F.conv_transpose2d(image, w[0], w[4], stride=2, output_padding=(0, 1), groups=2, dilation=(1, 2)),
            F.conv_transpose1d(row, w[1], w[3], stride=3, padding=2, output_padding=1, dilation=2),
            F.conv_transpose1d(row[0], w[1], groups=2), F.conv_transpose3d(volume, w[2], stride=(1, 2, 1)),
        ]  # fmt: skip

    return with_gradients(trial, f, image, row, volume, *weights)


@case("training")
def pooling(trial: Trial) -> Any:
    """Dilation, divisors, windows that begin in the padding, sizes that do not divide, and places of maxima."""
    image, volume = trial.tensor(2, 3, 7, 9), trial.tensor(1, 2, 5, 4, 6)

    def f(image: torch.Tensor, volume: torch.Tensor) -> list[torch.Tensor]:
        low = image - 10
        values, places = F.max_pool2d(image, 2, 3, 1, ceil_mode=True, return_indices=True)
        most, where = F.max_pool2d(image, 2, return_indices=True)
        return [
            F.max_pool2d(low, 3, 2, 1), F.max_pool2d(low, (2, 3), (3, 1), (1, 0), dilation=(2, 1)), values, places,
            F.max_pool2d(low, 2, 3, 1, ceil_mode=True), F.max_pool2d(image[0], 3), F.max_pool1d(low[0], 3, 2, 1, 2),
            F.max_pool3d(volume - 10, 2, 2, 1), F.max_unpool2d(most, where, 2, output_size=(7, 9)),
            F.avg_pool2d(image, 2, 3, 1, ceil_mode=True), F.avg_pool2d(image, (3, 2), (1, 2), (1, 0)),
            F.avg_pool2d(image, 2, 3, 1, ceil_mode=True, count_include_pad=False),
            F.avg_pool2d(image, 3, 2, 1, divisor_override=5), F.avg_pool1d(image[0], 3, 2, 1, True, False),
            F.avg_pool3d(volume, 2, 2, 1, True, False), F.lp_pool2d(image, 2, 2, 2), F.lp_pool1d(image[0].abs(), 3, 2),
            F.adaptive_avg_pool2d(image, (5, 4)), F.adaptive_avg_pool2d(image, (None, 2)),
            F.adaptive_avg_pool1d(image[0], 7), F.adaptive_avg_pool3d(volume, (2, 3, 4)),
            *F.adaptive_max_pool2d(image, (3, 4), return_indices=True), F.adaptive_max_pool1d(image[0], 5),
            F.adaptive_avg_pool2d(image, (9, 12)),
        ]  # fmt: skip

    return with_gradients(trial, f, image, volume)


@case("training")
def patches(trial: Trial) -> Any:
    """Patches of images are taken apart and summed together again; channels and pixels change places."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        columns = F.unfold(x, (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2))
        return [
            columns, F.fold(columns, (6, 8), (2, 3), dilation=(2, 1), padding=(1, 0), stride=(1, 2)),
            F.unfold(x, 2, stride=3), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 2), F.pixel_shuffle(x, 2),
            x.unfold(2, 3, 1), x.unfold(3, 4, 2).unfold(2, 2, 2).sum(-1),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(2, 8, 6, 8))


@case("training", cancels=True)
def sizes_of_images(trial: Trial) -> Any:
    """Images of other sizes by simple methods, with corners aligned or not, and without aliasing."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.interpolate(x, (1, 1), mode="bilinear", align_corners=True), F.interpolate(x[0], 11, mode="linear"),
            F.interpolate(x, (3, 4), mode="bilinear", antialias=True), F.interpolate(x, (4, 3), mode="area"),
            F.interpolate(x, (11, 5)), F.interpolate(x[0], 4),
            F.interpolate(x, (4, 9), mode="bilinear", align_corners=True),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(2, 3, 6, 7))


@case(cancels=True)
def cubic_images(trial: Trial) -> Any:
    """Images of other sizes by cubic polynomials, with corners aligned or not, and without aliasing."""

    def f(x: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.interpolate(x, (3, 11), mode="bicubic"), F.interpolate(x, (4, 4), mode="bicubic", align_corners=True),
            F.interpolate(x, (7, 5), mode="bicubic", antialias=True),
        ]  # fmt: skip

    return trial.run(f, trial.tensor(2, 3, 6, 7))


@case("training", cancels=True)
def factors_of_images(trial: Trial) -> Any:
    """Factors that are no whole numbers are used as given, or computed again from the size, as the program asks."""

    def f(x: torch.Tensor, volume: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear"), F.interpolate(x, scale_factor=0.7),
            F.interpolate(x, scale_factor=(1.7, 0.6), mode="bilinear", recompute_scale_factor=True),
            F.interpolate(x, scale_factor=1.3, mode="nearest-exact"),
            F.interpolate(x, scale_factor=1.6, recompute_scale_factor=True),
            F.interpolate(volume, (2, 5, 3), mode="trilinear"), F.interpolate(volume, scale_factor=(2, 1, 1.5)),
        ]  # fmt: skip

    return with_gradients(trial, f, trial.tensor(2, 3, 6, 7), trial.tensor(1, 2, 3, 4, 4))


@case("training", cancels=True)
def sampling(trial: Trial) -> Any:
    """Images sampled at given places, inside and outside, by each method, padding and meaning of the corners."""
    modes = [(mode, pad, corners) for mode in ("bilinear", "nearest", "bicubic")
             for pad in ("zeros", "border", "reflection") for corners in (True, False)]  # fmt: skip

    def f(x: torch.Tensor, grid: torch.Tensor, theta: torch.Tensor) -> list[torch.Tensor]:
        return [
            *(F.grid_sample(x, grid, mode, pad, corners) for mode, pad, corners in modes),
            F.affine_grid(theta, [2, 3, 4, 5], align_corners=True),
            F.affine_grid(theta, [2, 3, 3, 2], align_corners=False),
        ]

    return with_gradients(
        trial, f, trial.tensor(2, 3, 5, 6), trial.tensor(2, 3, 4, 2, low=-1.3, high=1.3), trial.tensor(2, 2, 3)
    )


@case("training")
def padding(trial: Trial) -> Any:
    """Each mode of padding with another width at each side, in one to three dimensions, and of whole numbers."""

    def f(x: torch.Tensor, volume: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.pad(x, (3, 1), mode="reflect"), F.pad(x, (0, 4), mode="replicate"), F.pad(x, (2, 3), mode="circular"),
            F.pad(volume, (1, 0, 2, 1, 0, 1), mode="reflect"), F.pad(volume, (1, 0, 0, 2, 3, 1), mode="replicate"),
            F.pad(volume, (1, 2, 0, 1, 2, 0), mode="circular"), F.pad(x, (-1, 3, 1, -2), value=2.5),
            F.pad(x[0], (0, -2, 1, 0), mode="constant"), F.pad(n, (1, 2), value=7), F.pad(n > 0, (2, 0), value=True),
            F.pad(x, (0, 0, 0, 0, 1, 2), value=-0.0), F.pad(x, (-2, -1)), F.pad(volume[0], (1, 1, 0, 2), "reflect"),
        ]  # fmt: skip

    return with_gradients(
        trial, f, trial.tensor(2, 3, 5), trial.tensor(1, 2, 3, 4, 4), trial.given(torch.arange(6).view(2, 3))
    )
