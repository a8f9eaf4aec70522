"""Operators with dtypes, sizes and arguments that compilers treat apart, and that programs use rarely."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/unusual")


@case(reference=False)
def narrow_and_unsigned_types(trial: Trial) -> Any:
    """Unsigned integers of each width, numbers of eight bits and complex numbers of half precision are converted, moved
    and joined."""
    x = trial.given(torch.tensor([0.0, 1.0, 2.5, 3.3, 17.0, 100.7, 240.0, 447.0]))
    signed = trial.given(torch.tensor([-3.3, -0.07, 0.0, 1e-3, 0.3, 1.1, 30.0, 5e4, 7e4, float("inf")]))
    large = trial.given(torch.tensor([0, 1, 2**31, 2**32 - 1, 2**40 + 3, 2**62]))

    def f(x: torch.Tensor, signed: torch.Tensor, large: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for dtype in (torch.uint16, torch.uint32, torch.uint64):
            y = x.to(dtype)
            found += [
                y,
                y.to(torch.int64) * 3,
                y[2:],
                y.view(2, 4).t(),
                torch.cat([y, y]),
                torch.stack([y, y], 1),
                y.clone(),
                y.float() / 2,
            ]
            found += [large.to(dtype), large.to(dtype).to(torch.int64), large.to(dtype).to(torch.float64)]
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            y = signed[:7].to(dtype)
            found += [
                y.float(),
                y.to(torch.bfloat16) * 2,
                y.half(),
                y.view(torch.uint8),
                y[1:].float(),
                y.view(7, 1).t().float(),
            ]
        found += [signed.to(torch.float8_e5m2).float(), signed.half().to(torch.float8_e5m2).float()]
        half = torch.view_as_complex(x.view(4, 2).half())
        return [*found, half.real, half.imag + 1, torch.view_as_real(half), half.to(torch.complex64) * 2]

    return trial.run(f, x, signed, large)


@case("float16", "bfloat16")
def functions_of_half_precision(trial: Trial) -> Any:
    """Functions of half precision that are large on the way, quotients that are cut, powers, weights and lookups."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        matrix = x.view(3, 5)
        return [
            F.softplus(x), F.silu(x), x.sigmoid(), F.mish(x),
            F.gelu(x.clamp(min=-3)),  # below, eager's formula cancels
            F.logsigmoid(x), x.tanh(), F.softplus(x, 2.0), x.sinh(), x.expm1(),
            torch.div(x, y, rounding_mode="trunc"), torch.div(x, y, rounding_mode="floor"), x // y, x % y,
            torch.fmod(x, y), x**3, x**-2, 2**y,
            torch.lerp(x, y, 0.3), torch.lerp(x, y, y), torch.addcmul(x, y, y, value=0.3),
            torch.addcdiv(x, y, y, value=0.3), F.prelu(matrix, y[:5]),
            matrix.argmax(0), matrix.argmin(0), matrix.argmax(1), matrix.sort(0).values, matrix.topk(2, 0).values,
            matrix.softmax(0), matrix.log_softmax(0),
            matrix @ y[:5], matrix[:, :3] @ y[:3], matrix.prod(0), matrix.amax(0),
            F.embedding(torch.tensor([2, 0, 2], device=x.device), matrix),
            F.batch_norm(matrix, y[:5] - 1, y[:5], y[:5], y[5:10]), F.layer_norm(matrix, (3, 5)),
            F.rms_norm(matrix, (5,)), F.dropout(matrix, 0.5, False),
            F.scaled_dot_product_attention(matrix[None, :1], matrix[None], matrix[None, :, :3]), torch.hypot(x, y),
            torch.logaddexp(x, y),
        ]  # fmt: skip

    compiled, numbers = (
        trial.compile(f),
        torch.tensor([-60.0, -19, -11.5, -7, -3, -1, -0.3, 0, 0.2, 0.9, 2.5, 6, 9, 10.5, 14]),
    )
    divisors = torch.linspace(0.3, 3, 15)
    return [
        compiled(*(trial.given(each.to(dtype)) for each in (numbers, divisors)))
        for dtype in (torch.float16, torch.bfloat16)
    ]


@case("float16", "training")
def gradients_of_half_precision(trial: Trial) -> Any:
    """Gradients of norms, attention, remainders, conversions, lookups and losses in half precision."""
    half = torch.float16
    x, image = trial.tensor(4, 6, dtype=half), trial.tensor(2, 6, 3, 5, dtype=half)
    v, w = trial.tensor(6, dtype=half), trial.tensor(6, dtype=half)

    def f(x: torch.Tensor, v: torch.Tensor, w: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        last = image.contiguous(memory_format=torch.channels_last)
        return [
            F.rms_norm(x, (6,), w), F.layer_norm(x, (6,), v, v), F.group_norm(last, 2, v, v),
            F.group_norm(image, 3, v), torch.fmod(x, 0.7), torch.remainder(x, 0.7),
            F.scaled_dot_product_attention(x[None], x[None], x[None] * 2), F.dropout(x, 0.0), x.float() * 3,
            x.double().sum(0), F.embedding(x.new_tensor([1, 1, 3]).long(), x),
            F.linear(image.mT.mT.transpose(1, 3), x, v[:4]), x @ v, x.softmax(0), x.log_softmax(1), F.gelu(x),
            F.silu(x), F.softplus(x), F.smooth_l1_loss(x, x * v), F.prelu(x, v),
        ]  # fmt: skip

    return with_gradients(trial, f, x, v, w, image)


@case("training")
def layers_of_unusual_sizes(trial: Trial) -> Any:
    """Large kernels, kernels that are expanded or in channels last, batches of more than eight, images of one pixel,
    norms in channels last, layers of vectors and of four dimensions."""
    image, weights = (
        trial.tensor(9, 3, 8, 9),
        [trial.tensor(5, 3, 7, 7), trial.tensor(1, 3, 3, 3), trial.tensor(6, 1, 2, 3), trial.tensor(5, 3, 1, 1)],
    )
    pixel, v, matrix = trial.tensor(4, 6, 1, 1), trial.tensor(6, low=0.5, high=1.5), trial.tensor(9, 8)

    def f(x: torch.Tensor, *given: torch.Tensor) -> list[torch.Tensor]:
        large, one, each, small, pixel, v, matrix = given
        last = x.contiguous(memory_format=torch.channels_last)
        y = F.conv2d(last, small, stride=2)
        return [
            F.conv2d(x, large, padding=3), F.conv2d(x, large, stride=3), F.conv2d(x, one.expand(4, 3, 3, 3)),
            F.conv2d(x, each, groups=3),
            F.conv2d(last, large.contiguous(memory_format=torch.channels_last), padding=(3, 2)), y,
            F.conv2d(x[:1], small, stride=3),
            F.batch_norm(pixel, None, None, v, v, True), F.group_norm(pixel, 2, v, v),
            F.conv2d(pixel, v.view(6, 1, 1, 1), groups=6),
            F.batch_norm(last, None, None, v[:3], v[3:], True), F.group_norm(last, 1, v[:3], v[3:]),
            F.group_norm(last, 3, v[:3], v[3:]),
            F.instance_norm(last, weight=v[:3], bias=v[3:]), F.linear(matrix[0], matrix),
            F.linear(x.view(9, 3, 9, 8), matrix, matrix[:, 0]),
            F.linear(x.mT, matrix, matrix[:, 1]), F.linear(x[:, 0].mT, matrix), F.glu(x.transpose(1, 2), 1),
            F.glu(x.mT, -1), F.normalize(x, dim=0), F.normalize(matrix, p=1.0, dim=0),
            F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, 2, 1, 0, 3),
            F.avg_pool2d(x, 3, 2, 1, divisor_override=5), F.adaptive_avg_pool2d(x, (5, 4)),
            F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
            F.interpolate(x, (5, 17), mode="bicubic", align_corners=True),
            F.interpolate(x, (4, 5), mode="bilinear", antialias=True),
            F.unfold(x, (2, 3), stride=2, padding=1),
            F.fold(F.unfold(x, 2, stride=2, padding=1), (8, 9), 2, stride=2, padding=1),
            F.pixel_unshuffle(x[..., :8], 2),
        ]  # fmt: skip

    return with_gradients(trial, f, image, *weights, pixel, v, matrix)


@case("training")
def gradients_of_unusual_arguments(trial: Trial) -> Any:
    """Gradients of operands that are broadcast in the middle, taken from the end, looked up in three dimensions,
    weighted, masked, repeated, compared, and of queries in few rows."""
    x, y, z, volume, v = (
        trial.tensor(4, 5),
        trial.tensor(1, 5),
        trial.tensor(2, 3, 1, 5),
        trial.tensor(2, 3, 4, 5),
        trial.tensor(6),
    )
    index = trial.given(torch.tensor([[3, 0], [2, 2], [1, 3]]))
    classes, mask = trial.given(torch.tensor([0, 4, 2, 2])), trial.tensor(4, 5, dtype=torch.bool)

    def f(
        x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, volume: torch.Tensor, v: torch.Tensor
    ) -> list[torch.Tensor]:
        return [
            volume * z, volume / z, volume + z, z - volume,
            volume.gather(-1, index.view(1, 3, 2, 1).expand(2, 3, 2, 2)),
            volume.gather(-2, index.view(1, 3, 2, 1).expand(2, 3, 2, 2)),
            F.embedding(index[None], x), F.cross_entropy(x, classes, weight=v[:5].detach().square() + 0.1),
            F.cross_entropy(x, classes, weight=v[:5].detach().square() + 0.1, label_smoothing=0.2),
            F.cross_entropy(x, classes, reduction="sum", ignore_index=2),
            F.cross_entropy(x, x.softmax(1).flip(0), label_smoothing=0.1), torch.minimum(x, y), torch.maximum(y, x),
            torch.fmod(x, y), torch.remainder(x, y),
            F.nll_loss(volume.log_softmax(1), classes[:2, None, None].expand(2, 4, 5) % 3, weight=v[:3].detach().abs()),
            v.repeat(3), v.repeat(2, 2), v.tile(2, 1), v.expand(3, 6),
            v.repeat_interleave(index[:, 0].new_tensor([1, 0, 2, 3, 1, 1])),
            x.repeat_interleave(index.new_tensor([1, 0, 2, 1, 1]), 1), F.glu(volume.transpose(1, 2), 1),
            F.normalize(x, dim=0), F.normalize(volume, dim=2), F.dropout(x, 0.0), F.rms_norm(x, (5,), v[:5]),
            F.layer_norm(volume, (4, 5), x, x),
            F.scaled_dot_product_attention(volume[:, :, :1], volume, volume),
            F.scaled_dot_product_attention(volume, volume[:, :, :3], volume[:, :, 1:], attn_mask=x[:, :3]),
            F.scaled_dot_product_attention(volume[:, :, :, :2], volume[:, :, :, :2], volume),
            x.masked_select(mask), x[mask], x.masked_fill(mask, v[0]), x.masked_scatter(mask, y.expand(5, 5) * 2),
            torch.where(mask, y, x), torch.where(mask, x, v[0]), x.amax((0, 1)), volume.amax((1, 3)),
            volume.amin((0, 2, 3)), volume.logsumexp((1, 2)),
            volume.var((0, 2), correction=2), volume.std((1, 3), correction=0), volume.norm(1, 2),
            volume.norm(float("inf"), 1), torch.cdist(x, y + x[:2], p=1.0),
            torch.cdist(volume[0], volume[1], p=1.5), torch.einsum("ij,kj,ki->k", x, x, x @ x.t()),
            torch.baddbmm(volume[0], volume[0] @ volume[0].mT, volume[1], beta=0.3, alpha=0.7),
            torch.addmm(x[:, :1], x, x.t(), beta=0.5), volume.flip(0, 1, 3), x.roll((1, 2), (0, 1)), x[::2],
            x[:, 1::2], x[index[:, 0], index[:, 1]], volume[:, index[:, 0] % 3, :, index[:, 1]],
            F.pad(v[None], (2, 3), mode="reflect"), F.pad(volume[None], (1, 1, 1, 0, 0, 1), mode="replicate"),
            F.interpolate(volume[0], 9, mode="linear"), F.interpolate(volume, (3, 3), mode="area"),
            x.diagonal(1), x.cov(), x.cov(correction=0), x.corrcoef(),
            F.gaussian_nll_loss(x, y.expand(4, 5) * 2, x.square() + 0.1, full=True),
            F.poisson_nll_loss(x, y.expand(4, 5).square().detach(), full=True),
            torch.linalg.solve(x[:, :4] @ x[:, :4].t() + 5 * x.new_ones(4).diag(), x), v * v, v.dot(v), x @ v[:5],
            v[:4] @ x,
        ]  # fmt: skip

    return with_gradients(trial, f, x, y, z, volume, v)


@case(reference=False)
def arguments_of_orders_and_places(trial: Trial) -> Any:
    """Orders, counts, places and statistics with arguments that are rarely given: rows of bounds, a least length, a
    dimension, one result that is kept, other ends."""
    x, bools = trial.tensor(4, 6), trial.tensor(4, 6, dtype=torch.bool)
    integers, bytes_ = (
        trial.tensor(4, 6, dtype=torch.int64, low=0, high=4),
        trial.tensor(5, 7, dtype=torch.int8, low=-90, high=-1),
    )
    numbers = trial.given(torch.tensor([3.0, 1.0, 1.0, 3.0, 2.0, 2.0, 0.5, 1.0]))
    bounds, images = x.sort(-1).values, trial.tensor(1, 2, 6, 7, dtype=torch.uint8, low=0, high=255)

    def f(
        x: torch.Tensor,
        integers: torch.Tensor,
        small: torch.Tensor,
        v: torch.Tensor,
        bounds: torch.Tensor,
        bools: torch.Tensor,
    ) -> list[Any]:
        half = v.new_tensor([0.25, 0.6])
        return [
            torch.searchsorted(bounds, x), torch.searchsorted(bounds, x, right=True, out_int32=True),
            torch.bucketize(x, bounds[0], right=True), torch.bincount(integers[0], minlength=9),
            torch.bincount(integers[0], v[:6]),
            x.quantile(half, 1, keepdim=True), x.quantile(0.4, 0, keepdim=True, interpolation="midpoint"),
            x.nanquantile(0.3, 1, keepdim=True, interpolation="nearest"),
            *integers.unique(dim=0, return_inverse=True, return_counts=True),
            *integers[0].unique_consecutive(return_counts=True), integers.unique(dim=1), *integers.mode(1),
            *v.mode(), *v.view(2, 4).mode(1), *v.median(0), v.median(), *v.cummin(0), *v.cummax(0),
            torch.isclose(x, x * 1.1, rtol=0.105), torch.isclose(x * 1.1, x, rtol=0.095),
            small.amax(1), small.amax(), small.amin(), (-small).amin(1), (-small).min(), small.max(),
            small.max(1).values, small.argmax(1), (-small).argmin(0), small.sort(1).values,
            small.clamp(small[:1], small[:1] + 40), integers.clamp(integers[:1], integers[:1] + 1),
            bools ^ (integers > 1), torch.logical_and(bools, integers), torch.logical_xor(x > 0, integers),
            torch.signbit(-x * 0), torch.copysign(x, -0.0),
            torch.heaviside(x * 0, x), torch.eye(3, 4, dtype=torch.int64, device=x.device),
            torch.linspace(1, 9, 1, device=x.device), torch.linspace(0, 9, 4, dtype=torch.int32, device=x.device),
            torch.logspace(0, 3, 4, base=2.0, device=x.device), x.histc(5), x.histc(4, -1, 1), torch.trace(x),
            x.tril(-2), x.mT.triu(2), torch.arange(0, 11, device=x.device) * 1000000000,
            torch.linalg.cross(x[:, :3], x[:, 3:]), torch.linalg.cross(x[:3], x[1:], dim=0),
            torch.cdist(x.view(2, 2, 6), x.view(2, 2, 6)), torch.linalg.matrix_norm(x, 1),
            torch.linalg.matrix_norm(x, "nuc"), torch.linalg.vector_norm(x, -float("inf"), 0),
            torch.linalg.vector_norm(x, 0.5, 1),
            x.repeat_interleave(integers[0], 1), x.repeat_interleave(integers[:, 0], 0), x.rot90(2), x.rot90(-1),
            x.view(2, 2, 6).rot90(1, (1, 2)), *x.tensor_split(4, 1), *x.tensor_split((1, 4), 1),
            *torch.meshgrid(v[:2], v[:3], indexing="xy"), x.sum(dim=()), x.amax(dim=()), x.unfold(0, 1, 3),
            x.sinc(), (x * 1e-4).sinc(), (x * 50).sinh(), x.new_tensor([88.9, -89.2, 89.4]).sinh(),
            x.round(decimals=2), (x * 100).round(decimals=-1), torch.polygamma(2, x.abs() + 1),
            (x.to(torch.complex64) * (1 + 2j)).view(2, 2, 6).mH, x.double().prod(0), x.diff(n=2, prepend=x[:, :1]),
            *torch.var_mean(x, 1),
        ]  # fmt: skip

    def grids(x: torch.Tensor, images: torch.Tensor) -> list[torch.Tensor]:
        grid = x[:, :4].view(1, 4, 2, 2)
        image = images.float()
        return [
            *(
                F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=aligned)
                for mode in ("nearest", "bilinear", "bicubic")
                for padding in ("border", "reflection", "zeros")
                for aligned in (False, True)
            ),
            F.affine_grid(x[None, :2, :3], [1, 1, 2, 3], align_corners=True), F.interpolate(images, scale_factor=2),
            F.interpolate(images, (9, 4), mode="nearest-exact"),
            torch.stft(image.flatten()[:48], 8, center=False, return_complex=True).abs(),
            torch.stft(image.flatten()[:48], 8, 3, onesided=False, return_complex=True).real,
        ]  # fmt: skip

    return trial.run(f, x, integers, bytes_, numbers, bounds, bools), trial.run(grids, x, images)
