"""As users write them: graphs, points and boxes, steps of training, layers, choices."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import T, bf16, boxes, f16, f32, i8, i32, i64, infer, module, train, u8

# Graphs, points and boxes


def message(x: Any, edges: Any, w: Any) -> Any:
    source, target = edges
    sent = F.relu(x[source] @ w + x[target])
    return torch.zeros_like(x).index_add_(0, target, sent)


def edge_softmax(score: Any, target: Any) -> Any:
    most = torch.full((256,), -1e30, device=score.device).scatter_reduce(0, target, score, "amax")
    e = (score - most[target]).exp()
    return e / torch.zeros(256, device=score.device).scatter_add(0, target, e)[target]


def suppressed(found: Any, scores: Any) -> Any:
    order = scores.argsort(descending=True)
    b = found[order]
    lt, rb = torch.max(b[:, None, :2], b[None, :, :2]), torch.min(b[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    return (inter / (area[:, None] + area - inter) > 0.5).triu(1).any(0)


EDGES = torch.randint(0, 256, (2, 2048))
infer("graphs/message", message, T(256, 64), EDGES, T(64, 64))
train("graphs/message-training", message, T(256, 64), EDGES, T(64, 64))
infer("graphs/edge-softmax", edge_softmax, T(2048), EDGES[1])
train("graphs/edge-softmax-training", edge_softmax, T(2048), EDGES[1])
infer(
    "graphs/segment-mean",
    lambda x, s: torch.zeros(32, 64).scatter_reduce(0, s[:, None].expand(-1, 64), x, "mean", include_self=False),
    T(1024, 64),
    T(1024, dtype=i64, low=0, high=31),
)
infer(
    "graphs/degree-norm",
    lambda e: (d := torch.zeros(256).scatter_add(0, e[1], torch.ones(2048)).clamp_min(1).rsqrt())[e[0]] * d[e[1]],
    EDGES,
)
infer("graphs/knn", lambda x: torch.cdist(x, x).topk(8, largest=False)[1], T(256, 3))
infer(
    "graphs/pairwise-squares",
    lambda x, y: (x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.t()).clamp_min(0).sqrt(),
    T(256, 32),
    T(256, 32),
)
infer(
    "graphs/knn-features",
    lambda x, i: torch.cat((x[i] - x[:, None], x[:, None].expand(-1, 8, -1)), -1).amax(1),
    T(512, 32),
    T(512, 8, dtype=i64, low=0, high=511),
)
infer("graphs/nms-mask", suppressed, boxes(128), T(128))
infer(
    "graphs/chamfer",
    lambda a, b: (d := (a[:, None] - b[None]).square().sum(-1)).amin(1).mean() + d.amin(0).mean(),
    T(256, 3),
    T(256, 3),
)
infer(
    "graphs/quaternion",
    lambda q, v: v + 2 * torch.linalg.cross(q[:, :3], torch.linalg.cross(q[:, :3], v) + q[:, 3:] * v),
    T(4096, 4),
    T(4096, 3),
)
infer(
    "graphs/positional-fourier",
    lambda x: torch.cat([f(x * 2**k) for k in range(6) for f in (torch.sin, torch.cos)], -1),
    T(2048, 3),
)

# Steps of training


def step(name: str, update: Any, *inputs: Any) -> None:
    infer(f"step/{name}", update, *inputs)


def lion(p: Any, g: Any, m: Any) -> Any:
    p.mul_(1 - 1e-4).add_(torch.sign(m * 0.9 + g * 0.1), alpha=-1e-3)
    m.lerp_(g, 0.01)


def adafactor(p: Any, g: Any, row: Any, column: Any) -> Any:
    square = g.square() + 1e-30
    row.mul_(0.99).add_(square.mean(-1), alpha=0.01)
    column.mul_(0.99).add_(square.mean(-2), alpha=0.01)
    update = g * (row / row.mean()).rsqrt()[:, None] * column.rsqrt()
    p.sub_(1e-2 * update / torch.clamp(update.square().mean().sqrt(), min=1.0))


def clip_all(*gs: Any) -> Any:
    total = torch.stack([g.norm() for g in gs]).norm()
    scale = (1.0 / (total + 1e-6)).clamp(max=1.0)
    for g in gs:
        g.mul_(scale)
    return total


def newton_schulz(g: Any) -> Any:
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


step("lion", lion, *[T(256, 512)] * 3)
step("adafactor", adafactor, T(256, 512), T(256, 512), T(256, low=0, high=1), T(512, low=0, high=1))
step("clip-all", clip_all, *[T(64, 64)] * 8)
step("muon", newton_schulz, T(64, 128))
step("ema-bf16", lambda e, p: e.lerp_(p.to(f32), 0.01), T(256, 512), T(256, 512, dtype=bf16))
step(
    "factorization",
    lambda u, v, i, j, r: ((u[i] * v[j]).sum(1) - r).square().mean(),
    T(1000, 32),
    T(800, 32),
    T(512, dtype=i64, low=0, high=799),
    T(512, dtype=i64, low=0, high=799),
    T(512),
)
train(
    "step/factorization-training",
    lambda u, v, i, j, r: ((u[i] * v[j]).sum(1) - r).square().mean(),
    T(1000, 32),
    T(800, 32),
    T(512, dtype=i64, low=0, high=799),
    T(512, dtype=i64, low=0, high=799),
    T(512),
)
train(
    "step/weight-norm",
    lambda x, v, g: x @ (v * (g / v.norm(dim=1, keepdim=True))).t(),
    T(64, 256),
    T(128, 256),
    T(128, 1),
)
train("step/straight-through", lambda x: x + (torch.round(x * 8) / 8 - x).detach(), T(256, 512))
train(
    "step/gradient-penalty",
    lambda x, w: (torch.tanh(x @ w).square().sum(1).sqrt() - 1).square().mean(),
    T(128, 64),
    T(64, 64),
)
train("step/mixup", lambda x, p: x * p[:, None] + x.flip(0) * (1 - p[:, None]), T(128, 512), T(128, low=0, high=1))

# Layers


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(32, 64, 3, padding=1), nn.GroupNorm(4, 64)

    def forward(self, x: Any) -> Any:
        return F.glu(self.norm(self.conv(x)), 1)


def squeeze_excite() -> nn.Module:
    class Squeeze(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.Linear(64, 16), nn.Linear(16, 64)

        def forward(self, x: Any) -> Any:
            return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3))))))[:, :, None, None]

    return Squeeze()


def moe(x: Any, gate: Any, w: Any) -> Any:
    weight, chosen = (x @ gate).softmax(-1).topk(2)
    outputs = torch.einsum("td,edh->teh", x, w)
    return (outputs.gather(1, chosen[..., None].expand(-1, -1, w.shape[-1])) * weight[..., None]).sum(1)


module("layer/gated-conv1d", Gated, T(4, 32, 128))
module("layer/gated-conv1d-training", Gated, T(4, 32, 128), training=True)
module("layer/squeeze-excite", squeeze_excite, T(2, 64, 32, 32))
module("layer/squeeze-excite-training", squeeze_excite, T(2, 64, 32, 32), training=True)
module(
    "layer/conv3d",
    lambda: nn.Sequential(nn.Conv3d(4, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2)),
    T(1, 4, 8, 32, 32),
)
module(
    "layer/depthwise-separable",
    lambda: nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.SiLU(), nn.Conv2d(32, 64, 1)),
    T(2, 32, 32, 32),
)
module(
    "layer/upsample-conv",
    lambda: nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1), nn.LeakyReLU(0.1)),
    T(1, 16, 32, 32),
)
module("layer/instance-norm-training", lambda: nn.InstanceNorm2d(16, affine=True), T(4, 16, 32, 32), training=True)
module("layer/gru-sequence", lambda: nn.GRU(32, 64, batch_first=True), T(4, 12, 32))
module("layer/bag-max", lambda: nn.EmbeddingBag(1000, 64, mode="max"), T(64, 16, dtype=i64, low=0, high=999))
module(
    "layer/dropout-mlp-training",
    lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 8)),
    T(64, 64),
    training=True,
    random=True,
)
module("layer/prelu-training", lambda: nn.Sequential(nn.Linear(64, 64), nn.PReLU(64)), T(64, 64), training=True)
module("layer/local-response", lambda: nn.LocalResponseNorm(5), T(2, 32, 24, 24))
module("layer/channel-attention-pool", lambda: nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.Hardswish()), T(2, 32, 48, 48))
module("layer/lp-pool", lambda: nn.LPPool2d(2, 2), T(2, 16, 48, 48, low=0.1, high=1))
module(
    "layer/layer-scale-training",
    lambda: nn.Sequential(nn.LayerNorm(128), nn.Linear(128, 128), nn.Tanh()),
    T(4, 32, 128),
    training=True,
)
infer("layer/moe-top-2", moe, T(64, 64), T(64, 8), T(8, 64, 64))
train("layer/moe-top-2-training", moe, T(64, 64), T(64, 8), T(8, 64, 64))
infer(
    "layer/einsum-mix", lambda x, a, b: torch.einsum("bij,jk,bkl->bil", x, a, b), T(8, 32, 48), T(48, 24), T(8, 24, 40)
)
infer("layer/tensor-product", lambda x, y: torch.einsum("bi,bj->bij", x, y).flatten(1), T(64, 32), T(64, 48))
infer(
    "layer/scale-norm-bf16",
    lambda x, g: x * g / x.float().norm(dim=-1, keepdim=True).clamp_min(1e-5).to(bf16),
    T(128, 512, dtype=bf16),
    T(512, dtype=bf16),
)
infer(
    "layer/group-rms",
    lambda x, g: (
        (x.view(64, 8, 64) * (x.view(64, 8, 64).square().mean(-1, keepdim=True) + 1e-6).rsqrt()).flatten(1) * g
    ),
    T(64, 512),
    T(512),
)

# Choices, selections and numbers


def beam(scores: Any, logits: Any) -> Any:
    total = scores[:, :, None] + logits.log_softmax(-1)
    best, at = total.flatten(1).topk(4)
    return best, at // logits.shape[-1], at % logits.shape[-1]


def nucleus(logits: Any) -> Any:
    p, at = logits.softmax(-1).sort(descending=True)
    drop = p.cumsum(-1) - p > 0.9
    return torch.full_like(logits, float("-inf")).scatter(1, at, p.masked_fill(drop, 0).log())


def per_channel_int8(x: Any) -> Any:
    scale = x.abs().amax(1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(i8), scale


infer("choose/beam", beam, T(4, 4), T(4, 4, 1000))
infer("choose/nucleus", nucleus, T(4, 2000))
infer(
    "choose/masked-mean",
    lambda x, m: (x * m[..., None]).sum(1) / m.sum(1, keepdim=True).clamp_min(1),
    T(8, 64, 256),
    T(8, 64, dtype=torch.bool),
)
infer("choose/boolean-assign", lambda x: torch.where(x.isnan() | (x > 2), torch.zeros(()), x).cumsum(-1), T(64, 1024))
infer(
    "choose/assign-mask", lambda x, m: x.clone().masked_fill_(m, -1).add_(1), T(256, 512), T(256, 512, dtype=torch.bool)
)
infer(
    "choose/masked-scatter-rows",
    lambda x, m, s: x.masked_scatter(m[..., None], s),
    T(4, 128, 64),
    T(4, 128, dtype=torch.bool),
    T(512, 64),
)
infer("choose/one-hot-sum", lambda y: F.one_hot(y, 64).float().mean(1), T(64, 32, dtype=i64, low=0, high=63))
infer("choose/per-channel-int8", per_channel_int8, T(256, 1024))
infer(
    "choose/dequantize-zero-point",
    lambda q, s, z: (q.to(f32) - z.to(f32)) * s,
    T(256, 1024, dtype=u8),
    T(256, 1),
    T(256, 1, dtype=u8),
)
infer(
    "choose/fake-quantize",
    lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127),
    T(64, 512),
    T(64, low=0.01, high=0.1),
    torch.zeros(64, dtype=i32),
)
infer("choose/sort-gather", lambda x, y: y.gather(1, x.argsort(1)), T(64, 128), T(64, 128))
infer("choose/rank", lambda x: x.argsort(-1).argsort(-1).float() / 127, T(64, 128))
infer("choose/nth-largest-mask", lambda x: x * (x >= x.topk(8)[0][..., -1:]), T(128, 256))
infer("choose/running-max", lambda x: x - x.cummax(-1)[0], T(64, 512))
infer("choose/segments", lambda x: (x[:, 1:] != x[:, :-1]).cumsum(1), T(64, 512, dtype=i64, low=0, high=3))
infer(
    "choose/discounted",
    lambda r: (r * 0.99 ** torch.arange(256, device=r.device)).flip(-1).cumsum(-1).flip(-1),
    T(32, 256),
)
infer("choose/moving-average", lambda x: F.avg_pool1d(x, 5, 1, 2), T(16, 8, 512))
infer("choose/polynomial", lambda x: sum(c * x**k for k, c in enumerate((0.5, -1.0, 0.25, 0.125))), T(256, 512))
infer(
    "choose/complex-magnitude", lambda a, b: (torch.complex(a, b) * torch.complex(b, a)).abs(), T(128, 512), T(128, 512)
)
infer("choose/float-bits", lambda x: (x.view(i32) >> 23 & 255) - 127, T(256, 512))
infer("choose/interleave", lambda a, b: torch.stack((a, b), -1).flatten(-2) * 2, T(256, 256), T(256, 256))
infer("choose/f16-clamp-scale", lambda x: (x.float() * 3).clamp(-60000, 60000).half(), T(256, 512, dtype=f16))
infer("choose/strided-sum", lambda x: x[:, ::2] + x[:, 1::2], T(256, 1024))
infer("choose/covariance", lambda x: (x - x.mean(0)).t() @ (x - x.mean(0)) / 255, T(256, 64))
infer("choose/corr", lambda x: torch.corrcoef(x), T(64, 256), fullgraph=False)
infer("choose/batch-diagonal", lambda x: torch.diag_embed(x) + x[:, None], T(64, 48))
infer("choose/tril-gather", lambda x: x[:, torch.tril_indices(32, 32)[0], torch.tril_indices(32, 32)[1]], T(32, 32, 32))
infer(
    "choose/select-write",
    lambda x, y: x.index_fill(1, torch.tensor([1, 5]), 0.0).select_scatter(y, 1, 3),
    T(64, 32, 64),
    T(64, 64),
)
infer("choose/log-add", lambda a, b: torch.logaddexp(a, b), T(256, 512), T(256, 512))
infer("choose/int-mean", lambda x: x.float().mean(0).round().to(u8), T(16, 3, 64, 64, dtype=u8))
