"""Small programs of many kinds: eager, torch's Inductor and the native backend in turns, in one process.

    python benchmarks/micro.py [--only PATTERN ...] [--no-inductor] [--baseline FILE] [--profile] [--json FILE]
                               [--resume] [--shard I/N] [--threads N] [--device NAME] [--rounds N] [--list]
                               [--limit SECONDS] [--ahead PROCESSES] [--until SECONDS]
                               [--dynamic] [--sample N] [--seed SEED]
    python benchmarks/micro.py --summary FILE [FILE ...]

The programs stand in ``small/``, a line each.  Columns: milliseconds of a call (the least of all rounds;
processor time with one thread, which other load changes least), then how many times longer Inductor and eager take than
native.  A training program's call is forward and backward.  Every
program first runs once with each engine from equal state, and what native returned, what it wrote and its gradients
are compared with eager's.

At the end: the geometric mean, the worst, every program below 0.9 of Inductor's speed, and every program that is more
than 5% slower than eager.

* ``--no-inductor`` leaves Inductor out; ``--baseline FILE`` then takes its time, as a multiple of eager's, from the
  results that ``--json`` wrote in an earlier run.
* ``--profile`` says for each program where native's time goes: steps of its code, what is around them, what torch runs.
* ``--device cuda`` runs the same programs on a GPU: milliseconds are then of a call with its host side, by a clock that
  is read when the device is done.  ``kernels`` are how many times longer Inductor's calls take than native's without
  their host side, as replays of a CUDA graph of one call, where both can be captured.
* ``--limit`` is how long a program may take, compilation included; ``--until`` how long all may, the rest is left out.
  ``--ahead N`` lets N processes compile the programs first, so that the caches have what the measuring process loads.
* ``--dynamic`` compiles every program with ``dynamic=True``, with Inductor as with native; ``--sample N`` takes so many
  of the chosen programs at random, the same for the same ``--seed``.
* ``--resume`` skips programs whose results are in the file of ``--json``; ``--shard 1/4`` runs every fourth program.

Inductor's compiled code is kept in ``--inductor-cache``, a folder among the temporary files, since it takes 10 to 20 s
for each program.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import io
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from small.case import Case, Program

TOLERANCE = {"float64": 1e-10, "float32": 2e-4, "bfloat16": 3e-2, "float16": 6e-3}
BATCH = 2e-3  # seconds of calls between two looks at the clock
LEAST = {"inductor": 0.9, "eager": 0.95}


class Side:
    """A program under one engine, with its own copy of all tensors."""

    def __init__(self, engine: str, program: Program) -> None:
        import torch

        import torchmux

        torch.manual_seed(0)
        self.case: Case = program.build()
        self.function = self.case.function
        if engine == "inductor":
            self.function = torch.compile(self.function, dynamic=program.dynamic)
        elif engine == "native":
            self.function = torchmux.compile(
                self.function, backend="native", fullgraph=program.fullgraph, dynamic=program.dynamic
            )
        self.gradients: list[Any] | None = None

    def call(self) -> Any:
        if not self.case.training:
            return self.function(*self.case.inputs)
        import torch

        for leaf in self.case.leaves:
            leaf.grad = None
        result = self.function(*self.case.inputs)
        results = [x for x in tensors(result) if x.requires_grad]
        if self.gradients is None:
            self.gradients = [torch.ones_like(x) if x.dim() == 0 else torch.randn_like(x) for x in results]
        torch.autograd.backward(results, self.gradients)
        return result

    def outcome(self) -> list[Any]:
        """Copies of all that one call returns and changes."""
        import torch

        torch.manual_seed(1)
        found = tensors(self.call())
        found += tensors(self.case.inputs) + self.case.state()
        found += [leaf.grad for leaf in self.case.leaves if leaf.grad is not None]
        return [(x.detach().clone(), x.stride()) for x in found]


def tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for each in value for x in tensors(each)]
    return [x for each in value.values() for x in tensors(each)] if isinstance(value, dict) else []


def difference(got: list[Any], expected: list[Any], program: Program) -> str:
    """What is wrong with ``got``, or nothing; numbers are compared relative to the largest of their tensor."""
    import torch

    if len(got) != len(expected):
        return f"{len(got)} tensors instead of {len(expected)}"
    for (x, x_strides), (y, y_strides) in zip(got, expected, strict=True):
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"{x.dtype} {tuple(x.shape)} instead of {y.dtype} {tuple(y.shape)}"
        if x_strides != y_strides:
            return f"strides {x_strides} instead of {y_strides}"
        if program.random or not x.numel():
            continue
        if x.is_complex():
            x, y = torch.view_as_real(x.resolve_conj()), torch.view_as_real(y.resolve_conj())
        limit = program.tolerance if program.tolerance is not None else TOLERANCE.get(str(y.dtype)[6:], 0.0)
        error = (x.double() - y.double()).abs()
        error = error.where(~((x == y) | (x.isnan() & y.isnan())), 0.0)
        finite = y.double().abs()
        scale = float(finite.where(finite.isfinite(), 0.0).max())
        if not float(error.max()) <= limit * max(scale, 1e-30):
            return f"error {float(error.max()):.2g} where numbers are up to {scale:.2g}"
    return ""


def measure(program: Program, engines: list[str], rounds: int, clock: Callable[[], float]) -> dict[str, Any]:
    import torch

    sides, found = {}, dict[str, Any]()
    reference: list[Any] = []
    with torch.no_grad() if not program.build().training else contextlib.nullcontext():
        for engine in engines:
            sides[engine] = Side(engine, program)
            start = time.perf_counter()
            outcome = sides[engine].outcome()
            found[f"{engine} first"] = time.perf_counter() - start
            if engine == "eager":
                reference = outcome
            elif wrong := difference(outcome, reference, program):
                found[f"{engine} wrong"] = wrong
        if rounds == 0:
            return found
        del reference, outcome
        for side in sides.values():
            for _ in range(3):
                side.call()
        start = time.perf_counter()
        sides["eager"].call()
        spent = time.perf_counter() - start
        calls = max(1, min(500, round(BATCH / max(spent, 1e-6))))
        times: dict[str, list[float]] = {engine: [] for engine in sides}
        for _ in range(rounds):
            for engine, side in sides.items():
                side.call()
                start = clock()
                for _ in range(calls):
                    side.call()
                times[engine].append((clock() - start) / calls)
    found |= {engine: min(each) * 1e3 for engine, each in times.items()}
    if torch.get_default_device().type == "cuda":
        found |= {f"{engine} kernels": replayed(side) for engine, side in sides.items() if engine != "eager"}
    return found


def replayed(side: Side) -> float | None:
    """Milliseconds of a call's kernels, the least of some replays of a CUDA graph; None if it cannot be captured."""
    import torch

    if side.case.training:  # the backward pass runs in a thread of its own, on a stream of its own
        return None
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.no_grad():
            with torch.cuda.stream(stream):
                side.call()
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for _ in range(10):
                    side.call()
    except Exception:
        # To torch, its generator is still being recorded, until a recording ends well.
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream):
            torch.empty(1).zero_()
        return None
    spent = []
    for _ in range(7):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        spent.append(start.elapsed_time(end) / 10)
    return min(spent[1:])


def clock_of(device: str, threads: int) -> Callable[[], float]:
    import torch

    if device.startswith("cuda"):

        def synchronized() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return synchronized
    return time.process_time if threads == 1 else time.perf_counter


def profile(program: Program, clock: Callable[[], float]) -> Iterator[str]:
    """Where native's time goes: of the quickest of some calls, the steps of each graph; and what torch computes."""
    import torch

    import torchmux

    torchmux.reset()
    torchmux.set_logs(kernel_times=True)
    try:
        with torch.no_grad() if not program.build().training else contextlib.nullcontext():
            side = Side("native", program)
            best, told = math.inf, ""
            for _ in range(30):
                with contextlib.redirect_stderr(io.StringIO()) as written:
                    side.call()
                spent = sum(float(ms) for ms in re.findall(r"kernel_times\] ([\d.]+) ms", written.getvalue()))
                if spent < best:
                    best, told = spent, written.getvalue()
    finally:
        torchmux.set_logs()
    yield f"    {best:.4f} ms in steps of native's code"
    yield from (f"    {line}" for line in told.splitlines())
    report = torchmux.report(side.function)
    yield from (f"    calls {each.library}: {each.node} ({each.op})" for each in report.library_calls)
    yield from (f"    left to torch: {each.node} ({each.op}): {each.reason}" for each in report.fallbacks)
    yield from (f"    graph break: {each.message()}" for each in report.breaks)


def chosen(given: argparse.Namespace) -> list[Program]:
    import small
    from small.case import PROGRAMS

    small.import_all()

    only = given.only or [""]
    found = [p for p in PROGRAMS.values() if any(fnmatch.fnmatch(p.name, f"*{w}*") for w in only)]
    if given.sample:
        found = random.Random(given.seed).sample(found, min(given.sample, len(found)))
    if given.dynamic:
        found = [replace(p, dynamic=True) for p in found]
    at, count = (int(n) for n in given.shard.split("/"))
    return found[at - 1 :: count]


def line(name: str, found: dict[str, Any]) -> str:
    def cell(value: float | None, digits: int) -> str:
        return f"{value:9.{digits}f}" if value is not None else f"{'-':>9}"

    if "failed" in found:
        return f"{name:45} failed: {found['failed']}"
    peer = found.get("inductor")
    native = found["native"]
    cells = [cell(found.get(engine), 4) for engine in ("eager", "inductor", "native")]
    cells += [cell(None if peer is None else peer / native, 2), cell(found["eager"] / native, 2)]
    marks = [
        f"  {engine}: {found[f'{engine} wrong']}" for engine in ("native", "inductor") if f"{engine} wrong" in found
    ]
    ours, peers = found.get("native kernels"), found.get("inductor kernels")
    if ours and peers:
        cells.append(cell(peers / ours, 2))
    if "estimated" in found:
        marks.append("  (Inductor's time is estimated)")
    return f"{name:45}" + "".join(cells) + "".join(marks)


def summary(results: dict[str, dict[str, Any]]) -> Iterator[str]:
    good = {name: found for name, found in results.items() if "failed" not in found}
    failed = len(results) - len(good)
    wrong = [name for name, found in good.items() if "native wrong" in found]
    yield f"{len(results)} programs, {failed} failed, {len(wrong)} wrong" + "".join(f"\n  {name}" for name in wrong)
    failures: dict[str, int] = {}
    for found in results.values():
        if "failed" in found:
            failures[found["failed"].partition(":")[0]] = failures.get(found["failed"].partition(":")[0], 0) + 1
    if failures:
        yield "failed: " + ", ".join(f"{count} {kind}" for kind, count in failures.items())
    kernels = [
        (f["inductor kernels"] / f["native kernels"], name)
        for name, f in good.items()
        if f.get("inductor kernels") and f.get("native kernels")
    ]
    if kernels:
        mean = math.exp(sum(math.log(ratio) for ratio, _ in kernels) / len(kernels))
        below = sorted(pair for pair in kernels if pair[0] < LEAST["inductor"])
        yield f"kernels beside inductor's: geometric mean {mean:.3f} of {len(kernels)}, {len(below)} below"
        yield from (f"  {ratio:.2f}  {name}" for ratio, name in below)
    for engine, least in LEAST.items():
        ratios = sorted((found[engine] / found["native"], name) for name, found in good.items() if engine in found)
        if not ratios:
            continue
        mean = math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios))
        below = [(ratio, name) for ratio, name in ratios if ratio < least]
        worst = f"{ratios[0][0]:.2f} ({ratios[0][1]})"
        yield f"beside {engine}: geometric mean {mean:.3f}, worst {worst}, {len(below)} of {len(ratios)} below {least}"
        yield from (f"  {ratio:.2f}  {name}" for ratio, name in below)


def run(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    import torch

    import torchmux

    torch.set_num_threads(given.threads)
    if given.device != "cpu":
        torch.set_default_device(given.device)
    clock = clock_of(given.device, given.threads)
    began = time.perf_counter()

    def over(*_: Any) -> None:
        raise TimeoutError("the program takes too long")

    signal.signal(signal.SIGALRM, over)
    results: dict[str, dict[str, Any]] = {}
    if given.resume and given.json.exists():
        results = json.loads(given.json.read_text())
    earlier = json.loads(given.baseline.read_text()) if given.baseline else {}
    engines = ["eager", "native"] if given.no_inductor or given.baseline else ["eager", "inductor", "native"]
    print(f"{'':45}" + "".join(f"{w:>9}" for w in ("eager", "inductor", "native", "/native", "eager/n.")), flush=True)
    for program in chosen(given):
        if program.name in results:
            continue
        torch.compiler.reset()
        torchmux.reset()
        if given.until and time.perf_counter() - began > given.until:
            print("the time is over", flush=True)
            break
        signal.alarm(given.limit)
        try:
            found = measure(program, engines, given.rounds, clock)
        except Exception as error:  # the others are still worth measuring
            found = {"failed": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"}
        finally:
            signal.alarm(0)
        known = earlier.get(program.name, {})
        if "inductor" in known and "failed" not in found:
            found["inductor"], found["estimated"] = known["inductor"] / known["eager"] * found["eager"], True
        results[program.name] = found
        if given.rounds:
            print(line(program.name, found), flush=True)
        if given.profile and "failed" not in found:
            print("\n".join(profile(program, clock)), flush=True)
        if given.json:
            partial = given.json.with_suffix(".partial")
            partial.write_text(json.dumps(results, indent=1))
            partial.replace(given.json)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Small programs: eager, Inductor and native.")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="programs with this in their name")
    parser.add_argument("--no-inductor", action="store_true", help="eager and native only")
    parser.add_argument("--baseline", type=Path, help="take Inductor's time beside eager's from these results")
    parser.add_argument("--profile", action="store_true", help="say where native's time goes")
    parser.add_argument("--json", type=Path, help="write all results to this file, after each program")
    parser.add_argument("--resume", action="store_true", help="skip what the file of --json has")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every N-th program, from the I-th on")
    parser.add_argument("--dynamic", action="store_true", help="compile with dynamic=True")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="so many programs, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=int, default=0, metavar="SECONDS", help="how long a program may take")
    parser.add_argument("--until", type=float, default=0, metavar="SECONDS", help="how long all of them may take")
    parser.add_argument("--ahead", type=int, default=0, metavar="N", help="compile in so many processes first")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    parser.add_argument("--summary", type=Path, nargs="+", metavar="FILE", help="summarize results of earlier runs")
    parser.add_argument(
        "--inductor-cache", default=str(Path(tempfile.gettempdir()) / f"torchmux-micro-{os.getuid()}"), metavar="FOLDER"
    )
    given = parser.parse_args()
    if given.resume and not given.json:
        parser.error("--resume needs --json")
    if given.summary:
        everything: dict[str, dict[str, Any]] = {}
        for file in given.summary:
            everything |= json.loads(file.read_text())
        print("\n".join(summary(everything)))
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(given.threads))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", given.inductor_cache)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if given.list:
        print("\n".join(program.name for program in chosen(given)))
        return
    if given.ahead:
        ahead(given)
    results = run(given)
    if given.rounds:
        print("\n".join(summary(results)))


def ahead(given: argparse.Namespace) -> None:
    """Compile everything in other processes, which leave it in the caches."""
    at, count = (int(n) for n in given.shard.split("/"))
    limit = given.until / 2 if given.until else None
    begun = []
    for n in range(given.ahead):
        shard = f"{at + n * count}/{count * given.ahead}"
        arguments = ["--shard", shard, "--rounds", "0", "--device", given.device, "--limit", str(given.limit)]
        arguments += ["--inductor-cache", given.inductor_cache, *(["--only", *given.only] if given.only else [])]
        arguments += ["--sample", str(given.sample), "--seed", str(given.seed)] + ["--dynamic"] * given.dynamic
        begun.append(
            subprocess.Popen(
                [sys.executable, __file__, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    start = time.perf_counter()
    for process in begun:
        left = None if limit is None else max(limit - (time.perf_counter() - start), 0.1)
        try:
            process.wait(left)
        except subprocess.TimeoutExpired:
            process.kill()
    print(f"compiled ahead in {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
