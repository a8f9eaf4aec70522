"""Programs that keep state: what they write is read again, in tables, caches, buffers of samples and grids."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from small.case import Case, T, bf16, case, i32, i64, infer, u8


def holding(name, function, make_state, *inputs):
    """A program whose first arguments are state that it changes."""

    def build():
        state = make_state()
        given = tuple(x.make() if isinstance(x, T) else x for x in inputs)
        return Case(function, (*state, *given), False, lambda: list(state))

    case(f"state/{name}", build)


def below(count, most):
    return T(count, dtype=i64, low=0, high=most - 1)


def qlearn(Q, s, a, r, s2):
    Q[s, a] += 0.1 * (r + 0.99 * Q[s2].max(-1)[0] - Q[s, a])
    return Q[s2].argmax(-1)


holding(
    "q-learning",
    qlearn,
    lambda: (torch.rand(2000, 8),),
    torch.randperm(2000)[:32],
    below(32, 8),
    T(32),
    below(32, 2000),
)


def replay(rows, rewards, new, given, at, chosen):
    rows[at] = new
    rewards[at] = given
    return rows[chosen], rewards[chosen]


for count in (1000, 100000):
    holding(
        f"replay-{count}",
        replay,
        lambda count=count: (torch.zeros(count, 24), torch.zeros(count)),
        T(16, 24),
        T(16),
        torch.arange(40, 56),
        below(64, 1000),
    )


def bandit(n, v, a, r):
    n[a] += 1
    v[a] += (r - v[a]) / n[a]
    return v + (2 * n.sum().log() / n).sqrt()


holding("bandit", bandit, lambda: (torch.ones(50), torch.zeros(50)), torch.randperm(50)[:8], T(8))


def sketch(t, h, w):
    t.index_put_((torch.arange(4)[:, None].expand_as(h), h), w.expand_as(h), accumulate=True)
    return t.gather(1, h).amin(0)


holding(
    "count-min", sketch, lambda: (torch.zeros(4, 4096),), T(4, 256, dtype=i64, low=0, high=4095), torch.ones(1, 256)
)


def bloom(b, h, q):
    b[h] = True
    return b[q].all(-1)


holding(
    "bloom",
    bloom,
    lambda: (torch.zeros(65536, dtype=torch.bool),),
    T(64, 4, dtype=i64, low=0, high=65535),
    T(256, 4, dtype=i64, low=0, high=65535),
)


def paged(kc, vc, k, v, slots, table, q):
    kc.view(-1, 4, 32)[slots] = k
    vc.view(-1, 4, 32)[slots] = v
    ks, vs = kc[table].flatten(1, 2), vc[table].flatten(1, 2)
    s = torch.einsum("bhd,blhd->bhl", q, ks) / 32**0.5
    return torch.einsum("bhl,blhd->bhd", s.softmax(-1), vs)


holding(
    "paged-attention",
    paged,
    lambda: (torch.randn(64, 16, 4, 32), torch.randn(64, 16, 4, 32)),
    T(4, 4, 32),
    T(4, 4, 32),
    torch.tensor([5, 77, 300, 900]),
    T(4, 6, dtype=i64, low=0, high=63),
    T(4, 4, 32),
)
holding(
    "paged-attention-bf16",
    paged,
    lambda: (torch.randn(64, 16, 4, 32).to(bf16), torch.randn(64, 16, 4, 32).to(bf16)),
    T(4, 4, 32, dtype=bf16),
    T(4, 4, 32, dtype=bf16),
    torch.tensor([5, 77, 300, 900]),
    T(4, 6, dtype=i64, low=0, high=63),
    T(4, 4, 32, dtype=bf16),
)


def vq_ema(emb, n, s, x):
    i = torch.cdist(x, emb).argmin(-1)
    o = F.one_hot(i, emb.shape[0]).float()
    n.mul_(0.99).add_(o.sum(0), alpha=0.01)
    s.mul_(0.99).add_(o.t() @ x, alpha=0.01)
    emb.copy_(s / n.clamp(min=1e-5)[:, None])
    return emb[i], i


holding("vq-ema", vq_ema, lambda: (torch.randn(64, 16), torch.ones(64), torch.randn(64, 16)), T(256, 16))


def moco(queue, q, k):
    logits = torch.cat([(q * k).sum(-1, keepdim=True), q @ queue], 1) / 0.07
    queue[:, 64 : 64 + k.shape[0]] = k.t()
    return F.cross_entropy(logits, torch.zeros(q.shape[0], dtype=i64))


holding("moco-queue", moco, lambda: (torch.randn(64, 4096),), T(32, 64), T(32, 64))


def minikmeans(c, n, x):
    i = torch.cdist(x, c).argmin(-1)
    n.scatter_add_(0, i, torch.ones(x.shape[0]))
    c.index_add_(0, i, (x - c[i]) / n[i][:, None])
    return i


holding("mini-k-means", minikmeans, lambda: (torch.randn(32, 8), torch.ones(32)), T(256, 8))


def sparse_adam(w, m, v, i, g):
    m[i] = 0.9 * m[i] + 0.1 * g
    v[i] = 0.999 * v[i] + 0.001 * g * g
    w[i] -= 1e-3 * m[i] / (v[i].sqrt() + 1e-8)


holding(
    "sparse-adam",
    sparse_adam,
    lambda: (torch.randn(20000, 32), torch.zeros(20000, 32), torch.zeros(20000, 32)),
    torch.randperm(20000)[:128],
    T(128, 32),
)


def dp_rows(c):
    d = torch.full((33, 33), 1e9)
    d[0, 0] = 0
    for i in range(1, 33):
        d[i, 1:] = c[i - 1] + torch.minimum(d[i - 1, 1:], d[i - 1, :-1])
    return d[-1, -1]


infer("state/dp-rows", dp_rows, T(32, 32, low=0, high=1))


def knap(v):
    best = torch.zeros(201)
    for i, w in enumerate((12, 7, 33, 21, 9, 40, 15, 3)):
        best[w:] = torch.maximum(best[w:], best[:-w] + v[i])
    return best


infer("state/knapsack", knap, T(8, low=0, high=10))


def sandpile(g):
    for _ in range(4):
        t = (g >= 4).to(g.dtype)
        g -= 4 * t
        g[1:] += t[:-1]
        g[:-1] += t[1:]
        g[:, 1:] += t[:, :-1]
        g[:, :-1] += t[:, 1:]
    return g.sum()


holding("sandpile", sandpile, lambda: (torch.randint(0, 8, (64, 64), dtype=i32),))
holding("sandpile-u8", sandpile, lambda: (torch.randint(0, 8, (64, 64), dtype=u8),))


def label_prop(labels, src, dst):
    for _ in range(4):
        labels.scatter_reduce_(0, dst, labels[src], "amin")
    return labels


holding("components-min", label_prop, lambda: (torch.arange(1000),), below(2000, 1000), below(2000, 1000))


def beam_in(tok, sc, b, nxt, t):
    tok.copy_(tok[b])
    tok[:, 5] = nxt
    sc.copy_(sc[b] + t)
    return tok[:, :6].sum(1)


holding(
    "beam-in-place",
    beam_in,
    lambda: (torch.randint(0, 99, (16, 64)), torch.zeros(16)),
    below(16, 16),
    below(16, 99),
    T(16),
)


def seen(m, scores, t):
    m[torch.arange(m.shape[0]), t] = True
    return scores.masked_fill(m, -1e9).argmax(-1)


holding("seen-mask", seen, lambda: (torch.zeros(8, 2000, dtype=torch.bool),), T(8, 2000), below(8, 2000))


def kv_slice(kc, vc, k, v, q):
    kc[:, :, 17:18] = k
    vc[:, :, 17:18] = v
    return F.scaled_dot_product_attention(q, kc[:, :, :18], vc[:, :, :18])


holding(
    "kv-slice",
    kv_slice,
    lambda: (torch.randn(1, 8, 256, 64), torch.randn(1, 8, 256, 64)),
    T(1, 8, 1, 64),
    T(1, 8, 1, 64),
    T(1, 8, 1, 64),
)


def welford(n, mu, C, x):
    for i in range(4):
        n += 1
        d = x[i] - mu
        mu += d / n
        C += torch.outer(d, x[i] - mu)
    return C / (n - 1)


holding("welford-cov", welford, lambda: (torch.ones(()), torch.zeros(24), torch.zeros(24, 24)), T(4, 24))


def traces(V, e, s, s2, r):
    d = r + 0.99 * V[s2] - V[s]
    e.mul_(0.9)
    e[s] += 1
    V.add_(0.1 * d * e)
    return d


holding(
    "eligibility",
    traces,
    lambda: (torch.zeros(500), torch.zeros(500)),
    torch.tensor(3),
    torch.tensor(9),
    torch.tensor(1.0),
)


def hist_run(h, x):
    h.mul_(0.99).scatter_add_(0, ((x.clamp(-3, 3) + 3) / 6 * 255).long(), torch.ones_like(x))
    c = h.cumsum(0)
    return (c / c[-1] > 0.5).int().argmax()


holding("histogram-observer", hist_run, lambda: (torch.zeros(256),), T(4096))


def pad_batch(a, b, c):
    o = torch.zeros(3, 40, 16)
    for i, x in enumerate((a, b, c)):
        o[i, : x.shape[0]] = x
    return o, o.abs().sum(-1) > 0


infer("state/pad-batch", pad_batch, T(40, 16), T(22, 16), T(7, 16))


def minmax_obs(lo, hi, x):
    lo.copy_(torch.minimum(lo, x.amin(0)))
    hi.copy_(torch.maximum(hi, x.amax(0)))
    s = (hi - lo) / 255
    return ((x - lo) / s.clamp(min=1e-8)).round().clamp(0, 255) * s + lo


holding("min-max-observer", minmax_obs, lambda: (torch.zeros(64), torch.zeros(64)), T(128, 64))


def sgd_rows(e, o, c, p, lr=0.05):
    a, b = e[c], o[p]
    g = ((a * b).sum(-1).sigmoid() - 1)[:, None]
    e.index_add_(0, c, -lr * g * b)
    o.index_add_(0, p, -lr * g * a)


holding(
    "word2vec-rows",
    sgd_rows,
    lambda: (torch.randn(3000, 64), torch.randn(3000, 64)),
    below(128, 3000),
    below(128, 3000),
)


def lru(age, key, q):
    hit = key[None] == q[:, None]
    age += 1
    age.masked_fill_(hit.any(0), 0)
    slot = age.argmax()
    key[slot] = q[0]
    return hit.any(1), slot


holding("lru", lru, lambda: (torch.randint(0, 50, (128,)), torch.randint(0, 999, (128,))), below(8, 999))


def cellular(x):
    for i in range(1, 40):
        x[i] = x[i - 1].roll(1) ^ (x[i - 1] | x[i - 1].roll(-1))
    return x


holding("rule-30", cellular, lambda: (torch.randint(0, 2, (40, 128), dtype=u8),))


def heat_inplace(u):
    for _ in range(5):
        u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u.mean()


holding("heat-in-place", heat_inplace, lambda: (torch.randn(96, 96),))


def boundary(u):
    u[0] = u[1]
    u[-1] = u[-2]
    u[:, 0] = u[:, 1]
    u[:, -1] = u[:, -2]
    return u


holding("neumann", boundary, lambda: (torch.randn(128, 128),))


def som(w, x, g):
    b = ((w - x) ** 2).sum(-1).argmin()
    h = torch.exp(-((g - g[b]) ** 2).sum(-1) / 8)
    w.add_(h[:, None] * (x - w), alpha=0.1)
    return b


holding(
    "som",
    som,
    lambda: (torch.randn(100, 12),),
    T(12),
    torch.stack(torch.meshgrid(torch.arange(10.0), torch.arange(10.0), indexing="ij"), -1).view(-1, 2),
)


def gumbel_topk(m, scores, u):
    m.zero_()
    m.scatter_(1, (scores - (-u.log()).log()).topk(4, -1).indices, 1.0)
    return scores.masked_fill(m == 0, -1e9).softmax(-1)


holding("gumbel-top-k-mask", gumbel_topk, lambda: (torch.zeros(32, 64),), T(32, 64), T(32, 64, low=0.01, high=0.99))


def ring(buf, pos, x):
    i = (pos + torch.arange(x.shape[0])) % buf.shape[0]
    buf[i] = x
    pos.add_(x.shape[0]).remainder_(buf.shape[0])
    return buf.mean(0), buf[(pos - 1) % buf.shape[0]]


holding("ring", ring, lambda: (torch.zeros(512, 16), torch.tensor(500)), T(24, 16))


def delta(S, q, k, v, b):
    S -= torch.einsum("hd,hv->hdv", k, b[:, None] * (torch.einsum("hdv,hd->hv", S, k) - v))
    return torch.einsum("hdv,hd->hv", S, q)


holding("delta-rule-state", delta, lambda: (torch.randn(8, 32, 32),), T(8, 32), T(8, 32), T(8, 32), T(8, low=0, high=1))


def conv_state(s, x, w, b):
    s.copy_(s.roll(-1, -1))
    s[:, :, -1] = x
    return F.silu((s * w).sum(-1) + b)


holding("conv-state", conv_state, lambda: (torch.randn(2, 256, 4),), T(2, 256), T(256, 4), T(256))
