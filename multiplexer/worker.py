"""The process of one candidate: it compiles, runs and times one graph, and may die of it.

``python -m torchmux.multiplexer.worker`` reads lines of JSON and answers each with one.  The worker of eager is also
the referee: it judges what the others have computed, so that no backend shares a process with its judge.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchmux.conformance.judging import observation
from torchmux.registry import register_backend, resolve
from torchmux.registry.loading import import_path

from . import parcel as parcels
from .trial import TRIALS, Trials, wide

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

    def compile(self) -> dict[str, Any]:
        """Compile for the candidate; the answer tells the seconds, and what is left to torch."""
        backend = self.told["backend"]
        if "spec" in self.told:
            spec = pickle.loads(bytes.fromhex(self.told["spec"]))
            register_backend(spec)
        before = time.perf_counter()
        resolved = resolve(backend, options=self.told["options"], strict=self.parcel.strict)
        with torch.set_grad_enabled(self.parcel.training):
            compiled = resolved.compile(
                self.gm, self.trials.real, training=self.parcel.training, static_inputs=self.parcel.static_inputs
            )
        self.run = compiled
        seconds = time.perf_counter() - before
        report = compiled.report
        why = next((p.reason for p in report.placements if not report.is_requested(p)), "")
        return {"seconds": seconds, "share": report.share, "why": why}

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

    def time(self, calls: int) -> dict[str, Any]:
        """Seconds of so many calls, after one that does not count."""
        assert self.run is not None
        with torch.set_grad_enabled(self.parcel.training):
            call = self.trials.call(self.run)
            call()
            found = []
            for _ in range(calls):
                before = time.perf_counter()
                call()
                found.append(time.perf_counter() - before)
        return {"seconds": found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


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
