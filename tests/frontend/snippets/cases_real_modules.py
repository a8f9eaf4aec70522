"""Pieces of real networks with weights of their own: routing, recurrence, hooks, adapters."""

import collections
import contextlib
import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from .corpus import case, tensor


def seeded(make):
    """Inputs with a module of fixed weights."""

    def inputs():
        state = torch.random.get_rng_state()
        torch.manual_seed(7)
        module = make()
        torch.random.set_rng_state(state)
        return tensor(), module

    return inputs


class DenseMixture(nn.Module):
    def __init__(self, experts=3, top=2):
        super().__init__()
        self.gate = nn.Linear(4, experts, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4)) for _ in range(experts))
        self.top = top
        self.load = None

    def forward(self, x):
        probabilities = self.gate(x).softmax(-1)
        weights, chosen = probabilities.topk(self.top, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = (weights * (chosen == number)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        self.load = F.one_hot(chosen, len(self.experts)).sum((0, 1))
        return out


@case(one_graph=True, inputs=seeded(DenseMixture))
def case_dense_mixture(x, mixture):
    return mixture(x), mixture.load


@case(inputs=seeded(DenseMixture))
def case_sparse_mixture(x, mixture):
    weights, chosen = mixture.gate(x).softmax(-1).topk(2, dim=-1)
    out = torch.zeros_like(x)
    for number, expert in enumerate(mixture.experts):
        rows, places = torch.where(chosen == number)
        if rows.numel():
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, places, None])
    return out


@case(one_graph=True, inputs=seeded(DenseMixture))
def case_capacity_by_cumsum(x, mixture):
    chosen = mixture.gate(x).argmax(-1)
    mask = F.one_hot(chosen, 3)
    position = mask.cumsum(0) * mask
    kept = mask * (position <= 2)
    balance = (mask.float().mean(0) * mixture.gate(x).softmax(-1).mean(0)).sum() * 3
    return kept, position.amax(), balance


@case(one_graph=True, inputs=seeded(lambda: nn.GRUCell(4, 4)))
def case_recurrent_cell_with_teacher_forcing(x, cell):
    hidden, outputs = torch.zeros(1, 4), []
    for number, row in enumerate(x):
        fed = row[None] if number % 2 == 0 else outputs[-1]
        hidden = cell(fed, hidden)
        outputs.append(hidden)
    return torch.cat(outputs)


class Residual(nn.Module):
    def __init__(self, channels, out=None, *, up=False):
        super().__init__()
        out = out or channels
        self.norm, self.conv = nn.GroupNorm(2, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(4, out)
        self.skip = nn.Identity() if out == channels else nn.Conv2d(channels, out, 1)
        self.up = up

    def forward(self, x, time):
        if self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        return self.conv(F.silu(self.norm(x))) + self.time(time)[:, :, None, None] + self.skip(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([Residual(2, 4), Residual(4, 4)])
        self.middle = Residual(4)
        self.up = nn.ModuleList([Residual(8, 4, up=True), Residual(8, 2)])

    def forward(self, x, time):
        half = 2
        angles = time[:, None] * torch.exp(-math.log(100) * torch.arange(half) / half)
        time = torch.cat([angles.sin(), angles.cos()], -1)
        skips = []
        for block in self.down:
            x = block(x, time)
            skips.append(x)
            x = F.avg_pool2d(x, 2) if block is not self.down[-1] else x
        x = self.middle(x, time)
        for block in self.up:
            skip = skips.pop()
            if skip.shape[-2:] != x.shape[-2:]:
                skip = F.interpolate(skip, size=x.shape[-2:])
            x = block(torch.cat([x, skip], 1), time)
        return x


@case(one_graph=True, inputs=seeded(UNet))
def case_unet(x, model):
    return model(x.sum() + torch.linspace(-1, 1, 32).view(1, 2, 4, 4), torch.tensor([3.0]))


class Average:
    def __init__(self, module, decay=0.9):
        self.module, self.decay, self.updates = module, decay, 0
        self.shadow = {name: p.detach().clone() for name, p in module.named_parameters()}

    @torch.no_grad()
    def update(self):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for name, parameter in self.module.named_parameters():
            self.shadow[name].mul_(decay).add_(parameter, alpha=1 - decay)

    @contextlib.contextmanager
    def applied(self):
        kept, self.shadow = self.shadow, {name: t + 1 for name, t in self.shadow.items()}
        try:
            yield self.shadow
        finally:
            self.shadow = kept


@case(one_graph=True, inputs=seeded(lambda: Average(nn.Linear(4, 4))))
def case_moving_average(x, average):
    average.update()
    with average.applied() as shadow:
        y = F.linear(x, shadow["weight"], shadow["bias"])
    return y, average.updates, sorted(average.shadow)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
        self.seen = {}
        for name, child in self.net.named_children():
            child.register_forward_hook(functools.partial(self._keep, name))

    def _keep(self, name, module, args, output):
        self.seen[name, type(module).__name__] = output.detach().abs().mean()

    def forward(self, x):
        self.seen.clear()
        return self.net(x)


@case(one_graph=True, inputs=seeded(Hooked))
def case_features_by_hooks(x, model):
    return model(x), dict(model.seen)


class Adapted(nn.Module):
    """A layer with low-rank adapters, chosen by name."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(4, 4)
        self.adapters = nn.ModuleDict(
            {n: nn.ParameterDict({"a": torch.ones(1, 4), "b": torch.ones(4, 1)}) for n in "xy"}
        )
        self.active, self.scaling = ["x"], {"x": 0.5, "y": 2.0}

    def forward(self, x):
        out = self.base(x)
        for name in self.active:
            if name in self.adapters:
                adapter = self.adapters[name]
                out = out + (x @ adapter["a"].T @ adapter["b"].T) * self.scaling[name]
        return out

    def merged(self):
        weight = self.base.weight.detach().clone()
        for name in reversed(self.active):
            weight += (self.adapters[name]["b"] @ self.adapters[name]["a"]).detach() * self.scaling[name]
        return weight


@case(one_graph=True, inputs=seeded(Adapted))
def case_adapters(x, layer):
    first = layer(x)
    layer.active = ["x", "y", "missing"]
    second = layer(x)
    layer.active.remove("missing")
    return first, second, layer.merged()


class Cache:
    """Keys and values by layer, grown or written in place."""

    def __init__(self, size=None):
        self.layers, self.size, self.seen = {}, size, collections.Counter()

    def __len__(self):
        return len(self.layers)

    def update(self, layer, keys, values):
        if self.size is None:
            old = self.layers.get(layer)
            self.layers[layer] = (keys, values) if old is None else tuple(map(torch.cat, zip(old, (keys, values))))
        else:
            begin = self.seen[layer]
            stored = self.layers.setdefault(layer, tuple(t.new_zeros(self.size, t.shape[1]) for t in (keys, values)))
            for store, new in zip(stored, (keys, values), strict=True):
                store[begin : begin + len(new)] = new
        self.seen[layer] += len(keys)
        return self.layers[layer]


@case(one_graph=True)
def case_growing_cache(x):
    cache = Cache()
    for step in x.split(1):
        for layer in range(2):
            keys, values = cache.update(layer, step + layer, step * 2)
    return keys, values, len(cache), dict(cache.seen)


@case(one_graph=True)
def case_static_cache(x):
    cache = Cache(size=5)
    out = []
    for step in x.split(1):
        keys, values = cache.update(0, step, step * 2)
        mask = torch.arange(5) < cache.seen[0]
        out.append((step @ keys.T).masked_fill(~mask, -1e9).softmax(-1) @ values)
    return torch.cat(out), cache.seen[0]
