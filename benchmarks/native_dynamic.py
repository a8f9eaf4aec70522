"""One compilation with a symbolic batch size compared with one for each size: the native backend, minimum call times.

    python benchmarks/native_dynamic.py [--seconds S] [--threads N]

The two alternate in one process; ``ratio`` is the static code's time divided by the dynamic code's: with 1 or more, the
dynamic code is at least as fast.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import torchmux

BATCHES = (2, 3, 4, 8, 16, 32, 64)


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(64, 128), nn.LayerNorm(128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.two(nn.functional.gelu(self.norm(self.one(x)))), -1)


class Chain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = nn.functional.gelu(x * 1.5 + 1) * torch.sigmoid(x) + x.tanh()
        return (z.softmax(-1) * z).mean(-1)


class Layer(nn.Module):
    """A transformer layer: attention with 4 heads, and a feed-forward network."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


ROWS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (Mlp, (64,)),
    "chain": (Chain, (32, 1024)),
    "layer": (Layer, (32, 256)),
}


def least_times(calls: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The shortest call of each, alternating, over at least ten rounds."""
    least = [float("inf")] * len(calls)
    begin, rounds = time.perf_counter(), 0
    while rounds < 10 or time.perf_counter() - begin < seconds:
        for at, call in enumerate(calls):
            start = time.perf_counter()
            call()
            least[at] = min(least[at], time.perf_counter() - start)
        rounds += 1
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description="Dynamic compared with static batch sizes, native backend.")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row and batch size")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    print(f"{'row':>8} {'batch':>6} {'static ms':>10} {'dynamic ms':>11} {'ratio':>6}")
    with torch.no_grad():
        for name, (make, rest) in ROWS.items():
            model = make().eval()
            dynamic = torchmux.compile(copy.deepcopy(model), backend="native")
            for batch in BATCHES:
                x = torch.randn(batch, *rest)
                torchmux.mark_dynamic(x, 0)
                same = x.clone()  # without the mark
                static = torchmux.compile(copy.deepcopy(model), backend="native", dynamic=False)
                torch.testing.assert_close(dynamic(x), static(same))
                calls = [lambda: static(same), lambda: dynamic(x)]  # noqa: B023 - called before the next round
                a, b = least_times(calls, given.seconds)
                print(f"{name:>8} {batch:6} {a * 1e3:10.4f} {b * 1e3:11.4f} {a / b:6.2f}", flush=True)
            assert torchmux.report(dynamic).graph_count == 1


if __name__ == "__main__":
    main()
