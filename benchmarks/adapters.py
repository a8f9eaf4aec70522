"""The cost and coverage of the adapters: torchmux compared with the same runtime used directly, on the same model.

    python benchmarks/adapters.py [--backends NAME ...] [--models NAME ...] [--batch N ...] [--rounds N] [--json FILE]
    python benchmarks/adapters.py --coverage [--training] [--size tiny]
    python benchmarks/adapters.py --starts

Direct use: the model is exported and compiled once as the runtime's own documentation describes, with weights as
constants, in float32 and with torch's number of threads; a call gets prepared inputs.  This is compared with the
adapter by default, where weights are inputs, so that changes to them take effect, and with ``freeze=True``, which
matches direct use.  tvm has no comparable direct use and is compared with eager.

All sides alternate in one process, with pauses so that the threads of the previous side come to rest.  Times are
minima.
*Ratio* is the time of direct use divided by the adapter's: with 1 or more, the adapter is at least as fast.  The row
"tiny" is a small network, which is nothing but the overhead of a call.  A side that fails says so and has no number.

``--coverage`` runs each model once and shows the share of operators that the backend runs, how many of these are calls
to torch's kernels, the error against float64 as a multiple of eager's own, and what torch runs instead.
``--starts`` measures the first call in a process without and with a cache that an earlier process left, in processor
seconds.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

MODELS = ("bert", "gpt2", "llama", "vit", "resnet", "t5")
TRAINED = ("bert", "resnet")
BACKENDS = ("onnxrt", "openvino", "tvm")
TINY = "tiny"
PAUSE = 0.02

Inputs = dict[str, torch.Tensor]
Call = Callable[[], Any]


class Logits(torch.nn.Module):
    """A model that returns one tensor, so that all sides do the same work."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**inputs).logits


class Tiny(torch.nn.Module):
    """Two layers of 16."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def program(name: str, batch: int, size: str) -> tuple[torch.nn.Module, Inputs]:
    """The model and its inputs."""
    if name == TINY:
        return Tiny().eval(), {"x": torch.randn(8, 16)}
    if name == "t5":
        return t5(batch, size)
    from torchmux.demo.models import MODELS as FAMILIES

    family = FAMILIES[name]
    # Caches of keys and values are not part of one forward pass, and exporters fail on them.
    model = family.build(size, use_cache=False)  # type: ignore[arg-type]
    return Logits(model).eval(), family.example(model, size, batch)  # type: ignore[arg-type]


def t5(batch: int, size: str) -> tuple[torch.nn.Module, Inputs]:
    """T5 with its decoder: the sizes of ``t5-small``, or smaller ones."""
    import transformers

    torch.manual_seed(0)
    small = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 100}
    config = transformers.T5Config(**({} if size == "full" else small), use_cache=False)
    model = transformers.T5ForConditionalGeneration(config)
    ids = torch.randint(0, config.vocab_size, (batch, 128 if size == "full" else 16))
    return Logits(model).eval(), {"input_ids": ids, "decoder_input_ids": ids[:, : ids.shape[1] // 4].contiguous()}


# --- direct use ------------------------------------------------------------------------------------------------------


def openvino_direct(model: torch.nn.Module, inputs: Inputs) -> Call:
    """``openvino.convert_model``, compiled at float32, one infer request."""
    import openvino

    try:
        converted = openvino.convert_model(torch.export.export(model, (), inputs))
    except openvino.frontend.OpConversionFailure:  # its other way in has other gaps
        converted = openvino.convert_model(model, example_input=inputs)
    given = [value.numpy() for value in inputs.values()]
    for port, value in zip(converted.inputs, given, strict=True):
        port.get_node().set_partial_shape(openvino.PartialShape(list(value.shape)))
    converted.validate_nodes_and_infer_types()
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(converted, "CPU", config)
    request = compiled.create_infer_request()
    for position, value in enumerate(given):
        request.set_input_tensor(position, openvino.Tensor(value, shared_memory=True))

    def call() -> Any:
        request.infer(share_outputs=True)
        return request.get_output_tensor(0).data

    return call


def onnxrt_direct(model: torch.nn.Module, inputs: Inputs) -> Call:
    """``torch.onnx.export``, one ``InferenceSession`` with its defaults."""
    import io

    import onnxruntime

    file = io.BytesIO()
    torch.onnx.export(model, (), file, kwargs=inputs, dynamo=True, verbose=False)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(file.getvalue(), settings, providers=["CPUExecutionProvider"])
    given = {port.name: value.numpy() for port, value in zip(session.get_inputs(), inputs.values(), strict=True)}
    return lambda: session.run(None, given)[0]


DIRECT: dict[str, Callable[[torch.nn.Module, Inputs], Call]] = {
    "onnxrt": onnxrt_direct,
    "openvino": openvino_direct,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def sides(name: str, backend: str, batch: int, size: str) -> dict[str, Call]:
    """The sides to compare, each a call without arguments that returns the result."""
    import torchmux

    model, inputs = program(name, batch, size)

    def adapter(**options: Any) -> Call:
        compiled = torchmux.compile(model, backend=backend, options=options, fullgraph=True)
        return lambda: compiled(**inputs)

    made: dict[str, Callable[[], Call]] = {"eager": lambda: lambda: model(**inputs), "adapter": adapter}
    if backend in DIRECT:
        made["direct"] = lambda: DIRECT[backend](model, inputs)
        made["adapter, frozen"] = lambda: adapter(freeze=True)
    calls, expected = {}, model(**inputs)
    for side, make in made.items():
        try:
            call = make()
            found = torch.as_tensor(call())
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
        except Exception as error:
            note(f"{backend}, {name}: {side} fails: {type(error).__name__}: {str(error).strip()[:200]}")
        else:
            calls[side] = call
    return calls


def measure(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds per call for each side: the minimum of all rounds, which other programs disturb least."""
    times: dict[str, list[float]] = {side: [] for side in calls}
    count = {side: max(1, int(0.005 / _seconds(call, 1))) for side, call in calls.items()}
    for _ in range(rounds):
        for side, call in calls.items():
            time.sleep(PAUSE)
            _seconds(call, 1)  # brings the side's own threads and caches back
            times[side].append(_seconds(call, count[side]))
    return {side: min(found) * 1e3 for side, found in times.items()}


def _seconds(call: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


# --- coverage --------------------------------------------------------------------------------------------------------


def coverage(backend: str, name: str, batch: int, size: str, training: bool) -> dict[str, Any]:
    """What the report says about one model, and its error against float64 as a multiple of eager's own."""
    import torchmux

    if training:
        model, inputs = trainee(name, batch, size)
    else:
        model, inputs = program(name, batch, size)
    compiled = torchmux.compile(copy.deepcopy(model), backend=backend)
    found = results(compiled, inputs, training)
    eager = results(copy.deepcopy(model), inputs, training)
    exact = results(copy.deepcopy(model).double(), {k: widened(v) for k, v in inputs.items()}, training)
    reports = [entry.report for entry in torchmux.report(compiled).graphs]
    placements = [p for report in reports for p in report.placements]
    fallbacks = [p for report in reports for p in report.fallbacks]
    return {
        "share": 1 - len(fallbacks) / max(len(placements), 1),
        "operators": len(placements),
        "library": sum(len(report.library_calls) for report in reports),
        "error": largest_error(found, exact) / max(largest_error(eager, exact), 1e-30),
        "torch": sorted({f"{p.op}: {p.reason}" for p in fallbacks}),
    }


def trainee(name: str, batch: int, size: str) -> tuple[torch.nn.Module, Inputs]:
    """The model in training, without dropout, whose random numbers differ between compilers; inputs with targets."""
    from torchmux.demo.models import MODELS as FAMILIES

    family = FAMILIES[name]
    model = family.build(size).train()  # type: ignore[arg-type]
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, family.example_with_targets(model, size, batch)  # type: ignore[arg-type]


def results(model: Any, inputs: Inputs, training: bool) -> dict[str, torch.Tensor]:
    """The model's results; in training, its loss and gradients, by name."""
    with torch.set_grad_enabled(training):
        output = model(**inputs)
    if not training:
        return {"result": output}
    output.loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"loss": output.loss.detach(), **gradients}


def widened(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def largest_error(found: dict[str, torch.Tensor], exact: dict[str, torch.Tensor]) -> float:
    """The largest difference in a tensor divided by its largest number.

    Some gradients are zero except for rounding (those of the keys' biases in attention), so no tensor counts as smaller
    than a thousandth of the largest.
    """
    if found.keys() != exact.keys():
        raise AssertionError(f"gradients of {sorted(found.keys() ^ exact.keys())} on one side only")
    largest = {name: float(value.abs().max()) for name, value in exact.items()}
    least = 1e-3 * max(largest.values())
    return max(float((found[n].double() - exact[n]).abs().max()) / max(largest[n], least) for n in exact)


def show_coverage(rows: list[dict[str, Any]]) -> None:
    """Print one table, followed by what torch runs."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(box=None, header_style="bold")
    for title in ("backend", "model", "phase"):
        table.add_column(title)
    for title in ("batch", "operators", "share", "torch's kernels", "error"):
        table.add_column(title, justify="right")
    reasons: dict[str, list[str]] = {}
    for row in rows:
        head = [row["backend"], row["model"], row["phase"], str(row["batch"])]
        if "failed" in row:
            table.add_row(*head, row["failed"])
            continue
        numbers = [str(row["operators"]), f"{row['share']:.3f}", str(row["library"]), f"{row['error']:.2f}"]
        table.add_row(*head, *numbers)
        for reason in row["torch"]:
            reasons.setdefault(reason, []).append(f"{row['backend']} {row['model']} {row['phase']} {row['batch']}")
    console.print(table)
    for reason, places in reasons.items():
        console.print(f"torch runs {reason} ({', '.join(places)})", soft_wrap=True)


# --- starts -----------------------------------------------------------------------------------------------------------

_START = """
import json, sys, time
sys.path.insert(0, {folder!r})
import adapters, torch, torchmux
torch.set_grad_enabled(False)
model, inputs = adapters.program({name!r}, 1, {size!r})
model(**inputs)
compiled = torchmux.compile(model, backend={backend!r}, fullgraph=True)
begun = time.process_time()
compiled(**inputs)
first = time.process_time() - begun
begun = time.process_time()
compiled(**inputs)
later = time.process_time() - begun
report, = (entry.report for entry in torchmux.report(compiled).graphs)
print(json.dumps({{"seconds": first - later, "hits": report.cache_hits, "parts": report.partitions}}))
"""


def starts(backend: str, name: str, size: str) -> list[dict[str, Any]]:
    """The first call in a process that finds an empty cache, and in the next process."""
    text = _START.format(folder=os.path.dirname(os.path.abspath(__file__)), name=name, size=size, backend=backend)
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHMUX_CACHE_DIR": os.path.join(folder, "cache")}
        found = []
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            found.append(json.loads(done.stdout.splitlines()[-1]))
        return found


# --- the table -------------------------------------------------------------------------------------------------------


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """A table for each backend, with the geometric mean of the ratios."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for backend, rows in results.items():
        direct = backend in DIRECT
        table = Table(title=f"{backend}: milliseconds per call", box=None, header_style="bold", title_justify="left")
        table.add_column("model")
        for title in ("eager", *(("direct", "adapter", "ratio", "adapter, frozen", "ratio") if direct else
                                 ("adapter", "ratio"))):  # fmt: skip
            table.add_column(title, justify="right", no_wrap=True)
        ratios: dict[str, list[float]] = {"adapter": [], "adapter, frozen": []}
        for name, row in rows.items():
            base = row.get("direct" if direct else "eager")
            cells = [_number(row.get("eager"))]
            if direct:
                cells.append(_number(base))
            for side in ("adapter", "adapter, frozen") if direct else ("adapter",):
                found = row.get(side)
                cells += [_number(found), f"{base / found:.2f}" if base and found else ""]
                if base and found and not name.startswith(TINY):
                    ratios[side].append(base / found)
            table.add_row(name, *cells)
        console.print(table)
        for side, found in ratios.items():
            if found:
                mean = math.exp(sum(map(math.log, found)) / len(found))
                console.print(f"{side}: geometric mean {mean:.2f}, minimum {min(found):.2f}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value < 1 else f"{value:.1f}"


def note(text: str) -> None:
    """Print progress, separate from the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print the tables, and write the numbers to a file if requested."""
    parser = argparse.ArgumentParser(description="Compare adapters with their runtimes used directly.")
    names = (TINY, *MODELS)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS, help=", ".join(BACKENDS))
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL", help=", ".join(names))
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full", help="of the models (full)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1], help="(1)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    parser.add_argument("--coverage", action="store_true", help="what runs where, instead of times")
    parser.add_argument("--training", action="store_true", help="with --coverage: training too")
    parser.add_argument("--starts", action="store_true", help="the first call in two processes, instead of times")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    if arguments.coverage:
        found: Any = {"coverage": all_coverage(arguments)}
        show_coverage(found["coverage"])
    elif arguments.starts:
        found = {"starts": all_starts(arguments)}
    else:
        found = {"milliseconds": all_times(arguments)}
        show(found["milliseconds"])
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=2)


def all_coverage(arguments: Any) -> list[dict[str, Any]]:
    rows = []
    for backend in arguments.backends:
        for name in arguments.models:
            phases = [False, True] if arguments.training and name in TRAINED else [False]
            for training, batch in ((t, b) for t in phases for b in arguments.batch):
                phase = "training" if training else "inference"
                row: dict[str, Any] = {"backend": backend, "model": name, "phase": phase, "batch": batch}
                begun = time.perf_counter()
                try:
                    row |= coverage(backend, name, batch, arguments.size, training)
                    outcome = f"{row['share']:.3f} of {row['operators']} operators, error {row['error']:.2f} of eager's"
                except Exception as error:
                    row["failed"] = outcome = f"{type(error).__name__}: {str(error).strip()[:200]}"
                took = time.perf_counter() - begun
                note(f"{backend}: {name}, {phase}, batch {batch}: {outcome} ({took:.0f} s)")  # all of this is slow
                rows.append(row)
    return rows


def all_starts(arguments: Any) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for backend in arguments.backends:
        for name in arguments.models:
            first, second = results[f"{backend} {name}"] = starts(backend, name, arguments.size)
            compiled = second["parts"] - second["hits"]
            print(
                f"{backend} {name}: {first['seconds']:.2f} s, then {second['seconds']:.2f} s "
                f"({second['seconds'] / first['seconds']:.2f}), {compiled} of {second['parts']} parts compiled again",
                flush=True,
            )
    return results


def all_times(arguments: Any) -> dict[str, dict[str, dict[str, float]]]:
    results: dict[str, dict[str, dict[str, float]]] = {}
    for backend in arguments.backends:
        results[backend] = {}
        for name in arguments.models:
            for batch in arguments.batch:
                note(f"{backend}: {name}, batch {batch}")
                calls = sides(name, backend, batch, arguments.size)
                title = name if arguments.batch == [1] else f"{name}, batch {batch}"
                times = results[backend][title] = measure(calls, arguments.rounds)
                note(", ".join(f"{side} {found:.4g} ms" for side, found in times.items()))
    return results


if __name__ == "__main__":
    main()
