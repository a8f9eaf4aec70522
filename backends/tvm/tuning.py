"""Tuning kernels with MetaSchedule: candidates are made by TVM's search, measured here, and the fastest one is kept.

A candidate is timed as it would run, with elementary functions written out, against our own schedule of the same
kernel, so that tuning never makes a kernel slower than it is without.  What was found is kept in the artifact cache, by
kernel and target; a kernel that several graphs share is tuned once.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import tvm
from tvm import s_tir, tirx
from tvm.s_tir import meta_schedule

from ..common.cache import default_cache, text_key
from . import fingerprint, mathlib, schedule

log = logging.getLogger("torchmux.tvm")

_PER_ROUND = 16
_GENERATION = 1  # of what is kept

WORTH_TUNING = 16 * 1024
"""Loop iterations of a kernel from which it is tuned."""


@dataclass
class Budget:
    """What tuning may take: trials of each kernel, and seconds for all kernels of a graph together."""

    trials: int
    seconds: float

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    @property
    def is_spent(self) -> bool:
        return time.monotonic() > self._end


def apply(module: tvm.IRModule, target: tvm.target.Target, budget: Budget) -> tvm.IRModule:
    """Schedule every kernel of ``module``: those with most to do are tuned first, as long as the budget lasts."""
    kernels = {name: f for name, f in module.functions_items() if isinstance(f, tirx.PrimFunc)}
    order = sorted(kernels, key=lambda name: -_work(kernels[name]))
    for at, name in enumerate(order, 1):
        own = schedule.scheduled(kernels[name])
        module[name] = own
        if _work(kernels[name]) >= WORTH_TUNING:
            found = _tuned(kernels[name], own, target, budget, f"{at} of {len(order)}: {name.name_hint}")
            module[name] = own if found is None else found
    return module


def _tuned(function: Any, own: Any, target: Any, budget: Budget, title: str) -> Any:
    """The fastest form of ``function`` that is known or found in time; None if that is our own, ``own``."""
    key = text_key("tvm tuning", _GENERATION, fingerprint(), str(target), function.script(show_meta=True))
    cache = default_cache()
    stored = cache.load(key) if cache is not None else None
    if stored is not None:
        kept = json.loads(stored)
        if kept["trials"] >= budget.trials:
            return _replayed(function, kept["trace"]) if kept["trace"] is not None else None
    if budget.is_spent:
        return None
    try:
        trace, trials, ratio = _search(function, own, target, budget)
    except Exception as error:  # what MetaSchedule has no rules for
        log.info("kernel %s is not tuned: %s", title, error)
        return None
    print(f"tvm: tuned kernel {title}: {trials} trials, {ratio:.2f} of the time", file=sys.stderr, flush=True)
    if cache is not None and trials >= budget.trials:
        cache.store(key, json.dumps({"trials": trials, "trace": trace}).encode())
    return _replayed(function, trace) if trace is not None else None


def _search(function: Any, own: Any, target: Any, budget: Budget) -> tuple[Any, int, float]:
    """The trace of the fastest candidate (None: none is faster than ``own``), the trials, and its share of the time."""
    main = function.with_attr("global_symbol", "main")
    module = tvm.IRModule({"main": main})
    time_of = _timer(main, target)
    reference = best = time_of(own)
    trace, trials = None, 0
    database = meta_schedule.database.MemoryDatabase()
    workload = database.commit_workload(module)
    arguments = meta_schedule.arg_info.ArgInfo.from_prim_func(main)
    context = meta_schedule.TuneContext(
        mod=module,
        target=_with_cores(target),
        space_generator="post-order-apply",
        search_strategy=meta_schedule.search_strategy.EvolutionarySearch(
            population_size=2 * _PER_ROUND, init_min_unmeasured=_PER_ROUND, genetic_num_iters=2
        ),
        task_name="main",
        num_threads=1,
        rand_state=1,
    )
    context.pre_tuning(
        max_trials=budget.trials,
        num_trials_per_iter=_PER_ROUND,
        design_spaces=context.generate_design_space(),
        database=database,
        cost_model=meta_schedule.cost_model.RandomModel(),
    )
    while trials < budget.trials and not budget.is_spent:
        candidates = context.generate_measure_candidates()
        if not candidates:
            break
        results = []
        for candidate in candidates:
            seconds = math.inf
            if not budget.is_spent:
                seconds = time_of(candidate.sch.mod["main"])
                trials += 1
            results.append(meta_schedule.runner.RunnerResult([min(seconds, 1e10)], None))
            database.commit_tuning_record(
                meta_schedule.database.TuningRecord(
                    candidate.sch.trace, workload, [min(seconds, 1e10)], context.target, arguments
                )
            )
            if seconds < best:
                best, trace = seconds, candidate.sch.trace.as_json()
        context.notify_runner_results(candidates, results)
    context.post_tuning()
    return _plain(trace), max(trials, budget.trials) if not budget.is_spent else trials, best / reference


def _timer(main: Any, target: Any) -> Callable[[Any], float]:
    """A function that says how many seconds a form of the kernel takes: the least of a few runs, or infinity."""
    arguments = [_argument(told) for told in meta_schedule.arg_info.ArgInfo.from_prim_func(main)]

    def time_of(function: Any) -> float:
        try:
            module = tvm.IRModule({"main": mathlib.rewrite(function.with_attr("global_symbol", "main"))})
            run = tvm.compile(module, target=target)["main"]
            run(*arguments)
        except Exception as error:  # a candidate may ask for more than the machine has
            log.debug("a candidate does not run: %s", error)
            return math.inf
        least = math.inf
        begun = time.perf_counter()
        while time.perf_counter() - begun < 0.02:
            before = time.perf_counter()
            run(*arguments)
            least = min(least, time.perf_counter() - before)
        return least

    return time_of


def _argument(told: Any) -> torch.Tensor:
    dtype = getattr(torch, str(getattr(told.dtype, "dtype", told.dtype)))
    shape = [int(size) for size in told.shape]
    return torch.rand(shape, dtype=dtype) + 0.5 if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def _replayed(function: Any, trace: Any) -> Any:
    """``function`` scheduled as a kept trace says, under its own name."""
    made = s_tir.Schedule(tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))
    s_tir.schedule.Trace.apply_json_to_schedule(trace, made)
    scheduled = made.mod["main"]
    name = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
    return scheduled.with_attr("global_symbol", name) if name is not None else scheduled.without_attr("global_symbol")


def _plain(value: Any) -> Any:
    """A trace, as TVM tells it, in Python's own lists, strings and numbers."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (tirx.IntImm, tirx.FloatImm)):
        return value.value
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value]


def _with_cores(target: Any) -> Any:
    """MetaSchedule divides work by the number of cores, which it wants to read from the target."""
    told = {**json.loads(json.dumps(_plain(target.export()))), "num-cores": torch.get_num_threads()}
    return tvm.target.Target(told)


def _work(function: Any) -> int:
    """The iterations of the largest loop nest; 0 if that is not known."""
    made = s_tir.Schedule(function)
    try:
        stages = schedule.stages_of(made)
    except Exception:  # no plain loop nest
        return 0
    return max((stage.size for stage in stages), default=0)
