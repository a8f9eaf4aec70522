"""Attempts to capture a frame: what each takes for granted, why it starts again, and the one loop that makes them.

A trace never rolls back.  Where it finds that its assumptions do not hold, because a size has to be symbolic, say, or
because the graph breaks, it is thrown away, and the next attempt begins under the assumptions that this leads to.
``TORCHMUX_LOGS=attempts`` prints a line for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from .. import breaks, logs
from ..breaks import GraphBreak

MOST = 64  # attempts at one capture; each cached function that has to run first takes one

Result = TypeVar("Result")


@dataclass(frozen=True)
class Stop:
    """Where an attempt ends, because the graph of an earlier one broke there."""

    step: int  # of the root frame, counted in raw instructions
    broke: GraphBreak
    # The first raw instruction of a loop around the break, if that is left to eager.  Then ``step`` is where the loop
    # begins, or 0 if the frame begins inside of it.
    eager_loop: int | None = None

    def __str__(self) -> str:
        return f"step {self.step}" + ("" if self.eager_loop is None else ", before a loop that is left to eager")


@dataclass(frozen=True)
class Assumptions:
    """What an attempt takes for granted."""

    symbolic: bool = False  # whether a size or number is symbolic, so that there is a ShapeEnv
    may_expect: bool = True  # branches that only raise are assumed not to be taken (assumed_branches.py)
    may_put_off: bool = True  # class statements wait until the class is needed (values/local_classes.py)
    floats: frozenset[str] = frozenset()  # where the floats come from that are constants because a backend needs that
    ran: int = 0  # how often code of the program had to run for real before
    stop: Stop | None = None

    def instead(self, **changes: Any) -> Assumptions:
        """These, but for ``changes``; under others another break may come first, so none is known yet."""
        return replace(self, stop=None, **changes)

    def changes(self, after: Assumptions) -> str:
        """In words, what is another assumption in ``after``."""
        pairs = [(field.name, getattr(self, field.name), getattr(after, field.name)) for field in fields(self)]
        return ", ".join(f"{name}: {_words(old)} -> {_words(new)}" for name, old, new in pairs if old != new)


def _words(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    return "none" if value is None else str(value)


# --- why an attempt starts again --------------------------------------------------------------------------------------


class Restart(Exception):
    """Ends an attempt; ``next`` gives the assumptions of the one that follows.

    What is ``for_good`` holds for all calls of the code, and later captures begin with it.
    """

    for_good = False

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def next(self, assumptions: Assumptions) -> Assumptions:
        raise NotImplementedError(type(self).__name__)


class BreakFound(Restart):
    """The graph breaks: the next attempt ends at that instruction, and has nothing of it in its graph."""

    def __init__(self, stop: Stop) -> None:
        broke = stop.broke
        super().__init__(f"{broke.kind} {breaks.CATALOGUE[broke.kind].what} at {broke.where}: {broke.reason}")
        self.stop = stop

    def next(self, assumptions: Assumptions) -> Assumptions:
        return replace(assumptions, stop=self.stop)


class NeedsShapeEnv(Restart):
    """The trace has met its first symbolic size or number."""

    def __init__(self) -> None:
        super().__init__("a size or number is symbolic")

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(symbolic=True)


class FloatsAreConstants(Restart):
    """The backend, or an operator, needs some symbolic floats as constants."""

    for_good = True

    def __init__(self, sources: frozenset[str]) -> None:
        super().__init__("floats have to be constants")
        self.sources = sources

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(floats=assumptions.floats | self.sources)


class StateChanged(Restart):
    """Code of the program had to run for real, which may have changed what the trace has read."""

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(ran=assumptions.ran + 1)


class NothingExpected(Restart):
    """A graph with assumed branches will not do in this capture; they break the graph now."""

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(may_expect=False)


class TextNeeded(NothingExpected):
    """A text that only an assumed branch was expected to read lives on."""

    for_good = True

    def __init__(self) -> None:
        super().__init__("a text with the value of a tensor in it lives on")


class ClassNeeded(Restart):
    """A class statement that was put off has to run; such statements break the graph now."""

    for_good = True

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(may_put_off=False)


# --- the loop ---------------------------------------------------------------------------------------------------------


def run(
    first: Assumptions, attempt: Callable[[Assumptions], Result], frame: str, remember: Callable[[Restart], None]
) -> Result:
    """The result of the first attempt that comes to an end, beginning with ``attempt(first)``.

    ``frame`` is what is captured, for messages; ``remember`` is told each reason to start again.

    Raises:
        GraphBreak: ``MOST`` attempts have led nowhere.
        RuntimeError: an attempt would be repeated under the same assumptions, which is a defect of the tracer.
    """
    assumptions, reason = first, ""
    for number in range(1, MOST + 1):
        try:
            result = attempt(assumptions)
        except Restart as restart:
            following, reason = restart.next(assumptions), restart.reason
            if following == assumptions:
                raise RuntimeError(f"attempt {number} starts again without a change: {reason}") from restart
            remember(restart)
            _log(frame, number, "starts again", f"{reason} ({assumptions.changes(following)})")
            assumptions = following
        except Exception as error:
            _log(frame, number, "is given up", str(error) or type(error).__name__)
            raise
        else:
            _log(frame, number, "is captured", "")
            return result
    raise GraphBreak(breaks.TOO_DEEP, f"{MOST} attempts to capture the frame all started again; the last one: {reason}")


def _log(frame: str, number: int, outcome: str, reason: str) -> None:
    first_line = f": {reason.splitlines()[0]}" if reason else ""
    logs.emit("attempts", f"{frame}, attempt {number} {outcome}{first_line}")
