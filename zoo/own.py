"""Small models of families that ``transformers`` does not have, in plain torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """Two linear layers with a norm between them; from ``(n, 64)`` to the probabilities of 10 classes, ``(n, 10)``."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.norm(self.one(x)))
        return torch.softmax(self.two(hidden), -1)


class Chain(nn.Module):
    """Elementwise functions and reductions of rows; from two ``(n, m)`` to ``(n,)``."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = F.gelu(x * 1.5 + y) * torch.sigmoid(y) + x.tanh()
        return (z.softmax(-1) * z).mean(-1)


class Tagger(nn.Module):
    """A recurrent network: an embedding, two layers of LSTM and a classifier of each token.

    From token ids ``(batch, length)`` to ``(batch, length, labels)``.
    """

    def __init__(self, vocabulary: int = 4000, width: int = 256, labels: int = 32) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(width, labels)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.lstm(self.embedding(tokens))
        return self.classifier(hidden)


class _Messages(nn.Module):
    """One layer of graph attention: each node averages its neighbours, with weights that both ends decide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, width, bias=False)
        self.of_source, self.of_target = (nn.Parameter(torch.randn(heads, width // heads) * 0.1) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        number = nodes.shape[0]
        values = self.project(nodes).view(number, self.heads, -1)
        scores = F.leaky_relu(
            (values * self.of_source).sum(-1)[source] + (values * self.of_target).sum(-1)[target], 0.2
        )
        # A softmax over the edges that end in the same node.
        highest = torch.full((number, self.heads), -1e4, dtype=scores.dtype, device=scores.device)
        highest = highest.scatter_reduce(0, target[:, None].expand_as(scores), scores, "amax")
        weights = torch.exp(scores - highest[target])
        total = torch.zeros_like(highest).index_add(0, target, weights)
        weights = weights / total[target]
        gathered = torch.zeros_like(values).index_add(0, target, values[source] * weights[..., None])
        return self.norm(nodes + F.elu(gathered.reshape(number, -1)))


class GraphNetwork(nn.Module):
    """A graph attention network that classifies nodes; after Veličković and others, 2018 (arXiv:1710.10903).

    From features ``(nodes, features)`` and edges ``(2, edges)``, sources first, to ``(nodes, classes)``.
    """

    def __init__(self, features: int = 64, width: int = 128, heads: int = 4, layers: int = 3, classes: int = 16):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(_Messages(width, heads) for _ in range(layers))
        self.last = nn.Linear(width, classes)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        nodes = F.elu(self.first(features))
        for layer in self.layers:
            nodes = layer(nodes, edges[0], edges[1])
        return self.last(nodes)


class _Block(nn.Module):
    """Two convolutions around the time, and a shortcut."""

    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(hidden)))


class _Attention(nn.Module):
    """Attention among the pixels."""

    def __init__(self, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        split = self.qkv(pixels).view(batch, height * width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(split[0], split[1], split[2]).transpose(1, 2).flatten(2)
        return x + self.out(mixed).transpose(1, 2).reshape(batch, channels, height, width)


class UNet(nn.Module):
    """The network of a diffusion model: three resolutions, attention at the lowest.

    After Ho and others, 2020 (arXiv:2006.11239).  From images ``(batch, channels, size, size)`` and times ``(batch,)``
    to the noise in them, of the shape of the images; ``size`` is a multiple of 4.
    """

    def __init__(self, channels: int = 4, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        time = 4 * width
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.ModuleList([_Block(width, width, time), _Block(width, 2 * width, time)])
        self.smaller = nn.ModuleList(nn.Conv2d(c, c, 3, stride=2, padding=1) for c in (width, 2 * width))
        self.middle = nn.ModuleList([_Block(2 * width, 4 * width, time), _Block(4 * width, 4 * width, time)])
        self.attention = _Attention(4 * width, heads)
        self.up = nn.ModuleList([_Block(6 * width, 2 * width, time), _Block(3 * width, width, time)])
        self.norm, self.last = nn.GroupNorm(8, width), nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, images: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(torch.arange(self.width // 2, device=times.device, dtype=times.dtype) * (-9.2 / self.width))
        angles = times[:, None] * rates[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        hidden, kept = self.first(images), []
        for block, smaller in zip(self.down, self.smaller, strict=True):
            hidden = block(hidden, time)
            kept.append(hidden)
            hidden = smaller(hidden)
        hidden = self.middle[1](self.attention(self.middle[0](hidden, time)), time)
        for block in self.up:
            hidden = F.interpolate(hidden, scale_factor=2.0, mode="nearest")
            hidden = block(torch.cat([hidden, kept.pop()], 1), time)
        return self.last(F.silu(self.norm(hidden)))
