"""The code of one graph under ``auto``: what runs until the decision falls, what was decided, and what replaces it.

Calls read one attribute, which is written when what runs changes; calls under way go on with what they began.
Compilations happen off the calls (:mod:`.background`), but for those that the user waits for.
"""

from __future__ import annotations

import functools
import logging
import threading
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from torchmux import progress
from torchmux.config import config
from torchmux.registry.errors import CallFailed, FallbackRefused, TorchmuxError
from torchmux.registry.report import GraphReport, Placement, place_all
from torchmux.registry.spec import CompileRequest

from ..candidates import EAGER
from ..decisions import Decision, Row
from ..options import AutoOptions
from . import background
from .buckets import ONLY, Key, Sizes, nearest
from .code import Code, Codes
from .effects import effects_of
from .remembered import Gone
from .watch import Drift, Run, guarded

log = logging.getLogger("torchmux")

MOST_PENDING = 2
"""How many buckets of a graph may wait for their decisions; calls in others run what the nearest bucket runs."""

# Decides on a graph and the inputs of a call: the decision if it is known at once, and otherwise what makes it, given
# the candidate that leads meanwhile (a function of its row) and a check that may end it.
Lead = Callable[[Row], bool]


@dataclass(frozen=True)
class Pending:
    """A decision that has to be made; ``make`` takes the function for leads and the one that may end it."""

    make: Callable[[Lead | None, Callable[[], None]], Decision]


Decide = Callable[[Sequence[Any], str, bool], tuple[Decision, str] | Pending]


@dataclass(eq=False)
class Choice:
    """What runs in one bucket of sizes, and why."""

    bucket: Key
    words: str = ""  # the sizes, if they are symbolic
    decision: Decision | None = None
    source: str = ""
    code: Code | None = None  # None: eager
    state: str = "auto has not decided yet; eager runs the graph meanwhile"
    lost: list[str] = field(default_factory=list)
    pending: bool = False  # whether a thread decides
    follows: Choice | None = None  # whose code runs until there is a decision
    slow: float = 0.0  # seconds that a call took when it was measured again for that

    @property
    def running(self) -> str:
        return EAGER if self.code is None else self.code.row.candidate


@dataclass(frozen=True)
class ByBucket:
    """What runs a graph with symbolic sizes: the code for each bucket that was decided; None is the graph itself.

    Any code takes all sizes but those that its conditions exclude: torch runs the graph then, unless ``is_strict``.
    """

    gm: GraphModule
    sizes: Sizes
    codes: Mapping[Key, Code | None]
    is_strict: bool


class Chosen:
    """A graph's code: calls run what is the best known.

    Args:
        inputs: of the call in which the graph is captured.
        decide: see :data:`Decide`; with the inputs of a call, the words for their bucket, and whether a decision of
            an earlier measurement counts.
    """

    def __init__(
        self, gm: GraphModule, request: CompileRequest, options: AutoOptions, inputs: Sequence[Any], decide: Decide
    ) -> None:
        self._gm = gm
        self._request = request
        self._options = options
        self._decide = decide
        self._sizes = Sizes.of_graph(gm, options.buckets)
        self._effects = effects_of(gm, inputs)
        self._codes = Codes(gm, request, inputs, self._sizes, self._effects, _failed_backward(weakref.ref(self)))
        self._devices = sorted(
            {v.device for v in inputs if isinstance(v, torch.Tensor) and v.device.type == "cuda"}, key=str
        )
        self._lock = threading.RLock()
        self._choices: dict[Key, Choice] = {}
        self._runs: dict[Key, Run] = {}
        self._failed: dict[str, str] = {}  # candidates that raised in a call, and what
        self._told: set[str] = set()
        self._followed: list[GraphReport] = []
        self._eager = GraphReport(
            EAGER,
            phase="inference" if request.phase == "inference" else "training",
            placements=place_all(gm.graph, EAGER, None, "library", "torch"),
        )
        self._run: Run = gm.forward if not self._sizes.places else self._sizes.dispatch(self._runs, self._new_bucket)
        self.report = self._eager  # of what runs now

    def __call__(self, *args: Any) -> Sequence[Any]:
        return self._run(*args)

    def follow(self, report: GraphReport, placements: list[Placement]) -> None:
        """Tell of the decision in the report of a chain of which this is a part; nobody reads one of auto alone."""
        if report.backend == self._request.backend:
            return
        with self._lock:
            self._followed.append(report)
            self._tell(self.report)

    @property
    def built(self) -> Any:
        """What the chosen backend has built, as of :class:`torchmux.registry.contract.CompiledGraph`."""
        with self._lock:
            choices = list(self._choices.values())
        if any(choice.decision is None for choice in choices):
            return "auto has not decided yet: wait for it with options={'wait': True}"
        if self._sizes.places:
            codes = {choice.bucket: choice.code for choice in choices}
            return ByBucket(self._gm, self._sizes, codes, is_strict=bool(self._request.strict))
        code = choices[0].code
        return self._gm if code is None else getattr(code.compiled, "built", f"{code.row.candidate} does not tell")

    @property
    def decisions(self) -> dict[str, Decision]:
        """What was decided so far, by the sizes that it is about: in words, empty for fixed ones."""
        with self._lock:
            choices = list(self._choices.values())
        return {choice.words: choice.decision for choice in choices if choice.decision is not None}

    # --- decisions -------------------------------------------------------------------------------------------------

    def begin(self, inputs: Sequence[Any]) -> None:
        """Decide for the inputs of the capture: at once if the decision is known or waited for.

        Raises:
            FallbackRefused: only eager is left, and the request is strict.
        """
        choice = self._open(self._sizes.bucket(inputs))
        compile_one = functools.partial(self._codes.in_capture, inputs=inputs)
        self._settle(choice, inputs, compile_one)

    def _settle(
        self, choice: Choice, inputs: Sequence[Any], compile_one: Callable[[Row], Code] | None, *, anew: bool = False
    ) -> None:
        """Follow the decision for a bucket, or have one made."""
        found = self._decide(inputs, choice.words, anew)
        # The first call is the one that is verified.
        waits = self._options.wait or bool(self._request.strict) or config.verify_correctness
        if isinstance(found, Pending):
            if waits:
                with progress.waiting("auto measures the backends"):
                    decision = found.make(None, lambda: None)
                self._follow(choice, decision, "a measurement", compile_one or self._codes.afterwards)
            else:
                self._expect(choice, found.make)
        elif compile_one is not None or waits:
            self._follow(choice, *found, compile_one or self._codes.afterwards)
        else:
            decision, source = found
            self._later(lambda chosen: chosen._follow_off_the_calls(choice, decision, source))

    def _open(self, bucket: Key) -> Choice:
        choice = Choice(bucket, self._sizes.words(bucket) if bucket != ONLY else "")
        self._choices[bucket] = choice
        self._use(choice, None)
        return choice

    def _new_bucket(self, bucket: Key, inputs: Sequence[Any]) -> Run:
        """What runs for sizes that were not seen before: the choice of the nearest bucket, until there is another."""
        with self._lock:
            if bucket in self._runs:
                return self._runs[bucket]
            decided = [key for key, choice in self._choices.items() if choice.decision is not None]
            beside = nearest(bucket, decided)
            if sum(choice.pending for choice in self._choices.values()) >= MOST_PENDING:
                return self._gm.forward if beside is None else self._runs[beside]
            choice = self._open(bucket)
            if beside is not None:
                other = choice.follows = self._choices[beside]
                self._use(choice, other.code, f"auto has not decided yet; what runs {other.words} runs meanwhile")
        self._settle_in_a_call(choice, inputs)
        return self._runs[bucket]

    def _settle_in_a_call(self, choice: Choice, inputs: Sequence[Any], *, anew: bool = False) -> None:
        """As :meth:`_settle`, for a call that does not depend on what comes of it."""
        try:
            self._settle(choice, inputs, None, anew=anew)
        except FallbackRefused:
            raise
        except Exception as error:
            log.warning("auto cannot measure: %s", _words(error))
            self._say(choice, f"auto could not measure: {_words(error)}")

    def _expect(self, choice: Choice, make: Callable[..., Decision], source: str = "a measurement") -> None:
        """Let a thread decide, and follow what it says."""
        this = weakref.ref(self)

        def check() -> None:
            background.check()
            if this() is None:
                raise background.Ended  # the program has no use for the graph any more

        def lead(row: Row) -> bool:
            chosen = this()
            return chosen is not None and chosen._take_the_lead(choice, row)

        def work() -> None:
            try:
                # What runs already was measured to be the best: for other sizes, or some time ago.
                decision = make(lead if choice.code is None else None, check)
            except Exception as error:
                background.check()  # processes that the end of the program has killed
                log.warning("auto cannot measure: %s", _words(error))
                if (chosen := this()) is not None:
                    chosen._say(choice, f"auto could not measure: {_words(error)}")
                return
            finally:
                choice.pending = False
            if (chosen := this()) is not None:
                chosen._follow_off_the_calls(choice, decision, source)

        choice.pending = True
        background.start(work)

    def _later(self, work: Callable[[Chosen], None]) -> None:
        """Do something in a thread, unless the graph is gone by then."""
        this = weakref.ref(self)

        def run() -> None:
            chosen = this()
            if chosen is not None:
                with _gone_is_no_error():
                    work(chosen)

        background.start(run)

    def _follow_off_the_calls(self, choice: Choice, decision: Decision, source: str) -> None:
        if not self._codes.needs_the_call:
            with _gone_is_no_error():
                self._follow(choice, decision, source, self._codes.afterwards)
            return
        # Nothing but a call has the state of the capture: the first call compiles.
        once = threading.Lock()
        before = self._runs[choice.bucket]

        def call(*args: Any) -> Sequence[Any]:
            if once.acquire(blocking=False):
                self._follow(choice, decision, source, self._codes.afterwards)
                return self._runs[choice.bucket](*args)
            return before(*args)

        self._publish(choice.bucket, call)

    def _take_the_lead(self, choice: Choice, row: Row) -> bool:
        """Run a candidate that has passed the gate and is the quickest so far."""
        if self._codes.needs_the_call or row.candidate in self._failed:
            return False
        try:
            code = self._codes.afterwards(row, wait=False)
        except (TorchmuxError, Gone, background.NotNow) as error:
            log.info("auto: %s leads, but does not compile here: %s", row.candidate, error)
            return False
        state = f"auto has not decided yet; {row.candidate}, the best so far, runs the graph meanwhile"
        choice.follows = None
        self._use(choice, code, state)
        log.info("auto: %s runs the graph until the decision falls", row.candidate)
        return True

    def _follow(self, choice: Choice, decision: Decision, source: str, compile_one: Callable[[Row], Code]) -> None:
        """Run what was decided, or the next that can be compiled here.

        Raises:
            FallbackRefused: only eager is left, and the request is strict.
        """
        choice.decision, choice.source = decision, source
        for row in decision.ranking:
            if row.backend == EAGER:
                break
            if row.candidate in self._failed:
                choice.lost.append(f"{row.candidate} was to run it, but failed: {self._failed[row.candidate]}")
                continue
            try:
                code = compile_one(row)
            except TorchmuxError as error:
                choice.lost.append(f"{row.candidate} was to run it, but: {error}")
                log.warning("auto: %s", choice.lost[-1])
                continue
            self._use(choice, code)
            self._codes.keep({each.running for each in self._choices.values()})
            return
        if self._request.strict:
            told = "; ".join([*self._notes(choice), *choice.lost])
            raise FallbackRefused(f"strict={self._request.strict!r}, and auto has no candidate but eager: {told}")
        self._use(choice, None)

    # --- what runs -------------------------------------------------------------------------------------------------

    def _use(self, choice: Choice, code: Code | None, state: str = "") -> None:
        """Let calls run this code from now on; None is eager."""
        with self._lock:
            if code is not None and code.row.candidate in self._failed:  # in a call meanwhile
                code = None
            choice.code = code
            if state or choice.decision is not None:
                choice.state = state
            if code is None:
                run: Run = self._gm.forward
            else:
                failed = functools.partial(self._call_failed, choice, code)
                run = guarded(code.run, self._effects, failed)
                if self._options.drift is not None and choice.decision is not None:
                    run = self._watched(choice, code, run, self._options.drift)
            self._publish(choice.bucket, run)
            report = self._eager if code is None else code.report
            if report is not self.report:
                report.chosen = self.report.chosen
            self._tell(report)
            for other in self._choices.values():
                if other.follows is choice and other.decision is None:  # a decision comes before its code
                    self._use(other, code)

    def _publish(self, bucket: Key, run: Run) -> None:
        self._runs[bucket] = run
        if not self._sizes.places:
            self._run = run

    def _say(self, choice: Choice, state: str) -> None:
        with self._lock:
            choice.state = state
            self._tell(self.report)

    def _tell(self, report: GraphReport) -> None:
        """Put what is decided into the report of what runs now."""
        told = [note for choice in self._choices.values() for note in self._notes(choice)]
        told += dict.fromkeys(f"{name} was replaced: {why}" for name, why in self._failed.items())
        for each in (report, *self._followed):
            each.notes[:] = [note for note in each.notes if note not in self._told] + told
        report.replaced = len(self._failed)
        self._told.update(told)
        self.report = report

    def _notes(self, choice: Choice) -> list[str]:
        where = f"{choice.words}: " if choice.words else ""
        found = [f"{where}{choice.state}"] if choice.state else []
        if choice.decision is not None:
            decision = choice.decision
            head = f"{where}auto chose {decision.choice}: {decision.explanation}"
            source = f"({choice.source}, {decision.seconds:.1f} s)"
            found.append("\n      ".join([f"{head} {source}", *decision.table(), *decision.notes]))
        return found + choice.lost

    # --- failures --------------------------------------------------------------------------------------------------

    def _call_failed(self, choice: Choice, code: Code, error: Exception, args: Sequence[Any], before: Any) -> Any:
        """The results of a call in which a candidate raised, from eager, which decides whose fault it is.

        Raises:
            CallFailed: the call cannot be made again.
            Exception: what eager raises as well, or an operator of a library's own.
        """
        # An answer to this call, or an error of an operator that the program has written, is no failure.
        if isinstance(error, FallbackRefused) or (self._effects.once and _is_of_a_library(error)):
            raise error
        name = code.row.candidate
        if self._effects.once:
            self._replace(code.row, error)
            raise CallFailed(
                f"{name}, which auto chose, raised {_words(error)}. The call is not made again in eager: the graph "
                f"{self._effects.once}. What the call changes may be half changed. {self._way_out(code.row)}"
            ) from error
        self._effects.undo(args, before)
        if self._request.strict:
            return self._next_under_strict(choice, code, error, args, before)
        results = self._gm.forward(*args)  # what it raises is the program's own error
        self._replace(code.row, error)
        return results

    def _next_under_strict(
        self, choice: Choice, code: Code, error: Exception, args: Sequence[Any], before: Any
    ) -> Sequence[Any]:
        """The results from the next of the ranking that does not raise; all of them raise where the program errs."""
        ranking = choice.decision.ranking if choice.decision is not None else []
        for row in ranking:
            if row.backend == EAGER or row.candidate == code.row.candidate or row.candidate in self._failed:
                continue
            try:
                results = self._codes.afterwards(row).run(*args)
            except Exception as again:
                log.debug("auto: %s raised as well: %s", row.candidate, again)
                self._effects.undo(args, before)
                continue
            self._replace(code.row, error)
            return results
        raise error

    def _replace(self, row: Row, error: Exception) -> None:
        """Use a candidate no more: eager runs what it ran until the next one is compiled."""
        with self._lock:
            if row.candidate in self._failed:
                return
            self._failed[row.candidate] = _words(error)
            log.warning(
                "auto: %s raised %s in a call that eager makes without an error, and is replaced. %s",
                row.candidate,
                _words(error),
                self._way_out(row),
            )
            touched = [choice for choice in self._choices.values() if choice.running == row.candidate]
            for choice in touched:
                self._use(choice, None, f"{row.candidate} failed; eager runs the graph until the next is compiled")
        for choice in touched:
            if choice.decision is None:
                continue  # it led, and the measurement goes on
            if self._request.strict:
                self._follow(choice, choice.decision, choice.source, self._codes.afterwards)
            else:
                self._later(functools.partial(_follow_again, choice, choice.decision))

    def backward_failed(self, row: Row, error: Exception) -> CallFailed:
        """The error of a backward pass in which a candidate raised; later calls use the next one."""
        self._replace(row, error)
        return CallFailed(
            f"{row.candidate}, which auto chose, raised {_words(error)} in the backward pass of a graph. The gradients "
            f"of this backward pass are incomplete: set them to zero and make the step again. {self._way_out(row)}"
        )

    def _way_out(self, row: Row) -> str:
        return f"The next calls run without it; options={{'forbid': [{row.backend!r}]}} never tries it."

    # --- drift -----------------------------------------------------------------------------------------------------

    def _watched(self, choice: Choice, code: Code, run: Run, factor: float) -> Run:
        # A training graph was measured with its backward pass, and for throughput several calls at once were.
        is_alike = self._request.phase == "inference" and self._options.objective != "throughput"
        milliseconds = code.row.milliseconds if is_alike else None
        usual = None if milliseconds is None else max(milliseconds / 1e3, choice.slow)
        drifted = functools.partial(self._drifted, choice)
        return Drift(factor, usual, drifted).watching(run, self._devices)

    def _drifted(self, choice: Choice, args: Sequence[Any], now: float, usual: float) -> None:
        log.warning(
            "auto: calls of a graph take %.3g ms with %s, and took %.3g ms: it is measured again",
            now * 1e3,
            choice.running,
            usual * 1e3,
        )
        with self._lock:
            choice.lost.append(
                f"measured again: {choice.running} took {now * 1e3:.3g} ms a call, not {usual * 1e3:.3g}"
            )
            choice.slow = now
            self._tell(self.report)
        self._settle_in_a_call(choice, args, anew=True)


def _follow_again(choice: Choice, decision: Decision, chosen: Chosen) -> None:
    chosen._follow_off_the_calls(choice, decision, choice.source)


def _failed_backward(this: weakref.ref[Chosen]) -> Callable[[Row, Exception], Exception]:
    def failed(row: Row, error: Exception) -> Exception:
        chosen = this()
        return error if chosen is None else chosen.backward_failed(row, error)

    return failed


def _words(error: Exception) -> str:
    first = " ".join(str(error).split())[:300]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


class _gone_is_no_error:
    """A block that ends quietly when a parameter of the graph is gone: nobody can call it any more."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, tb: Any) -> bool:
        return isinstance(error, Gone)


def _is_of_a_library(error: Exception) -> bool:
    """Whether an operator raised it that Python has registered with ``torch.library``, whoever runs it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(frame.f_globals.get("__name__", "").startswith("torch._library.") for frame in frames)
