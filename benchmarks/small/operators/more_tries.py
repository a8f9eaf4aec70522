"""More of what people try first: graphs, routing, sampling, optimizers, scans, sorting, joins, integers, einsums."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import T, bf16, f16, i8, i32, i64, infer, train, u8

# Graphs and segments

edges = T(2, 4096, dtype=i64, low=0, high=511)


def gcn(x, e, w):
    source, target = e
    degree = torch.zeros(x.shape[0]).scatter_add_(0, target, torch.ones(target.shape[0])).clamp(min=1)
    norm = degree.rsqrt()[source] * degree.rsqrt()[target]
    return torch.zeros_like(x).index_add_(0, target, x[source] * norm[:, None]) @ w


def gat(x, e, a, b):
    source, target = e
    score = F.leaky_relu((x @ a)[source] + (x @ b)[target], 0.2)
    most = torch.full((x.shape[0],), -1e30).scatter_reduce_(0, target, score, "amax")
    weight = (score - most[target]).exp()
    total = torch.zeros(x.shape[0]).index_add_(0, target, weight)
    return torch.zeros_like(x).index_add_(0, target, x[source] * (weight / (total[target] + 1e-9))[:, None])


infer("tries/gcn", gcn, T(512, 64), edges, T(64, 64))
infer("tries/gat", gat, T(512, 64), edges, T(64), T(64))
train("tries/gather-messages", lambda x, e: (x[e[0]] - x[e[1]]).square().sum(-1).mean(), T(512, 64), edges)
infer(
    "tries/segment-mean",
    lambda x, s: torch.zeros(64, 32).index_add_(0, s, x) / torch.bincount(s, minlength=64).clamp(min=1)[:, None],
    T(4096, 32),
    T(4096, dtype=i64, low=0, high=63),
)
infer(
    "tries/segment-max",
    lambda x, s: torch.full((64, 32), float("-inf")).scatter_reduce(0, s[:, None].expand(-1, 32), x, "amax"),
    T(4096, 32),
    T(4096, dtype=i64, low=0, high=63),
)
infer("tries/degree", lambda e: torch.bincount(e[0], minlength=512) + torch.bincount(e[1], minlength=512), edges)
infer("tries/histogram", lambda x: torch.histc(x, 64, -3, 3) / x.numel(), T(16384))
infer(
    "tries/adjacency",
    lambda e: torch.zeros(512, 512).index_put((e[0], e[1]), torch.ones(e.shape[1]), accumulate=True).clamp(max=1),
    edges,
)

# Routing and sampling


def route(x, w):
    p = F.linear(x, w).softmax(-1)
    top, which = p.topk(2, -1)
    return torch.zeros_like(p).scatter_(1, which, top / top.sum(-1, keepdim=True))


def dispatch(x, w):
    which = F.linear(x, w).argmax(-1)
    hot = F.one_hot(which, w.shape[0])
    place = (hot.cumsum(0) - 1) * hot
    keep = place.sum(-1) < 40
    return place.sum(-1), keep, (hot * keep[:, None]).float().mean(0)


def top_p(x):
    s, order = x.softmax(-1).sort(descending=True)
    s = s.masked_fill(s.cumsum(-1) - s > 0.9, 0.0)
    return torch.zeros_like(x).scatter_(-1, order, s / s.sum(-1, keepdim=True))


def top_k(x):
    return x.masked_fill(x < x.topk(50).values[:, -1:], float("-inf")).softmax(-1)


def penalized(x, seen):
    score = x.gather(1, seen)
    return x.scatter(1, seen, torch.where(score < 0, score * 1.2, score / 1.2))


infer("tries/route", route, T(512, 256), T(8, 256))
infer("tries/dispatch", dispatch, T(512, 128), T(16, 128))
infer("tries/top-p", top_p, T(4, 4096))
infer("tries/top-k", top_k, T(4, 8192))
infer("tries/top-k-bf16", top_k, T(4, 8192, dtype=bf16))
infer("tries/penalty", penalized, T(4, 8192), T(4, 64, dtype=i64, low=0, high=8191))
infer(
    "tries/min-p",
    lambda x: x.masked_fill(x.softmax(-1) < 0.05 * x.softmax(-1).amax(-1, keepdim=True), float("-inf")),
    T(4, 8192),
)
infer("tries/entropy", lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1), T(16, 8192))
infer("tries/gumbel", lambda x, u: (x - (-u.log()).log()).argmax(-1), T(16, 4096), T(16, 4096, low=0.001, high=0.999))
infer("tries/beam", lambda s, x: (s[:, None] + x.log_softmax(-1)).flatten().topk(4), T(4), T(4, 4096))

# Optimizers, written by hand


def sgd(p, g, m):
    m.mul_(0.9).add_(g + 0.01 * p)
    p.sub_(0.1 * (g + 0.9 * m))


def adamw(p, g, m, v, step):
    step.add_(1)
    p.mul_(1 - 1e-4)
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.sub_(1e-3 / (1 - 0.9**step) * m / ((v / (1 - 0.999**step)).sqrt() + 1e-8))


def lion(p, g, m):
    p.mul_(1 - 1e-4).sub_(1e-4 * (0.9 * m + 0.1 * g).sign())
    m.mul_(0.99).add_(g, alpha=0.01)


def rmsprop(p, g, v):
    v.mul_(0.99).add_(g.square(), alpha=0.01)
    p.addcdiv_(g, v.sqrt() + 1e-8, value=-1e-3)


def clipped(a, b, c):
    norm = (a.square().sum() + b.square().sum() + c.square().sum()).sqrt()
    by = (1.0 / (norm + 1e-6)).clamp(max=1)
    a.mul_(by), b.mul_(by), c.mul_(by)
    return norm


def clipped_foreach(a, b, c):
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm([a, b, c])))
    torch._foreach_mul_([a, b, c], (1.0 / (norm + 1e-6)).clamp(max=1))
    return norm


def muon(g):
    x = g / (g.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.t()
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


big = T(512, 512)
infer("tries/sgd", sgd, big, big, big)
infer("tries/adamw", adamw, big, big, big, T(512, 512, low=0, high=1), T(low=3, high=3))
infer("tries/lion", lion, big, big, big)
infer("tries/rmsprop", rmsprop, big, big, T(512, 512, low=0, high=1))
infer("tries/clip", clipped, big, T(512), T(1024, 256))
infer("tries/clip-foreach", clipped_foreach, big, T(512), T(1024, 256))
infer("tries/ema", lambda a, b: a.mul_(0.999).add_(b, alpha=0.001), big, big)
infer("tries/ema-bf16", lambda a, b: a.lerp_(b.float(), 0.01), big, T(512, 512, dtype=bf16))
infer("tries/muon", muon, T(128, 128))
infer("tries/adamw-small", adamw, *[T(64)] * 3, T(64, low=0, high=1), T(low=3, high=3))

# Scans, order, counting

infer("tries/cumsum", lambda x: x.cumsum(-1), T(256, 1024))
infer("tries/cumsum-columns", lambda x: x.cumsum(0) / torch.arange(1, x.shape[0] + 1)[:, None], T(512, 256))
infer(
    "tries/cumprod-exclusive",
    lambda x: torch.cat((torch.ones_like(x[:, :1]), (1 - x).cumprod(-1)[:, :-1]), -1) * x,
    T(1024, 64, low=0, high=1),
)
infer("tries/cummax", lambda x: x.cummax(-1).values - x, T(256, 512))
infer("tries/logcumsumexp", lambda x: x.logcumsumexp(-1), T(128, 512))
infer("tries/sort-rows", lambda x: x.sort(-1).values, T(64, 1024))
infer("tries/argsort", lambda x: x.argsort(-1), T(64, 256))
infer("tries/rank", lambda x: x.argsort().argsort(), T(4096))
infer("tries/median", lambda x: x.median(-1).values, T(256, 101))
infer("tries/quantile", lambda x: x.quantile(0.9, -1), T(64, 500))
infer("tries/bucketize", lambda x, b: torch.bucketize(x, b), T(16384), torch.linspace(-3, 3, 63))
infer(
    "tries/searchsorted",
    lambda a, x: torch.searchsorted(a.cumsum(-1), x),
    T(32, 128, low=0, high=1),
    T(32, 256, low=0, high=50),
)
infer(
    "tries/changes",
    lambda x: torch.cat((torch.ones_like(x[:1], dtype=torch.bool), x[1:] != x[:-1])).cumsum(0) - 1,
    T(8192, dtype=i64, low=0, high=3),
)
infer("tries/any-all", lambda x: ((x > 0).any(-1) & (x < 3).all(-1), (x > 1).sum(-1)), T(512, 256))
infer("tries/top-rows", lambda x: x[x.norm(dim=-1).topk(16).indices], T(1024, 64))
infer(
    "tries/masked-scatter",
    lambda x, m, s: x.masked_scatter(m, s),
    T(64, 256),
    T(64, 256, dtype=torch.bool),
    T(64 * 256),
)
infer(
    "tries/image-tokens",
    lambda x, ids, s: x.masked_scatter((ids == 7)[..., None], s),
    T(2, 256, 128),
    T(2, 256, dtype=i64, low=0, high=9),
    T(512, 128),
)
infer("tries/moving-average", lambda x: F.avg_pool1d(F.pad(x[:, None], (6, 0)), 7, 1)[:, 0], T(64, 1000))
infer(
    "tries/autocorrelation",
    lambda x: torch.stack([(x[:, : x.shape[1] - k] * x[:, k:]).mean(1) for k in range(8)], 1),
    T(64, 512),
)

# Distances, einsums, layouts

infer("tries/distances", lambda a, b: (a[:, None] - b[None]).square().sum(-1), T(128, 16), T(256, 16))
infer(
    "tries/distances-product",
    lambda a, b: (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.t()).clamp(min=0).sqrt(),
    T(256, 64),
    T(256, 64),
)
infer("tries/cdist", lambda a, b: torch.cdist(a, b).argmin(-1), T(512, 8), T(64, 8))
infer("tries/cosine", lambda a, b: F.cosine_similarity(a[:, None], b[None], dim=-1), T(64, 64), T(96, 64))
infer("tries/rbf", lambda a, b: (-torch.cdist(a, b).square() / 2).exp().sum(-1), T(256, 3), T(256, 3))
infer(
    "tries/einsum-attention",
    lambda q, k, v: torch.einsum("bhqk,bkhd->bqhd", torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1), v),
    *[T(2, 64, 4, 32)] * 3,
)
infer(
    "tries/einsum-bilinear", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), T(32, 32), T(16, 32, 32), T(32, 32)
)
infer(
    "tries/einsum-diagonal",
    lambda a, b: torch.einsum("bij,bij->b", a, b) + torch.einsum("bii->b", a),
    *[T(32, 64, 64)] * 2,
)
infer("tries/outer", lambda a, b: torch.einsum("bi,bj->bij", a, b).tanh(), T(16, 128), T(16, 96))
infer("tries/transpose-add", lambda a, b: a + b.t() * 2, T(512, 512), T(512, 512))
infer("tries/nchw-nhwc", lambda x: x.permute(0, 2, 3, 1).contiguous() * 2, T(4, 64, 28, 28))
infer("tries/nhwc-nchw-bf16", lambda x: x.permute(0, 3, 1, 2).contiguous().float(), T(4, 28, 28, 64, dtype=bf16))
infer("tries/roll-flip", lambda x: x.roll((3, -2), (1, 2)) + x.flip(2), T(8, 64, 64))
infer("tries/stack-last", lambda a, b, c: torch.stack((a, b * 2, c - 1), -1), *[T(128, 256)] * 3)
infer("tries/interleave", lambda a, b: torch.stack((a, b), 2).flatten(1, 2), *[T(64, 128, 16)] * 2)
infer("tries/repeat-interleave", lambda x: x.repeat_interleave(4, 1) + 1, T(64, 16, 64))
infer("tries/chunks-rejoined", lambda x: torch.cat([c.softmax(-1) for c in x.chunk(4, -1)], -1), T(128, 512))
infer("tries/tril-fill", lambda x: x.tril().masked_fill(x.triu(1) != 0, -1.0), T(8, 128, 128))
infer(
    "tries/window-partition",
    lambda x: x.view(2, 7, 8, 7, 8, 32).permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, 32),
    T(2, 56, 56, 32),
)
infer("tries/kron", lambda a, b: torch.kron(a, b), T(16, 16), T(24, 24))
infer("tries/meshgrid", lambda x, y: torch.stack(torch.meshgrid(x, y, indexing="ij"), -1).sin(), T(128), T(96))

# Integers, bits, complex numbers

infer("tries/popcount", lambda x: sum((x >> k) & 1 for k in range(8)), T(16384, dtype=i32))
infer("tries/hash", lambda x: ((x * 2654435761) ^ (x >> 16)) % 1024, T(8192, dtype=i64, low=0, high=100000))
infer(
    "tries/pack-bits",
    lambda x: (x.view(-1, 8).to(torch.uint8) << torch.arange(8, dtype=torch.uint8)).sum(-1, dtype=torch.uint8),
    T(16384, dtype=torch.bool),
)
infer(
    "tries/u8-blend",
    lambda a, b: ((a.to(torch.int16) * 3 + b.to(torch.int16)) >> 2).clamp(0, 255).to(torch.uint8),
    *[T(128, 128, 3, dtype=u8)] * 2,
)
infer("tries/i8-products", lambda a, b: (a.to(torch.int32) * b.to(torch.int32)).sum(-1), *[T(256, 512, dtype=i8)] * 2)
infer("tries/divmod", lambda x: (x // 7, x % 7, torch.div(x, 3, rounding_mode="trunc")), T(8192, dtype=i64))
infer(
    "tries/xor-shift", lambda x: (lambda y: (lambda z: z ^ (z << 5))(y ^ (y >> 17)))(x ^ (x << 13)), T(16384, dtype=i32)
)
infer(
    "tries/levels",
    lambda x: torch.where(x > 200, 3, torch.where(x > 100, 2, torch.where(x > 50, 1, 0))),
    T(256, 256, dtype=u8),
)
infer(
    "tries/complex-gain",
    lambda z, g: torch.view_as_real(z * g).square().sum(-1).sqrt(),
    T(256, 256, dtype=torch.complex64),
    T(256, dtype=torch.complex64),
)
infer("tries/phase", lambda x: torch.fft.fft(x).angle(), T(64, 256))
infer(
    "tries/fft-convolution",
    lambda a, b: torch.fft.irfft(torch.fft.rfft(a, 1024) * torch.fft.rfft(b, 1024), 1024),
    T(16, 512),
    T(512),
)
infer("tries/f16-sums", lambda x: (x.sum(-1), x.std(-1), x.amax(-1)), T(256, 512, dtype=f16))
