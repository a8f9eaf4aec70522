"""What the adapters cost: torchmux beside the same runtime used by hand, on the same model.

    python benchmarks/adapters.py [--backends NAME ...] [--models NAME ...] [--batch N] [--rounds N] [--json FILE]

By hand: the model exported and compiled once as the runtime's own documentation says, weights as constants, in float32
and with torch's number of threads; a call gets prepared inputs.  Beside it the adapter as it is, whose weights are
inputs, so that a change of theirs is seen, and with ``freeze=True``, which is what the runtime has by hand.

All sides take turns in one process, with a pause between them for the threads of the one before to come to rest;
medians.  *Ratio* is the time by hand by the adapter's: 1 and more is as fast.  The row "tiny" is a small network,
where nothing but the overhead of a call is left.  A side that fails says so and has no number.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

MODELS = ("bert", "gpt2", "llama", "vit", "resnet")
TINY = "tiny"
PAUSE = 0.02

Inputs = dict[str, torch.Tensor]
Call = Callable[[], Any]


class Logits(torch.nn.Module):
    """A model that returns one tensor, so that all sides have the same to do."""

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
    from torchmux.demo.models import MODELS as FAMILIES

    family = FAMILIES[name]
    # Caches of keys and values are no part of one forward, and exporters trip over them.
    model = family.build(size, use_cache=False)  # type: ignore[arg-type]
    return Logits(model).eval(), family.example(model, size, batch)  # type: ignore[arg-type]


# --- by hand ---------------------------------------------------------------------------------------------------------


def openvino_by_hand(model: torch.nn.Module, inputs: Inputs) -> Call:
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


def onnxrt_by_hand(model: torch.nn.Module, inputs: Inputs) -> Call:
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


BY_HAND: dict[str, Callable[[torch.nn.Module, Inputs], Call]] = {
    "onnxrt": onnxrt_by_hand,
    "openvino": openvino_by_hand,
}


# --- measuring -------------------------------------------------------------------------------------------------------


def sides(name: str, backend: str, batch: int, size: str) -> dict[str, Call]:
    """What to compare, each a call without arguments that returns the result."""
    import torchmux

    model, inputs = program(name, batch, size)

    def adapter(**options: Any) -> Call:
        compiled = torchmux.compile(model, backend=backend, options=options, fullgraph=True)
        return lambda: compiled(**inputs)

    made: dict[str, Callable[[], Call]] = {
        "eager": lambda: lambda: model(**inputs),
        "by hand": lambda: BY_HAND[backend](model, inputs),
        "adapter": adapter,
        "adapter, frozen": lambda: adapter(freeze=True),
    }
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
    """Milliseconds a call for each side."""
    times: dict[str, list[float]] = {side: [] for side in calls}
    count = {side: max(1, int(0.005 / _seconds(call, 1))) for side, call in calls.items()}
    for _ in range(rounds):
        for side, call in calls.items():
            time.sleep(PAUSE)
            _seconds(call, 1)  # brings the side's own threads and caches back
            times[side].append(_seconds(call, count[side]))
    return {side: statistics.median(found) * 1e3 for side, found in times.items()}


def _seconds(call: Call, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begun) / count


# --- the table -------------------------------------------------------------------------------------------------------


def show(results: dict[str, dict[str, dict[str, float]]]) -> None:
    """A table for each backend."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for backend, rows in results.items():
        table = Table(title=f"{backend}: milliseconds a call", box=None, header_style="bold", title_justify="left")
        table.add_column("model")
        for title in ("eager", "by hand", "adapter", "ratio", "adapter, frozen", "ratio"):
            table.add_column(title, justify="right", no_wrap=True)
        for name, row in rows.items():
            hand = row.get("by hand")
            cells = [_number(row.get("eager")), _number(hand)]
            for side in ("adapter", "adapter, frozen"):
                found = row.get(side)
                cells += [_number(found), f"{hand / found:.2f}" if hand and found else ""]
            table.add_row(name, *cells)
        console.print(table)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value < 1 else f"{value:.1f}"


def note(text: str) -> None:
    """Progress, apart from the result."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure, print the tables, and write the numbers where asked to."""
    parser = argparse.ArgumentParser(description="Adapters beside their runtimes used by hand.")
    names = (TINY, *MODELS)
    parser.add_argument("--backends", nargs="+", choices=BY_HAND, default=list(BY_HAND), help=", ".join(BY_HAND))
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL", help=", ".join(names))
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full", help="of the models (full)")
    parser.add_argument("--batch", type=int, default=1, help="(1)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    results: dict[str, dict[str, dict[str, float]]] = {}
    for backend in arguments.backends:
        results[backend] = {}
        for name in arguments.models:
            note(f"{backend}: {name}")
            calls = sides(name, backend, arguments.batch, arguments.size)
            results[backend][name] = measure(calls, arguments.rounds)
    show(results)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({"milliseconds": results}, file, indent=2)


if __name__ == "__main__":
    main()
