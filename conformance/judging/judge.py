"""Runs one case against one backend, and determines the outcome."""

from __future__ import annotations

import dataclasses
import re
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torchmux.registry.errors import BackendUnavailable, FallbackRefused

from ..case import OWN_KERNELS, Case, Trial
from ..oracle import DRAWS, Difference
from ..oracle.observation import Raised
from ..outcome import Outcome, Result
from ..requirements import Expected, Requirements
from . import speed, state
from .frontends import SETS, Frontend, TorchFrontend, frontend
from .referee import Died, Referee
from .shown import Shown, differences, observe
from .silence import KINDS, Watch, silently

_REFUSALS = (BackendUnavailable, FallbackRefused)


def judge(
    case: Case,
    requirements: Requirements,
    begins: Callable[[int], None] = lambda number: None,
    *,
    lenient: bool = True,
    referee: Referee | None = None,
) -> Result:
    """Run ``case`` in eager, in eager with float64, and with the backend, and compare.

    It never raises because of the backend.  The caller must detect a crash of the process; ``begins`` tells it which
    sample of the case the backend runs.  Failures that the requirements expect remain failures unless ``lenient``.
    """
    start = time.perf_counter()
    try:
        result = _judge(case, requirements, begins, referee or Referee())
    except Died:
        details = {"eager": "ended"}
        result = Result(case.id, Outcome.SKIPPED, "the process of eager ends in this case", details=details)
    if lenient:
        result = as_expected(result, requirements.expectation(case))
    return dataclasses.replace(result, seconds=time.perf_counter() - start)


def _judge(case: Case, requirements: Requirements, begins: Callable[[int], None], referee: Referee) -> Result:
    device = requirements.device
    if OWN_KERNELS in case.needs and not requirements.own_kernels:
        return Result(case.id, Outcome.SKIPPED, f"code of {requirements.name} calls torch's operators, as it declares")
    state.declared = frozenset((*requirements.sets, *SETS[requirements.frontend]))
    state.declared_processes = tuple(requirements.processes)
    state.declared_words = tuple(requirements.says)
    eager = _Eager(case, device, referee)
    if isinstance(raised := eager.expected.value, Raised):
        return Result(case.id, Outcome.SKIPPED, f"eager does not run it on this machine: {raised.words}")
    front = frontend(requirements.frontend)
    trial = Trial(requirements.name, options=requirements.options, device=device, frontend=front)
    trial.begins = begins
    watch = Watch(KINDS if requirements.own_kernels else 0)
    trial.keep = watch.keep
    found = observe(case, trial)
    share, reasons = _placed(trial.compiled, case.computes, front)
    result = _compared(case, requirements, trial, eager, found, share, reasons)
    if share and not result.outcome.is_failure and (ran := _silently(trial, watch, requirements.own_kernels)):
        words = f"torch runs {', '.join(ran)}, which the report attributes to the backend"
        result = Result(case.id, Outcome.MISMATCH, words, share, details={"kinds": ["honesty"]})
    if result.outcome in (Outcome.PASS, Outcome.FALLBACK):
        result = _with_speed(result, trial, watch)
    return dataclasses.replace(result, kinds=_kinds(trial.compiled, front))


def _with_speed(result: Result, trial: Trial, watch: Watch) -> Result:
    """The result with how many times eager's time the slowest call takes, if that takes long enough to tell."""
    told = speed.slowest((trial.originals[id(call.function)], call) for call in watch.calls)
    if told is None:
        return result
    times, seconds = told
    result = dataclasses.replace(result, details={**result.details, "times": [round(times, 2), round(seconds, 6)]})
    if times <= speed.TIMES or result.outcome is not Outcome.PASS:
        return result
    words = f"{times:.1f} times the {seconds * 1000:.1f} ms of eager"
    return dataclasses.replace(result, outcome=Outcome.SLOW, reason=words)


class _Eager:
    """Eager's answers to one case: draw by draw, each only when it is needed."""

    def __init__(self, case: Case, device: str, referee: Referee) -> None:
        self._case, self._device, self._referee = case, device, referee
        self.expected = referee.answer(case, device)
        self._draws: list[tuple[Shown, Shown | None]] = []

    def draws(self, number: int) -> list[tuple[Shown, Shown | None]]:
        """So many runs, each with that in float64."""
        while len(self._draws) < number:
            draw = len(self._draws)
            plain = self._referee.answer(self._case, self._device, draw=draw) if draw else self.expected
            wide = (
                self._referee.answer(self._case, self._device, wide=True, draw=draw) if self._case.reference else None
            )
            self._draws.append((plain, None if wide is None or wide.raised else wide))
        return self._draws[:number]

    def differences(self, found: Shown) -> list[Difference]:
        """What differs from eager, with as many draws of eager's errors as it takes to say so."""
        wrong: list[Difference] = []
        for number in sorted({min(n, self._case.draws) for n in (1, 4, DRAWS, self._case.draws)}):
            wrong = differences(found, self.draws(number), self._case)
            if not any(difference.rounded for difference in wrong):
                break
        return wrong


def _compared(
    case: Case,
    requirements: Requirements,
    trial: Trial,
    eager: _Eager,
    found: Shown,
    share: float,
    reasons: Counter[tuple[str, str]],
) -> Result:
    """The outcome of what was ``found``."""
    front = trial.frontend
    if isinstance(found.value, Raised):
        error = found.value.error
        if isinstance(cause := front.cause(error), _REFUSALS):
            return Result(case.id, Outcome.UNSUPPORTED, Raised(cause).words, share)
        if requirements.frontend == "torch" and (fault := _fault_of_torch(case, requirements.device, eager)):
            return fault
        details: dict[str, Any] = {
            "traceback": "".join(traceback.format_exception(error)),
            "sample": trial.sample,
        }
        return Result(case.id, Outcome.CRASH, found.value.words, share, details=details)
    try:
        wrong = eager.differences(found)
    except RuntimeError as error:  # a result that says when it is read that later calls have overwritten it
        details = {"traceback": "".join(traceback.format_exception(error)), "sample": trial.sample}
        return Result(
            case.id, Outcome.CRASH, f"comparing its results raises {Raised(error).words}", share, details=details
        )
    if wrong:
        if requirements.frontend == "torch" and (fault := _fault_of_torch(case, requirements.device, eager)):
            return fault
        details = {"differences": [str(d) for d in wrong], "kinds": sorted({d.what for d in wrong})}
        if trial.sample is not None and (number := re.match(r"\[(\d+)\]", wrong[0].where)):
            details["sample"] = int(number[1])
        return Result(case.id, Outcome.MISMATCH, str(wrong[0]), share, details=details)
    if share == 1.0:
        return Result(case.id, Outcome.PASS)
    words = "; ".join(f"{op}: {why}" for (op, why), _ in reasons.most_common(3))
    words = words or f"nothing was captured: {_break(trial.compiled, front) or 'it ran in eager'}"
    outcome = Outcome.UNSUPPORTED if share <= requirements.least_share else Outcome.FALLBACK
    return Result(case.id, outcome, words, share, details={"fallbacks": [[*k, n] for k, n in reasons.items()]})


def _fault_of_torch(case: Case, device: str, eager: _Eager) -> Result | None:
    """The result of a case that fails under torch's frontend with torch's own backends too.

    ``aot_eager`` adds AOTAutograd, which our published backends get their graphs from.
    """
    for backend in ("eager", "aot_eager"):
        found = observe(case, Trial(backend, device=device, frontend=TorchFrontend(published=False)))
        if isinstance(found.value, Raised):
            words = found.value.words
        elif wrong := eager.differences(found):
            words = str(wrong[0])
        else:
            continue
        return Result(case.id, Outcome.SKIPPED, f"torch.compile with torch's own backend {backend} fails: {words}")
    return None


def as_expected(result: Result, expectation: Expected | None) -> Result:
    """An expected failure, or one that was expected and did not happen."""
    if expectation is None:
        return result
    why = f"{expectation.why} {expectation.link}".strip()
    if result.outcome.is_failure:
        if not expectation.explains(result):
            return result
        details = {**result.details, "outcome": result.outcome.value}
        return dataclasses.replace(result, outcome=Outcome.XFAIL, reason=f"{why} ({result.reason})", details=details)
    if result.outcome in (Outcome.PASS, Outcome.SLOW, Outcome.FALLBACK) and not expectation.sometimes:
        return dataclasses.replace(result, outcome=Outcome.XPASS, reason=f"expected to fail, but passes: {why}")
    return result


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


def _silently(trial: Trial, watch: Watch, own_kernels: bool) -> list[str]:
    """What torch runs in the case's calls, backward passes included, although the report says that the backend does.

    A backend that calls torch's operators by design may run those that its report calls library kernels; if it has no
    code of its own, or does not tell, there is nothing to look for.  Nor is there where torch runs a whole graph or
    function, as the report says: it has the names of the program, which consist of any of torch's operators.  What
    stands between two graphs is the frontend's, and runs in torch: the reports say nothing of it.
    """
    if _break(trial.compiled, trial.frontend):
        return []
    if any(trial.frontend.placed(each).as_written for each in trial.compiled):
        return []
    kinds = _kinds(trial.compiled, trial.frontend)
    if not own_kernels and (kinds.get("untold") or not kinds.get("own")):
        return []
    ran = watch.ran(lambda: sum(trial.frontend.placed(each).graphs for each in trial.compiled))
    placed = [trial.frontend.placed(each) for each in trial.compiled]
    told = {op for each in placed for op, _ in each.left}.union(*(each.in_calls for each in placed))
    return silently(ran, told if own_kernels else told.union(*(each.library for each in placed)))


def _kinds(compiled: Iterable[Any], front: Frontend) -> dict[str, float]:
    """How many operators of each kind the calls of a case ran."""
    found: Counter[str] = Counter()
    for each in compiled:
        found.update(front.placed(each).kinds)
    return dict(found)


def _break(compiled: Iterable[Any], front: Frontend) -> str:
    """The first graph break in words; empty if there was none."""
    return next(filter(None, map(front.why_nothing, compiled)), "")
