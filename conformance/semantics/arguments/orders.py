"""How results lie in memory where inputs are transposed, permuted or in channels last: strides are those of eager."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ...case import Collection, Trial

case = Collection("semantics/orders")


def _functions(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Functions of single numbers and of pairs."""
    return [
        x.round(), x.floor(), x.trunc(), x.frac(), x.neg(), x.exp(), x.sign(), x.reciprocal(), x**2, x.square(),
        torch.isnan(x), torch.isfinite(x), torch.signbit(x), x.logical_not(), torch.isposinf(x), x > 0, x != y,
        x.bool(),
        torch.maximum(x, y), torch.minimum(x, y.contiguous()), torch.fmax(x, y), torch.where(x > 0, x, y), x + y * 2,
        x * y.contiguous(), y.contiguous() * x, x - 1, x / y, torch.atan2(x, y), torch.lerp(x, y, 0.3),
        torch.addcmul(x, y, y), x.clamp(-1, 1), x.clamp_min(0.0), x.masked_fill(x > 0, 1.0), x.nan_to_num(),
        x.double(), x.half(), x.long(), torch.copysign(x, y), x.remainder(0.7), F.gelu(x.abs()), F.softplus(x),
        F.relu(x), F.leaky_relu(x), F.hardtanh(x), F.elu(x), F.logsigmoid(x), F.threshold(x, 0.1, 2.0), x.sigmoid(),
        x.erf(),
    ]  # fmt: skip


def _along(x: torch.Tensor) -> list[torch.Tensor]:
    """What runs along a dimension, orders it, or moves elements."""
    return [
        x.cumsum(0), x.cumsum(-1), x.cumprod(0), x.logcumsumexp(-1), x.cummax(0).values, x.softmax(0), x.softmax(-1),
        x.log_softmax(0), F.softmin(x, 0), x.sort(0).values, x.sort(-1).indices, x.argsort(0), x.topk(2, 0).values,
        x.topk(2, -1).indices, F.layer_norm(x, x.shape[-1:]), F.rms_norm(x, x.shape[-1:]), F.normalize(x, dim=0),
        x.flip(0), x.roll(1, -1), x.tril(), x.triu(1), torch.cat([x, x], 0), torch.stack([x, x], -1),
        x.repeat_interleave(2, 0),
        F.pad(x, (1, 1)), x[torch.arange(2, device=x.device)], x[..., torch.arange(2, device=x.device)],
        x.index_select(-1, torch.arange(2, device=x.device)), x.clone(), x.contiguous(), x.sum(0), x.amax(-1),
        x.argmax(0),
        x.argmax(), x.argmin(), x.mean(0, keepdim=True), x.var(-1), x.any(0), x.std(0), x.norm(dim=0), x.logsumexp(0),
        torch.zeros_like(x), torch.full_like(x, 2), x.new_zeros(x.shape), x.diff(dim=0), x.unfold(0, 2, 1) * 2,
        F.glu(x[..., :2], -1),
        x.flatten() * 2, x.reshape(-1, 1) + 1, torch.nn.functional.one_hot(x.long().clamp(0, 2), 3), x.nonzero(),
        F.dropout(x, 0.5, False) + 0, x.index_fill(0, torch.arange(1, device=x.device), 3.0), x.gather(0, x.argsort(0)),
    ]  # fmt: skip


def _integers(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    """Functions of integers and bits."""
    return [
        x & y, x | y, x ^ y, ~x, x // 3, x % 3, x << 1, x >> 1, x * y, -x, x.abs(), x.sign(), x == y, x.float(), x / 2,
        torch.gcd(x, y), x.clamp(-2, 2), x.sum(0), x.cumsum(0), x.sort(0).values, x.amax(0), torch.maximum(x, y),
        torch.where(x > y, x, y), x.masked_fill(x > 0, 7), x.flip(1), x.tril(), torch.bitwise_left_shift(x, 2),
        torch.div(x, 2, rounding_mode="trunc"), x.to(torch.int8), x.bool() & y.bool(), x.logical_xor(y),
    ]  # fmt: skip


def _shown(results: list[torch.Tensor]) -> list[Any]:
    return [(r, r.stride()) for r in results]


@case()
def of_functions(trial: Trial) -> Any:
    """Functions of matrices that are transposed, of and of parts of images in channels last."""
    compiled, found = trial.compile(_functions), []
    matrix, other = trial.tensor(5, 7).t(), trial.tensor(5, 7).t()
    images = trial.tensor(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    for x, y in ((matrix, other), (images[:, 1:3], images[:, 2:])):
        found.append(_shown(compiled(x, y)))
    return found


@case()
def along_dimensions(trial: Trial) -> Any:
    """Scans, orders, norms, reductions and moves of matrices that are transposed, and of what is permuted."""
    compiled = trial.compile(_along)
    return [_shown(compiled(x)) for x in (trial.tensor(5, 7).t(), trial.tensor(3, 4, 5).permute(2, 0, 1))]


@case()
def of_integers(trial: Trial) -> Any:
    """Functions of integers and bits in matrices that are transposed."""
    x, y = trial.tensor(5, 7, dtype=torch.int64).t(), trial.tensor(5, 7, dtype=torch.int64).t()
    return _shown(trial.run(_integers, x, y))


@case("float16")
def of_products(trial: Trial) -> Any:
    """Products whose factors are transposed, expanded, parts, or have one row, one column or one number between."""

    def f(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        return [
            x @ y, x.mT @ x, x.mT.contiguous() @ x, (y.mT @ x.mT).mT, x[..., :1] @ y[..., :1, :], x[..., :1, :] @ y,
            x @ y[..., :1],
            x[..., :1].mT @ x[..., 1:2], (x @ y[..., 0].unsqueeze(-1)).squeeze(-1), x[..., ::2] @ y[..., ::2, :],
            torch.matmul(x, y[..., 0, :, :1] if y.dim() == 4 else y[..., :1]),
            x.sum(-1) @ x.sum(-1).mT if x.dim() > 2 else x.t() @ x,
        ]  # fmt: skip

    found = []
    for dtype in (torch.float32, torch.float16):
        compiled = trial.compile(f)
        found.append(compiled(trial.tensor(1, 7, dtype=dtype), trial.tensor(9, 7, dtype=dtype).t()))
        found.append(compiled(trial.tensor(5, 7, dtype=dtype).expand(3, 5, 7), trial.tensor(3, 4, 7, dtype=dtype).mT))
        found.append(
            compiled(
                trial.tensor(7, 3, 5, dtype=dtype).permute(1, 2, 0), trial.tensor(7, 4, dtype=dtype).expand(3, 7, 4)
            )
        )
    return [[(r, r.stride()) for r in results] for results in found]
