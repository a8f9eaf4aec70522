"""Running times on 1 to 16 threads: how far each engine's code gains from more of them.

    python benchmarks/threads.py [--threads 1 2 4 8 16] [--programs NAME ...] [--engines eager inductor native]
                                 [--seconds S] [--json FILE]

Each number of threads has a process of its own, in which all programs are compiled; Inductor and native both choose by
the number of threads when they compile.  These processes compile at the same time and then measure one after another,
while the others sleep.  In a process, engines take turns; the time of a call is the median of the turns.

The first table has milliseconds per call.  *speedup* is the time with one thread divided by that with the most threads
that were measured, and *efficiency* is *speedup* divided by the number of threads.  *ratio* is Inductor's time divided
by native's, for each number of threads.  With more threads than cores, the numbers mean little.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


class Layer(nn.Module):
    """A transformer's layer, before its norms."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        mixed = F.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Residual(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(self.norms[1](self.second(y)) + x)


class Experts(nn.Module):
    """Every expert on every row, weighted by a router."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.weights = nn.Parameter(torch.randn(count, width, width) / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shares = self.router(x).softmax(-1)
        return (F.silu(x @ self.weights) * shares.t()[:, :, None]).sum(0)


def _chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.gelu(x * 2 + y).tanh() * torch.sigmoid(y) + x.exp().log1p()


def _steps(x: torch.Tensor) -> torch.Tensor:
    for _ in range(12):
        x = x - x.mean(0)
        x = x / (x.abs().amax(1, keepdim=True) + 1)
    return x


def _spread(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    return torch.zeros(4096, x.shape[1]).index_add(0, at, F.relu(x)) + 1


def _mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    layers = [m for a, b in itertools.pairwise(sizes) for m in (nn.Linear(a, b), nn.GELU())]
    return nn.Sequential(*layers[:-1])


def _trained(model: nn.Module) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A step of training, without the optimizer, of ``model`` as compiled."""

    def of(compiled: Callable[..., Any]) -> Callable[..., Any]:
        def step(x: torch.Tensor) -> list[torch.Tensor]:
            model.zero_grad(set_to_none=True)
            with torch.enable_grad():
                compiled(x).pow(2).mean().backward()
            return [p.grad for p in model.parameters() if p.grad is not None]

        return step

    return of


def _r(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes)


PROGRAMS: dict[str, Callable[[], Made]] = {
    "pointwise chain": lambda: (_chain, (_r(2048, 2048), _r(2048, 2048))),
    "sum of all": lambda: (lambda x: (x * x).sum(), (_r(4096, 4096),)),
    "sums of columns": lambda: (lambda x: F.relu(x).sum(0), (_r(65536, 256),)),
    "softmax, 4 rows": lambda: (lambda x: F.softmax(x * 0.5, -1), (_r(4, 1 << 20),)),
    "layer norm": lambda: (lambda x, y: F.layer_norm(x + y, (1024,)), (_r(8192, 1024), _r(8192, 1024))),
    "transpose": lambda: (lambda x, y: x + y.t(), (_r(3000, 3000), _r(3000, 3000))),
    "cumulative sums": lambda: (lambda x: torch.cumsum(x * 2, 1), (_r(2048, 2048),)),
    "index_add": lambda: (_spread, (_r(65536, 64), torch.randint(0, 4096, (65536,)))),
    "24 small steps": lambda: (_steps, (_r(64, 256),)),
    "MLP, 64 rows": lambda: (_mlp((1024, 4096, 1024)), (_r(64, 1024),)),
    "MLP, 1 row": lambda: (_mlp((2048, 8192, 2048)), (_r(1, 2048),)),
    "transformer layer": lambda: (Layer(768, 12).eval(), (_r(1, 512, 768),)),
    "residual block": lambda: (Residual(64).eval(), (_r(4, 64, 56, 56),)),
    "experts": lambda: (Experts(512, 8), (_r(128, 512),)),
    "MLP, training": lambda: (_mlp((512, 2048, 512)), (_r(256, 512),)),
    "transformer layer, training": lambda: (Layer(512, 8), (_r(2, 256, 512),)),
}


def _compiled(engine: str, function: Callable[..., Any]) -> Callable[..., Any]:
    if engine == "eager":
        return function
    if engine == "inductor":
        return torch.compile(function)
    import torchmux

    return torchmux.compile(function, backend=engine)


def _off(got: Any, wanted: Any) -> float:
    pairs = zip(got, wanted, strict=True) if isinstance(got, list) else [(got, wanted)]
    return max(float((g - w).abs().max() / w.abs().max().clamp_min(1e-30)) for g, w in pairs)


def child(threads: int, programs: list[str], engines: list[str], seconds: float) -> None:
    """Compile everything, wait for a line of input, measure, and print the times."""
    torch.set_num_threads(threads)
    calls: dict[str, tuple[dict[str, Callable[..., Any]], tuple[torch.Tensor, ...]]] = {}
    found: dict[str, Any] = {}
    with torch.no_grad():
        for name in programs:
            torch.manual_seed(0)
            function, inputs = PROGRAMS[name]()
            training = name.endswith("training")
            sides = {}
            wanted = None
            for engine in engines:
                compiled = _compiled(engine, function)
                call = _trained(function)(compiled) if training and isinstance(function, nn.Module) else compiled
                result = call(*inputs)
                wanted = result if wanted is None else wanted
                off = _off(result, wanted)
                found.setdefault(name, {})[engine] = {"off": off}
                sides[engine] = call
            calls[name] = sides, inputs
        print("ready", flush=True)
        sys.stdin.readline()
        for name, (sides, inputs) in calls.items():
            for engine, milliseconds in _measure(sides, inputs, seconds).items():
                found[name][engine]["ms"] = milliseconds
    print(json.dumps(found), flush=True)


def _measure(sides: dict[str, Callable[..., Any]], inputs: Any, seconds: float) -> dict[str, float]:
    """Median milliseconds of a call; a turn of an engine begins with untimed calls and lasts at least 5 ms."""
    times: dict[str, list[float]] = {engine: [] for engine in sides}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(times))]) < 3:
        for engine, call in sides.items():
            call(*inputs)
            count, start = 0, time.perf_counter()
            while (spent := time.perf_counter() - start) < 0.005 or not count:
                call(*inputs)
                count += 1
            times[engine].append(spent / count * 1e3)
    return {engine: statistics.median(t) for engine, t in times.items()}


def measure(args: argparse.Namespace) -> dict[int, dict[str, Any]]:
    """The times of all programs by the number of threads."""
    with tempfile.TemporaryDirectory() as folder:
        children = {}
        for threads in args.threads:
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": str(threads),
                "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / f"inductor{threads}"),
                "TORCHMUX_CACHE_DIR": str(Path(folder) / f"torchmux{threads}"),
            }
            asked = ["--child", str(threads), "--seconds", str(args.seconds)]
            asked += ["--engines", *args.engines, "--programs", *args.programs]
            children[threads] = subprocess.Popen(
                [sys.executable, __file__, *asked],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        found = {}
        try:
            for process in children.values():
                _line(process)
            for threads, process in children.items():
                assert process.stdin is not None
                process.stdin.write("go\n")
                process.stdin.flush()
                found[threads] = json.loads(_line(process))
                process.wait()
        finally:
            for process in children.values():
                process.kill()
    return found


def _line(process: subprocess.Popen[str]) -> str:
    """The next line of what concerns us; compilers may print others."""
    assert process.stdout is not None
    for line in process.stdout:
        if line == "ready\n" or line.startswith("{"):
            return line
    raise RuntimeError(f"the process with {process.args!r} ended early, with status {process.wait()}")


def show(found: dict[int, dict[str, Any]], engines: list[str]) -> None:
    counts = sorted(found)
    least, most = counts[0], counts[-1]
    programs = list(found[least])
    width = max(len(name) for name in programs)
    heads = "".join(f"{count:>9}" for count in counts)
    print(f"{'milliseconds, by threads':{width}}  {'engine':9}{heads}  speedup  efficiency       off")
    gains: dict[str, list[float]] = {engine: [] for engine in engines}
    for name in programs:
        for engine in engines:
            times = [found[count][name][engine]["ms"] for count in counts]
            gain = times[0] / times[-1]
            gains[engine].append(gain)
            off = max(found[count][name][engine]["off"] for count in counts)
            cells = "".join(f"{t:9.3f}" for t in times)
            print(f"{name:{width}}  {engine:9}{cells}{gain:9.2f}{gain * least / most:12.2f}{off:10.0e}")
    for engine, values in gains.items():
        mean = statistics.geometric_mean(values)
        print(f"{engine}: geometric mean of speedups {mean:.2f}, efficiency {mean * least / most:.2f}")
    if {"inductor", "native"} <= set(engines):
        print(f"\n{'Inductor / native':{width}}  {'':9}{heads}")
        columns: list[list[float]] = [[] for _ in counts]
        for name in programs:
            for column, count in zip(columns, counts, strict=True):
                column.append(found[count][name]["inductor"]["ms"] / found[count][name]["native"]["ms"])
            print(f"{name:{width}}  {'':9}" + "".join(f"{column[-1]:9.2f}" for column in columns))
        means = "".join(f"{statistics.geometric_mean(column):9.2f}" for column in columns)
        print(f"{'geometric mean':{width}}  {'':9}{means}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cores = len(os.sched_getaffinity(0))
    counts = [count for count in (1, 2, 4, 8, 16) if count <= cores]
    parser.add_argument("--threads", type=int, nargs="+", default=counts)
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--engines", nargs="+", default=["eager", "inductor", "native"])
    parser.add_argument("--seconds", type=float, default=0.4, help="for each program and number of threads")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child, args.programs, args.engines, args.seconds)
        return
    start = time.perf_counter()
    found = measure(args)
    show(found, args.engines)
    print(f"{cores} cores, torch {torch.__version__}, {time.perf_counter() - start:.0f} s in all")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
