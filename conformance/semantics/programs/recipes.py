"""Two operators in a row, as layers, losses and recipes have them: what compilers join, one pair at a time."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/recipes")


def _mask(trial: Trial, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return trial.given(torch.arange(count).view(shape) % 3 == 0)


@case(terms=16)
def places_and_what_is_there(trial: Trial) -> Any:
    """What is taken from places that were just computed, and what is done with it; orders and counts in turn."""
    x, table, places = trial.tensor(5, 8), trial.tensor(9, 8), trial.given(torch.tensor([[4, 0, 7], [1, 1, 8]]))
    mask = _mask(trial, 5, 8)

    def f(x: torch.Tensor, table: torch.Tensor, places: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        order, best = x.sort(-1), x.topk(3)
        runs = mask.long().cumsum(-1)
        spots = x.argmax(-1)
        shares, words = x.softmax(-1), F.embedding(places, table)
        taken, hot = x.gather(1, places[:, :2].repeat(3, 1)[:5]), F.one_hot(places % 5, 5).to(x.dtype)
        added = torch.zeros_like(x).scatter_add(1, order.indices, x)
        return [
            x.gather(1, runs), table.gather(0, order.indices),
            torch.zeros_like(x).scatter(1, best.indices, best.values), table[:5].gather(1, best.indices),
            words.sum(1), words.mean(1), taken.sum(-1), (x * x + 0.5).gather(1, spots[:, None]).log(),
            taken * 3,
            table.index_select(0, spots).sum(0), torch.cat([x.index_select(0, places[0] % 5), x]), hot @ x, hot * 2,
            hot.sum(0), F.one_hot(spots, 8) * x, order.values.cumsum(-1), order.values.diff(dim=-1), runs < 3,
            x.masked_fill(runs <= 2, 0.0), x.gather(1, spots[:, None]), spots == spots.flip(0),
            x.max(-1).values.unsqueeze(-1) - x, x.gather(1, x.cummax(-1).indices), x > x.kthvalue(3, -1, True).values,
            x - x.quantile(0.25, -1, True), x - x.median(-1, True).values, added / 3, added.gather(1, order.indices),
            x.index_add(0, places[0, :2], x[:2]) / 2, x.index_add(0, places[0, :2], x[:2]) * x,
            x.scatter_reduce(1, order.indices, x, "mean", include_self=False) - x,
            x.scatter_reduce(1, order.indices, x, "amax").gather(1, order.indices),
            x.index_select(1, places[1] % 8).exp(), x.index_put((places[0] % 5, places[1] % 8), x[0, :3]).sum(-1),
            x.index_copy(0, places[0, :2], x[:2]) @ table.t(), added.softmax(-1), added.sum(0),
            shares.topk(2).indices, shares.gather(1, places[:, :2].repeat(3, 1)[:5]),
            F.embedding(torch.bucketize(x, table[0].sort().values), table),
            table[0].gather(0, torch.searchsorted(table[1].sort().values, x[0]).clamp(max=7)),
            torch.bincount(places.view(-1), minlength=9) / 6, x.log_softmax(-1).gather(1, spots[:, None]),
            shares.cumsum(-1), torch.where(mask, shares, 0.1), shares.unsqueeze(0) * 2, x.log_softmax(0).sum(0),
            x.log_softmax(-1).exp(), mask.nonzero().sum(0), (x == x.flip(0)).sum(), (x != 0).sum(0),
            (x.sign() == 1).to(x.dtype).mean(-1), (x / 0).isnan().sum(), x.repeat_interleave(2, 0) @ table.t(),
            x.repeat_interleave(3, 1).sum(-1), x.repeat_interleave(2, 1) + 1, x.masked_fill(mask, -9.0).amax(0),
            x.masked_fill(mask, -9.0).topk(2).values, x.masked_fill(mask, -9.0).logsumexp(-1),
            x.masked_fill(mask, -9.0).log_softmax(0),
        ]  # fmt: skip

    return trial.run(f, x, table, places, mask)


@case(terms=40)
def sums_and_what_follows(trial: Trial) -> Any:
    """Reductions and scans behind each other, behind views, masks and functions, and what is computed from them."""
    x, mask = trial.tensor(4, 6, 10), _mask(trial, 4, 6, 10)

    def first(x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        least, row, y = x.abs() + 0.5, x[0], x.sigmoid()
        return [
            torch.where(mask, x, 0.0).sum(1), torch.where(mask, x, 1.0).mean(0), torch.where(mask, x, -5.0).amax(-1),
            torch.where(mask, x, 0.5).cumsum(1), torch.where(mask, x, 0.5).topk(2).values,
            torch.where(mask, least, 1.0).log(), (x - x.amax(-1, True)).exp(), x - x.cumsum(-1), x.cumsum(0) / 3,
            x.cumsum(1).exp(), (x * 0.1).exp().cumsum(0), x - x.roll(2, -1), x.roll(1, 0) * x, x.roll(1, 1).sum(0),
            torch.cat([x.roll(3, 2), x], 1), row.roll(1, 0) @ row.t(), row[:, :1].expand(6, 10).cumsum(-1),
            row[:1].expand(6, 10).softmax(0), row[:, :1].expand(6, 10).sort(0).values, y.log(),
            x.abs().log1p().mean(1), (x * 3).round().clamp(-2, 2), x.abs().amax((0, 1)), x.relu().mean((1, 2)),
            torch.cat([x.relu(), x], 0), x - x.logsumexp(1, True), x.pow(2).sum(0), x.logsumexp(-1).mean(),
            y.cumprod(-1) * x, y.cumprod(1).sum(0), y.cumprod(0).log(), x.diff(dim=1).sum(-1), x.diff(dim=-1).abs(),
            x - x.cummax(1).values, x.norm(dim=-1) / 2, y.sum(1), x.tanh().softmax(1), y.prod(-1).log(),
            x.sum(-1).unsqueeze(0) + 1, x.pow(2).sum(1).sqrt(), least.sum(0).reciprocal(), x / least.sum(-1, True),
            x.sum(1).softmax(0), x.mean(1, True).expand(4, 6, 10) * x, x.amax(0, True).expand(4, 6, 10) - x,
            x / x.std(-1, keepdim=True), x * (x.var(1, keepdim=True) + 0.1).rsqrt(), x.permute(2, 0, 1).sum(1),
            x.permute(1, 2, 0).softmax(1), torch.cat([x.permute(0, 2, 1), x.permute(0, 2, 1)], 1),
            x.transpose(1, 2).cumsum(1), x.transpose(0, 2).sort(1).values, x.transpose(0, 1).sum(2),
        ]  # fmt: skip

    def second(x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        row = x[0]
        return [
            x.transpose(1, 2).gather(1, mask.long()[:, :4, :6]), x.flatten(1).softmax(-1),
            x.reshape(4, 3, 20).softmax(1), x.reshape(8, 30).amax(0),
            torch.cat([x.reshape(8, 30), x.reshape(8, 30)], 1), x.reshape(24, 10).topk(3, 0).values,
            x.reshape(4, 2, 3, 10).permute(2, 0, 3, 1), torch.cat([x[:, :3], x[:, 2:]], 1).cumsum(1),
            torch.cat([x, x * 2], -1).sort(-1).values, torch.cat([x, x - 1], 1).topk(3, 1).values,
            torch.cat([x, x * 3], 0).amax((0, 2)), torch.cat([x, x], 1).gather(1, mask.long()),
            torch.stack([x, x * 2], 1).softmax(1), torch.stack([x, -x]).reshape(8, 60), x.movedim(2, 0).sum(1),
            x.swapaxes(0, 2).sum((0, 1)), x[:, None].squeeze(1).sum(0), x.narrow(1, 2, 3) + 1,
            x.narrow(2, 1, 7).sum(-1), torch.cat([x.narrow(0, 1, 2), x.narrow(0, 0, 1)]),
            torch.stack([x[1], x[0]], -1), x.rot90(1, (1, 2)).sum(1), x.flip(1).sum(2),
            torch.cat([x.unsqueeze(1), x.unsqueeze(1)], 1), row.repeat(2, 1) * 2, row.tile(2, 2) + 1,
            x.lerp(x.flip(0), 0.3).sum(1), x.clamp(min=0.1).sqrt(), torch.trapezoid(x, dim=1) / 2,
            row.diagonal().sum(), row.diagonal(1) * 2, row.diagonal().abs().log(), F.pad(x, (1, 2)).mean(-1),
            F.pad(x, (2, 0), value=1.0).cumsum(-1), F.pad(x, (1, 1)).unfold(-1, 3, 2) * 2, x.unfold(2, 4, 3).mean(-1),
            x.unfold(1, 2, 2).amax(-1),
        ]  # fmt: skip

    return trial.run(first, x, mask), trial.run(second, x, mask)


@case(terms=40)
def layers_of_images_and_others(trial: Trial) -> Any:
    """Convolutions, pools and norms of images behind parts, turns, joins and functions, and before them."""
    image, kernel, weights = trial.tensor(2, 4, 6, 6), trial.tensor(8, 4, 3, 3), trial.tensor(8, 4, 3, 3)

    def images(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        y, batch = F.conv2d(x, w, padding=1), F.batch_norm(x, None, None, training=True)
        up = F.conv_transpose2d(y, v, stride=2)
        first, second = y.chunk(2, 1)
        return [
            F.pixel_shuffle(y, 2), F.conv2d(F.pixel_shuffle(y, 2), w[:, :2]),
            torch.cat([F.interpolate(x, scale_factor=2), up[..., :12, :12]], 1), y.permute(0, 2, 3, 1), y.softmax(1),
            y.sigmoid(), first * second.sigmoid(), F.layer_norm(y, (6, 6)), y.amax((2, 3)), up.relu(),
            F.batch_norm(up, None, None, training=True), F.max_pool2d(batch, 2), F.silu(batch),
            F.silu(F.group_norm(x, 2)), F.conv2d(F.group_norm(x, 2), w), F.conv2d(F.relu6(x), w),
            F.conv2d(F.hardswish(x), w), torch.cat([F.max_pool2d(x, 2), F.avg_pool2d(x, 2)], 1),
            F.avg_pool2d(x, 3, 1, 1) - x, F.conv2d(x.permute(0, 1, 3, 2), w),
            F.conv2d(torch.cat([x[:, :2], x[:, 2:] * 2], 1), w),
            F.batch_norm(torch.cat([x, x], 1), None, None, training=True), F.conv2d(x.rot90(1, (2, 3)), w),
            F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False) * 2,
            F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=True).sum(1),
            F.unfold(x, 3).reshape(2, 4, 9, 16), F.fold(F.unfold(x, 3), 6, 3) / 9, F.unfold(x, 2).permute(0, 2, 1),
            F.avg_pool2d(x, 6).flatten(1) @ v[:4, :, 0, 0],
            F.conv1d(y.flatten(2), w[:, :, :, 0].repeat(1, 2, 1)).transpose(1, 2),
            F.glu(F.conv1d(y.flatten(2), w[:, :, 0].repeat(1, 2, 1)), 1),
        ]  # fmt: skip

    return trial.run(images, image, kernel, weights)


@case(terms=40)
def products_and_others(trial: Trial) -> Any:
    """Products and layers, and what recipes put before and behind them: parts, gates, orders, norms, turns."""
    x, square, narrow = trial.tensor(3, 6, 8), trial.tensor(8, 8), trial.tensor(4, 8)

    def products(x: torch.Tensor, s: torch.Tensor, n: torch.Tensor) -> list[torch.Tensor]:
        y, z, row = F.linear(x, n), x @ s, x[0]
        pairs = torch.einsum("bid,bjd->bij", x, x)
        (a, b), (first, second) = F.linear(x, s).chunk(2, -1), x.chunk(2, -1)
        distances = torch.cdist(row, s)
        directions = F.normalize(F.linear(x, s), dim=-1)
        return [
            z.transpose(1, 2), z.permute(1, 0, 2), z.mean(1), z.amax(-1), torch.cat([z, x], -1),
            F.layer_norm(z, (8,)), z.cumsum(1), z.topk(2).values, z.max(1).values, s.tril() @ s,
            F.linear(x, s).reshape(3, 6, 2, 4).permute(0, 2, 1, 3), first * F.gelu(second), a.tanh() * b,
            torch.cat(F.linear(x, s).split([3, 5], -1)[::-1], -1), y.sum(1), y.max(-1).values, y.topk(2).values,
            directions @ directions.transpose(1, 2), F.linear(F.normalize(x, dim=-1), n), torch.cat([y, y * 2], 1),
            y.transpose(1, 2), F.cosine_similarity(x, z, dim=-1).mean(1), distances.softmax(-1), (-distances).exp(),
            distances.topk(2, largest=False).values, distances.sum(0), torch.outer(row[0], s[0]).sin(),
            torch.cat([torch.outer(row[0], s[0]).cos()] * 2, -1), pairs.softmax(-1), pairs + 1, pairs.sum(-1),
            torch.einsum("bij,bjd->bid", pairs.softmax(-1), x), torch.einsum("bij,bjk->bik", pairs, pairs),
            F.linear(F.scaled_dot_product_attention(x, x, x), n), x.mean(1) @ s, F.linear(x.mean(1), n),
            F.linear(F.silu(x), n), F.gelu(x) * z, F.linear(torch.cat([x[..., :4], x[..., 4:] * 2], -1), n),
            F.layer_norm(torch.cat([x, z], -1), (16,)), torch.stack([row, row * 2]) @ s,
            F.layer_norm(x, (8,)).permute(1, 0, 2), F.layer_norm(x.permute(0, 2, 1), (6,)),
            F.layer_norm(x.reshape(9, 16), (16,)), F.conv1d(x.transpose(1, 2), s[:, :, None]),
            F.conv1d(x.flip(2).transpose(1, 2), s[:, :, None]), s.triu().softmax(-1), x.unfold(1, 2, 2) @ s[:2, :3],
            torch.baddbmm(z, x, s.expand(3, 8, 8)).sum(1), torch.cat([torch.bmm(x, s.expand(3, 8, 8)), x], 1),
            torch.addmm(s[0], row, s).relu(), F.gelu(torch.addmm(s[0], row, s, beta=0.1, alpha=0.1)),
            torch.dot(s[0], s[1]) * s,
            torch.mv(s, s[0]).softmax(0), torch.kron(s[:2, :2], s[:2, :2]) @ n, row.flip(1) @ s, x.select(1, 2) @ s,
            x.movedim(1, 0) @ s, x[:, None].squeeze(1) @ s, row.tile(1, 2) @ torch.cat([s, s]),
            torch.fft.rfft(x).abs(), torch.fft.irfft(torch.fft.rfft(x) * 2) + 1,
            torch.view_as_real(torch.complex(x, z)).flatten(2), torch.linalg.qr(s)[0] @ s,
        ]  # fmt: skip

    return trial.run(products, x, square, narrow)
