"""What a frontend costs: torchmux.compile(backend="eager") beside torch.compile(backend="eager").

    python benchmarks/frontend.py [--rounds N] [--models NAME ...] [--programs NAME ...] [--json FILE]

Cold: each measurement is a process of its own, and the two frontends take turns.  *Start* is the first compiled call in
a process, of a function of one operator: it holds the imports.  `import transformers` brings torch.compile's imports
along, so it is measured without.  *Capture* is the first call of a model after such a start, less a later call of it.

A call: in one process with one thread, eager and the two frontends take turns in batches; medians over the batches.
The models are tiny here, so that what a frontend adds is not lost among the operators; it is less than nothing where
capture leaves out Python's work.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

FRONTENDS = ("torchmux", "torch")
SMALL = ("three tensors", "12 layers", "300 submodules")
MODELS = ("bert", "gpt2", "llama", "vit", "resnet")


def compile_with(frontend: str, target: Any) -> Any:
    """``target`` compiled by one of the frontends with the eager backend."""
    if frontend == "torchmux":
        import torchmux

        return torchmux.compile(target, backend="eager")
    import torch

    return torch.compile(target, backend="eager")


def program(name: str, size: str) -> tuple[Any, Callable[[Any], Callable[[], Any]]]:
    """What to compile, and a function that makes a call without arguments of it or of its compiled form."""
    import torch

    torch.manual_seed(0)
    if name in MODELS:
        from torchmux.demo.models import MODELS as FAMILIES

        family = FAMILIES[name]
        model = family.build(size)  # type: ignore[arg-type]
        inputs = family.example(model, size)  # type: ignore[arg-type]
        return model, lambda f: lambda: f(**inputs)
    if name == "three tensors":
        a, b, c = torch.randn(3, 8)
        return (lambda a, b, c: a * b + c), lambda f: lambda: f(a, b, c)
    if name == "12 layers":
        layers = [m for _ in range(12) for m in (torch.nn.Linear(16, 16), torch.nn.ReLU())]
    else:
        layers = [torch.nn.Identity() for _ in range(299)] + [torch.nn.ReLU()]
    x = torch.randn(4, 16)
    return torch.nn.Sequential(*layers).eval(), lambda f: lambda: f(x)


# --- cold ------------------------------------------------------------------------------------------------------------


def cold(frontend: str, name: str, size: str) -> dict[str, float]:
    """Seconds to start a frontend, and to capture one program, in this process."""
    import torch

    torch.set_grad_enabled(False)
    target, caller = (None, None) if name == "start" else program(name, size)
    begun = time.perf_counter()
    compile_with(frontend, lambda x: x + 1)(torch.zeros(8))
    start = time.perf_counter() - begun
    if target is None or caller is None:
        return {"start": start}
    call = caller(compile_with(frontend, target))
    begun = time.perf_counter()
    call()
    first = time.perf_counter() - begun
    begun = time.perf_counter()
    call()
    return {"start": start, "capture": first - (time.perf_counter() - begun)}


def in_a_new_process(frontend: str, name: str, size: str) -> dict[str, float]:
    """:func:`cold` where nothing has been imported yet."""
    command = [sys.executable, __file__, "--cold", frontend, name, size]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_cold(names: tuple[str, ...], size: str, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of the seconds for each program and frontend."""
    seconds: dict[str, dict[str, list[float]]] = {n: {f: [] for f in FRONTENDS} for n in ("start", *names)}
    for number in range(rounds):
        for name, of_frontend in seconds.items():
            note(f"cold, round {number + 1} of {rounds}: {name}")
            for frontend in FRONTENDS if number % 2 == 0 else reversed(FRONTENDS):
                found = in_a_new_process(frontend, name, size)
                of_frontend[frontend].append(found["start" if name == "start" else "capture"])
    return {name: {f: statistics.median(times) for f, times in row.items()} for name, row in seconds.items()}


# --- calls -----------------------------------------------------------------------------------------------------------


def measure_calls(names: tuple[str, ...], rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds a call, for each program, in eager and under each frontend."""
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    results = {}
    for name in names:
        note(f"calls: {name}")
        target, caller = program(name, "tiny")
        calls = {"eager": caller(target)}
        calls |= {frontend: caller(compile_with(frontend, target)) for frontend in FRONTENDS}
        for call in calls.values():
            for _ in range(3):
                call()
        results[name] = _in_turns(calls, rounds)
    return results


def _in_turns(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    count = max(1, int(0.002 / _seconds(calls["eager"], 1)))  # a batch takes about 2 ms, far above the clock's grain
    times: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(20 * rounds):
        for side, call in calls.items():
            times[side].append(_seconds(call, count))
    return {side: statistics.median(values) * 1e6 for side, values in times.items()}


def _seconds(call: Callable[[], Any], count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


# --- the table -------------------------------------------------------------------------------------------------------


def show(cold_seconds: dict[str, dict[str, float]], calls: dict[str, dict[str, float]]) -> None:
    """One table: capture on the left, calls on the right."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("program")
    for title in ("torchmux s", "torch s", "times", "eager µs", "torchmux +µs", "torch +µs"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in dict.fromkeys((*cold_seconds, *calls)):
        row = [name]
        if name in cold_seconds:
            ours, theirs = cold_seconds[name]["torchmux"], cold_seconds[name]["torch"]
            row += [f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.1f}"]
        else:
            row += ["", "", ""]
        if name in calls:
            eager = calls[name]["eager"]
            row += [f"{eager:.1f}", *(f"{calls[name][frontend] - eager:+.1f}" for frontend in FRONTENDS)]
        table.add_row(*row)
    console = Console(highlight=False)
    console.print("cold capture in seconds, and how many times as long torch takes;")
    console.print("a call in microseconds: eager's, and what a compiled one takes beyond that")
    console.print(table)


def note(text: str) -> None:
    """Progress, apart from the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print the table, and write the numbers where asked to."""
    parser = argparse.ArgumentParser(description="Cost of capture and of calls, beside torch.compile.")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each cold number (3)")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS, metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--programs", nargs="*", choices=SMALL, default=SMALL, metavar="NAME", help=", ".join(SMALL))
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full", help="of captured models (full)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    parser.add_argument("--cold", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cold:
        print(json.dumps(cold(*arguments.cold)))
        return
    names = (*arguments.programs, *arguments.models)
    calls = measure_calls(names, arguments.rounds)
    cold_seconds = measure_cold(names, arguments.size, arguments.rounds)
    show(cold_seconds, calls)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"cold_seconds": cold_seconds, "call_microseconds": calls}, file, indent=2)


if __name__ == "__main__":
    main()
