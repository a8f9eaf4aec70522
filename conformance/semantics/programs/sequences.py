"""More of two operators in a row: behind turns and tables, layers and what follows them, and numbers of places."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/sequences")


@case(terms=40)
def behind_turns(trial: Trial) -> Any:
    """What compilers move a turn through: reductions, scans, places, parts, borders, norms and choices behind one."""
    x, rows = trial.tensor(3, 4, 5), trial.given(torch.tensor([2, 0]))

    def f(x: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        y, z = x.permute(2, 0, 1), x.transpose(0, 2)
        return [
            y.argmax(), y.argmax(0), y.argmin(2), F.pad(y, (1, 0, 0, 2)), y.flip(1), y.cumsum(0), y.unfold(1, 2, 1),
            y.repeat(1, 2, 1), *y.split([2, 3]), y.chunk(2, 2)[1], y.max(1).values, z.max(2).indices, y.mean(0),
            z.amax((0, 2)), y.index_select(1, rows), y.gather(1, rows.expand(5, 4, 2).transpose(1, 2)), y.roll(1, 2),
            z.roll(2), y[:, None], y.unsqueeze(-1).expand(5, 3, 4, 2), z.topk(2, 1).values, y.norm(dim=1), y.var(0),
            z.std((1, 2)), y.prod(2), z.argsort(0), torch.stack([y, y + 1], 2), y.select(1, 2),
            torch.where(y > 0, y, 0.5), x.abs().permute(2, 0, 1).cumprod(0), (y > 0).any(1), (z > 0).all(2),
            y.log_softmax(0), z.log_softmax(1), y.sort(1).values, z.median(0).values,
            F.batch_norm(y, None, None, training=True), F.conv1d(y, y[:2, :, :2]), y.take(rows), z.reshape(-1)[3:],
            y.diff(dim=1), z[..., :1].squeeze(-1), y.tril(), y.diagonal(0, 0, 2), F.layer_norm(y, (3, 4)),
            F.normalize(y, dim=0), z.logcumsumexp(1), y.flatten(1), z.unflatten(0, (5, 1)), F.avg_pool1d(y, 2),
            F.max_pool1d(y, 2), F.interpolate(y, scale_factor=2), y.matmul(z),
        ]  # fmt: skip

    return trial.run(f, x, rows)


@case(terms=64)
def layers_and_what_follows(trial: Trial) -> Any:
    """Convolutions and layers before norms with statistics, activations, pools, and what lies along another dimension
    than their channels; scales on both sides of a product; borders before pools and sums."""
    x, w, row = trial.tensor(2, 4, 4, 4), trial.tensor(4, 4, 3, 3), trial.tensor(2, 4, 8)
    along, deep, s = trial.tensor(4), trial.tensor(4, 2, 3, 3), trial.tensor(8, 8)
    mean, spread, learned = trial.tensor(4), trial.tensor(4, low=0.5, high=2.0), trial.tensor(4)

    def f(
        x: torch.Tensor, w: torch.Tensor, row: torch.Tensor, along: torch.Tensor, deep: torch.Tensor, s: torch.Tensor,
        mean: torch.Tensor, spread: torch.Tensor, learned: torch.Tensor,
    ) -> list[torch.Tensor]:  # fmt: skip
        y, z = F.conv2d(x, w, padding=1), F.conv1d(row, w[:, :, 0], padding=1)
        up, line = F.conv_transpose2d(x, w, padding=1), F.linear(x.mean(1).flatten(1)[:, :8], s)

        def norm(t: torch.Tensor) -> torch.Tensor:
            return F.batch_norm(t, mean, spread, learned, along)

        joined = norm(y)
        return [
            F.gelu(y), F.hardswish(y), F.silu(y), F.leaky_relu(y, 0.2), F.prelu(y, along), y.tanh(),
            F.avg_pool2d(y, 2), F.adaptive_avg_pool2d(y, 2), y + along, y * along, y + along[:, None],
            y * along[:, None, None], y.mul(along[:, None, None]).add(mean[:, None, None]), norm(y) + y,
            F.leaky_relu(joined), F.hardswish(joined), F.avg_pool2d(joined, 2), joined.flatten(1), norm(z), F.gelu(z),
            F.max_pool1d(z, 2), z + row, norm(F.conv2d(x, deep, groups=2)),
            norm(F.conv_transpose2d(x, deep, groups=2)[:, :4]), norm(F.conv_transpose1d(row, w[:, :, 1])), up + x,
            torch.cat([up, x], 1), F.conv_transpose1d(row, w[:, :, 0]).tanh(), F.batch_norm(line[:, :4], mean, spread),
            norm(line[:, :4]), F.batch_norm(y, mean, spread), F.batch_norm(y, mean, spread, None, along),
            F.linear(line, s).log_softmax(1), F.relu(F.group_norm(y, 2)), F.relu(F.instance_norm(y)),
            F.conv2d(F.instance_norm(x), w), F.conv2d(F.adaptive_avg_pool2d(x, 3), w),
            F.adaptive_avg_pool2d(x, 1).flatten(1) @ s[:4], F.interpolate(y, scale_factor=2).sigmoid(),
            F.pixel_shuffle(x, 2).relu(), F.conv2d(F.gelu(x), w), F.conv1d(F.pad(row, (2, 0)), w[:, :, 0]),
            F.conv1d(row.flip(2), w[:, :, 0]), F.conv2d(F.pixel_unshuffle(x, 2)[:, :4], w[:, :, :2, :2]),
            (row / 2) @ (s / 3), (row * 0.5) @ (s * 4).t(), (row * 2).matmul(s) * 3, (row.permute(1, 0, 2) @ s).relu(),
            row.transpose(0, 2) @ row.transpose(0, 2).transpose(1, 2), torch.einsum("bij,bij->bi", row, row[:, :1]),
            F.rms_norm(row, (8,)) * s[0], F.linear(F.rms_norm(row, (8,)), s), F.linear(row.sigmoid(), s),
            row.softmax(-1).topk(2).values, (row @ s).sigmoid(), (row @ s).exp().sum(1), (row @ s).log_softmax(1),
            (row @ s).argmax(2), (row @ s).masked_fill(s[:4] > 0, -1), torch.addmm(s[0], s, s).softmax(1),
            torch.bmm(row, row.transpose(1, 2)) + 1, torch.bmm(row, s.expand(2, 8, 8)).sum(0),
            y.chunk(2, 1)[0] + F.conv2d(y.chunk(2, 1)[1], w[:2, :2], padding=1),
            norm(F.conv2d(x, w)).relu() + F.conv2d(x, w),
        ]  # fmt: skip

    return trial.run(f, x, w, row, along, deep, s, mean, spread, learned)


@case(terms=40)
def tables_and_places(trial: Trial) -> Any:
    """Counts and grids, what is looked up by them, parts of numbers, ranks, and what is drawn from comparisons."""
    x, table, words = trial.tensor(4, 6), trial.tensor(7, 6), trial.given(torch.tensor([[1, 6, 0], [3, 3, 5]]))

    def f(x: torch.Tensor, table: torch.Tensor, words: torch.Tensor) -> list[torch.Tensor]:
        here, places = x.device, torch.arange(6, device=x.device)
        e, y = F.embedding(words, table), x.exp()
        grid = torch.meshgrid(torch.arange(4, device=here), places, indexing="ij")
        ends = torch.meshgrid(
            torch.linspace(0, 1, 3, device=here), torch.linspace(-1, 1, 2, device=here), indexing="xy"
        )
        lower = torch.ones(6, 6, device=here, dtype=torch.bool).tril()
        ranks, best = x.argsort(1).argsort(1), x.argmax(1, True)
        hot = F.one_hot(words, 7).to(x.dtype)
        return [
            F.embedding(places, table), table.gather(0, places[None] % 7), torch.where(places > 2, x, 0.0),
            (places >= 3) * x, (places + 1).cumsum(0), (places.to(x.dtype) + 1).pow(-0.5),
            torch.outer(x[0], places.to(x.dtype)), torch.stack(grid), grid[0] * grid[1], torch.stack(ends, -1),
            ends[0] * ends[1], (x[:1].t() @ x[:1]).masked_fill(~lower, -1.0).softmax(-1),
            (x[:1].t() @ x[:1]).masked_fill(lower.triu(), 0.0), (words == 3).any(1), (words == 3).to(x.dtype).mean(),
            (words == 3).cumsum(1), (words != 3).cumsum(0), (words == 3).int().argmax(1), (x / 0).isnan().any(),
            torch.where((x / 0).isinf(), 1.0, x), torch.where((x > 0) & (x < 1), x, 2.0),
            torch.where((x > 1) | (x < -1), x, 0.0), torch.where(torch.logical_and(x > 0, y > 2), x, 1.0),
            x.masked_fill((x > 0).logical_not(), 0.0), x.gather(1, best), x.gather(1, x.argmin(1, True)),
            x.topk(3).values.softmax(-1), ranks, table.index_select(0, ranks[0]), x - x.max(1, True).values,
            x / x.abs().amax(1, True), x / x.norm(dim=1, keepdim=True).clamp(min=1e-6), F.layer_norm(e, (6,)),
            e @ x.t(), e.transpose(1, 2), F.conv1d(e.transpose(1, 2), table[:, :, None][:2]), torch.cat([e, e], -1),
            F.scaled_dot_product_attention(e, e, e), hot @ table, hot.sum(1), words % 4 == 1,
            F.embedding(words % 4, table), F.embedding(words // 2, table), (words // 2) % 3, (words >> 1) & 1,
            (words & 3) != 0, (words & 1).to(x.dtype), (words << 2) | 1, (words << 1) + 1,
            torch.where(words % 3 == 0, words, 0), torch.div(words, 2, rounding_mode="floor") * 2,
            *x.split([2, 4], 1)[0].softmax(1), x.chunk(2, 1)[1].sigmoid(), x.chunk(2, 1)[0].softmax(0),
            x.unbind(0)[1] * 2, torch.stack(x.unbind(1)[::-1], 1), x.unbind(0)[0] @ x.t(),
            torch.stack([x.select(0, 1), x.select(0, 3)], 1), x.as_strided((3, 2), (6, 2), 1).sum(0),
            x.as_strided((2, 3), (7, 2)) * 2, x.triu(1).sum(0), (-x).softmax(1), (-x).relu(), (-x).topk(2).values,
            (-x).amax(0), x.clamp(-1, 1).relu(), x.clamp(max=0.5).relu(), x.relu().clamp(min=-1, max=1),
            x.floor().to(torch.int32), (x * 3).relu().to(torch.uint8), x.round().to(torch.int64), y.log1p().exp(),
            y.log().sum(1), y.pow(2).sqrt(), y.reciprocal() * x, F.softplus(x).exp(), F.softplus(x) + 1,
            x.to(torch.bfloat16).softmax(1), x.softmax(1).to(torch.float16), x.half().float().softmax(-1),
            x[:, :1].expand(4, 6).prod(1), x[:, :1].expand(4, 6).var(1), (x[:1] > 0).expand(4, 6).any(0),
            torch.cat([x, x + 1], 1).max(1).indices, torch.stack([x, y]).max(0).values, x.repeat(2, 1) @ x.t(),
            x.repeat(1, 2).softmax(1), x.repeat(2, 2).mean(0), x.flip(1).softmax(1), table.flip(0)[words],
            F.pad(x, (1, 1))[:, 2:], F.pad(x[1:, 1:], (1, 0)), F.pad(x, (2, 2)).narrow(1, 1, 5),
            torch.cdist(x, table).min(1).values, (-torch.cdist(x, table)).exp(), torch.cdist(x, table).topk(2).values,
            torch.lerp(x, y, 0.5) * x, torch.addcdiv(x, x, y) + 1, torch.addcmul(y, x, x).sqrt(),
            (torch.remainder(words, 3) == 0).sum(), x.scatter(1, ranks, y).sum(0), x.scatter(1, ranks, y) @ x.t(),
            x.index_add(0, words[0] % 4, x[:3]).sum(1), x.flatten().unflatten(0, (3, 8)),
        ]  # fmt: skip

    return trial.run(f, x, table, words)
