"""``auto`` on graphs whose parts suit different compilers: what it chooses, and what every alternative takes.

    python benchmarks/splits.py [--seconds S] [--threads N] [--budget S] [--rows NAME ...]

Rows:

* ``pooled``: depthwise separable convolutions, then pooling by deviation, log-sum-exp, energy and maximum.  One
  compiler is several times faster at the convolutions, another one at the pooling, and one tensor passes between them.
* ``alternating``: steps of two such kinds in turns, with five crossings between them.
* ``tiny``: the same on so few numbers that crossings cost more than a better backend for each step gains.

Each single backend, what ``auto`` chose, and the split of each part to its quickest backend alternate in one process.
``ratio`` is the time of the best single backend divided by this one's.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import statistics
import time
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import torchmux

BACKENDS = ("native", "openvino", "onnxrt", "tvm", "inductor")


class Placed(nn.Module):
    """A model whose parts can be pinned by hand."""

    places: dict[str, str]  # the quickest backend of each part
    by_hand = False

    def on(self, part: str) -> Any:
        return torchmux.use_backend(self.places[part]) if self.by_hand else contextlib.nullcontext()


class Pooled(Placed):
    """Depthwise separable convolutions with max pooling, and statistics over all places of each channel."""

    places: typing.ClassVar = {"convolution": "openvino", "statistics": "native"}

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(width, width, 3, padding=1, groups=width), nn.BatchNorm2d(width), nn.Hardswish()]
            layers += [nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.Hardswish(), nn.MaxPool2d(3, 1, 1)]
        self.encoder = nn.Sequential(*layers)
        self.weights = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.on("convolution"):
            x = self.encoder(x)
        with self.on("statistics"):
            x = x.flatten(2)
            energy = (x.sin() * x.cos()).sum(-1)
            parts = (x.std(-1), x.logsumexp(-1), energy, x.amax(-1))
            return sum(weight * part for weight, part in zip(self.weights, parts, strict=True))


class Alternating(Placed):
    """Max pooling and a normalization by log-sum-exp, in turns."""

    places: typing.ClassVar = {"pooling": "onnxrt", "statistics": "native"}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            with self.on("pooling"):
                x = F.max_pool2d(x, 3, 1, 1)
            with self.on("statistics"):
                x = x.sin() - x.logsumexp(-1, keepdim=True) / (1 + x.std(-1, keepdim=True))
        return x


ROWS: dict[str, tuple[Callable[[], Placed], tuple[int, ...]]] = {
    "pooled": (Pooled, (1, 64, 56, 56)),
    "alternating": (Alternating, (1, 8, 16, 16)),
    "tiny": (Alternating, (1, 2, 8, 8)),
}


def in_turns(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """The median over turns of the seconds of a call, in turns; each turn takes about 20 ms."""
    counts, found = {}, {name: list[float]() for name in calls}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        counts[name] = max(1, int(0.02 / (time.perf_counter() - begin)))
    begin = time.perf_counter()
    while len(next(iter(found.values()))) < 10 or time.perf_counter() - begin < seconds:
        for name, call in calls.items():
            time.sleep(0.02)  # the threads of some runtimes spin on after a call
            start = time.perf_counter()
            for _ in range(counts[name]):
                call()
            found[name].append((time.perf_counter() - start) / counts[name])
    return {name: statistics.median(each) for name, each in found.items()}


def contenders(model: Placed, x: torch.Tensor, budget: float) -> Iterator[tuple[str, Any]]:
    """What is compared, compiled."""
    expected = model(x)
    yield "eager", model
    usable = [name for name in BACKENDS if name in torchmux.list_backends()]
    compiled = {name: torchmux.compile(model, backend=name) for name in usable}
    compiled["auto"] = torchmux.compile(
        model, backend="auto", options={"wait": True, "allow": usable, "budget_s": budget}
    )
    if set(model.places.values()) <= set(usable):
        by_hand = type(model)()
        by_hand.load_state_dict(model.state_dict())
        by_hand.eval().by_hand = True
        compiled["each part its quickest"] = torchmux.compile(by_hand, backend=sorted(set(model.places.values())))
    for name, each in compiled.items():
        torch.testing.assert_close(each(x), expected, rtol=1e-3, atol=1e-4)
        yield name, each


def main() -> None:
    parser = argparse.ArgumentParser(description="auto on graphs whose parts suit different compilers.")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the times of a row")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=240.0, help="of auto, for each row")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    with torch.no_grad():
        for row in given.rows:
            make, sizes = ROWS[row]
            model, x = make().eval(), torch.randn(sizes)
            compiled = dict(contenders(model, x, given.budget))
            times = in_turns({name: functools.partial(each, x) for name, each in compiled.items()}, given.seconds)
            best = min(times[name] for name in times if name in (*BACKENDS, "eager"))
            print(f"\n{row} {list(sizes)}")
            for name, seconds in times.items():
                print(f"  {name:>22} {seconds * 1e3:9.4f} ms   ratio {best / seconds:5.2f}")
            for note in torchmux.report(compiled["auto"]).graphs[0].report.notes:
                print(f"  {note}")


if __name__ == "__main__":
    main()
