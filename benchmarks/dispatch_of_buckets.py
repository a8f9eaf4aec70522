"""What choosing the code of a bucket adds to a call: ``python benchmarks/dispatch_of_buckets.py``.

The same callable is called directly and through the dispatch of one, two and four symbolic sizes, in turns; the medians
of the turns are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import torchmux
from torchmux.multiplexer.running.buckets import Sizes

TURNS, CALLS = 51, 20_000


def sizes_of(*inputs: torch.Tensor) -> tuple[Sizes, list[Any]]:
    """The symbolic sizes of a graph on these inputs, and the graph's inputs."""
    found: list[tuple[Sizes, list[Any]]] = []

    def backend(gm: Any, args: Any) -> Any:
        found.append((Sizes.of_graph(gm, None), list(args)))
        return gm.forward

    torchmux.compile(lambda *tensors: [x.sin() for x in tensors], backend=backend, dynamic=True)(*inputs)
    return found[0]


def nanoseconds(call: Callable[..., Any], args: list[Any]) -> float:
    began = time.perf_counter_ns()
    for _ in range(CALLS):
        call(*args)
    return (time.perf_counter_ns() - began) / CALLS


def main() -> None:
    for shapes in [((5,),), ((5, 6),), ((5, 6), (7, 8))]:
        torchmux.reset()
        sizes, args = sizes_of(*map(torch.ones, shapes))

        def run(*values: Any) -> Any:
            return values

        chosen = sizes.dispatch({sizes.bucket(args): run}, lambda key, values: run)
        direct, through = [], []
        for _ in range(TURNS):
            direct.append(nanoseconds(run, args))
            through.append(nanoseconds(chosen, args))
        added = statistics.median(through) - statistics.median(direct)
        print(f"{len(sizes.places)} symbolic sizes: {added / 1e3:.2f} us added to a call")


if __name__ == "__main__":
    main()
