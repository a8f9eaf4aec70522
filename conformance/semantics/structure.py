"""Graphs with an unusual structure."""

from __future__ import annotations

from typing import Any

import torch

from ..case import Collection, Trial

case = Collection("semantics/structure")


@case(computes=False)
def nothing_to_compute(trial: Trial) -> Any:
    """A function that only passes its arguments through."""
    x = trial.tensor(3)
    return trial.run(lambda x, n: (n, "word", None, x), x, 3)


@case()
def unused_inputs(trial: Trial) -> Any:
    """Unused inputs do not matter."""
    return trial.run(lambda x, y, z: x + z, trial.tensor(3), trial.tensor(2, 2), trial.tensor(3))


@case()
def unused_results(trial: Trial) -> Any:
    """Unused values need not be computed, but their effects happen."""
    x = trial.tensor(3)

    def f(x: torch.Tensor) -> torch.Tensor:
        x.sin().exp()
        (x * 2).add_(1)
        x[0].add_(5)
        return x.cos()

    return trial.run(f, x), x


@case()
def nested_results(trial: Trial) -> Any:
    """Results in lists, dictionaries and tuples keep their structure."""
    x = trial.tensor(3)
    return trial.run(lambda x: {"a": [x + 1, (x * 2, 7)], "b": {"c": x.sum()}, "d": ()}, x)


@case()
def two_thousand_operators_deep(trial: Trial) -> Any:
    """A chain of two thousand operators."""

    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(1000):
            x = x * 0.999 + 0.001
        return x

    return trial.run(f, trial.tensor(8))


@case()
def five_hundred_operators_wide(trial: Trial) -> Any:
    """Five hundred operators on one input, summed."""

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x * i for i in range(500)]).sum(0)

    return trial.run(f, trial.tensor(8))


@case()
def a_hundred_results(trial: Trial) -> Any:
    """A hundred outputs."""
    return trial.run(lambda x: [x + i for i in range(100)], trial.tensor(4))


@case()
def splits_and_joins(trial: Trial) -> Any:
    """Operators with several results, some unused, and operators on lists."""

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a, _, b = x.split([2, 1, 3], dim=1)
        values, places = x.topk(2, dim=1)
        low, high = torch.aminmax(x)
        return torch.cat([b, a], 1), values, places, high - low, *x.unbind(0)[:2]

    return trial.run(f, trial.tensor(3, 6))


@case()
def a_small_network(trial: Trial) -> Any:
    """Convolution, norm, pooling, attention, embedding and a linear layer, in evaluation."""
    torch.manual_seed(0)

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(8)
            self.embedding = torch.nn.Embedding(10, 8)
            self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
            self.head = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 5), torch.nn.GELU())

        def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
            x = torch.nn.functional.max_pool2d(self.norm(self.conv(image)).relu(), 2)
            x = x.flatten(2).transpose(1, 2) + self.embedding(words)
            x, _ = self.attention(x, x, x, need_weights=False)
            return self.head(x)

    network = trial.module(Network()).eval()
    with torch.no_grad():
        return trial.run(network, trial.tensor(2, 3, 4, 4), trial.tensor(2, 4, dtype=torch.int64, low=0, high=10))


@case()
def the_same_in_two_shapes(trial: Trial) -> Any:
    """A result is returned both as computed and in another shape."""
    x = trial.tensor(2, 3, 4, 5)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        shares = torch.softmax((x + 1).view(6, 4, 5), -1)
        return shares, shares.view(2, 3, 4, 5) * 2

    return trial.run(f, x)


@case()
def no_dimensions(trial: Trial) -> Any:
    """Tensors without dimensions are expanded, copied and joined like others."""
    x, number = trial.tensor(3), torch.tensor(7)

    def f(x: torch.Tensor, number: torch.Tensor) -> tuple[torch.Tensor, ...]:
        copied = torch.empty((), dtype=x.dtype).copy_(x[0])
        return x.sum().expand([]) + 1, number.expand([]) * 2, copied * 3, torch.stack([copied, x[1]])

    return trial.run(f, x, number)


@case(terms=210)
def large_products(trial: Trial) -> Any:
    """Matrix products large enough for specialized code, of plain and transposed matrices, and of a batch."""
    x, y, z = trial.tensor(131, 210), trial.tensor(210, 97), trial.tensor(3, 131, 97)

    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x @ y, y.t() @ x.t(), z.transpose(1, 2) @ z, (x @ y).relu() @ z[0].t()

    return trial.run(f, x, y, z)


@case()
def many_inputs_and_results(trial: Trial) -> Any:
    """Functions of eighty tensors, with eighty results: no limit on arguments of generated code is in the way."""

    def f(*xs: torch.Tensor) -> list[torch.Tensor]:
        return [x * y for x, y in zip(xs, (*xs[1:], xs[0]), strict=True)] + [torch.stack(xs).sum(0)]

    return trial.run(f, *(trial.tensor(3) for _ in range(80)))
