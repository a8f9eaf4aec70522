"""Every length around that of a vector, every beginning, every order of dimensions in memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..case import Collection, Trial

case = Collection("semantics/lengths")

LENGTHS = (*range(1, 10), 12, 15, 16, 17, 20, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65)


def _all_of(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2 + 1, x.sum(-1), x.amax(-1), x.softmax(-1)


@case()
def each_length(trial: Trial) -> Any:
    """Vectors of 1 to 65 numbers are computed to their end, and not beyond it."""
    given = [trial.tensor(n) for n in LENGTHS]
    return trial.run(lambda given: [_all_of(x) for x in given], given)


@case()
def each_width(trial: Trial) -> Any:
    """Matrices with 1 to 65 rows and columns, reduced over both."""
    given = [trial.tensor(n, 5) for n in LENGTHS[::2]] + [trial.tensor(3, n) for n in LENGTHS[1::2]]
    return trial.run(lambda given: [(x.sum(0), x.exp().sum(1), x.t() + 1) for x in given], given)


@case("dynamic_shapes")
def each_length_dynamic(trial: Trial) -> Any:
    """One compilation serves all lengths from 1 to 65."""
    compiled = trial.compile(_all_of, dynamic=True)
    return [compiled(trial.tensor(n)) for n in range(65, 0, -1)]


@case("dynamic_shapes")
def each_product_dynamic(trial: Trial) -> Any:
    """One compilation serves products of all sizes."""
    compiled = trial.compile(lambda x, y: (x @ y).relu(), dynamic=True)
    sizes = [(n, m, k) for n in (1, 2, 17) for m in (1, 3, 33) for k in (1, 5, 16, 64)]
    return [compiled(trial.tensor(n, k), trial.tensor(k, m)) for n, m, k in sizes]


@case("dynamic_shapes")
def joined_sizes(trial: Trial) -> Any:
    """Statistics, means, joins and convolutions over sizes that change."""
    torch.manual_seed(0)
    conv = trial.module(torch.nn.Conv1d(3, 4, 3, padding=1))

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        both = torch.cat([x, y], -1)
        return both, both.mean(-1), both.var(-1), both.std(0), conv(both).relu(), both.softmax(-1), F.pad(both, (1, 2))

    compiled = trial.compile(f, dynamic=True)
    with torch.no_grad():
        return [
            compiled(trial.tensor(b, 3, n), trial.tensor(b, 3, m)) for b, n, m in ((2, 5, 7), (3, 9, 4), (4, 17, 16))
        ]


@case()
def each_beginning(trial: Trial) -> Any:
    """Inputs begin at any element of their memory, also in a call after one that began elsewhere."""
    base = trial.tensor(160)
    compiled = trial.compile(lambda x, y: (x * 2 + y, x.sum(), (x @ y)))
    return [compiled(base[start : start + 33], base[90 - start : 123 - start]) for start in (0, 1, 2, 3, 5, 8, 16, 31)]


@case()
def each_order(trial: Trial) -> Any:
    """The order of dimensions in memory changes from call to call, and with it the order in results."""
    x = trial.tensor(3, 4, 5)
    compiled = trial.compile(lambda x: (x + 1, x.sum(1), x.softmax(-1), x * x, x.contiguous(), x.reshape(-1)))
    views = x, x.permute(2, 0, 1), x.transpose(0, 1), x[:, ::2], x[..., :1].expand(3, 4, 6), x.flip(0), x[1:, 1:, 1:]
    return [compiled(view) for view in views]


@case()
def channels_last(trial: Trial) -> Any:
    """A network keeps channels last in memory where eager does."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    net = trial.module(torch.nn.Sequential(*layers)).eval()
    compiled, image = (
        trial.compile(lambda x: (net(x), x * 2, F.avg_pool2d(x, 2), x + x.mean(1, keepdim=True))),
        trial.tensor(2, 4, 6, 6),
    )
    with torch.no_grad():
        return [compiled(image.to(memory_format=each)) for each in (torch.channels_last, torch.contiguous_format)]


@case("training")
def channels_last_in_training(trial: Trial) -> Any:
    """Gradients of a network in channels last are those of eager, in eager's layout."""
    torch.manual_seed(0)
    net = trial.module(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)))
    net = net.to(memory_format=torch.channels_last)
    x = trial.tensor(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    y = trial.run(net, x)
    y.square().sum().backward()
    return y, x.grad, [p.grad for p in net.parameters()]


@case(reference=False)
def narrow_types(trial: Trial) -> Any:
    """Narrow types have other lengths of vectors: bytes, bools and short integers of 1 to 65 elements."""
    dtypes = torch.int8, torch.uint8, torch.int16, torch.bool
    given = [trial.tensor(n, dtype=t, low=0, high=9) for n in (1, 7, 15, 16, 17, 31, 33, 63, 65) for t in dtypes]
    return trial.run(lambda given: [(x + 1, x.sum(), x == 1, x.float() * 0.5, x.flip(0)) for x in given], given)


@case("bfloat16", "float16")
def half_types(trial: Trial) -> Any:
    """Half precision of 1 to 65 elements."""
    given = [trial.tensor(n, dtype=t) for n in (1, 7, 15, 17, 31, 33, 63, 65) for t in (torch.bfloat16, torch.float16)]
    return trial.run(lambda given: [(x * 3, x.sum(), x.amax(), x.float() + 1) for x in given], given)


@case()
def sizes_of_one(trial: Trial) -> Any:
    """Dimensions of size one are broadcast, summed and kept as in eager; code for one is not used for two."""
    compiled = trial.compile(lambda x, y: (x + y, (x * y).sum(0), x.mean(1, keepdim=True) - y))
    sizes = ((1, 4), (3, 4)), ((3, 4), (1, 4)), ((3, 1), (1, 4)), ((2, 4), (2, 4)), ((1, 1), (3, 1))
    return [compiled(trial.tensor(*a), trial.tensor(*b)) for a, b in sizes]
