"""The cost of the frontend compared with torch.compile: a call, a first call, a process's first capture.

    python benchmarks/frontend.py [--rounds N] [--only calls|cold] [--programs NAME ...] [--models NAME ...]

*Calls*: the backend computes nothing (it returns the results of the compilation), so a call consists only of the
frontend's work: the hook, the guards, the inputs, the results.  In one process with one thread, the two frontends
alternate in batches of about 2 ms.  The table has medians and minima over the batches, and torchmux's time divided by
torch's.

*Cold*: each measurement is a separate process, with the frontends alternating; the backend is ``eager``.  *Start* is
the first compiled call in a process, of a function of one operator; it includes the imports.  `import transformers`
also imports most of torch.compile, so *start* is measured without it.  *Capture* is the first call of a model after
such a start, minus a later call of it.  Both are in processor seconds with one thread, which other programs affect
less. ``benchmarks/models.py --frontend`` measures every architecture of the zoo.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

FRONTENDS = ("torchmux", "torch")
MODELS = ("bert", "gpt2", "llama", "vit", "resnet")
BATCH = 0.002  # seconds, far above the clock's resolution

Call = Callable[[], Any]


def compile_with(frontend: str, target: Any, backend: Any = "eager", **options: Any) -> Any:
    """``target``, compiled by one of the frontends."""
    if frontend == "torchmux":
        import torchmux

        return torchmux.compile(target, backend=backend, **options)
    import torch

    return torch.compile(target, backend=backend, **options)


def free(gm: Any, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose graphs take no time: they return the results of one computation."""
    result = gm.forward(*example_inputs)
    return lambda *inputs: result


# --- programs --------------------------------------------------------------------------------------------------------
# Each takes a function that compiles, and returns a call without arguments.


def three_tensors(compiled: Callable[..., Any]) -> Call:
    import torch

    a, b, c = torch.randn(3, 8)
    f = compiled(lambda a, b, c: a * b + c)
    return lambda: f(a, b, c)


def _sequence(compiled: Callable[..., Any], *layers: Any) -> Call:
    import torch

    model, x = compiled(torch.nn.Sequential(*layers).eval()), torch.randn(4, 16)
    return lambda: model(x)


def twelve_layers(compiled: Callable[..., Any]) -> Call:
    import torch

    return _sequence(compiled, *(m for _ in range(12) for m in (torch.nn.Linear(16, 16), torch.nn.ReLU())))


def three_hundred_modules(compiled: Callable[..., Any]) -> Call:
    import torch

    return _sequence(compiled, *(torch.nn.Identity() for _ in range(299)), torch.nn.ReLU())


def three_hundred_linear(compiled: Callable[..., Any]) -> Call:
    import torch

    return _sequence(compiled, *(torch.nn.Linear(16, 16) for _ in range(300)))


def nested_modules(compiled: Callable[..., Any]) -> Call:
    import torch

    def block() -> Any:
        return torch.nn.Sequential(torch.nn.Identity(), torch.nn.Dropout(0.1))

    return _sequence(compiled, *(block() for _ in range(100)), torch.nn.ReLU())


def transformer_encoder(compiled: Callable[..., Any]) -> Call:
    import torch

    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = compiled(torch.nn.TransformerEncoder(layer, 12, enable_nested_tensor=False))
    x = torch.randn(2, 4, 16)
    return lambda: model(x)


def bert(compiled: Callable[..., Any]) -> Call:
    import torch
    import transformers

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 100}
    model = compiled(transformers.BertModel(transformers.BertConfig(num_hidden_layers=12, **sizes)).eval())
    x = torch.ones(1, 4, dtype=torch.long)
    return lambda: model(x)


def eight_entries(compiled: Callable[..., Any]) -> Call:
    import torch

    f = compiled(lambda x, y: x * y + 1, dynamic=False)
    return _in_turn(f, [(torch.randn(n, 4), torch.randn(n, 4)) for n in range(2, 10)])


def eight_entries_of_a_module(compiled: Callable[..., Any]) -> Call:
    import torch

    layers = [torch.nn.Linear(4, 4) for _ in range(12)]
    return _in_turn(compiled(torch.nn.Sequential(*layers), dynamic=False), [(torch.randn(n, 4),) for n in range(2, 10)])


def _in_turn(f: Callable[..., Any], arguments: list[tuple]) -> Call:
    """Each call matches the least recently used entry, which is tried last."""
    forever = _cycle(arguments)
    for _ in arguments:
        f(*next(forever))
    return lambda: f(*next(forever))


def _cycle(items: list[Any]) -> Iterator[Any]:
    while True:
        yield from items


def five_breaks(compiled: Callable[..., Any]) -> Call:
    import torch

    lines = ["def f(x):", *(f"    x = x + {n}\n    skipped()" for n in range(5)), "    return x * 2"]
    namespace = {"skipped": torch.compiler.disable(lambda: None)}
    exec(compile("\n".join(lines), "<five breaks>", "exec"), namespace)
    f, x = compiled(namespace["f"]), torch.randn(4)
    return lambda: f(x)


PROGRAMS = {
    "3 tensors": three_tensors,
    "12 layers": twelve_layers,
    "300 submodules": three_hundred_modules,
    "300 submodules, nested": nested_modules,
    "300 linear layers": three_hundred_linear,
    "TransformerEncoder, 12": transformer_encoder,
    "BERT, 12 layers": bert,
    "8 entries, the last": eight_entries,
    "8 entries of 12 layers": eight_entries_of_a_module,
    "5 graph breaks": five_breaks,
}


# --- calls -----------------------------------------------------------------------------------------------------------


def measure_calls(names: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Microseconds per call in every batch, for each program under each frontend."""
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    results = {}
    for name in names:
        note(f"calls: {name}")
        calls = {}
        for frontend in FRONTENDS:
            torch.manual_seed(0)
            calls[frontend] = PROGRAMS[name](
                lambda target, frontend=frontend, **options: compile_with(frontend, target, free, **options)
            )
        for call in calls.values():
            for _ in range(100):
                call()
        results[name] = _in_turns(calls, 20 * rounds)
    return results


def _in_turns(calls: dict[str, Call], rounds: int) -> dict[str, list[float]]:
    counts = {side: max(1, int(BATCH / min(_seconds(call, 8) for _ in range(10)))) for side, call in calls.items()}
    times: dict[str, list[float]] = {side: [] for side in calls}
    for _ in range(rounds):
        for side, call in calls.items():
            times[side].append(_seconds(call, counts[side]) * 1e6)
    return times


def _seconds(call: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


# --- cold ------------------------------------------------------------------------------------------------------------


def cold(frontend: str, name: str, size: str) -> dict[str, float]:
    """Processor seconds to start a frontend, and to capture one model, in this process."""
    import torch

    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if name != "start":
        from torchmux.demo.models import MODELS as FAMILIES

        family = FAMILIES[name]
        model = family.build(size)  # type: ignore[arg-type]
        inputs = family.example(model, size)  # type: ignore[arg-type]
    begun = time.process_time()
    compile_with(frontend, lambda x: x + 1)(torch.zeros(8))
    start = time.process_time() - begun
    if name == "start":
        return {"start": start}
    compiled = compile_with(frontend, model)
    begun = time.process_time()
    compiled(**inputs)
    first = time.process_time() - begun
    begun = time.process_time()
    compiled(**inputs)
    return {"start": start, "capture": first - (time.process_time() - begun)}


def in_a_new_process(frontend: str, name: str, size: str) -> dict[str, float]:
    """:func:`cold` in a process that has imported nothing yet."""
    command = [sys.executable, __file__, "--cold", frontend, name, size]
    # torch's bytecode is next to its sources; torchmux's must be too
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def measure_cold(names: list[str], size: str, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every round, for each model under each frontend."""
    seconds: dict[str, dict[str, list[float]]] = {n: {f: [] for f in FRONTENDS} for n in ("start", *names)}
    for frontend in FRONTENDS:
        in_a_new_process(frontend, "start", size)  # loads the files into memory
    for number in range(rounds):
        for name, of_frontend in seconds.items():
            note(f"cold, round {number + 1} of {rounds}: {name}")
            for frontend in FRONTENDS if number % 2 == 0 else reversed(FRONTENDS):
                found = in_a_new_process(frontend, name, size)
                of_frontend[frontend].append(found["start" if name == "start" else "capture"])
    return seconds


# --- the tables ------------------------------------------------------------------------------------------------------


def show(title: str, unit: str, digits: int, results: dict[str, dict[str, list[float]]]) -> None:
    """A table with the medians and minima of both, and the ratios."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("")
    for heading in (f"torchmux {unit}", "(min)", f"torch {unit}", "(min)", "ratio", "(of min)"):
        table.add_column(heading, justify="right", no_wrap=True)
    ratios = []
    for name, row in results.items():
        ours, theirs = (statistics.median(row[side]) for side in FRONTENDS)
        least = [min(row[side]) for side in FRONTENDS]
        if name != "start":
            ratios.append(ours / theirs)
        table.add_row(
            name, f"{ours:.{digits}f}", f"{least[0]:.{digits}f}", f"{theirs:.{digits}f}", f"{least[1]:.{digits}f}",
            f"{ours / theirs:.2f}", f"{least[0] / least[1]:.2f}",
        )  # fmt: skip
    if ratios:
        table.add_row("geometric mean", "", "", "", "", f"{statistics.geometric_mean(ratios):.2f}", "")
    Console(highlight=False, width=110).print(table)


def machine() -> str:
    """The processor, the versions and the load, in one line."""
    import torch

    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as lines:
            model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    load = os.getloadavg()[0]
    versions = f"CPython {platform.python_version()}, torch {torch.__version__}"
    return f"{model}, {os.cpu_count()} cores, load {load:.1f} at the start; {versions}"


def note(text: str) -> None:
    """Print progress, separate from the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print the tables, and write the numbers to a file if requested."""
    parser = argparse.ArgumentParser(description="Cost of calls and of capture, compared with torch.compile.")
    parser.add_argument("--rounds", type=int, default=3, help="20 batches of calls, and a process for each cold number")
    parser.add_argument("--only", choices=("calls", "cold"), help="one of the two tables")
    parser.add_argument("--programs", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=MODELS, metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full", help="of captured models (full)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    parser.add_argument("--cold", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cold:
        print(json.dumps(cold(*arguments.cold)))
        return
    here = machine()
    found: dict[str, Any] = {"machine": here}
    if arguments.only != "cold":
        found["call_microseconds"] = measure_calls(list(arguments.programs), arguments.rounds)
    if arguments.only != "calls":
        found["cold_seconds"] = measure_cold(list(arguments.models), arguments.size, arguments.rounds)
    print(here)
    if "call_microseconds" in found:
        show("a call", "µs", 1, found["call_microseconds"])
    if "cold_seconds" in found:
        show("cold", "CPU s", 2, found["cold_seconds"])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=2)


if __name__ == "__main__":
    main()
