"""Around models: optimizers, recurrent cells, graphs, experts, sampling, processing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from small.case import Case, T, bf16, case, f32, i64, infer, module, train, u8

# Optimizers and other updates in place


def optimizer(make: Callable[[Any], torch.optim.Optimizer], shapes: tuple[tuple[int, ...], ...]) -> Case:
    parameters = [nn.Parameter(torch.randn(shape)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn(p.shape)
    made = make(parameters)

    def step() -> None:
        made.step()

    return Case(step, state=lambda: [p.detach() for p in parameters])


FEW = ((512, 512), (512,), (256, 512))
MANY = ((64, 64), (64,)) * 10
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 1e-3),
    "sgd-momentum": lambda p: torch.optim.SGD(p, 1e-3, momentum=0.9, weight_decay=1e-4),
    "adam": lambda p: torch.optim.Adam(p, 1e-3, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3, foreach=False),
    "adamw-foreach": lambda p: torch.optim.AdamW(p, 1e-3, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
}
for name, make in OPTIMIZERS.items():
    case(f"optimizer/{name}", functools.partial(optimizer, make, FEW), tolerance=1e-4)
case("optimizer/adamw-many", functools.partial(optimizer, OPTIMIZERS["adamw-foreach"], MANY), tolerance=1e-4)
case("optimizer/sgd-many", functools.partial(optimizer, OPTIMIZERS["sgd-momentum"], MANY), tolerance=1e-4)


def averaged(averages: list[Any], values: list[Any]) -> None:
    torch._foreach_lerp_(averages, values, 0.001)


def written_adam(p: Any, g: Any, m: Any, v: Any) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-1e-3)


def clipped(gradients: list[Any]) -> Any:
    norm = torch.stack([g.norm() for g in gradients]).norm()
    scale = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    return [g * scale for g in gradients]


def lists(function: Callable[..., Any], count: int) -> Case:
    return Case(function, tuple([torch.randn(128, 512) for _ in range(4)] for _ in range(count)))


case("optimizer/average-of-weights", functools.partial(lists, averaged, 2))
case("optimizer/clip-by-norm", functools.partial(lists, clipped, 1))
infer("optimizer/adam-written-out", written_adam, T(512, 512), T(512, 512), T(512, 512), T(512, 512, low=0, high=1))

# Recurrent cells

infer(
    "recurrent/lstm-cell",
    lambda x, h, c, w, u, b: lstm(F.linear(x, w, b) + F.linear(h, u), c),
    T(32, 128),
    T(32, 128),
    T(32, 128),
    T(512, 128),
    T(512, 128),
    T(512),
)


def lstm(gates: Any, c: Any) -> Any:
    i, f, g, o = gates.chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


infer("recurrent/lstm-gates", lstm, T(256, 1024), T(256, 256))
module("recurrent/lstm-cell-module", lambda: nn.LSTMCell(128, 128), T(32, 128))
module("recurrent/gru-cell-module", lambda: nn.GRUCell(128, 128), T(32, 128), T(32, 128))
module("recurrent/lstm-module", lambda: nn.LSTM(64, 64, batch_first=True), T(4, 16, 64))
module("recurrent/gru-cell-training", lambda: nn.GRUCell(128, 128), T(32, 128), T(32, 128), training=True)
module("recurrent/lstm-cell-training", lambda: nn.LSTMCell(128, 128), T(32, 128), training=True)


def scanned(x: Any, a: Any, h: Any) -> Any:
    for t in range(16):
        h = h * a[:, t] + x[:, t]
    return h


infer("recurrent/state-space", scanned, T(8, 16, 512), T(8, 16, 512, low=0, high=1), T(8, 512))

# Graphs

NODES = T(1024, 64)
EDGES = T(4096, dtype=i64, low=0, high=1023)
infer("graph/aggregate-sum", lambda x, s, d: torch.zeros_like(x).index_add_(0, d, x[s]), NODES, EDGES, EDGES)
infer(
    "graph/aggregate-mean",
    lambda x, s, d: (
        torch.zeros_like(x).index_add_(0, d, x[s])
        / torch.zeros(1024).index_add_(0, d, torch.ones(4096)).clamp(min=1)[:, None]
    ),
    NODES,
    EDGES,
    EDGES,
)
infer(
    "graph/aggregate-max",
    lambda x, s, d: torch.zeros_like(x).scatter_reduce_(0, d[:, None].expand(-1, 64), x[s], "amax", include_self=False),
    NODES,
    EDGES,
    EDGES,
)
infer(
    "graph/convolution",
    lambda x, s, d, w, n: (torch.zeros(1024, 64).index_add_(0, d, (x @ w)[s] * n[:, None])).relu(),
    NODES,
    EDGES,
    EDGES,
    T(64, 64),
    T(4096),
)
infer("graph/edge-features", lambda x, s, d: torch.cat((x[s], x[d], x[s] - x[d]), -1), NODES, EDGES, EDGES)


def graph_attention(x: Any, s: Any, d: Any, a: Any) -> Any:
    score = F.leaky_relu((torch.cat((x[s], x[d]), -1) * a).sum(-1), 0.2)
    most = torch.full((1024,), -math.inf).scatter_reduce(0, d, score, "amax")
    weight = torch.exp(score - most[d])
    total = torch.zeros(1024).index_add(0, d, weight)
    return torch.zeros_like(x).index_add(0, d, x[s] * (weight / total[d])[:, None])


infer("graph/attention", graph_attention, NODES, EDGES, EDGES, T(128))
train(
    "graph/aggregate-training",
    lambda x, s, d, w: torch.zeros(1024, 64).index_add(0, d, (x @ w)[s]).relu(),
    NODES,
    EDGES,
    EDGES,
    T(64, 64),
)
infer(
    "graph/readout",
    lambda x, b: torch.zeros(32, 64).scatter_add(0, b[:, None].expand(-1, 64), x),
    NODES,
    T(1024, dtype=i64, low=0, high=31),
)

# Mixtures of experts


def routed(x: Any, w: Any) -> Any:
    weights, chosen = torch.softmax(x @ w.t(), -1).topk(2, -1)
    return weights / weights.sum(-1, keepdim=True), chosen


def load_balance(x: Any, w: Any) -> Any:
    weights = torch.softmax(x @ w.t(), -1)
    load = F.one_hot(weights.argmax(-1), 8).to(f32).mean(0)
    return (load * weights.mean(0)).sum() * 8


def dense_experts(x: Any, w: Any, up: Any, down: Any) -> Any:
    weights, chosen = torch.softmax(x @ w.t(), -1).topk(2, -1)
    gates = torch.zeros(x.shape[0], 8).scatter(1, chosen, weights)
    inner = F.silu(torch.einsum("td,edh->eth", x, up))
    return torch.einsum("eth,ehd,te->td", inner, down, gates)


def positions(chosen: Any) -> Any:
    return (F.one_hot(chosen, 8).cumsum(0) * F.one_hot(chosen, 8)).sum(-1) - 1


infer("experts/router", routed, T(512, 128), T(8, 128))
infer("experts/router-64", routed, T(512, 128), T(64, 128))
infer("experts/router-bf16", routed, T(512, 128, dtype=bf16), T(8, 128, dtype=bf16), tolerance=10.0)
infer("experts/load-balance", load_balance, T(1024, 128), T(8, 128))
infer("experts/dense", dense_experts, T(64, 64), T(8, 64), T(8, 64, 128), T(8, 128, 64))
infer("experts/positions", positions, T(2048, dtype=i64, low=0, high=7))
infer(
    "experts/sigmoid-router",
    lambda x, w, b: (lambda s: s.gather(-1, (s + b).topk(4, -1).indices))(torch.sigmoid(x @ w.t())),
    T(512, 128),
    T(32, 128),
    T(32),
)
infer("experts/permute-tokens", lambda x, e: x[e.argsort(stable=True)], T(1024, 128), T(1024, dtype=i64, low=0, high=7))
train(
    "experts/router-training",
    lambda x, w: torch.softmax(x @ w.t(), -1).topk(2, -1).values.sum(-1),
    T(256, 128),
    T(8, 128),
)

# Sampling and random numbers


def top_k_sampled(x: Any) -> Any:
    values, indices = (x / 0.8).topk(50, -1)
    return indices.gather(-1, torch.multinomial(torch.softmax(values, -1), 1))


def nucleus(x: Any) -> Any:
    ordered, at = torch.softmax(x, -1).sort(-1, descending=True)
    kept = ordered.cumsum(-1) - ordered < 0.9
    return torch.zeros_like(x).scatter(-1, at, ordered * kept)


infer("sampling/greedy", lambda x: x[:, -1].argmax(-1), T(4, 8, 8000))
infer("sampling/top-k", top_k_sampled, T(4, 8000), random=True)
infer("sampling/top-p", nucleus, T(4, 4096))
infer(
    "sampling/repetition-penalty",
    lambda x, i: x.scatter(1, i, torch.where(x.gather(1, i) < 0, x.gather(1, i) * 1.2, x.gather(1, i) / 1.2)),
    T(4, 32000),
    T(4, 64, dtype=i64, low=0, high=31999),
)
infer(
    "sampling/min-p",
    lambda x: (lambda p: x.masked_fill(p < 0.05 * p.amax(-1, keepdim=True), -math.inf))(torch.softmax(x, -1)),
    T(4, 32000),
)
infer("random/uniform", lambda x: x + torch.rand_like(x), T(256, 512), random=True)
infer("random/normal", lambda x: x + torch.randn_like(x) * 0.1, T(256, 512), random=True)
infer(
    "random/gumbel",
    lambda x: (x - torch.log(-torch.log(torch.rand_like(x) + 1e-9))).argmax(-1),
    T(64, 1024),
    random=True,
)
infer("random/bernoulli-mask", lambda x: x * torch.bernoulli(torch.full_like(x, 0.9)), T(256, 512), random=True)
infer("random/dropout", lambda x: F.dropout(F.gelu(x), 0.1, True), T(256, 512), random=True)
train("random/dropout-training", lambda x, y: F.dropout(x, 0.1, True) + y, *[T(256, 512)] * 2, random=True)
infer("random/integers", lambda x: x + torch.randint(0, 10, x.shape), T(256, 512, dtype=i64), random=True)
infer(
    "random/diffusion-noise",
    lambda x, t, a: a[t][:, None, None, None].sqrt() * x + (1 - a[t])[:, None, None, None].sqrt() * torch.randn_like(x),
    T(8, 3, 32, 32),
    T(8, dtype=i64, low=0, high=999),
    T(1000, low=0.1, high=0.9),
    random=True,
)

# Before and after a model


def box_overlap(a: Any, b: Any) -> Any:
    low, high = torch.maximum(a[:, None, :2], b[:, :2]), torch.minimum(a[:, None, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b))
    return inner / (area_a[:, None] + area_b - inner)


def timestep_embedding(t: Any) -> Any:
    frequencies = torch.exp(-math.log(10000) * torch.arange(0, 128) / 128)
    angles = t[:, None].to(f32) * frequencies
    return torch.cat((angles.cos(), angles.sin()), -1)


def to_image(x: Any) -> Any:
    return ((x / 2 + 0.5).clamp(0, 1) * 255).round().to(u8).permute(0, 2, 3, 1).contiguous()


infer("processing/box-overlap", box_overlap, T(256, 4, low=0, high=1), T(128, 4, low=0, high=1))
infer(
    "processing/box-decode",
    lambda d, a: torch.cat((d[:, :2] * a[:, 2:] + a[:, :2], d[:, 2:].exp() * a[:, 2:]), -1),
    T(8400, 4),
    T(8400, 4),
)
infer("processing/timestep-embedding", timestep_embedding, T(256, dtype=i64, low=0, high=999))
infer("processing/to-image", to_image, T(2, 3, 128, 128))
infer("processing/mel-log", lambda x, m: torch.log10(torch.clamp(m @ x.pow(2), min=1e-10)), T(201, 400), T(80, 201))
infer(
    "processing/yuv",
    lambda x, m: torch.einsum("nchw,dc->ndhw", x.to(f32) / 255, m),
    T(2, 3, 128, 128, dtype=u8),
    T(3, 3),
)
infer(
    "processing/grayscale", lambda x: (x[:, 0] * 0.299 + x[:, 1] * 0.587 + x[:, 2] * 0.114).round(), T(4, 3, 256, 256)
)
infer("processing/segmentation-argmax", lambda x: x.argmax(1).to(u8), T(2, 21, 128, 128))
infer(
    "processing/argmax-upsampled",
    lambda x: F.interpolate(x, scale_factor=4, mode="bilinear").argmax(1),
    T(1, 8, 32, 32),
)
infer(
    "processing/confusion",
    lambda p, t: torch.zeros(400, dtype=i64).scatter_add(0, p * 20 + t, torch.ones_like(p)),
    *[T(32768, dtype=i64, low=0, high=19)] * 2,
)
infer(
    "processing/accuracy",
    lambda x, t: (x.argmax(-1) == t).to(f32).mean(),
    T(512, 1000),
    T(512, dtype=i64, low=0, high=999),
)
infer(
    "processing/top-5",
    lambda x, t: (x.topk(5, -1).indices == t[:, None]).any(-1).to(f32).mean(),
    T(256, 1000),
    T(256, dtype=i64, low=0, high=999),
)
infer(
    "processing/standardize",
    lambda x: (x - x.mean((-2, -1), keepdim=True)) / (x.std((-2, -1), keepdim=True) + 1e-5),
    T(8, 3, 64, 64),
)
infer(
    "processing/causal-mask",
    lambda m: torch.where((torch.arange(256)[:, None] >= torch.arange(256)) & m[:, None, :], 0.0, -1e9),
    T(4, 256, dtype=torch.bool),
)
infer(
    "processing/sequence-lengths",
    lambda n: (torch.arange(512)[None] < n[:, None]).to(f32),
    T(128, dtype=i64, low=1, high=512),
)
infer("processing/polar", lambda x, y: (torch.sqrt(x * x + y * y), torch.atan2(y, x)), *[T(256, 512)] * 2)
