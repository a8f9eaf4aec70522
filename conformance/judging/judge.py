"""Runs one case against one backend, and determines the outcome."""

from __future__ import annotations

import dataclasses
import logging
import re
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

import torchmux
from torchmux.registry.errors import BackendUnavailable, FallbackRefused

from ..case import OWN_KERNELS, SEED, Case, Trial
from ..outcome import Outcome, Result
from ..requirements import Expected, Requirements
from . import observation
from .frontends import Frontend, TorchFrontend, frontend
from .observation import Raised

_REFUSALS = (BackendUnavailable, FallbackRefused)


def judge(
    case: Case, requirements: Requirements, begins: Callable[[int], None] = lambda number: None, *, lenient: bool = True
) -> Result:
    """Run ``case`` in eager, in eager with float64, and with the backend, and compare.

    It never raises because of the backend.  The caller must detect a crash of the process; ``begins`` tells it which
    sample of the case the backend runs.  Failures that the requirements expect remain failures unless ``lenient``.
    """
    start = time.perf_counter()
    result = _judge(case, requirements, begins)
    expectation = requirements.expectation(case) if lenient else None
    if expectation is not None:
        result = _expected(result, expectation)
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _judge(case: Case, requirements: Requirements, begins: Callable[[int], None]) -> Result:
    device = requirements.device
    if OWN_KERNELS in case.needs and not requirements.own_kernels:
        return Result(case.id, Outcome.SKIPPED, f"code of {requirements.name} calls torch's operators, as it declares")
    expected = _observe(case, Trial(device=device))
    if isinstance(expected, Raised):
        return Result(case.id, Outcome.SKIPPED, f"eager does not run it on this machine: {_words(expected.error)}")
    reference = _observe(case, Trial(device=device, wide=True)) if case.reference else None
    if isinstance(reference, Raised):
        reference = None
    front = frontend(requirements.frontend)
    trial = Trial(requirements.name, options=requirements.options, device=device, frontend=front)
    trial.begins = begins
    found = _observe(case, trial)
    share, reasons = _placed(trial.compiled, case.computes, front)
    result = _compared(case, requirements, trial, (expected, reference), found, share, reasons)
    return dataclasses.replace(result, kinds=_kinds(trial.compiled, front))


def _compared(
    case: Case,
    requirements: Requirements,
    trial: Trial,
    eager: tuple[Any, Any],
    found: Any,
    share: float,
    reasons: Counter[tuple[str, str]],
) -> Result:
    """The outcome of what was ``found``; ``eager`` are its results, in the case's precision and in float64."""
    (expected, reference), device, front = eager, requirements.device, trial.frontend
    if isinstance(found, Raised):
        if isinstance(cause := front.cause(found.error), _REFUSALS):
            return Result(case.id, Outcome.UNSUPPORTED, _words(cause), share)
        if requirements.frontend == "torch" and (fault := _fault_of_torch(case, device, [(expected, reference)])):
            return fault
        details: dict[str, Any] = {
            "traceback": "".join(traceback.format_exception(found.error)),
            "sample": trial.sample,
        }
        return Result(case.id, Outcome.CRASH, _words(found.error), share, details=details)
    draws = [(expected, reference)]
    differences = observation.compare(found, draws, elementwise=case.elementwise, strides=case.strides)
    if any(d.what == "value" for d in differences) and case.draws > 1:
        for draw in range(1, case.draws):
            jittered = _observe(case, Trial(device=device, draw=draw))
            wide = None if reference is None else _observe(case, Trial(device=device, wide=True, draw=draw))
            draws.append((jittered, wide))
        differences = observation.compare(found, draws, elementwise=case.elementwise, strides=case.strides)
    if differences:
        if requirements.frontend == "torch" and (fault := _fault_of_torch(case, device, draws)):
            return fault
        details = {"differences": [str(d) for d in differences], "kinds": sorted({d.what for d in differences})}
        if trial.sample is not None and (number := re.match(r"\[(\d+)\]", differences[0].where)):
            details["sample"] = int(number[1])
        return Result(case.id, Outcome.MISMATCH, str(differences[0]), share, details=details)
    if share == 1.0:
        return Result(case.id, Outcome.PASS)
    words = "; ".join(f"{op}: {why}" for (op, why), _ in reasons.most_common(3))
    words = words or f"nothing was captured: {_break(trial.compiled, front) or 'it ran in eager'}"
    outcome = Outcome.UNSUPPORTED if share <= requirements.least_share else Outcome.FALLBACK
    return Result(case.id, outcome, words, share, details={"fallbacks": [[*k, n] for k, n in reasons.items()]})


def _fault_of_torch(case: Case, device: str, draws: list[tuple[Any, Any]]) -> Result | None:
    """The result of a case that fails under torch's frontend with torch's own backend ``eager`` too."""
    found = _observe(case, Trial("eager", device=device, frontend=TorchFrontend(published=False)))
    if isinstance(found, Raised):
        words = _words(found.error)
    elif differences := observation.compare(found, draws, elementwise=case.elementwise, strides=case.strides):
        words = str(differences[0])
    else:
        return None
    return Result(case.id, Outcome.SKIPPED, f"torch.compile with torch's own backend eager fails: {words}")


def _expected(result: Result, expectation: Expected) -> Result:
    """An expected failure, or one that was expected and did not happen."""
    why = f"{expectation.why} {expectation.link}".strip()
    if result.outcome.is_failure:
        details = {**result.details, "outcome": result.outcome.value}
        return dataclasses.replace(result, outcome=Outcome.XFAIL, reason=f"{why} ({result.reason})", details=details)
    if result.outcome in (Outcome.PASS, Outcome.FALLBACK) and not expectation.sometimes:
        return dataclasses.replace(result, outcome=Outcome.XPASS, reason=f"expected to fail, but passes: {why}")
    return result


def _observe(case: Case, trial: Trial) -> Any:
    torchmux.reset()
    trial.reset()
    torch.manual_seed(SEED)
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.run(trial)
    except Exception as error:
        return Raised(error)
    finally:
        logging.disable(logging.NOTSET)
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)


def _placed(compiled: Sequence[Any], computes: bool, front: Frontend) -> tuple[float, Counter[tuple[str, str]]]:
    """The share of operators that the backend ran, and what torch ran instead, with the reasons.

    This is about the backend: of what the frontend leaves to eager, only calls past a limit count, which the backend
    would run otherwise; :func:`_kinds` counts all.  If all calls broke before their first operator, or ran in eager,
    the backend ran none of it.
    """
    total, graphs, reasons = 0, 0, Counter[tuple[str, str]]()
    for each in compiled:
        placed = front.placed(each)
        graphs += placed.graphs
        total += placed.operators
        reasons.update(placed.left)
    if not total:
        return (0.0 if _break(compiled, front) or (compiled and computes and not graphs) else 1.0), reasons
    return 1.0 - reasons.total() / total, reasons


def _kinds(compiled: Iterable[Any], front: Frontend) -> dict[str, float]:
    """How many operators of each kind the calls of a case ran."""
    found: Counter[str] = Counter()
    for each in compiled:
        found.update(front.placed(each).kinds)
    return dict(found)


def _break(compiled: Iterable[Any], front: Frontend) -> str:
    """The first graph break in words; empty if there was none."""
    return next(filter(None, map(front.why_nothing, compiled)), "")


def _words(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
