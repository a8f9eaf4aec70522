"""Operators behind others, as compilers join them, where joining needs care: other dimensions, other numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ..arguments.windows import with_gradients

case = Collection("semantics/joins")


@case()
def layers_and_what_follows(trial: Trial) -> Any:
    """What is added to or multiplied with a layer's result along each dimension, and layers behind layers."""
    image, weights = trial.tensor(2, 4, 6, 6), [trial.tensor(4, 4, 3, 3), trial.tensor(4, 4, 2, 2), trial.tensor(4)]
    matrix, square = trial.tensor(6, 6), trial.tensor(6, 6)

    def images(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        y = F.conv2d(x, w, padding=1)
        return [
            y * x[:, :1, :1, :1], y + x[:, :1, :1, :1], y * x[:, :1], y + x[:1], y * x[:1, :1, :, :1],
            y * b[:, None, None],
            y + b[:, None, None], y + y, y * x, y - x, F.conv2d(y, v, stride=2),
            F.conv2d(F.conv2d(x, w, stride=2), v),
            F.conv2d(F.relu(y), w, dilation=2), F.max_pool2d(F.conv2d(x, v), 2), F.conv2d(F.max_pool2d(x, 2), v),
            F.conv2d(F.avg_pool2d(x, 2), v, padding=1), F.relu(y * -1), F.relu(y + x[:1, :, :1, :1]),
            y.mean((2, 3)) * b,
            F.layer_norm(x + x[:1, :1], (6,)), F.layer_norm(x + b[:, None, None], (6,)), F.relu(x + y).amax((1, 3)),
            F.interpolate(y, scale_factor=2) + F.interpolate(x, scale_factor=2),
            F.conv2d(torch.cat([x, y], 1)[:, 2:6], v),
        ]  # fmt: skip

    def products(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        z = x @ y
        return [
            z + x[:, :1], z + x[:1], z * x[:, :1], z * x[:1], z * x, z + x[0], z * x[0, 0], z - x[:, :1],
            x[:, :1] - z, z / (x[:1] + 9),
            (z + x[:, :1]).relu(), (x * y[:1]) @ y, (x * y[:, :1]) @ y, (x + y[:1]) @ y, x.t() @ y + x.t(),
            z @ z + x[:, :1],
            (x @ y.t()).softmax(0), (z * 0.5 + x[:, :1]).softmax(-1), z.sum(0) + x[:, 0], (z + 1) * x[:1] + y[:, :1],
        ]  # fmt: skip

    return trial.run(images, image, *weights), trial.run(products, matrix, square)


@case(reference=False)
def functions_of_functions(trial: Trial) -> Any:
    """Functions that undo or repeat others, over numbers where they do not: large, small, negative, infinite, nan."""
    infinity, nan = float("inf"), float("nan")
    numbers = (0.0, -0.0, 1e-30, -1e-30, 3e-20, 0.3, -2.7, 5.5, -7.0, 1e20, -1e20, 3e37, infinity, -infinity, nan)
    others = (2.0, 0.0, 1e30, 7.0, 0.1, -0.3, 3.0, -1e-3, 1e3, 1e-20, 1e20, 3e37, 1.0, infinity, 2.0)
    x, y = trial.given(torch.tensor(numbers)), trial.given(torch.tensor(others))

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            (x + y) - x, (x + y) - y, (x * y) / y, (x / y) * y, x.sqrt() * x.sqrt(), x.sqrt() ** 2,
            x.reciprocal().reciprocal(),
            x.abs().clamp(1e-3, 9).log().exp(), x.exp().log(), (x * 1000).tanh().atanh(), y.relu().clamp(min=0),
            y.relu().clamp(max=0.2), -(x - y),
            (x * x).abs(), (x**2).abs(), (x < y).logical_not(), ~(x > y), torch.minimum(torch.maximum(x, y), x),
            (x / y).floor(),
            torch.maximum(torch.minimum(x, y), -y), x.clamp(-1e9, 1e9).long().float(), (x - y).abs(),
            x.abs().sqrt().square(),
            x.sign() * x.abs(), torch.where(x > 0, torch.where(y > 1, x, y), -x), torch.where(x > y, x, y),
            x.neg().abs().neg(),
            x.square().sqrt(), x.exp() * (-x).exp(), (x + 1e20) - 1e20, (x * 1e30) * 1e-30, 1 / (1 / x),
            x - (x + y), x.frac() + x.trunc(),
            x.double().float(), x.half().float(), x.bfloat16().float(), x.isnan() | (x != x), (x == x) & (y == y),
            x * 0 + y, x.pow(2).pow(0.5),
            x.pow(0.5).pow(2), x.abs().clamp(max=9).log2().exp2(), x.sinh().asinh(), x.abs().expm1().log1p(),
            x.clamp(min=1).clamp(max=0),
            x.clamp(-1, 1) * 2 - x,
            torch.fmax(x, y) - torch.fmin(x, y), (x * y + x) / x, (x % 3) - x, (x // 2) * 2 + x % 2,
            x.deg2rad().rad2deg(),
        ]  # fmt: skip

    return trial.run(f, x, y)


@case(terms=9)
def reductions_behind_others(trial: Trial) -> Any:
    """Reductions of what was masked, shared out, joined, spread, shifted, converted or reduced before."""
    x, mask = trial.tensor(6, 9), trial.given(torch.arange(54).view(6, 9) % 4 == 0)
    mask[2] = True

    def f(x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        low = float("-inf")
        shares = x.masked_fill(mask, low).softmax(-1)
        return [
            shares, torch.where(mask, low, x).softmax(-1), torch.where(mask, low, x).log_softmax(-1),
            shares.topk(2).values, x.softmax(-1).argmax(-1),
            x.softmax(-1).topk(3).values, x.sigmoid().sort(-1).values, (x * 1000).softmax(-1).max(-1).values,
            (x + 1e4).var(0), (x - 300).std(-1),
            (x * 100).mean(), x.sum(0).mean(), x.sum(-1).mean(), x.mean(0).sum(), x.amax(0).amin(0),
            x.amax(1, keepdim=True).amax(0), x.exp().sum(0).log(),
            x.exp().sum(-1).log(), torch.stack([x, x + 1, x * 2, -x]).sum(0),
            torch.stack([x, -x, x * 3, x, x]).amax(0), torch.stack([x[0]] * 5).mean(0),
            x[:, None].expand(6, 3, 9).sum(1), x[0].expand(5, 9).sum(0), x[:1].expand(4, 9).sum(),
            x[:, :1].expand(6, 9).mean(1), x.expand(2, 6, 9).amax(0),
            x.cumsum(0).cumsum(1), x.cumsum(1).flip(1), x.flip(0).cumsum(0).flip(0), x.cumsum(0).sum(0),
            x.half().float().sum(0), x.half().sum(0).float(),
            x.bfloat16().float().mean(-1), x.to(torch.float64).sum().float(), x.clamp(0, 1).sum(0).clamp(0, 1),
            (x > 0).sum(0) * 2, (x > 0).float().mean(),
            (x * mask).sum(0), x.masked_fill(mask, 0).sum(0) / (~mask).sum(0),
            (x - x.mean(0)).square().mean(0).sqrt(), x.sort(0).values.sum(0),
            x.norm(dim=0).norm(), F.normalize(F.normalize(x, dim=0), dim=1), x.t().contiguous().sin().t().argmax(),
            x.clone().sin_().t().argmax(),
            x.clone().mul_(-1).t().argmin(), x.mul(2).t().flatten().argmax(), x.t().reshape(-1).cumsum(0),
            x.permute(1, 0).flatten().sum(),
        ]  # fmt: skip

    return trial.run(f, x, mask)


@case()
def moves_behind_moves(trial: Trial) -> Any:
    """What is joined and cut again, put aside and read, selected twice, turned twice, and read in another dtype."""
    x, y = trial.tensor(4, 6), trial.tensor(4, 6)
    index, volume = trial.given(torch.tensor([3, 0, 2, 2])), trial.tensor(2, 3, 4, 5)

    def f(x: torch.Tensor, y: torch.Tensor, index: torch.Tensor, volume: torch.Tensor) -> list[torch.Tensor]:
        both = torch.cat([x, y])
        return [
            both[2:6], both[:4], both[4:], torch.cat([x, y], 1)[:, 4:8], both.split(3)[1], both.narrow(0, 3, 2),
            both.chunk(2)[1], torch.cat([both[:3], both[3:]]),
            F.pad(x, (1, 2))[:, 1:-2], F.pad(x, (1, 2), value=3.0)[:, :2], F.pad(x, (0, 0, 1, 1))[1:5],
            F.pad(F.pad(x, (1, 1)), (-1, -1)),
            F.pad(F.pad(x, (1, 0), value=2.0), (0, 1), value=5.0), x.index_select(0, index).index_select(0, index),
            x[index][index], x.gather(0, index[:, None].expand(4, 6)).gather(1, index[None].expand(4, 4)),
            F.embedding(index[index], x), x[index][:, index], x[:, index][index], x.flip(0).flip(1),
            x.flip(0)[index], x.roll(1, 0).roll(-1, 0), x.roll(5, 0), x.roll((1, -2), (0, 1)), x.roll(9),
            torch.where(x > 0, torch.where(y > 0, x, y), torch.where(y > 0, -x, -y)),
            torch.where(torch.where(x > 0, y > 0, y < 0), x, y),
            x.view(torch.int32).view(torch.float32), x.view(torch.int32).abs().view(torch.float32),
            x.view(torch.uint8).view(torch.int16).float(),
            x.view(torch.int32)[:, ::2].contiguous().view(torch.float32),
            volume.permute(0, 2, 3, 1).reshape(2, 20, 3),
            volume.transpose(1, 2).reshape(2, 12, 5),
            volume.permute(3, 1, 0, 2).flatten(1), volume.permute(0, 2, 3, 1).permute(0, 3, 1, 2),
            volume.transpose(0, 1).transpose(1, 2).contiguous(), volume.transpose(1, 3).reshape(-1, 3),
            volume.flip(0, 1, 2), volume[0].flip(0, 1, 2),
            volume.permute(1, 0, 2, 3).unflatten(0, (3, 1)).flatten(1, 2), volume.mT.mT + 1,
            volume.view(6, 20).t().reshape(4, 5, 6), volume.swapaxes(0, 3).unbind(0)[1],
            torch.stack([x, y]).unbind(0)[1], torch.stack([x, y], 1)[:, 0], torch.stack([x, y], -1)[..., 1],
            torch.stack([x, y], -2).flatten(1), x.unsqueeze(1).squeeze(1)[1:], x.repeat(2, 1)[3:5],
            x.tile(2)[:, 5:7],
            x.repeat_interleave(2, 0)[::2], x.expand(3, 4, 6)[1:].flatten(0, 1), x.unfold(0, 2, 1).flatten(1),
            x.unfold(1, 2, 3)[:, 1], x.diagonal().diag(), x.diag_embed().diagonal(1), x.tril().triu(),
            x.triu(1).tril(2), x.tril(-1) + x.triu(),
            x.scatter(0, index[None, :].expand(1, 4), y).gather(0, index[None, :].expand(1, 4)),
            x.masked_fill(x > 0, 1.0).masked_fill(y > 0, 2.0), x.t()[1:3].t(), x[1:][1:][:, 1:][0], x[::2][1:],
            x[1:, ::3][:, 1:], x[None][..., None].squeeze(),
        ]  # fmt: skip

    return trial.run(f, x, y, index, volume)


@case()
def what_is_joined_and_its_functions(trial: Trial) -> Any:
    """Functions of what was joined leave it as it is, where both are results, and where it is read afterwards."""
    x, y, image = trial.tensor(2, 3), trial.tensor(4, 3), trial.tensor(1, 2, 4, 4)

    def f(x: torch.Tensor, y: torch.Tensor, image: torch.Tensor) -> list[torch.Tensor]:
        joined = [
            torch.cat([x[0], y[1]]), torch.cat([x[0] * 2, y[1] + 1, x[1]]), torch.stack([x.sum(), y.mean()]),
            torch.cat([x, y]), torch.cat([image, image * 2], 1), torch.cat([x, y[:2]], 1),
        ]  # fmt: skip
        found = []
        for z in joined:
            found += [z.abs(), z.view(-1).abs().sum(), F.logsigmoid(z), z.neg(), z.relu(), z.sum(0), z]
        return found

    return trial.run(f, x, y, image)


@case("training")
def turned_behind_reshapes(trial: Trial) -> Any:
    """What is turned after its dimensions were added, joined or cut, and rows beside those that are turned."""
    row, x = trial.tensor(6), trial.tensor(6, 5)

    def f(row: torch.Tensor, x: torch.Tensor) -> list[torch.Tensor]:
        column = row[:, None]
        return [
            column.flip(0) * x, (column * x).flip(0), x + (column * x.sum(1, True)).flip(0),
            x.reshape(5, 6).flip(0, 1).reshape(6, 5).t() * row, row.reshape(2, 3).flip(1).reshape(-1) + row,
            torch.cat([row, row]).reshape(2, 3, 2).flip(1, 2).reshape(6, 2) * x[:, :2], column.roll(2, 0) + x,
            x.flatten().flip(0)[3:18].reshape(3, 5) * 2, x.t().flip(1).reshape(6, 5) - x, x[:, ::2].flip(0, 1) + column,
            F.cosine_similarity(x, x.flip(0), 1),
        ]  # fmt: skip

    return with_gradients(trial, f, row, x)
