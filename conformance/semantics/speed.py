"""Cases that take eager more than a millisecond, so that it shows whether compiled code is slow."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/speed")


@case(elementwise=True)
def elements(trial: Trial) -> Any:
    """A chain of elementwise functions of half a million numbers."""
    x, y = trial.tensor(512, 1024), trial.tensor(1024)
    return trial.run(lambda x, y: ((x * y + 1).relu() * x.abs().sqrt() - y).clamp(-3, 3), x, y)


@case(terms=1024)
def rows(trial: Trial) -> Any:
    """Sums, extremes, softmax and norms of rows and columns."""
    x = trial.tensor(512, 1024)
    return trial.run(lambda x: (x.softmax(-1), F.layer_norm(x, (1024,)), x.sum(0), x.amax(1), x.var(1)), x)


@case(terms=384)
def products(trial: Trial) -> Any:
    """Products of matrices, plain, transposed and in a batch."""
    x, y, z = trial.tensor(384, 384), trial.tensor(384, 384), trial.tensor(8, 96, 96)
    return trial.run(lambda x, y, z: (x @ y, F.linear(x, y).relu(), z @ z.transpose(1, 2)), x, y, z)


@case(terms=288)
def images(trial: Trial) -> Any:
    """A convolution, a norm and pooling of images."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    net = trial.module(torch.nn.Sequential(*layers)).eval()
    with torch.no_grad():
        return trial.run(net, trial.tensor(4, 16, 32, 32))


@case(terms=256)
def attention(trial: Trial) -> Any:
    """Attention of four heads over 256 words."""
    q, k, v = (trial.tensor(2, 4, 256, 32) for _ in range(3))
    return trial.run(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v)


@case()
def moved(trial: Trial) -> Any:
    """Transposed copies, joins, reads by index and words of a table."""
    x, table = trial.tensor(512, 768), trial.tensor(1000, 256)
    words = trial.tensor(2048, dtype=torch.int64, low=0, high=1000)

    def f(x: torch.Tensor, table: torch.Tensor, words: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.t().contiguous(), torch.cat([x, x * 2], 1), F.embedding(words, table), x.flip(0), x[:, ::3] + 1

    return trial.run(f, x, table, words)


@case("training", terms=512)
def training(trial: Trial) -> Any:
    """A step of a network of two layers with a norm, with the gradients of its weights."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(192, 256), torch.nn.LayerNorm(256), torch.nn.GELU(), torch.nn.Linear(256, 64)
    net = trial.module(torch.nn.Sequential(*layers))
    y = trial.run(net, trial.tensor(512, 192))
    y.square().mean().backward()
    return y, [p.grad for p in net.parameters()]
