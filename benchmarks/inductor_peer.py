"""Inductor under torchmux's frontend compared with Inductor under torch's own: the code, the time, CUDA graphs.

    python benchmarks/inductor_peer.py [--models NAME ...] [--modes MODE ...] [--phases PHASE ...] [--batch N ...]
                                       [--size tiny|small|full] [--no-times] [--no-calls] [--json FILE]

Each row compiles two copies of a model in one process, one with ``torch.compile`` and one with ``torchmux.compile``.

* *Code*: the code that Inductor generates for each graph, without comments.  ``same`` means equal text; otherwise the
  names of the kernels that only one side has are in the JSON.  (Autotuning may choose differently from run to run.)
* *Time*: medians of interleaved batches of calls, until the device has finished.  *Ratio* is torchmux's time divided by
  torch's: 1.03 or less is the same.  ``eager`` is the uncompiled model.
* *Graphs*: how often Inductor has skipped CUDA graphs, and how many inputs it copies before it replays them.
* *Calls*: microseconds of a call on the processor, apart from the device's work.  ``nothing``: the backend computes
  nothing, which leaves the hook, the guards, the inputs and the results.  ``eager``: the backend runs the captured
  graph; on a GPU the calls are not waited for.

On a GPU models are bfloat16, and full size unless told otherwise; on the CPU float32 and tiny.  ResNet-50 comes from
``torchvision``, ViT-B/16 from ``timm``, where they are installed; everything else from ``transformers``.
"""

from __future__ import annotations

import argparse
import copy
import difflib
import gc
import json
import platform
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

import torchmux
from torchmux.demo.models import MODELS

FRONTENDS = {"torch": torch, "torchmux": torchmux}
MODES = ("default", "reduce-overhead", "max-autotune-no-cudagraphs")
PHASES = ("inference", "training")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

Call = Callable[[], torch.Tensor]
Row = dict[str, Any]


# --- the models ------------------------------------------------------------------------------------------------------


def build(name: str, size: Any, batch: int) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """The model on the device, and the keyword arguments of a call."""
    family = MODELS[name]
    own = _from_libraries(name) if size == "full" else None
    if own is not None:
        model, keyword = own
        inputs = {keyword: torch.randn(batch, 3, 224, 224)}
    else:
        model = family.build(size, **({"use_cache": False} if name in ("gpt2", "llama") else {}))
        inputs = family.example(model, size, batch)
    dtype = torch.bfloat16 if DEVICE == "cuda" else torch.float32
    moved = {k: v.to(DEVICE, dtype if v.is_floating_point() else None) for k, v in inputs.items()}
    return model.to(DEVICE, dtype), moved


def _from_libraries(name: str) -> tuple[torch.nn.Module, str] | None:
    torch.manual_seed(0)
    try:
        if name == "resnet":
            import torchvision

            return torchvision.models.resnet50(), "x"
        if name == "vit":
            import timm

            return timm.create_model("vit_base_patch16_224"), "x"
    except ImportError:
        pass
    return None


def step(run: Callable[..., Any], model: torch.nn.Module, inputs: dict[str, torch.Tensor], phase: str) -> Call:
    """A call of ``run``, which is ``model`` or compiled from it; with gradients in training.  Returns one number."""

    def result() -> torch.Tensor:
        out = run(**inputs)
        return out if isinstance(out, torch.Tensor) else next(iter(out.values()))

    @torch.no_grad()
    def inference() -> torch.Tensor:
        return result()

    def training() -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        loss = result().float().square().mean()
        loss.backward()
        return loss.detach()

    return inference if phase == "inference" else training


# --- the code --------------------------------------------------------------------------------------------------------


class Collected:
    """The code that Inductor generates while this context lasts, and what it counts."""

    def __enter__(self) -> Collected:
        from torch._inductor import config
        from torch._inductor.graph import GraphLowering

        self.texts: list[str] = []
        self._before = _counts()
        self._kept = vars(GraphLowering)["save_output_code"]
        self._settings = config.patch(force_disable_caches=True)
        self._settings.__enter__()
        setattr(GraphLowering, "save_output_code", staticmethod(self.texts.append))
        return self

    def __exit__(self, *_: Any) -> None:
        from torch._inductor.graph import GraphLowering

        setattr(GraphLowering, "save_output_code", self._kept)
        self._settings.__exit__(None, None, None)
        self.counts = {name: count - self._before[name] for name, count in _counts().items()}

    def code(self) -> list[str]:
        """The texts without comments, and without what differs between equal graphs."""
        return [re.sub(r"[ \t]*#.*", "", text) for text in self.texts]

    def kernels(self) -> list[str]:
        return [name for text in self.texts for name in re.findall(r"^((?:triton|cpp)\w+) = async_compile", text, re.M)]


def _counts() -> dict[str, int]:
    from torch._dynamo.utils import counters

    names = {"skips": "cudagraph_skips", "copied": "cudagraph_recorded_non_static_inputs"}
    return {ours: counters["inductor"][theirs] for ours, theirs in names.items()}


def compare_code(found: dict[str, Collected]) -> Row:
    """What the two sides have generated."""
    ours, theirs = found["torchmux"], found["torch"]
    kernels = {side: each.kernels() for side, each in found.items()}
    row: Row = {
        "graphs": {side: len(each.texts) for side, each in found.items()},
        "kernels": {side: len(names) for side, names in kernels.items()},
        "same_kernels": kernels["torch"] == kernels["torchmux"],
        "same_code": ours.code() == theirs.code(),
        **{name: {side: each.counts[name] for side, each in found.items()} for name in ("skips", "copied")},
    }
    if not row["same_kernels"]:
        row["only"] = {a: sorted(set(kernels[a]) - set(kernels[b])) for a, b in (FRONTENDS, tuple(FRONTENDS)[::-1])}
    elif not row["same_code"]:
        lines = ("\n".join(each.code()).splitlines() for each in (theirs, ours))
        row["difference"] = [x for x in difflib.unified_diff(*lines, lineterm="", n=0) if x[:1] in "+-"][:40]
    return row


# --- one row ---------------------------------------------------------------------------------------------------------


def measure(name: str, phase: str, mode: str, arguments: argparse.Namespace, batch: int) -> Row:
    """Everything about one model, phase, mode and batch."""
    torchmux.reset()
    torch.compiler.reset()
    gc.collect()
    original, inputs = build(name, arguments.size, batch)
    original.train(phase == "training")
    row: Row = {"model": name, "phase": phase, "mode": mode, "batch": batch}
    calls: dict[str, Call] = {"eager": step(original, original, inputs, phase)}
    found, results, seconds = {}, {}, {}
    for side, frontend in FRONTENDS.items():
        model = copy.deepcopy(original)
        compiled = frontend.compile(model, backend="inductor", mode=mode)  # type: ignore[attr-defined]
        calls[side] = step(compiled, model, inputs, phase)
        begun = time.perf_counter()
        with Collected() as collected:
            for _ in range(5):  # CUDA graphs are recorded in the second call or the third
                torch.manual_seed(0)
                results[side] = calls[side]().float().clone()
        seconds[side], found[side] = time.perf_counter() - begun, collected
    row |= compare_code(found)
    row["cold_seconds"] = seconds
    row["largest_difference"] = (results["torch"] - results["torchmux"]).abs().max().item()
    if not arguments.no_times:
        with Collected() as later:
            row["milliseconds"] = in_turns(calls, arguments.rounds)
        row["later"] = {"recompiled": len(later.texts), **later.counts}
        row["ratio"] = row["milliseconds"]["torchmux"] / row["milliseconds"]["torch"]
    return row


def in_turns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds per call for each side, until the device has finished: medians of interleaved batches."""
    times: dict[str, list[float]] = {side: [] for side in calls}
    counts: dict[str, int] = {}
    for side, call in calls.items():
        call()
        counts[side] = max(1, min(10, int(0.1 / max(_seconds(call, 1), 1e-6))))
    for number in range(rounds):
        for side in list(calls) if number % 2 else list(reversed(calls)):
            times[side].append(_seconds(calls[side], counts[side]))
    return {side: statistics.median(found) * 1e3 for side, found in times.items()}


def _seconds(call: Call, count: int) -> float:
    _wait()
    begun = time.perf_counter()
    for _ in range(count):
        call()
    _wait()
    return (time.perf_counter() - begun) / count


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


# --- calls -----------------------------------------------------------------------------------------------------------


def free(gm: Any, example_inputs: Any) -> Callable[..., Any]:
    """A backend whose graphs take no time: they return the results of one computation."""
    with torch.no_grad():
        result = gm.forward(*example_inputs)
    return lambda *inputs: result


@torch.no_grad()
def measure_calls(name: str, size: Any, rounds: int) -> Row:
    """Microseconds of a call of a model of batch 1 on the processor."""
    torchmux.reset()
    torch.compiler.reset()
    model, inputs = build(name, size, 1)
    model.eval()
    calls = {"eager": lambda: model(**inputs)}
    for side, frontend in FRONTENDS.items():
        for what, backend in (("nothing", free), ("eager", "eager")):
            compiled = frontend.compile(copy.deepcopy(model), backend=backend)  # type: ignore[attr-defined]
            calls[f"{side}, {what}"] = lambda compiled=compiled: compiled(**inputs)
    times: dict[str, list[float]] = {side: [] for side in calls}
    for call in calls.values():
        for _ in range(3):
            call()
    for _ in range(2 * rounds):
        for side, call in calls.items():
            _wait()
            begun = time.perf_counter()
            for _ in range(3):
                call()
            times[side].append((time.perf_counter() - begun) / 3)
    return {"model": name, "microseconds": {side: statistics.median(found) * 1e6 for side, found in times.items()}}


# --- output ----------------------------------------------------------------------------------------------------------


def show(rows: list[Row], calls: list[Row]) -> None:
    """The tables."""
    print(f"{'model, phase, mode, batch':52}{'eager':>9}{'torch':>9}{'torchmux':>9}{'ratio':>7}  code")
    for row in rows:
        title = f"{row['model']}, {row['phase']}, {row['mode']}, {row['batch']}"
        if "error" in row:
            print(f"{title:52} {row['error']}")
            continue
        times = row.get("milliseconds", {})
        cells = "".join(f"{times[s]:9.3f}" if s in times else f"{'':9}" for s in ("eager", *FRONTENDS))
        code = "same" if row["same_code"] else ("same kernels" if row["same_kernels"] else "differs")
        pairs = "; ".join(f"{n} {'/'.join(str(row[n][s]) for s in FRONTENDS)}" for n in ("kernels", "skips", "copied"))
        print(f"{title:52}{cells}{row.get('ratio', float('nan')):7.3f}  {code}; {pairs}")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        print(f"{'geometric mean':52}{'':27}{statistics.geometric_mean(ratios):7.3f}")
    for row in calls:
        words = ", ".join(f"{side}: {value:.0f}" for side, value in row["microseconds"].items())
        print(f"µs of a call of {row['model']}: {words}")


def machine() -> str:
    """The device and the versions."""
    device = torch.cuda.get_device_name() if DEVICE == "cuda" else platform.processor() or platform.machine()
    return f"{device}; CPython {platform.python_version()}, torch {torch.__version__}"


def main() -> None:
    """Measure, print the tables, and write the numbers to a file if requested."""
    parser = argparse.ArgumentParser(description="Inductor under torchmux compared with Inductor under torch.compile.")
    names = ("resnet", "bert", "gpt2", "vit", "llama")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=names, metavar="NAME")
    parser.add_argument("--modes", nargs="+", choices=(*MODES, "max-autotune"), default=MODES, metavar="MODE")
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--batch", nargs="+", type=int, default=[32 if DEVICE == "cuda" else 2])
    parser.add_argument("--size", choices=("tiny", "small", "full"), default="full" if DEVICE == "cuda" else "tiny")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each side (15)")
    parser.add_argument("--no-times", action="store_true", help="compare the code only")
    parser.add_argument("--no-calls", action="store_true", help="leave out the cost of a call")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too, after each row")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: list[Row] = []
    calls: list[Row] = []

    def keep() -> None:
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"machine": machine(), "rows": rows, "calls": calls}, file, indent=2)

    for name in () if arguments.no_calls else arguments.models:
        note(f"calls of {name}")
        calls.append(measure_calls(name, arguments.size, arguments.rounds))
        keep()
    for mode in arguments.modes:
        for batch in arguments.batch:
            for phase in arguments.phases:
                for name in arguments.models:
                    note(f"{name}, {phase}, {mode}, batch {batch}")
                    try:
                        rows.append(measure(name, phase, mode, arguments, batch))
                    except Exception as error:
                        text = f"{type(error).__name__}: {str(error).strip()[:300]}"
                        rows.append({"model": name, "phase": phase, "mode": mode, "batch": batch, "error": text})
                    note(str({k: v for k, v in rows[-1].items() if k in ("error", "ratio", "same_code", "skips")}))
                    keep()
    print(machine())
    show(rows, calls)


def note(text: str) -> None:
    """Print progress, separate from the result."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
