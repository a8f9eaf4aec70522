"""MetaSchedule on single kernels.  ``tuning.py`` runs this script in a separate process, which does not use torch.

It reads a file of JSON: ``target``, ``trials`` and ``batch`` (schedules in all and between two reports), ``disabled``
passes, and ``kernels``, each with ``plain`` (a kernel without a schedule) and ``own`` (with the one it would have).  It
writes a line of JSON for each event: ``kernel``, the kernel's position, alone when it is turned to; after each batch
with its ``own`` and ``best`` time in seconds, how many ``trials`` that took, and the ``code`` of the best (None: its
own); and at last with ``done`` as well.

In a process with torch, the intrinsics that MetaSchedule imports take a minute to parse.  A crash here ends only this
process.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import types
from typing import Any


def _module_of(value: object, _filename: str | None = None) -> types.ModuleType | None:
    return sys.modules.get(getattr(value, "__module__", None) or "")


# The parser of TVM's scripts looks up the module of each name. Python's own look-up walks all modules each time.
inspect.getmodule = _module_of  # type: ignore[assignment]

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from tvm.s_tir import meta_schedule  # noqa: E402

_SECONDS = 0.02
"""The approximate duration of one measurement of a kernel."""

_WORTH = 5e-6
"""Seconds; a faster kernel has nothing to gain."""


class Kernel:
    """One kernel: how to run it, and the best that was found."""

    def __init__(self, position: int, given: dict[str, str], target: Any, disabled: list[str]) -> None:
        self.position = position
        self.plain = tvm.ir.load_json(given["plain"])
        self._target = target
        self._disabled = disabled
        function = self.plain["main"]
        buffers = getattr(function, "buffer_map", None)  # since 0.27 the parameters are the buffers
        self._arrays = [_array(p if buffers is None else buffers[p]) for p in function.params]
        self._own = tvm.ir.load_json(given["own"])
        self.own = self.seconds(self._own)
        self.best = self.own
        self.code: str | None = None
        self.trials = 0

    def seconds(self, module: Any) -> float:
        """The least time of a call, as ``module`` has the kernel."""
        with tvm.transform.PassContext(opt_level=3, disabled_pass=self._disabled):
            built = tvm.compile(module, target=self._target)
        runtime = getattr(built, "mod", built)
        once = min(runtime.time_evaluator("main", tvm.cpu(), number=1, repeat=2)(*self._arrays).results)
        number = max(1, min(200, int(_SECONDS / 3 / max(once, 1e-7))))
        return float(min(runtime.time_evaluator("main", tvm.cpu(), number=number, repeat=3)(*self._arrays).results))

    def tune(self, trials: int, batch: int, tell: Any) -> None:
        """Measure ``trials`` schedules, drawn from the space that MetaSchedule makes for the target."""
        context = meta_schedule.TuneContext(
            self.plain,
            target=self._target,
            space_generator="post-order-apply",
            search_strategy="replay-trace",
            num_threads=1,
            rand_state=1,
        )
        database = meta_schedule.database.MemoryDatabase()
        model = meta_schedule.cost_model.RandomModel()
        context.pre_tuning(trials, batch, context.generate_design_space(), database, model)
        while candidates := context.generate_measure_candidates():
            results = [self._measured(candidate) for candidate in candidates]
            context.notify_runner_results(candidates, results)
            tell(self)
        context.post_tuning()
        if self.code is not None:  # the least of many times is less than another time of the same code
            self.own = min(self.own, self.seconds(self._own))
            self.best = max(self.best, self.seconds(tvm.ir.load_json(self.code)))

    def _measured(self, candidate: Any) -> Any:
        self.trials += 1
        try:
            seconds = self.seconds(candidate.sch.mod)
        except Exception as error:  # a schedule that cannot be compiled is one that does not count
            return meta_schedule.runner.RunnerResult(None, str(error)[:200])
        if seconds < self.best:
            self.best, self.code = seconds, tvm.ir.save_json(candidate.sch.mod)
        return meta_schedule.runner.RunnerResult([seconds], None)


def _array(buffer: Any) -> Any:
    """Numbers for a parameter: between 0 and 1, so that no function leaves its domain, and zeros, as indices may be."""
    shape, dtype = [int(s) for s in buffer.shape], str(getattr(buffer.dtype, "dtype", buffer.dtype))
    made = np.random.default_rng(0).random(shape) if dtype.startswith("float") else np.zeros(shape)
    return tvm.runtime.tensor(made.astype(dtype))


def main(path: str) -> None:
    """Tune the kernels of the file, those that take longest first."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what TVM prints is no event

    def tell(kernel: int, **more: Any) -> None:
        print(json.dumps({"kernel": kernel, **more}), file=events, flush=True)

    def tell_state(kernel: Kernel, **more: Any) -> None:
        tell(kernel.position, own=kernel.own, best=kernel.best, trials=kernel.trials, code=kernel.code, **more)

    with open(path, encoding="utf-8") as file:
        task = json.load(file)
    target = tvm.ir.load_json(task["target"])
    kernels = []
    for position, given in enumerate(task["kernels"]):
        tell(position)
        kernels.append(Kernel(position, given, target, task["disabled"]))
    for kernel in sorted(kernels, key=lambda k: -k.own):
        tell(kernel.position)
        if kernel.own >= _WORTH:
            kernel.tune(task["trials"], task["batch"], tell_state)
        tell_state(kernel, done=True)


if __name__ == "__main__":
    main(sys.argv[1])
