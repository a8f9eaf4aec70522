"""The native backend compared with torch's Inductor and eager on the CPU, in one table.

    python benchmarks/native_cpu.py [--rows NAME ...] [--threads N] [--rounds N] [--skip-cold] [--json FILE]
                                    [--frozen] [--processor] [--dtype bfloat16|float16|autocast]

Columns:

* *error*: the largest error against float64, as a multiple of eager's own (outputs, or gradients of a training step);
* *eager*, *inductor*, *native*: median milliseconds per call; the three alternate in one process, with a pause between
  them; *ratio* is Inductor's time divided by native's: with 1 or more, native is at least as fast;
* *cold*: seconds of the first call, each engine in a separate process with an empty cache; importing torch, building
  the model and loading the inputs are excluded;
* *second*: the same in a second process, with the cache that the first left;
* *warm*: seconds from the start of this second process, imports included, to its first result;
* *peak*: the peak memory of such a process in MiB, as counted by the operating system's kernel.

Inductor is ``torch.compile(model)`` of the installed torch, with its defaults.

``--frozen`` compares native with ``freeze`` to ONNX Runtime and OpenVINO, which also treat parameters as constants;
*best* is the faster of these two, and *ratio* its time divided by native's.  ``--processor`` measures the minimum
processor time of a call instead of the median wall-clock time.  Other load on the machine does not change it; use it
with one thread.  ``--dtype`` converts models and inputs, or runs all calls in a region of autocast to bfloat16, whose
weights the models keep in float32; without ``--skip-cold``, first calls are still those of float32.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PAUSE = 0.02
SETTLING = 2  # calls; guards that passed twice are rewritten as fewer, which takes 40 ms of ResNet-50's third call
ENGINES = ("eager", "inductor", "native")
FROZEN = ("eager", "onnxrt", "openvino", "native frozen")
DTYPES = ("float32", "bfloat16", "float16", "autocast")
_START = time.perf_counter()


ROWS = {  # the workload of torchmux.zoo, the batch, and whether it trains
    "mlp": ("mlp", 8, False),
    "chain": ("chain", 8, False),
    "bert": ("bert", 1, False),
    "gpt2": ("gpt2", 1, False),
    "llama": ("llama", 1, False),
    "vit": ("vit", 1, False),
    "resnet50": ("resnet50", 1, False),
    "t5": ("t5", 1, False),
    "mlp training": ("mlp", 8, True),
    "bert4 training": ("bert4", 1, True),
    "resnet18 training": ("resnet18", 4, True),
}


class Side:
    """A model under one engine: ``call()`` is one inference, or one forward and backward."""

    def __init__(
        self, engine: str, model: Any, inputs: dict[str, Any], training: bool, autocasts: bool = False
    ) -> None:
        import torch

        self.model, self.inputs, self.training, self.autocasts = model, inputs, training, autocasts
        self.function = model
        if engine == "inductor":
            self.function = torch.compile(model)
        elif engine != "eager":
            import torchmux

            options = {} if engine == "native" else {"freeze": True}
            self.function = torchmux.compile(model, backend=engine.split()[0], options=options)

    def call(self) -> list[Any]:
        import torch

        region = torch.autocast("cpu", torch.bfloat16, enabled=self.autocasts)
        if not self.training:
            with torch.no_grad(), region:
                return [self._tensor(self.function(**self.inputs))]
        self.model.zero_grad(set_to_none=True)
        with region:
            result = self._tensor(self.function(**self.inputs))
        result.float().pow(2).mean().backward()
        return [p.grad for p in self.model.parameters() if p.grad is not None]

    @staticmethod
    def _tensor(output: Any) -> Any:
        if hasattr(output, "shape"):
            return output
        return output.logits if hasattr(output, "logits") else output[0]


def build(row: str) -> tuple[Any, dict[str, Any], bool]:
    from torchmux.zoo.workloads import WORKLOADS

    name, batch, training = ROWS[row]
    return (*WORKLOADS[name].build(batch, training=training), training)


def largest_error(got: list[Any], exact: list[Any]) -> float:
    whole = max(float(e.abs().max()) for e in exact)
    return max(
        float((g.double() - e).abs().max()) / max(float(e.abs().max()), 1e-3 * whole)
        for g, e in zip(got, exact, strict=True)
    )


def compare(row: str, rounds: int, engines: tuple[str, ...], processor: bool, dtype: str) -> dict[str, Any]:
    """Error and running times, all engines in one process."""
    import torch

    model, inputs, training = build(row)
    autocasts = dtype == "autocast"
    to = getattr(torch, "float32" if autocasts else dtype)
    given = {k: v.to(to) if v.is_floating_point() else v for k, v in inputs.items()}
    sides = {engine: Side(engine, copy.deepcopy(model).to(to), given, training, autocasts) for engine in engines}
    wide = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    exact = Side("eager", copy.deepcopy(model).double(), wide, training).call()
    errors = {engine: largest_error(side.call(), exact) for engine, side in sides.items()}
    del exact
    for _ in range(SETTLING):
        for side in sides.values():
            side.call()
    times: dict[str, list[float]] = {engine: [] for engine in sides}
    fast = row.startswith("mlp")
    clock, chosen = (time.process_time, min) if processor else (time.perf_counter, statistics.median)
    for _ in range(rounds):
        for engine, side in sides.items():
            time.sleep(PAUSE)
            side.call()
            start = clock()
            for _ in range(200 if fast else 1):
                side.call()
            times[engine].append((clock() - start) / (200 if fast else 1))
    found: dict[str, Any] = {engine: chosen(t) * 1e3 for engine, t in times.items()}
    found["error"] = errors[engines[-1]] / max(errors["eager"], 1e-30)
    if "onnxrt" in found:
        found["inductor"], found["native"] = min(found["onnxrt"], found["openvino"]), found["native frozen"]
    found["torch"] = torch.__version__
    return found


def first_call(row: str, engine: str) -> dict[str, float]:
    """Seconds of the first call and since the process started, and the peak of memory."""
    model, inputs, training = build(row)
    side = Side(engine, model, inputs, training)
    start = time.perf_counter()
    side.call()
    end = time.perf_counter()
    side.call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"cold": end - start, "since_start": end - _START, "peak": peak}


def in_process(arguments: list[str], folder: str, threads: int) -> dict[str, Any]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor"),
        "TORCHMUX_CACHE_DIR": str(Path(folder) / "torchmux"),
    }
    done = subprocess.run([sys.executable, __file__, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(row: str, rounds: int, threads: int, cold: bool, flags: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = in_process(["--compare", row, "--rounds", str(rounds), *flags], folder, threads)
    for engine in ENGINES[1:] if cold else ():
        with tempfile.TemporaryDirectory() as folder:
            first = in_process(["--first", row, engine], folder, threads)
            second = in_process(["--first", row, engine], folder, threads)
        found[f"{engine} cold"], found[f"{engine} peak"] = first.get("cold"), first.get("peak")
        found[f"{engine} second"] = second.get("cold")
        found[f"{engine} warm"] = second.get("since_start")
        if "failed" in first:
            found[f"{engine} failed"] = first["failed"]
    return found


HEAD = (
    "row",
    "error",
    "eager",
    "inductor",
    "native",
    "ratio",
    "cold ind.",
    "cold",
    "second ind.",
    "second",
    "warm ind.",
    "warm",
    "peak ind.",
    "peak",
)


def cells(row: str, found: dict[str, Any]) -> list[str]:
    def number(key: str, digits: int) -> str:
        return f"{found[key]:.{digits}f}" if isinstance(found.get(key), float) else "-"

    ratio = f"{found['inductor'] / found['native']:.2f}" if "native" in found else "-"
    times = [number(engine, 3) for engine in ENGINES]
    rest = [
        number(f"{e} {what}", d)
        for what, d in (("cold", 1), ("second", 1), ("warm", 1), ("peak", 0))
        for e in ENGINES[1:]
    ]
    return [row, number("error", 2), *times, ratio, *rest]


def main() -> None:
    parser = argparse.ArgumentParser(description="The native backend compared with Inductor and eager, on the CPU.")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--skip-cold", action="store_true", help="skip measurements that need a separate process")
    parser.add_argument("--frozen", action="store_true", help="native with freeze, ONNX Runtime and OpenVINO")
    parser.add_argument("--processor", action="store_true", help="minimum processor time instead of median time")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="of models and inputs, or of autocast")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--compare", choices=ROWS, help=argparse.SUPPRESS)
    parser.add_argument("--first", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        engines = FROZEN if given.frozen else ENGINES
        print(json.dumps(compare(given.compare, given.rounds, engines, given.processor, given.dtype)))
        return
    if given.first:
        print(json.dumps(first_call(*given.first)))
        return
    flags = [f"--{name}" for name in ("frozen", "processor") if getattr(given, name)]
    flags += ["--dtype", given.dtype]
    head = ["best" if name == "inductor" and given.frozen else name for name in HEAD]
    print("  ".join(f"{name:>10}" for name in head), flush=True)
    everything = {}
    for row in given.rows:
        everything[row] = found = measure(
            row, given.rounds, given.threads, not (given.skip_cold or given.frozen), flags
        )
        print("  ".join(f"{cell:>10}" for cell in cells(row, found)), found.get("failed", ""), flush=True)
    if given.json:
        given.json.write_text(json.dumps(everything, indent=2))


if __name__ == "__main__":
    main()
