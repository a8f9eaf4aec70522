"""Generating tokens one by one: tokens per second of a Llama-like model, for each form in which weights are kept.

    python benchmarks/decode.py [--weights float32 bfloat16 int8 int4] [--sides eager native inductor openvino]
                                [--layers N] [--batch N] [--seconds S] [--threads N]

The model has the width of one of 1.1 billion parameters (2,048; 32 heads of which 4 have keys and values; 5,632 between
the layers of a block), of which ``--layers`` blocks are built.  Its cache has 512 positions, is written in place, and
is half full.  ``int8`` has a scale for each row of a weight, ``int4`` one for each 32 numbers, two of which are in a
byte; both are converted in the graph, as users write it.  Values that are computed are float32, or bfloat16 with such
weights.

All sides run in turns in one process, and the least time of a call counts; with one thread, the time of the processor.
``GB/s`` is what is read of weights and cache in that time; ``of copy`` is its ratio to the bytes per second that a copy
of 256 MiB reads and writes, of the same process.  ``off`` is the largest difference from eager, divided by the largest
result.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import torchmux

WIDTH, HIDDEN, HEADS, KV_HEADS, POSITIONS, GROUP = 2048, 5632, 32, 4, 512, 32
SIZE = WIDTH // HEADS


class Plain(nn.Module):
    """A weight as it is computed with."""

    def __init__(self, rows: int, columns: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", (torch.randn(rows, columns) / columns**0.5).to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight)


class Int8(nn.Module):
    """A weight in int8, with a scale for each row."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (rows, columns), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(rows) / (64 * columns**0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


class Int4(nn.Module):
    """A weight in 4 bits, from 0 to 15, with a scale for each group of numbers of a row, whose middle is 8."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8))
        self.register_buffer("scale", torch.rand(rows, columns // GROUP) / (4 * columns**0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, half = self.weight.shape
        numbers = torch.stack((self.weight & 15, self.weight >> 4), -1).view(rows, -1, GROUP)
        weight = (numbers.to(x.dtype) - 8) * self.scale[:, :, None]
        return F.linear(x, weight.view(rows, 2 * half))


MAKERS: dict[str, Callable[[int, int], nn.Module]] = {
    "float32": lambda rows, columns: Plain(rows, columns, torch.float32),
    "bfloat16": lambda rows, columns: Plain(rows, columns, torch.bfloat16),
    "int8": Int8,
    "int4": Int4,
}


class Block(nn.Module):
    def __init__(self, make: Callable[[int, int], nn.Module], dtype: torch.dtype, batch: int) -> None:
        super().__init__()
        self.q, self.out = make(WIDTH, WIDTH), make(WIDTH, WIDTH)
        self.k, self.v = (make(KV_HEADS * SIZE, WIDTH) for _ in range(2))
        self.gate, self.up, self.down = make(HIDDEN, WIDTH), make(HIDDEN, WIDTH), make(WIDTH, HIDDEN)
        for name in ("first", "second"):
            self.register_buffer(name, torch.ones(WIDTH, dtype=dtype))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.randn(batch, KV_HEADS, POSITIONS, SIZE).to(dtype))

    def forward(self, x: torch.Tensor, at: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        batch = x.shape[0]
        y = F.rms_norm(x, (WIDTH,), self.first)
        q, k = (turned(p(y).view(batch, -1, 1, SIZE), turn) for p in (self.q, self.k))
        self.keys.index_copy_(2, at, k)
        self.values.index_copy_(2, at, self.v(y).view(batch, KV_HEADS, 1, SIZE))
        q = q.view(batch, KV_HEADS, HEADS // KV_HEADS, SIZE)
        scores = (q @ self.keys.transpose(-1, -2) / SIZE**0.5).masked_fill(torch.arange(POSITIONS) > at, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ self.values).reshape(batch, WIDTH))
        y = F.rms_norm(x, (WIDTH,), self.second)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def turned(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The pairs of the two halves of each head, turned by the angles of a position."""
    low, high = x.chunk(2, -1)
    cos, sin = turn
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


class Model(nn.Module):
    def __init__(self, weights: str, layers: int, batch: int) -> None:
        super().__init__()
        dtype = torch.bfloat16 if weights == "bfloat16" else torch.float32
        self.blocks = nn.ModuleList(Block(MAKERS[weights], dtype, batch) for _ in range(layers))
        angles = torch.outer(torch.arange(POSITIONS), 10000 ** (-torch.arange(0, SIZE, 2) / SIZE))
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        turn = self.cos[at], self.sin[at]
        for block in self.blocks:
            x = block(x, at, turn)
        return x


def copy_rate() -> float:
    """The bytes that a copy reads and writes in a second."""
    source = torch.ones(1 << 26)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(_timed(lambda: target.copy_(source)) for _ in range(10))


def _timed(run: Callable[[], Any]) -> float:
    # The time of one thread does not count what other programs take.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    return clock() - start


def sides_of(model: nn.Module, names: list[str]) -> dict[str, Callable[..., torch.Tensor]]:
    def side(name: str) -> Callable[..., torch.Tensor]:
        if name == "eager":
            return model
        return torch.compile(model) if name == "inductor" else torchmux.compile(model, backend=name)

    return {name: side(name) for name in names}


def measure(weights: str, args: argparse.Namespace, rate: float) -> None:
    model = Model(weights, args.layers, args.batch).eval()
    dtype = model.cos.dtype
    x, at = torch.randn(args.batch, WIDTH).to(dtype), torch.tensor([POSITIONS // 2])
    read = sum(b.nbytes for name, b in model.named_buffers() if not name.startswith(("cos", "sin")))
    sides = sides_of(model, args.sides)
    results = {name: side(x, at) for name, side in sides.items()}
    best = dict.fromkeys(sides, float("inf"))
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        for name, side in sides.items():
            best[name] = min(best[name], *(_timed(lambda side=side: side(x, at)) for _ in range(3)))
    wanted = model(x, at).float()
    for name, seconds in best.items():
        off = float((results[name].float() - wanted).abs().max() / wanted.abs().max())
        tokens, speed = args.batch / seconds, read / seconds
        row = f"{weights:10}{name:10}{tokens:10.1f}{speed / 1e9:10.2f}{speed / rate:10.2f}{off:12.1e}"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", nargs="+", choices=MAKERS, default=list(MAKERS))
    parser.add_argument("--sides", nargs="+", default=["eager", "native", "inductor"])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each form of weights")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    rate = copy_rate()
    print(f"a copy reads and writes {rate / 1e9:.1f} GB/s; {args.layers} layers, batch {args.batch}")
    print(f"{'weights':10}{'side':10}{'tokens/s':>10}{'GB/s':>10}{'of copy':>10}{'off':>12}")
    with torch.no_grad():
        for weights in args.weights:
            measure(weights, args, rate)


if __name__ == "__main__":
    main()
