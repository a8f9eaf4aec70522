"""Kernels that memory bounds, on a GPU: native beside Inductor, eager and a copy of as many bytes.

    python benchmarks/native_kernels.py [--only WORD ...] [--rounds N] [--json FILE]

Softmax and layer norm over 4,096 rows of 512 to 65,536 columns in bfloat16 and float32, and a chain of 10 operations
on 2^28 elements in bfloat16.  Each engine's call is captured in a CUDA graph once for each of some copies of the input,
which together do not fit into the processor's cache; the time of a replay, by events, divided by how many there are, is
what a call takes without its host side.  Engines take turns, and the median of all rounds counts.  Bytes are those that
must move, each input read and each output written once.  ``copy`` moves as many bytes; its best is what memory can do.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import torchmux

ROWS = 4096
COLUMNS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
AT_ONCE = 400e6  # bytes of all copies of an input
TOLERANCE = {torch.bfloat16: 2e-2, torch.float32: 1e-5}


def softmax(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(-1)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def chain(x: torch.Tensor) -> torch.Tensor:
    y = (x * 1.01 + 0.5).relu() - 0.25
    z = torch.sigmoid(y) * y
    return (z.abs() + 0.125).clamp(max=4.0) * 0.5 - x


def cases() -> dict[str, tuple[Callable[..., torch.Tensor], Callable[[], tuple[torch.Tensor, ...]]]]:
    found: dict[str, Any] = {}
    for name, dtype in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        for columns in COLUMNS:

            def one(columns: int = columns, dtype: torch.dtype = dtype) -> tuple[torch.Tensor, ...]:
                return (torch.randn(ROWS, columns, dtype=dtype),)

            def three(columns: int = columns, dtype: torch.dtype = dtype) -> tuple[torch.Tensor, ...]:
                return (*one(columns, dtype), torch.randn(columns, dtype=dtype), torch.randn(columns, dtype=dtype))

            found[f"softmax {name} {columns}"] = (softmax, one)
            found[f"layer_norm {name} {columns}"] = (layer_norm, three)
    found["chain bf16 2^28"] = (chain, lambda: (torch.randn(2**28, dtype=torch.bfloat16),))
    return found


def captured(function: Callable[..., Any], inputs: list[tuple[torch.Tensor, ...]]) -> Callable[[], None]:
    """What replays a call for each of ``inputs``."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for given in inputs[:1] * 2 + inputs:
            function(*given)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for given in inputs:
            function(*given)
    return graph.replay


def measure(
    function: Callable[..., torch.Tensor], make: Callable[[], tuple[torch.Tensor, ...]], rounds: int
) -> dict[str, Any]:
    torch.compiler.reset()
    torchmux.reset()
    first = make()
    moved = 2 * first[0].nbytes + sum(x.nbytes for x in first[1:])
    count = max(1, min(32, round(AT_ONCE / moved)))
    inputs = [first, *([make() for _ in range(count - 1)])]
    engines: dict[str, Callable[..., Any]] = {
        "copy": lambda x, *rest: x.clone(),
        "eager": function,
        "inductor": torch.compile(function, dynamic=False),
        "native": torchmux.compile(function, backend="native", dynamic=False),
    }
    found: dict[str, Any] = {"bytes": moved}
    exact = function(*(x[:64].double() if x.dim() == 2 else x[: 2**20].double() for x in first))
    runs = {}
    with torch.no_grad():
        for name, engine in engines.items():
            try:
                result = engine(*first)
                if name != "copy":
                    part = (result[:64] if result.dim() == 2 else result[: 2**20]).double()
                    found[f"{name} error"] = float((part - exact).abs().max() / exact.abs().max())
                del result
                runs[name] = captured(engine, inputs)
            except Exception as error:
                found[f"{name} failed"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(rounds):
            for name, run in runs.items():
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run()
                end.record()
                end.synchronize()
                times[name].append(start.elapsed_time(end) / 1e3 / count)
    return found | {name: statistics.median(each) for name, each in times.items()}


def line(name: str, found: dict[str, Any], best: float) -> str:
    def rate(engine: str) -> str:
        return f"{found['bytes'] / found[engine] / 1e9:9.0f}" if engine in found else f"{'-':>9}"

    cells = "".join(rate(engine) for engine in ("copy", "eager", "inductor", "native"))
    share = f"{found['bytes'] / found['native'] / best:9.2f}" if "native" in found else f"{'-':>9}"
    peer = f"{found['inductor'] / found['native']:9.2f}" if {"inductor", "native"} <= found.keys() else f"{'-':>9}"
    errors = "".join(f"{found.get(f'{e} error', float('nan')):10.1e}" for e in ("eager", "native"))
    failures = "".join(f"  {key}: {words}" for key, words in found.items() if key.endswith("failed"))
    return f"{name:26}{cells}{share}{peer}{errors}{failures}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory-bound kernels on a GPU, in GB/s.")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    results: dict[str, Any] = {}
    for name, (function, make) in cases().items():
        if given.only and not any(word in name for word in given.only):
            continue
        try:
            results[name] = measure(function, make, given.rounds)
        except Exception as error:
            results[name] = {"bytes": 0, "row failed": f"{type(error).__name__}: {str(error)[:160]}"}
        torch.cuda.empty_cache()
        if given.json:
            given.json.write_text(json.dumps(results, indent=1))
    best = max((found["bytes"] / found["copy"] for found in results.values() if "copy" in found), default=float("nan"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; copy at best {best / 1e9:.0f} GB/s")
    heads = ("copy", "eager", "inductor", "native", "of best", "inductor/", "eager's", "native's")
    print(f"{'GB/s':26}" + "".join(f"{h:>9}" for h in heads[:6]) + "".join(f"{h:>10}" for h in heads[6:]))
    print("\n".join(line(name, found, best) for name, found in results.items()))


if __name__ == "__main__":
    main()
