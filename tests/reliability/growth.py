"""Measures how much memory and how many mappings a process keeps of a model that was compiled and dropped.

    python tests/reliability/growth.py [MODELS]

Compiles MODELS (default 5,000) models with ``native``, calls each and drops it.  Prints the size of the process after
each thousand, and the mean growth per model after the first tenth.
"""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import torch

import torchmux

KINDS = 40
"""The number of different graphs; model n has graph n modulo KINDS, and each model is compiled anew."""


def resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def mappings() -> int:
    """The number of memory mappings of this process; Linux allows about 65,000."""
    return len(Path("/proc/self/maps").read_text().splitlines())


def model(kind: int) -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Softmax(-1))
    made[0].weight.requires_grad_(False).fill_(0.01 * kind)
    return made.requires_grad_(False).eval()


def run(count: int) -> dict[str, float]:
    """Compile, call and drop ``count`` models; returns the mean growth in bytes and mappings."""
    at: list[tuple[int, int]] = []
    for number in range(count):
        x = torch.ones(number % KINDS + 2, 8)
        net = model(number)
        with torch.no_grad():
            compiled = torchmux.compile(net, backend="native", strict=True, dynamic=False)
            torch.testing.assert_close(compiled(x), net(x))
        del compiled, net
        if number % 50 == 49:
            gc.collect()
            at.append((resident(), mappings()))
        if number % 1000 == 999:
            print(f"{number + 1} models: {at[-1][0] / 2**20:.0f} MiB, {at[-1][1]} mappings", flush=True)
    first, last = at[len(at) // 10], at[-1]
    models = 50 * (len(at) - 1 - len(at) // 10)
    return {"bytes": (last[0] - first[0]) / models, "mappings": (last[1] - first[1]) / models}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)))
