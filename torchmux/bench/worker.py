"""The process of one side: it loads the program, compiles it, shows what it computes, and times calls.

``torchmux.multiplexer.worker`` hosts it.  The referee's process runs eager, also in float64, and judges the others.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import torchmux
from torchmux.conformance import oracle
from torchmux.conformance.oracle import observation, reach
from torchmux.conformance.oracle.observation import Draws
from torchmux.multiplexer.candidates import received

from .memory import Memory
from .programs import Source, count, load
from .runs import DRAWS, RUNS, Runs
from .sides import EAGER

WARMING = 3
"""Calls before the timed ones: guards settle, and a measured choice among kernels is made."""


class Bencher:
    """What is known in one process; each public method answers one question with what JSON can hold.

    Args:
        told: ``source``, ``threads``, ``cache`` (the folder of all caches), and for a side ``backend``, ``mode``,
            ``options`` and ``specs`` (backends that have to be registered here); ``home``, the folder in which the
            program runs.
    """

    watches = False  # the program may print, and change settings: it is the user's

    def __init__(self, told: dict[str, Any]) -> None:
        os.chdir(told["home"])
        torch.set_num_threads(told["threads"])
        torchmux.config.cache_dir = Path(told["cache"], "torchmux")
        os.environ["TORCHMUX_CACHE_DIR"] = os.path.join(told["cache"], "torchmux")  # for the processes of auto
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(told["cache"], "inductor")
        for text in told["specs"]:
            torchmux.register_backend(received(text))
        self.told = told
        self.source = Source.from_json(told["source"])
        self.draws: list[Draws] = []
        self.doubt = ""

    def programs(self) -> dict[str, Any]:
        """The names of all programs of the source."""
        return {"names": count(self.source)}

    def load(self) -> dict[str, Any]:
        """Load the program; its size."""
        self.runs = Runs(load(self.source))
        module = self.runs.program.module
        held = [] if module is None else list(module.parameters())
        return {"training": self.runs.program.training, "parameters": sum(p.numel() for p in held)}

    def compile(self, to: str) -> dict[str, Any]:
        """Compile and call once: the seconds of both, and what the run shows, in the file ``to``."""
        self.memory = Memory()
        program = self.runs.program
        if self.told["backend"] == EAGER:
            self.function = program.model
        else:
            self.function = torchmux.compile(
                program.model,
                backend=self.told["backend"],
                mode=self.told["mode"],
                options=self.told["options"] or None,
            )
        first = self.runs.show(self.function, 0)
        # In the same order as in the referee: a program may have a state that is out of sight.
        shown = [first, *(self.runs.show(self.function, run) for run in range(1, RUNS))]
        torch.save([each.tensors for each in shown], to)
        return {"seconds": first.seconds, **self._placed()}

    def reference(self) -> dict[str, Any]:
        """Compute what all others are held against; ``doubt`` says why that is less than it should be."""
        shown = [self.runs.show(self.runs.program.model, run) for run in range(RUNS)]
        if not shown[0].tensors:
            self.doubt = "the program returns no tensors"
        elif any(each.random for each in shown):
            self.doubt = "the program draws random numbers, and compilers may draw others"
        elif observation.compare(self.runs.show(self.runs.program.model, 0).tensors, [(shown[0].tensors, None)]):
            self.doubt = "the program computes something else in each call"
        self.shown = [each.tensors for each in shown]
        self.exact = [self._exact(run, 0) for run in range(RUNS)]
        self.draws = [Draws(*pair) for pair in zip(self.shown, self.exact, strict=True)]
        for run, known in enumerate(self.draws):
            while known.number < DRAWS and self._draw(run):
                pass
        return {"doubt": self.doubt, "float64": self.exact[0] is not None}

    def judge(self, of: str, drawing: float) -> dict[str, Any]:
        """The first difference between what a side has written and eager's, and the errors of both.

        Where a number differs, eager's error is measured again, in ``drawing`` seconds: it may be small by chance.
        """
        found, ends = torch.load(of, weights_only=True), time.monotonic() + drawing
        for run, (got, known) in enumerate(zip(found, self.draws, strict=True)):
            differences = known.judge(got, lambda run=run: time.monotonic() < ends and self._draw(run))  # type: ignore[misc]
            if differences:
                which = "its own inputs" if run == 0 else "other floating-point inputs"
                return {"wrong": f"on {which}: {differences[0]}", "doubt": self.doubt}
        pairs = list(zip(self.shown, self.exact, strict=True))
        errors = [relative_error(got, *pair) for got, pair in zip(found, pairs, strict=True)]
        eagers = [relative_error(pair[0], *pair) for pair in pairs]
        return {"wrong": "", "doubt": self.doubt, "error": max(errors), "eager_error": max(eagers)}

    def warm(self) -> dict[str, Any]:
        """Call a few times; what the process takes more than before compiling, and where operators ran by now."""
        self.call = self.runs.call(self.function)
        for _ in range(WARMING):
            self.call()
        return {"memory": self.memory.added(), **self._placed()}

    def time(self, calls: int) -> dict[str, Any]:
        """Seconds of so many calls, after one that does not count."""
        self.call()
        found = []
        for _ in range(calls):
            before = time.perf_counter()
            self.call()
            found.append(time.perf_counter() - before)
        return {"seconds": found}

    def _exact(self, run: int, draw: int) -> dict[str, torch.Tensor] | None:
        """Eager in float64; None if there is a doubt, or the program insists on a type: eager alone is the measure."""
        try:
            return None if self.doubt else self.runs.exact(run, draw).tensors
        except Exception:
            return None

    def _draw(self, run: int) -> bool:
        """Measure eager's error once more, on inputs that differ by what rounding does; False if it cannot."""
        known = self.draws[run]
        try:
            eager = None if self.exact[run] is None else self.runs.draw(run, known.number).tensors
        except Exception:
            eager = None
        if eager is None or (exact := self._exact(run, known.number)) is None:
            return False
        known.add(eager, exact, reach(known.number))
        return True

    def _placed(self) -> dict[str, Any]:
        """Where operators ran, according to the report; nothing for the baseline."""
        if self.told["backend"] == EAGER:
            return {}
        report = torchmux.report(self.function)
        backends: Counter[str] = Counter()
        for entry in report.graphs:
            for placement in entry.report.placements:
                backends[placement.placed_on] += max(entry.calls, 1)
        total = sum(backends.values())
        crossings = [crossing for entry in report.graphs for crossing in entry.report.crossings]
        return {
            "kinds": dict(report.shares),
            "placed": {name: number / total for name, number in backends.most_common()},
            "chosen": list(dict.fromkeys(entry.report.backend for entry in report.graphs)),
            "libraries": list(dict.fromkeys(p.library or "?" for p in report.library_calls)),
            "graphs": report.graph_count,
            "breaks": report.break_count,
            "recompiles": len(report.recompiles),
            "crossings": sum(crossing.values for crossing in crossings),
            "crossing_bytes": sum(crossing.bytes for crossing in crossings),
            "notes": [note for entry in report.graphs for note in entry.report.notes],
        }


def relative_error(
    found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], exact: dict[str, torch.Tensor] | None
) -> float:
    """The largest distance from float64, or else from eager, as a share of the largest element; over all tensors."""
    reference = exact if exact is not None and exact.keys() == expected.keys() else expected
    errors = [0.0]
    for name, tensor in found.items():
        off = oracle.distance(tensor, reference[name])
        errors.append(off / (oracle.largest([reference[name]]) or 1.0))
    return max(errors)
