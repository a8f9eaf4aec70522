"""Seconds that the native backend takes to compile programs of many operators, by their number.

    python benchmarks/native_scale.py [--numbers 100 500 1000 2000 5000] [--shapes chain parallel fan tower]

A column says the seconds of the whole first call: capture, tracing, lowering, the C++ compiler.  What is linear grows
as its number does.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

import torchmux
from torchmux.config import config


def chain(number: int) -> Callable[[torch.Tensor], Any]:
    """One operator after the other."""

    def run(x: torch.Tensor) -> Any:
        for n in range(number):
            x = x + 1.0 if n % 2 else x * 0.999
        return x

    return run


def parallel(number: int) -> Callable[[torch.Tensor], Any]:
    """As many results, which have nothing to do with one another."""
    return lambda x: [x[n % 8] * (n + 1.5) for n in range(number)]


def fan(number: int) -> Callable[[torch.Tensor], Any]:
    """One value that all the others read, added up."""

    def run(x: torch.Tensor) -> Any:
        shared = torch.sin(x)
        total = x
        for n in range(number // 2):
            total = total + shared * (n + 0.5)
        return total

    return run


def tower(number: int) -> Callable[[torch.Tensor], Any]:
    """Normalizations on top of each other: each reduces what the one before has made."""

    def run(x: torch.Tensor) -> Any:
        for _ in range(number // 4):
            x = torch.tanh(x - x.mean(-1, keepdim=True)) + 0.5
        return x

    return run


SHAPES = {f.__name__: f for f in (chain, parallel, fan, tower)}


def seconds(program: Callable[[torch.Tensor], Any]) -> tuple[float, bool]:
    """How long the first call takes, and whether native compiled all of it."""
    torchmux.reset()
    with tempfile.TemporaryDirectory() as folder, config.patch(cache_dir=folder), torch.no_grad():
        compiled = torchmux.compile(program, backend="native")
        start = time.perf_counter()
        compiled(torch.randn(8, 64))
        spent = time.perf_counter() - start
    placed = {p.placed_on for graph in torchmux.report(compiled).graphs for p in graph.report.placements}
    return spent, placed == {"native"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--numbers", type=int, nargs="+", default=[100, 500, 1000, 2000, 5000])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    chosen = parser.parse_args()
    seconds(chain(2))
    print("operators", *(f"{shape:>12}" for shape in chosen.shapes))
    for number in chosen.numbers:
        cells = []
        for shape in chosen.shapes:
            spent, whole = seconds(SHAPES[shape](number))
            cells.append(f"{spent:10.1f} s" if whole else f"{spent:8.1f} s !")
            print(end="", flush=True)
        print(f"{number:9}", *cells, flush=True)
    print("! native left some of it to torch")


if __name__ == "__main__":
    main()
