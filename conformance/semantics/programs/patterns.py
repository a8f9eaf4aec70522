"""Programs that are nearly what compilers have one kernel for: attention, norms, activations, layers side by side."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial
from ..arguments.windows import with_gradients

case = Collection("semantics/patterns")


@case(terms=8)
def nearly_attention(trial: Trial) -> Any:
    """Products beside a softmax that are no attention: over another dimension, scaled after the mask, by a tensor or
    twice, with keys that are not turned, with what stands between, and with shares that are read otherwise."""
    q, k, v = (trial.tensor(2, 2, 4, 4) for _ in range(3))
    mask, scales = trial.tensor(1, 1, 4, 4), trial.tensor(2, 1, 1, low=0.5, high=2.0)

    def f(q: Any, k: Any, v: Any, mask: Any, scales: Any) -> list[torch.Tensor]:
        scores, scale = q @ k.mT, 1 / math.sqrt(4)
        shares = (scores * scale + mask).softmax(-1)
        return [
            (scores * scale).softmax(-2) @ v, ((scores + mask) * scale).softmax(-1) @ v, shares, shares @ v,
            ((q @ k) * scale).softmax(-1) @ v, (scores * scales).softmax(-1) @ v, (scores * scale).softmax(-1) @ v.mT,
            (scores / scale).softmax(-1) @ v, (scores * scale - mask).softmax(-1) @ v, v @ (scores * scale).softmax(-1),
            (scores * scale).log_softmax(-1) @ v, ((scores * scale).softmax(-1) + mask) @ v,
            ((scores * scale).softmax(-1) * 0.5) @ v, (scores * scale).sigmoid() @ v, (scores * mask).softmax(-1) @ v,
            (scores * scale).mT.softmax(-1) @ v, (q * scale) @ (k * scale).mT, (scores * scale).softmax(1) @ v,
            (scores * scale + mask.mT).softmax(-1) @ v, (scores * scale).softmax(-1).triu() @ v,
            F.scaled_dot_product_attention(q, k, v, mask) + v, (scores * scale).softmax(-1).transpose(0, 1) @ v,
        ]  # fmt: skip

    return trial.run(f, q, k, v, mask, scales)


@case(terms=8)
def nearly_norms(trial: Trial) -> Any:
    """What is divided by a spread, but is no norm: of all but one, with the small number elsewhere, with the mean of
    another dimension, by what is not its own, and with weights along another dimension."""
    x, y, w, b = trial.tensor(6, 6), trial.tensor(6, 6), trial.tensor(6), trial.tensor(6)
    image = trial.tensor(2, 4, 3, 3)

    def f(x: Any, y: Any, w: Any, b: Any, image: Any) -> list[torch.Tensor]:
        mean, spread = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
        square = x.square().mean(-1, keepdim=True)
        both = x + y
        return [
            (x - mean) / (x.var(-1, keepdim=True) + 1e-2).sqrt(), (x - mean) / (spread.sqrt() + 1e-2),
            (x - mean) * (spread + 1e-2).rsqrt() * w[:, None] + b, (x - x.mean(0)) / (spread + 1e-2).sqrt(),
            (y - mean) / (spread + 1e-2).sqrt(), (x + mean) / (spread + 1e-2).sqrt(), (x - mean) / (spread + 1e-2),
            (x - mean) / (spread + 1e-2).sqrt() * w + b[:, None], (x - mean) * (spread + 1e-2).sqrt(),
            x * (square + 1e-2).rsqrt(), x * square.rsqrt() + 1e-2, x / (square.sqrt() + 1e-2), x / (square + 1e-2),
            x * (x.square().mean(0) + 1e-2).rsqrt(), y * (square + 1e-2).rsqrt(), x * (x.abs().mean(-1, True) + 1e-2),
            x * (square * 6 + 1e-2).rsqrt() * w, x * (square + 1e-2).rsqrt() * (1 + w), both, F.layer_norm(both, (6,)),
            F.layer_norm(x, (6,)) + both, F.layer_norm(x, (6,), w, b) * w, F.layer_norm(x, (6, 6)),
            F.layer_norm(x.t(), (6,), w).t(), F.rms_norm(x, (6,), w) + F.rms_norm(x.t(), (6,), w).t(),
            F.group_norm(image, 1), F.group_norm(image, 4), F.group_norm(image, 2, w[:4], b[:4]),
            F.instance_norm(image), F.layer_norm(image, (3, 3)), F.layer_norm(image, (4, 3, 3)),
            F.batch_norm(image, b[:4], w[:4].abs() + 1, None, w[2:]), x / x.norm(dim=-1), x / x.sum(-1),
            F.normalize(x, dim=0) + F.normalize(x, p=1, dim=1),
        ]  # fmt: skip

    return trial.run(f, x, y, w, b, image)


@case(cancels=True)
def nearly_activations(trial: Trial) -> Any:
    """Products of a number and a function of it with other constants, of others, or the other way round."""
    x, y = trial.tensor(200, low=-5.0, high=5.0), trial.tensor(200, low=-5.0, high=5.0)

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        root = math.sqrt(2)
        return [
            x * y.sigmoid(), x * (1.702 * x).sigmoid(), x * (-x).sigmoid(), x * (x + 1).sigmoid(), x * x.sigmoid(),
            x * 0.5 * (1 + torch.erf(x / root)), x * 0.5 * (1 + torch.erf(x / 1.5)),
            y * 0.5 * (1 + torch.erf(x / root)),
            x * 0.5 * (2 + torch.erf(x / root)), x * 0.25 * (1 + torch.erf(x / root)),
            x * 0.5 * (1 - torch.erf(x / root)),
            x * 0.5 * (1 + torch.tanh(0.8 * (x + 0.04 * x**3))), x * 0.5 * (1 + torch.tanh(x)), x * (1 + x.tanh()),
            x * (x + 3).clamp(0, 6) / 6, x * (x + 2).clamp(0, 6) / 6, y * (x + 3).clamp(0, 6) / 6,
            x * (x + 3).clamp(0, 5) / 6, x * (x + 3).clamp(0, 6) / 5, (x + 3).clamp(0, 6) / 6, (x + 3).clamp(0, 6),
            x.clamp(0, 6), x.clamp(-1, 6), x.clamp(0, 7), x.clamp(min=0.5), x.clamp(max=0), x.clamp(0, 1) * 6,
            x * F.softplus(x).tanh(), x * F.softplus(y).tanh(), x * F.softplus(x, 2.0).tanh(), x * x.exp().tanh(),
            torch.where(x > 0, x, 0.1 * x), torch.where(x > 0, x, 0.1 * y), torch.where(x > 1, x, 0.1 * x),
            torch.where(x > 0, 0.1 * x, x), torch.where(x > 0, x, x.exp() - 1), torch.where(x > 0, x, x.exp()),
            torch.maximum(x, 0.1 * x), torch.maximum(x, 2 * x), torch.minimum(x, 0.1 * x), torch.maximum(x, x * y),
            1 / (1 + (-x).exp()), 1 / (1 + x.exp()), 1 / (2 + (-x).exp()), 2 / (1 + (-2 * x).exp()) - 1,
            x / (1 + x.abs()), x / (1 + y.abs()), x / (1 + x * x), x / (1 + (-x).exp()), y / (1 + (-x).exp()),
            (1 + x.exp()).log(), (2 + x.exp()).log(), (1 + (-x.abs()).exp()).log(),
        ]  # fmt: skip

    return trial.run(f, x, y)


@case(cancels=True)
def activations_with_one_other_constant(trial: Trial) -> Any:
    """What is an activation but for one of its constants, each changed alone, by much and by little; and some that
    are."""
    x, y = trial.tensor(100, low=-3.0, high=3.0), trial.tensor(4, 6)

    def bell(x: torch.Tensor, outer: float, cubic: float, half: float = 0.5, one: float = 1.0) -> torch.Tensor:
        return x * half * (one + torch.tanh(outer * (x + cubic * x**3)))

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        outer, cubic, root = math.sqrt(2 / math.pi), 0.044715, math.sqrt(0.5)
        return [
            bell(x, outer, cubic), bell(x, 0.8, cubic), bell(x, 0.79, cubic), bell(x, outer, 0.04),
            bell(x, outer, 0.0445), bell(x, outer, -cubic), bell(x, outer, cubic, 0.25), bell(x, outer, cubic, one=2.0),
            x * 0.5 * (1 + torch.tanh(outer * (x + cubic * x**2))), x * 0.5 * (1 + torch.tanh(outer * (x - cubic * x))),
            x * 0.5 * (1 + torch.erf(x * root)), x * 0.5 * (1 + torch.erf(x * 0.7)), x * 0.5 * (1 + torch.erf(x * 1.5)),
            x * (1.702 * x).sigmoid(), x * (1.5 * x).sigmoid(), x * (1.7 * x).sigmoid(), x / (1 + (-2 * x).exp()),
            x / (1 + (-1.702 * x).exp()), 2 / (1 + (-2 * x).exp()) - 1, 2 / (1 + (-3 * x).exp()) - 1,
            3 / (1 + (-2 * x).exp()) - 1, 1 - 2 / (1 + (2 * x).exp()), (1 + (2 * x).exp()).log(),
            (1 + (2 * x).exp()).log() / 2, (1 + (-x).exp()).log(), -(1 + (-x).exp()).log(),
            torch.where(x > 0, x, 1.5 * (x.exp() - 1)), torch.where(x > 0, x, 0.7 * torch.expm1(x)),
            1.0507 * torch.where(x > 0, x, 1.6733 * torch.expm1(x)), torch.where(x > 0, x, 2 * (x / 2).expm1()),
            x * (x + 3).clamp(0, 6) / 6, x * (x + 3).clamp(0, 6) * 0.17, (x / 6 + 0.5).clamp(0, 1),
            (x / 6 + 0.4).clamp(0, 1), (0.2 * x + 0.5).clamp(0, 1), x * (1 + x.exp()).log().tanh(),
            y.exp() / y.exp().sum(0), y.exp() / y.exp().sum(1, True), y.exp().sum(0).log(), (y * y).sum(0).sqrt(),
            (y * y.flip(0)).sum(1).abs().sqrt(), ((y - 1) ** 3).mean(), ((y - 1) ** 2).mean(), (y - 1).abs().mean(),
            y + 0.3 * y.flip(0) * y.flip(1), y + 0.3 * (y.flip(0) - y), y + 0.3 * (y.flip(0) - y.flip(1)),
            y + 0.3 * y.flip(0) / (y.flip(1).abs() + 1), (y.square().sum(1, True) + 0.1).rsqrt() * y,
        ]  # fmt: skip

    return trial.run(f, x, y)


@case("training", terms=8)
def layers_side_by_side(trial: Trial) -> Any:
    """Layers that share an input and are not alike, squares that are turned or not, and what a layer's result is also
    read for."""
    x, square, image = trial.tensor(4, 4), trial.tensor(4, 4), trial.tensor(2, 4, 4, 4)
    weights, biases, kernel = [trial.tensor(n, 4) for n in (4, 4, 2)], trial.tensor(4), trial.tensor(4, 4, 3, 3)

    def f(x: Any, square: Any, image: Any, biases: Any, kernel: Any, *weights: Any) -> list[torch.Tensor]:
        first, second, third = weights
        plain, added = F.linear(x, first), F.linear(x, second, biases)
        seen = F.conv2d(image, kernel, padding=1)
        (left, right), mean = (x + biases).chunk(2, -1), biases.detach()
        return [
            plain, added, F.linear(x, third), plain.relu() + plain, added.relu(), F.linear(x.t(), first, biases),
            F.linear(x, second.t(), biases), x @ square, x @ square.t(), x.t() @ square, square @ x, (x @ square).t(),
            x.t() + biases, (x + biases).t(), x - x.mean(0), x - x.mean(1), x - x.mean(1, keepdim=True),
            x * biases[:, None] @ square, torch.cat([right, left], -1), torch.cat([left, left], -1),
            torch.cat([x.t(), x], -1), seen, seen.relu(), F.conv2d(image, kernel, biases, padding=1).sum(1),
            F.conv2d(image.mT, kernel, padding=1).mT, F.conv2d(image, kernel.transpose(0, 1), padding=1),
            F.conv2d(image, kernel.mT, padding=1), F.conv_transpose2d(image, kernel, padding=1),
            F.batch_norm(seen, mean, mean.abs() + 1), F.batch_norm(seen, None, None, training=True) + seen,
            F.conv2d(F.pad(image, (1, 1, 1, 1), value=0.5), kernel), F.conv2d(F.pad(image, (2, 0, 0, 2)), kernel),
            F.max_pool2d(F.pad(image - 9, (1, 1)), 3, 1), F.avg_pool2d(F.pad(image, (1, 1, 1, 1)), 3, 1),
            left * right.sigmoid(), F.glu(x), right * left.sigmoid(), F.silu(left) * right, F.hardswish(right) * left,
        ]  # fmt: skip

    return with_gradients(trial, f, x, square, image, biases, kernel, *weights)
