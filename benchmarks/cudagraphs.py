"""CUDA graphs on a GPU: torchmux's ``cudagraphs`` compared with torch's own, and with eager.

    python benchmarks/cudagraphs.py [--models NAME ...] [--batch N] [--rounds N] [--json FILE]

Inference (a forward pass) and training (zero_grad, forward, backward, a step of SGD) of the demo's full-size models in
float32.  All sides alternate in one process, each on its own copy of the model; times are medians until the GPU
finishes.  *Ratio* is the time of ``torch.compile(backend="cudagraphs")`` divided by torchmux's: with 1 or more,
torchmux is at least as fast.  Before a side is timed, it is compared with eager; one that fails says so and has no
number.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import torchmux
from torchmux.demo.models import MODELS

Call = Callable[[], torch.Tensor]
SIDES = ("eager", "torch", "torchmux")


def side(name: str, model: torch.nn.Module) -> Callable[..., Any]:
    """How one side calls ``model``."""
    if name == "eager":
        return model
    return (torch if name == "torch" else torchmux).compile(model, backend="cudagraphs")


def inference(run: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Call:
    """A forward pass; returns the logits."""

    @torch.no_grad()
    def call() -> torch.Tensor:
        return run(**inputs).logits

    return call


def training(run: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Call:
    """A step of SGD on the mean square of the logits; returns the loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def call() -> torch.Tensor:
        optimizer.zero_grad()
        loss = run(**inputs).logits.square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return call


PHASES = {"inference": inference, "training": training}


def measure(name: str, phase: str, batch: int, rounds: int) -> dict[str, float]:
    """Milliseconds per call for each side that agrees with eager."""
    family = MODELS[name]
    original = family.build("full", use_cache=False) if name in ("gpt2", "llama") else family.build("full")
    # Dropout would draw different numbers in each turn.
    inputs = {k: v.cuda() for k, v in family.example(original, "full", batch).items()}
    calls: dict[str, Call] = {}
    expected: list[torch.Tensor] = []
    for each in SIDES:
        model = copy.deepcopy(original).cuda()
        try:
            call = PHASES[phase](side(each, model), model, inputs)
            found = [call().clone() for _ in range(4)]
            expected = expected or found
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
        except Exception as error:
            note(f"{name}, {phase}: {each} fails: {type(error).__name__}: {str(error).strip()[:300]}")
        else:
            calls[each] = call
    return in_turns(calls, rounds)


def in_turns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds per call for each side, until the GPU finishes."""
    times: dict[str, list[float]] = {each: [] for each in calls}
    for _ in range(rounds):
        for each, call in calls.items():
            call()
            torch.cuda.synchronize()
            begun = time.perf_counter()
            for _ in range(10):
                call()
            torch.cuda.synchronize()
            times[each].append((time.perf_counter() - begun) / 10)
    return {each: statistics.median(found) * 1e3 for each, found in times.items()}


def note(text: str) -> None:
    """Print progress, separate from the result."""
    print(text, file=sys.stderr, flush=True)


def show(results: dict[str, dict[str, float]]) -> None:
    """The table."""
    print(f"{'milliseconds per call':28}" + "".join(f"{each:>12}" for each in SIDES) + f"{'ratio':>8}")
    ratios = []
    for title, row in results.items():
        cells = "".join(f"{row[each]:12.3f}" if each in row else f"{'':12}" for each in SIDES)
        ratio = row["torch"] / row["torchmux"] if {"torch", "torchmux"} <= row.keys() else None
        ratios += [ratio] if ratio else []
        print(f"{title:28}{cells}" + (f"{ratio:8.2f}" if ratio else ""))
    if ratios:
        print(f"{'geometric mean':28}{'':36}{statistics.geometric_mean(ratios):8.2f}")


def main() -> None:
    """Measure, print the table, and write the numbers to a file if requested."""
    parser = argparse.ArgumentParser(description="CUDA graphs: torchmux compared with torch.")
    names = ("resnet", "bert", "gpt2", "vit")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=names, help=", ".join(MODELS))
    parser.add_argument("--phases", nargs="+", choices=list(PHASES), default=list(PHASES))
    parser.add_argument("--batch", type=int, default=1, help="(1)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    arguments = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in arguments.models:
        for phase in arguments.phases:
            note(f"{name}, {phase}")
            torchmux.reset()
            torch.compiler.reset()
            results[f"{name}, {phase}"] = measure(name, phase, arguments.batch, arguments.rounds)
    show(results)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"milliseconds": results, "batch": arguments.batch}, file, indent=2)


if __name__ == "__main__":
    main()
