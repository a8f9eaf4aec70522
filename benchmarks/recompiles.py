"""How often programs are compiled whose arguments change from call to call, beside torch.compile.

    python benchmarks/recompiles.py [--programs NAME ...]

Each program is called with the values that its name says, under both frontends with their defaults and a backend that
counts its graphs and runs them as they are.  *Left* is how many of the calls reached the limit of recompilations and
therefore ran in eager.  The results of every call are compared with eager's.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

import torchmux

PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], Iterable[tuple]]]] = {}
"""Each makes a function or module and the arguments of its calls."""


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[make.__name__] = make
    return make


def _layers() -> torch.nn.Module:
    return torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()


@program
def fifty_lengths() -> Any:
    return _layers(), [(torch.randn(2, n, 16),) for n in range(3, 53)]


@program
def fifty_lengths_of_tokens() -> Any:
    embedding = torch.nn.Embedding(99, 16)

    def run(ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1]).float()[:, None]
        mask = torch.full((ids.shape[1], ids.shape[1]), -1e9).triu(1)
        x = embedding(ids) + positions
        return torch.softmax(x @ x.transpose(1, 2) + mask, -1) @ x

    return run, [(torch.arange(2 * n).reshape(2, n) % 99,) for n in range(2, 52)]


@program
def batch_1_to_17() -> Any:
    return _layers(), [(torch.randn(n, 5, 16),) for n in range(1, 18)]


@program
def batch_and_length() -> Any:
    return _layers(), [(torch.randn(1 + i % 7, 3 + i % 11, 16),) for i in range(40)]


@program
def images_of_many_sizes() -> Any:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, 2, 1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    ).eval()
    return model, [(torch.randn(2, 3, 16 + 3 * i, 40 - 2 * i),) for i in range(10)]


@program
def learning_rate_that_changes() -> Any:
    return lambda w, g, rate: w - rate * g, [(torch.ones(4), torch.ones(4), 0.1 / (1 + i)) for i in range(20)]


@program
def learning_rate_of_an_object() -> Any:
    @dataclasses.dataclass
    class State:
        rate: float = 0.1

    state = State()

    def step(w: torch.Tensor, i: int) -> torch.Tensor:
        return w * state.rate

    def calls() -> Iterable[tuple]:
        for i in range(20):
            state.rate = 0.1 / (1 + i)
            yield torch.ones(4), 0

    return step, calls()


@program
def step_counter() -> Any:
    return lambda x, step: x * (step + 1), [(torch.ones(4), i) for i in range(30)]


@program
def step_counter_of_a_module() -> Any:
    class Counts(torch.nn.Module):
        step = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.step += 1
            return x * self.step

    return Counts(), [(torch.ones(4),) for _ in range(30)]


@program
def numpy_counter() -> Any:
    return lambda x, step: x * step, [(torch.ones(4), np.int64(i)) for i in range(3, 23)]


@program
def numpy_rate() -> Any:
    return lambda x, rate: x * rate, [(torch.ones(4), np.float64(1 / i)) for i in range(3, 23)]


@program
def list_that_grows() -> Any:
    kept: list[torch.Tensor] = []

    def run(x: torch.Tensor) -> torch.Tensor:
        kept.append(x)
        return x + 1

    return run, [(torch.ones(4),) for _ in range(20)]


@program
def list_of_tensors() -> Any:
    return lambda xs: torch.stack(xs).sum(0), [([torch.ones(4)] * n,) for n in range(1, 12)]


@program
def dictionary_that_grows() -> Any:
    seen: dict[int, int] = {}

    def run(x: torch.Tensor, key: int) -> torch.Tensor:
        seen[key] = 1
        return x + 1

    return run, [(torch.ones(4), i) for i in range(20)]


@program
def cache_of_keys_and_values() -> Any:
    def run(x: torch.Tensor, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys = torch.cat([keys, x], 1)
        return torch.softmax(x @ keys.transpose(1, 2), -1) @ keys, keys

    return run, [(torch.randn(2, 1, 8), torch.randn(2, n, 8)) for n in range(30)]


@program
def flag_on_and_off() -> Any:
    return lambda x, flag: x + 1 if flag else x - 1, [(torch.ones(4), bool(i % 2)) for i in range(20)]


@program
def text_that_changes() -> Any:
    return lambda x, text: x * len(text), [(torch.ones(4), "a" * i) for i in range(20)]


@program
def alternating_dtypes() -> Any:
    dtypes = (torch.float32, torch.float64, torch.bfloat16)
    return lambda x: x * 2 + 1, [(torch.ones(4, dtype=dtypes[i % 3]),) for i in range(12)]


@program
def slice_that_moves() -> Any:
    return lambda x, start: x[start : start + 3] * 2, [(torch.arange(40.0), i) for i in range(30)]


@program
def sizes_as_arguments() -> Any:
    return lambda x, h, w: x.reshape(h, w).sum(1), [(torch.ones(h * 6), h, 6) for h in range(2, 20)]


@program
def functions_made_anew() -> Any:
    return lambda x, fn: fn(x), [(torch.ones(4), lambda x: x + 1) for _ in range(12)]


def count(side: str, name: str) -> tuple[int, int]:
    """Compilations, and calls left to eager, which only torchmux counts."""
    torch._dynamo.reset()
    torchmux.reset()
    graphs: list[int] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(1)
        return gm.forward

    torch.manual_seed(0)
    function, calls = PROGRAMS[name]()
    torch.manual_seed(0)
    reference, same = PROGRAMS[name]()
    compiled = (torchmux.compile if side == "torchmux" else torch.compile)(function, backend=backend)
    for args, others in zip(calls, same, strict=True):
        torch.testing.assert_close(compiled(*args), reference(*others))
    return len(graphs), torchmux.report(compiled).eager_calls if side == "torchmux" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description="Compilations of programs whose arguments change.")
    parser.add_argument("--programs", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME")
    torch.set_grad_enabled(False)
    logging.disable(logging.WARNING)
    more = []
    print(f"{'program':32}{'torchmux':>10}{'left':>6}{'torch':>8}")
    for name in parser.parse_args().programs:
        (ours, left), (theirs, _) = (count(side, name) for side in ("torchmux", "torch"))
        print(f"{name:32}{ours:10}{left:6}{theirs:8}{'  more' if ours > theirs else ''}", flush=True)
        if ours > theirs:
            more.append(name)
    print(f"{len(more)} of {len(PROGRAMS)} programs are compiled more often than by torch.compile")


if __name__ == "__main__":
    main()
