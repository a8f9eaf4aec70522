"""The adapters on a GPU compared with eager: times, and the share of the operators that each runs.

    python benchmarks/adapters_gpu.py [--backends NAME ...] [--models NAME ...] [--batch N ...] [--rounds N]

Inference of the models of ``benchmarks/adapters.py`` in float32, with weights as inputs.  All sides alternate in one
process; times are medians until the GPU finishes.  *Ratio* is eager's time divided by the backend's: with 1 or more,
the backend is at least as fast.  Before a side is timed, it is compared with eager; one that fails says so and has no
number.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from adapters import BACKENDS, MODELS, note, program
from cudagraphs import in_turns

import torchmux

CHOICES = ("cudagraphs", *(name for name in BACKENDS if name != "openvino"))  # which has no NVIDIA device


def sides(name: str, batch: int, backends: list[str]) -> tuple[dict[str, Callable[[], torch.Tensor]], dict[str, float]]:
    """The sides to compare, each a call without arguments, and the share of the operators that each backend runs."""
    model, inputs = program(name, batch, "full")
    model = model.cuda()
    inputs = {key: value.cuda() for key, value in inputs.items()}
    calls: dict[str, Callable[[], torch.Tensor]] = {"eager": lambda: model(**inputs)}
    shares = {}
    expected = model(**inputs)
    for backend in backends:
        compiled = torchmux.compile(model, backend=backend, fullgraph=True)

        def call(compiled: Callable[..., torch.Tensor] = compiled) -> torch.Tensor:
            return compiled(**inputs)

        try:
            torch.testing.assert_close(call(), expected, rtol=1e-3, atol=1e-3)
        except Exception as error:
            note(f"{backend}, {name}: fails: {type(error).__name__}: {str(error).strip()[:300]}")
        else:
            calls[backend] = call
            (entry,) = torchmux.report(compiled).graphs
            shares[backend] = entry.report.share
    return calls, shares


def main() -> None:
    """Measure, and print a row for each side as it completes."""
    parser = argparse.ArgumentParser(description="Compare adapters with eager on a GPU.")
    parser.add_argument("--backends", nargs="+", choices=CHOICES, default=CHOICES, help=", ".join(CHOICES))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["bert"], help=f"of {', '.join(MODELS)} (bert)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="(1 8)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n{'':30}{'ms':>10}{'ratio':>8}{'share':>8}")
    for name in arguments.models:
        for batch in arguments.batch:
            torchmux.reset()
            calls, shares = sides(name, batch, arguments.backends)
            times = in_turns(calls, arguments.rounds)
            for side, found in times.items():
                title = f"{name}, batch {batch}, {side}"
                share = f"{shares[side]:8.3f}" if side in shares else ""
                print(f"{title:30}{found:10.3f}{times['eager'] / found:8.2f}{share}", flush=True)


if __name__ == "__main__":
    main()
