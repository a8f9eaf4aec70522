"""What programs ask for seldom: numbers at which rewrites part, forms of places, and layers with arguments apart."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from .windows import with_gradients

case = Collection("semantics/seldom")

_INF, _NAN = float("inf"), float("nan")


@case()
def numbers_at_which_rewrites_part(trial: Trial) -> Any:
    """Powers are no roots at minus zero and infinity, extremes keep what all elements are, large odd numbers stay, and
    functions reach as far as their results do."""
    x = trial.given(torch.tensor([-_INF, -2.5, -0.5, -0.0, 0.0, 0.5, 8388609.0, 8388611.0, _INF, _NAN]))
    zeros, ends = trial.given(torch.full((9001,), -0.0)), trial.given(torch.full((3, 70), _INF))
    far = trial.given(torch.tensor([88.5, 88.7, -87.5, -95.0, -103.0, 1.5707964, -1.5707964, 4.712389]))
    small = trial.given(torch.tensor([1e-3, -7e-4, 3e-5, -2e-9, 4e-4], dtype=torch.float64))
    whole, wide = trial.tensor(3, 5, dtype=torch.int64), trial.given(torch.tensor([3 << 40, -(5 << 40), 7 << 41]))
    pairs = trial.given(torch.tensor([complex(_INF, 1), complex(1, _INF), complex(0, _NAN), 1 + 2j]))

    def f(
        x: torch.Tensor, zeros: torch.Tensor, ends: torch.Tensor, far: torch.Tensor, small: torch.Tensor,
        whole: torch.Tensor, wide: torch.Tensor, pairs: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        return [
            x**0.5, x**-0.5, x**2.0, x**-1.0, x**0.25, x.relu(), F.relu6(x), x.round(), (x + 0.0).sqrt(), x.floor(),
            zeros.amax(), zeros.view(-1, 1).amax(0), zeros.max(), zeros.sum(), ends.amin(1), ends.min(),
            (-ends).amax(0), (-ends).max(), (-ends).argmax(1), (-ends).logsumexp(1), far[:5].exp(), far[5:].tan(),
            far[:2].exp2(), small.expm1(), small.log1p(), small.sinh(), small.tanh(), whole % 1.5,
            torch.fmod(whole, 1.5), whole // 1.5, torch.float_power(whole, 2), torch.deg2rad(whole),
            torch.rad2deg(whole), torch.lcm(wide, wide.flip(0)), torch.gcd(wide, wide.flip(0)), pairs * pairs,
            pairs * 2.0, pairs[3:] / pairs[3:], torch.full((3,), _INF, device=x.device), torch.full_like(x, -_INF),
            x.new_full((2,), _NAN), torch.lerp(x[1:3], x[4:6], x.new_tensor([0.5, 0.5])), torch.remainder(x[2:5], 2.0),
            torch.remainder(x[2:5], x[1:4]), small.to(torch.float16), (small + 1).to(torch.bfloat16),
        ]  # fmt: skip

    return trial.run(f, x, zeros, ends, far, small, whole, wide, pairs)


@case()
def places_of_each_form(trial: Trial) -> Any:
    """Parts that end beyond the tensor, places in tensors of no and of two dimensions, masks of fewer dimensions, ties,
    and what is made or joined of vectors, of nothing and of given ends."""
    x, volume, v = trial.tensor(4, 6), trial.tensor(3, 4, 5), trial.tensor(5)
    places, one = trial.given(torch.tensor([[3, 0, 1], [1, 1, -2]])), trial.given(torch.tensor(2))
    whole, mask = trial.tensor(4, 6, dtype=torch.int64, low=0, high=3), trial.tensor(6, dtype=torch.bool)

    def f(
        x: torch.Tensor, volume: torch.Tensor, v: torch.Tensor, places: torch.Tensor, one: torch.Tensor,
        whole: torch.Tensor, mask: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        return [
            x[:9], x[1:99] + 0, x[-99:3] * 1, x[9:], x[:, 2:99] + 1, volume[:, -9:9, 1:88] * 1, x[places], x[:, places],
            volume[places % 3, :, places], volume[0, places], x[one], x[:, one], volume[one, :, one], x[one, 1:],
            v[places.unsqueeze(-1)], torch.take_along_dim(x, places % 9), x.take(places - 20),
            x.masked_fill(mask, 1.5), volume.masked_fill(volume[0] > 0, -1.0), torch.where(mask, x, v[0]),
            whole.float().kthvalue(3).values, *whole.kthvalue(2, 1), *torch.kthvalue(whole.flatten(), 9),
            x.index_fill(0, one, _NAN).quantile(0.5, 0), x.index_fill(0, one, _NAN).quantile(0.3, 1),
            torch.bincount(whole[0], v.double().repeat(2)[:6]), F.one_hot(whole), F.one_hot(whole[0], 4),
            torch.hstack([v, v[:2]]), torch.vstack([v, v]), torch.block_diag(v, x, one), v.repeat(0), x.repeat(2, 0),
            x.repeat(1, 0, 2), torch.diag(x, 1), torch.diag(v, -2), torch.diag(x, -1), v.diag(1),
            *torch.meshgrid(v, v[:2], v[:3], indexing="ij"), *torch.meshgrid(v[:1], v[:2], v[:3], indexing="xy"),
            torch.linspace(v[0], v[1], 5), torch.linspace(0, v[2], 4), torch.outer(whole[0], whole[1]),
            torch.tensordot(v, v[:2], 0), torch.cov(v), torch.fft.fft(x, dim=0), torch.fft.rfft(volume, dim=1),
            torch.fft.ifft(x, 3, 0), torch.fft.fftshift(x, 0), torch.fft.ifftshift(volume, (0, 2)),
            torch.matmul(x[:, :4], volume), torch.matmul(volume, v), torch.equal(x, x) * v,
            torch.argsort(x, stable=True, dim=0), whole.sort(dim=1, stable=True).indices,
            whole.sort(dim=0, descending=True, stable=True).indices, x.mean(0, dtype=torch.float64),
            whole.float().unique(return_counts=True)[1], whole[0].cumsum(0, dtype=torch.int8),
            whole.sum(dtype=torch.int32), x.half().sum(0, dtype=torch.float32), x.softmax(0, torch.float64),
        ]  # fmt: skip

    return trial.run(f, x, volume, v, places, one, whole, mask)


@case("training", "complex64")
def operands_of_each_form(trial: Trial) -> Any:
    """Few columns are added up beside a bias for each row, both factors repeat over batches, dimensions are named from
    the end or out of order, many are the largest, and arguments stand that are usually left out."""
    x, volume, long = trial.tensor(4, 6), trial.tensor(2, 3, 5, 6), trial.tensor(3, 300)
    rows, weight, bias = trial.tensor(2, 70, 4), trial.tensor(70, 4), trial.tensor(70)
    left, right = trial.tensor(2, 1, 3, 4), trial.tensor(1, 5, 4, 2)
    spectrum, wide = trial.tensor(4, 5, dtype=torch.complex64), trial.tensor(3, 4, dtype=torch.float64)
    kernels, places = trial.tensor(17, 3, 2, 2), trial.given(torch.tensor([2, 0, 2, 1, 0]))

    def f(
        x: torch.Tensor, volume: torch.Tensor, long: torch.Tensor, rows: torch.Tensor, weight: torch.Tensor,
        bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, wide: torch.Tensor, kernels: torch.Tensor,
        spectrum: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        image = volume.to(memory_format=torch.channels_last)
        return [
            (rows * weight).sum(-1) + bias, left @ right, right.mT @ left.mT, x.repeat_interleave(2, -1),
            volume.repeat_interleave(3, dim=-2),
            torch.tensordot(volume[..., :5], volume[:, 1:, :, 1:], ([2, 3], [3, 2])),
            torch.tensordot(volume, long[:, :30].reshape(3, 5, 6), ([2, 3, 1], [1, 2, 0])), *long.topk(100),
            *long.topk(70, largest=False), long.topk(65, 1)[0], torch.cat([image, image * 2], 2),
            torch.cat([image * 3, image], -1), torch.cat([image, image + 1]),
            F.pad(volume, (-1, 2, 1, -1), mode="reflect"), F.pad(long, (2, -2), mode="replicate"),
            F.pad(volume, (-1, 1, 2, -1), mode="circular"), F.avg_pool2d(F.pad(volume, (1, 1, 1, 1)), 3, 2),
            F.avg_pool2d(F.pad(volume, (0, 1, 0, 1)), 2, ceil_mode=True), spectrum.var(0).sqrt(), spectrum.std(),
            *torch.var_mean(spectrum, 1, correction=0), volume[0].index_add(1, places, volume[1]),
            volume[0].scatter_add(1, places[:, None].expand(3, 5, 6), volume[1] * 2), F.conv2d(volume, kernels),
            F.conv2d(F.conv2d(volume, kernels), kernels.transpose(0, 1)), torch.addmm(x[0, 0], x, x.mT),
            wide.lerp(wide.flip(0), wide.sigmoid()), F.cross_entropy(volume[0], places.repeat(4)[:18].view(3, 6)),
            F.cross_entropy(volume[:, :, None], places.repeat(12).view(2, 1, 5, 6), reduction="none"),
        ]  # fmt: skip

    return with_gradients(trial, f, x, volume, long, rows, weight, bias, left, right, wide, kernels, spectrum)


@case("int32")
def whole_numbers_of_each_form(trial: Trial) -> Any:
    """Products of matrices of large integers are exact, and conversions beyond 31 bits; integers are weighed and sorted
    into ranges, words are int32, and classes, ends of ranges and infinities are told from what is given."""
    large = trial.given(torch.tensor([[2**31 - 1, 5, -(2**31)], [2**24 + 1, 3, 2**30 + 1]], dtype=torch.int32))
    whole, words = trial.tensor(4, 5, dtype=torch.int64), trial.given(torch.tensor([3, 0, 1], dtype=torch.int32))
    far = trial.given(torch.tensor([3e9, -5e12, 2.0**40, -7.75, 2147483648.0]))
    x, ends = trial.tensor(4, 5), trial.given(torch.tensor([_INF, -_INF, _NAN, 1.5]))
    limits = trial.given(torch.tensor([-3, 0, 4]))

    def f(
        large: torch.Tensor, whole: torch.Tensor, words: torch.Tensor, far: torch.Tensor, x: torch.Tensor,
        ends: torch.Tensor, limits: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        return [
            F.linear(large, large), torch.dot(large[0], large[1]), torch.mv(large, large[1]), large @ large.mT,
            torch.addmm(large[:, :2], large, large.mT), torch.bmm(large[None], large.mT[None]), large.float().long(),
            far.long(), far.to(torch.int64) + 1, torch.bucketize(whole, limits),
            torch.bucketize(whole, limits, right=True),
            torch.searchsorted(limits, whole), torch.addcmul(whole, whole, whole, value=3), F.one_hot(whole.abs()),
            x.index_select(0, words), F.embedding(words, x), F.embedding(words.view(3, 1), x), x.index_select(1, words),
            torch.histc(x, 4, 2, 2), ends.nan_to_num(neginf=-3.0), ends.nan_to_num(posinf=3.0), ends.nan_to_num(7.0),
            whole.repeat_interleave(2, -1),
        ]  # fmt: skip

    return trial.run(f, large, whole, words, far, x, ends, limits)


@case("training", "float16", "float64")
def gradients_of_layers_apart(trial: Trial) -> Any:
    """Layers, losses and products with sizes, dtypes and arguments that others do not have, and their gradients."""
    x, volume, long = trial.tensor(2, 3, 7, 6), trial.tensor(2, 3, 5, 6, 7), trial.tensor(2, 3, 300)
    kernels, matrix, v = trial.tensor(4, 3, 5), trial.tensor(4, 6), trial.tensor(6)
    half, wide = trial.tensor(2, 4, 6, 6, dtype=torch.float16), trial.tensor(4, 5, dtype=torch.float64)
    integers = trial.tensor(4, 6, dtype=torch.int64)
    classes = trial.given(torch.tensor([1, 0, 5, 3]))
    # A number beside one is another target.
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0], device=trial.device)
    places = trial.given(torch.tensor([[3, 0], [1, 1], [2, 0]]))
    pixels, factors = trial.tensor(2, 6, 7, dtype=torch.float16), trial.tensor(2, 6, 6, dtype=torch.float16)

    def f(
        x: torch.Tensor, volume: torch.Tensor, long: torch.Tensor, kernels: torch.Tensor, matrix: torch.Tensor,
        v: torch.Tensor, half: torch.Tensor, pixels: torch.Tensor, factors: torch.Tensor, wide: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        bits = (matrix.detach() > 0).to(matrix.dtype)
        grid = matrix[:, :4].reshape(1, 4, 2, 2).tanh() * 1.4
        return [
            F.max_pool3d(volume, 3, 2, 1, ceil_mode=True), F.max_pool2d(x, 2, 2, 0, 2, ceil_mode=True),
            F.max_pool1d(long[..., :9], 2, 2, 1, 2, ceil_mode=True), F.avg_pool3d(volume, 3, 2, 1, True),
            F.conv1d(long, kernels), F.conv1d(long, kernels, stride=3, padding=2),
            F.hinge_embedding_loss(matrix[:, 0], signs, margin=0.4), F.multi_margin_loss(matrix, classes, p=2),
            F.cosine_embedding_loss(matrix, matrix.flip(0), signs, margin=0.3),
            F.multilabel_soft_margin_loss(matrix, bits, weight=v.detach().abs()),
            F.max_pool2d(pixels, 3, 2, 1),
            F.batch_norm(half, None, None, v[:4].to(half.dtype), v[2:].to(half.dtype), True),
            F.dropout(matrix, 1.0), F.dropout2d(x, 1.0), 2 - matrix, 1.5 - v, matrix * integers,
            matrix.gather(0, places.repeat(2, 3)), matrix.gather(1, places.repeat(1, 5)[:, :9]),
            torch.matmul(matrix, x.mT), wide @ wide.mT, wide.mT @ wide[:, :3], v.outer(v), torch.tensordot(v, v, 0),
            matrix.norm(dim=0, keepdim=True), matrix.norm(p=1, dim=1, keepdim=True), factors[0] @ factors[1],
            F.grid_sample(x[:1], grid, padding_mode="border", align_corners=True),
            F.grid_sample(x[:1], grid, padding_mode="reflection", align_corners=False),
            F.grid_sample(x[:1], grid, mode="bicubic", padding_mode="border", align_corners=False),
            torch.linalg.lstsq(matrix.mT, matrix.mT[:, :2] + v[:, None]).solution, matrix.cov(),
            torch.linalg.svd(matrix.detach(), full_matrices=True).S,
        ]  # fmt: skip

    return with_gradients(trial, f, x, volume, long, kernels, matrix, v, half, pixels, factors, wide)


@case("float16", "float64")
def draws_of_each_share(trial: Trial) -> Any:
    """What is dropped of half precision and where it stands is scaled alike, nothing and everything can be dropped, and
    numbers are drawn in double precision."""
    x, image, half = trial.tensor(5, 9), trial.tensor(2, 3, 4, 5), trial.tensor(6, 7, dtype=torch.float16)

    def f(x: torch.Tensor, image: torch.Tensor, half: torch.Tensor) -> list[torch.Tensor]:
        copy = x * 1
        return [
            F.dropout(half, 0.3), F.dropout(copy, 0.5, inplace=True), copy, F.dropout(x, 1.0), F.dropout(image, 0.0),
            F.dropout2d(image, 1.0), F.dropout3d(image[None], 0.4), F.dropout1d(image[0], 0.5), F.alpha_dropout(x, 0.3),
            F.alpha_dropout(x, 1.0), F.feature_alpha_dropout(image, 0.4),
            torch.randn(5, dtype=torch.float64, device=x.device), torch.rand(5, dtype=torch.float64, device=x.device),
            torch.rand(7, dtype=torch.float16, device=x.device), torch.randn_like(half), x,
            torch.normal(x.double(), 0.5), torch.randint(3, 9, (4,), dtype=torch.int32, device=x.device),
        ]  # fmt: skip

    return trial.run(f, x, image, half)


@case()
def forms_of_layers_and_moves(trial: Trial) -> Any:
    """Kernels of one row or one column, norms of nearly equal numbers, moves by more than there is, many parts that are
    joined, and losses at the ends of their domains."""
    images, volume, x = trial.tensor(2, 3, 6, 9), trial.tensor(2, 4, 3, 5), trial.tensor(2, 3, 7)
    row, column = trial.tensor(4, 3, 1, 5), trial.tensor(4, 3, 3, 1)
    sure = trial.given(torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5]))
    told = trial.given(torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]))

    def f(i: torch.Tensor, v: torch.Tensor, x: torch.Tensor, *w: torch.Tensor) -> list[torch.Tensor]:
        return [
            F.conv2d(i, w[0], padding=(0, 2)), F.conv2d(i, w[1], None, (2, 1)), x.roll(9, 2), x.roll(-13, -1),
            x.roll(50), F.pad(x, (6, 5), "circular"), torch.cat([x[..., : 1 + n % 3] * n for n in range(1, 41)], -1),
            F.group_norm(v * 1e-3, 2, eps=1e-4), F.instance_norm(v * 1e-3, eps=1e-4),
        ]  # fmt: skip

    def losses(sure: torch.Tensor, told: torch.Tensor) -> list[torch.Tensor]:
        return [F.binary_cross_entropy(sure, told), F.binary_cross_entropy(sure, told, reduction="none")]

    return trial.run(f, images, volume, x, row, column), trial.run(losses, sure, told)
