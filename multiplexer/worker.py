"""The process of one candidate: it compiles, runs and times one graph, and may die of it.

``python -m torchmux.multiplexer.worker`` reads lines of JSON and answers each with one.  The worker of eager is also
the referee: it judges what the others have computed, so that no backend shares a process with its judge.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import resource
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from torchmux.conformance.judging import observation
from torchmux.registry import register_backend
from torchmux.registry.loading import import_path

from . import parcel as parcels
from . import segments
from .admission import PARCEL
from .candidates import pin, resolved
from .trial import SEED, TRIALS, Trials, wide

_MESSAGE = 400


class Worker:
    """What is known in one process."""

    watches = True  # what it changes and prints is told, and rules the candidate out

    def __init__(self, told: dict[str, Any]) -> None:
        self.parcel = parcels.Parcel.load(Path(told["parcel"]))
        parcels.restore(self.parcel.state)
        self.trials = Trials(self.parcel)
        self.gm = self.parcel.graph(self.trials.real)
        self.told = told
        self.run: Callable[..., Any] | None = None
        self.expected: list[tuple[Any, Any]] = []
        self.found = 0  # bytes of this process before it compiled

    def compile(self) -> dict[str, Any]:
        """Compile for the candidate; the answer tells the seconds, and what is left to torch."""
        for text in self.told["specs"]:
            register_backend(pickle.loads(bytes.fromhex(text)))
        self.found = _resident()
        before = time.perf_counter()
        backend = resolved(self.told["backend"], self.told["options"], strict=self.parcel.strict)
        pin(self.gm, self.told["pins"])
        with torch.set_grad_enabled(self.parcel.training):
            compiled = backend.compile(
                self.gm, self.trials.real, training=self.parcel.training, static_inputs=self.parcel.static_inputs
            )
        self.run = compiled
        seconds = time.perf_counter() - before
        report = compiled.report
        why = next((p.reason for p in report.placements if not report.is_requested(p)), "")
        return {"seconds": seconds, "share": report.share, "why": why}

    def cut(self, to: str, most: int) -> dict[str, Any]:
        """Write the pieces that the graph can be cut into, and one that computes next to nothing, as parcels."""
        try:
            with torch.set_grad_enabled(self.parcel.training):
                found = segments.cut(self.gm, self._fresh, most)
                made = segments.pieces(self.parcel, self.gm, self._fresh(), found)
                for number, piece in enumerate([*made, segments.tiny(self.parcel)]):
                    folder = Path(to) / f"piece{number}"
                    folder.mkdir()
                    piece.save(folder / PARCEL)
        except segments.Whole as why:
            return {"why": str(why)}
        calls = [number for number, node in enumerate(self.gm.graph.nodes) if node.op.startswith("call_")]
        return {"segments": [dataclasses.asdict(each) for each in found], "calls": calls}

    def _fresh(self) -> list[Any]:
        """Inputs for one run, of which nothing is shared with the next."""
        torch.manual_seed(SEED)
        values = self.trials.inputs(0)
        for position in self.parcel.static_inputs:
            needs = values[position].requires_grad
            values[position] = values[position].detach().clone().requires_grad_(needs)
        return values

    def results(self, to: str) -> dict[str, Any]:
        """Run all trials, and write what they show."""
        assert self.run is not None
        with torch.set_grad_enabled(self.parcel.training):
            found = [self.trials.results(self.run, trial) for trial in range(TRIALS)]
        torch.save(found, to)
        return {}

    def reference(self) -> dict[str, Any]:
        """Compute what all others are held against: eager, and eager in float64 where that is possible."""
        with torch.set_grad_enabled(self.parcel.training):
            for trial in range(TRIALS):
                exact = None
                try:
                    exact = self.trials.results(wide(self.gm), trial, wide=True)
                except Exception:  # the graph insists on a type: eager alone is the measure
                    exact = None
                self.expected.append((self.trials.results(self.gm.forward, trial), exact))
        return {"wide": self.expected[0][1] is not None}

    def judge(self, of: str) -> dict[str, Any]:
        """The first difference between what a candidate has written and eager's."""
        found = torch.load(of, weights_only=False)
        for trial, (got, pair) in enumerate(zip(found, self.expected, strict=True)):
            if differences := observation.compare(got, [pair]):
                which = "the inputs of the call" if trial == 0 else "inputs like those of the call"
                return {"wrong": f"on {which}: {differences[0]}"}
        return {"wrong": "", "error": max(_error(got, pair) for got, pair in zip(found, self.expected, strict=True))}

    def time(self, calls: int, callers: int = 1) -> dict[str, Any]:
        """Seconds of so many calls, after one that does not count.

        With several ``callers``, each of them a thread with inputs of its own, one number: all seconds by all calls.
        """
        assert self.run is not None
        _forget_peak()
        if callers > 1:
            found = [self._together(calls, callers)]
        else:
            with torch.set_grad_enabled(self.parcel.training):
                found = _seconds(self.trials.call(self.run), calls)
        return {"seconds": found, "added": max(0, _peak() - self.found)}

    def _together(self, calls: int, callers: int) -> float:
        assert self.run is not None
        ready, ends = threading.Barrier(callers), list[tuple[float, float]]()

        def work(call: Callable[[], None]) -> None:
            with torch.set_grad_enabled(self.parcel.training):
                call()
                ready.wait()
                began = time.perf_counter()
                for _ in range(calls):
                    call()
                ends.append((began, time.perf_counter()))

        with torch.set_grad_enabled(self.parcel.training):
            each = [self.trials.call(self.run) for _ in range(callers)]
        with ThreadPoolExecutor(callers) as pool:
            for done in [pool.submit(work, call) for call in each]:
                done.result()
        return (max(end for _, end in ends) - min(began for began, _ in ends)) / (calls * callers)


def _seconds(call: Callable[[], None], calls: int) -> list[float]:
    call()
    found = []
    for _ in range(calls):
        before = time.perf_counter()
        call()
        found.append(time.perf_counter() - before)
    return found


def _resident() -> int:
    """The memory of this process now, in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _forget_peak() -> None:
    """Let :func:`_peak` count from now on, where the system can do this."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The most memory that this process had, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _error(got: Any, pair: tuple[Any, Any]) -> float:
    """The largest distance of results from the float64 ones, or from eager's."""
    expected, exact = pair
    reference = exact if exact is not None else expected
    pairs = zip(got["results"], reference["results"], strict=True)
    return max((observation.oracle.distance(a, r) for a, r in pairs), default=0.0)


def state() -> dict[str, str]:
    """What a backend must leave as it is."""
    return {
        "torch's number of threads": str(torch.get_num_threads()),
        "torch's default dtype": str(torch.get_default_dtype()),
        "torch's grad mode": str(torch.is_grad_enabled()),
        "torch's deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "torch's precision of matrix products": torch.get_float32_matmul_precision(),
        "the working directory": os.getcwd(),
        "the environment": repr(sorted(os.environ.items())),
    }


def main() -> None:
    """Answer until the input ends."""
    # What a backend prints must not be mistaken for an answer, and is a reason not to choose it.
    out = os.fdopen(os.dup(1), "w")
    printed = Path(sys.argv[1])
    os.dup2(os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 1)
    worker: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        what = asked.pop("do")
        try:
            if what == "open":
                sys.path[:] = asked["path"]
                kind = asked.pop("worker", None)  # the path of another class, which answers other questions
                worker = (Worker if kind is None else import_path(kind))(asked)
                answer: dict[str, Any] = {}
            else:
                before = state()
                answer = getattr(worker, what)(**asked)
                sys.stdout.flush()
                if worker.watches:
                    answer["changed"] = [name for name, value in state().items() if before[name] != value]
                    answer["printed"] = printed.read_text(errors="replace")[:_MESSAGE]
        except Exception as error:
            words = " ".join(str(error).split())[:_MESSAGE]
            answer = {"raised": f"{type(error).__name__}: {words}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
