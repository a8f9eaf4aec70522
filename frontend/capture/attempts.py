"""Attempts to capture a frame: what each one assumes, why it starts again, and the loop that makes them.

A trace never rolls back.  If one of its assumptions turns out wrong, for example because a size has to be symbolic or
because the graph breaks, the trace is discarded, and the next attempt begins with corrected assumptions.
``TORCHMUX_LOGS=attempts`` prints a line for each attempt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from .. import breaks, logs
from ..breaks import GraphBreak

MOST = 64  # attempts per capture; each cached function that has to run first costs one

Result = TypeVar("Result")


@dataclass(frozen=True)
class Stop:
    """Where an attempt ends, because an earlier attempt found a graph break there."""

    step: int  # of the root frame, counted in raw instructions
    broke: GraphBreak
    # The first raw instruction of a loop around the break, if the loop is left to eager.  ``step`` is then where the
    # loop begins, or 0 if the frame begins inside it.
    eager_loop: int | None = None

    def __str__(self) -> str:
        return f"step {self.step}" + ("" if self.eager_loop is None else ", before a loop that is left to eager")


@dataclass(frozen=True)
class Assumptions:
    """What an attempt assumes."""

    symbolic: bool = False  # whether a size or number is symbolic, so that there is a ShapeEnv
    may_expect: bool = True  # branches that only raise are assumed not to be taken (assumed_branches.py)
    passes_cells: bool = False  # the frame only calls a function that gets its cells as parameters as well
    may_hook: bool = True  # hooks of tensors are part of the graph
    may_put_off: bool = True  # class statements wait until the class is needed (values/local_classes.py)
    enters_generators: bool = True  # those from outside that have not begun are traced (containers/generators.py)
    floats: frozenset[str] = frozenset()  # sources of floats that the backend needs as constants
    whole_subclasses: bool = False  # tensors that consist of others are nodes of the graph (trace/subclasses.py)
    sizes_of_data: bool | None = None  # operators whose output size depends on data are captured; None: not yet tried
    failed: str = ""  # the error of the backend that ended the attempt with such operators
    ran: int = 0  # how often the program's own code had to run before
    stop: Stop | None = None

    def instead(self, **changes: Any) -> Assumptions:
        """A copy with ``changes`` and without ``stop``: under other assumptions, another break may come first."""
        return replace(self, stop=None, **changes)

    def changes(self, after: Assumptions) -> str:
        """The assumptions that differ in ``after``, in words."""
        pairs = [(field.name, getattr(self, field.name), getattr(after, field.name)) for field in fields(self)]
        return ", ".join(f"{name}: {_words(old)} -> {_words(new)}" for name, old, new in pairs if old != new)


def _words(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(sorted(value)) or "none"
    return "none" if value is None else str(value)


# --- why an attempt starts again --------------------------------------------------------------------------------------


class Restart(Exception):
    """Ends an attempt; ``next`` returns the assumptions of the following one.

    If ``for_good`` is set, the change applies to all calls of the code, and later captures begin with it.
    """

    for_good = False

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def next(self, assumptions: Assumptions) -> Assumptions:
        raise NotImplementedError(type(self).__name__)


class BreakFound(Restart):
    """The graph breaks: the next attempt ends before that instruction."""

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


class SubclassesStayWhole(Restart):
    """What operators do with tensors that consist of others cannot be written down as operators on those."""

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(whole_subclasses=True)


class SizesOfDataNeeded(Restart):
    """A loop would run in eager for an operator whose output size depends on data."""

    for_good = True

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(sizes_of_data=True)


class SizesOfDataGivenUp(Restart):
    """With such operators in the graph, it breaks all the same, or cannot be compiled.

    ``failed`` is the backend's error in the second case: breaks of the graph then name it.
    """

    for_good = True

    def __init__(self, reason: str, failed: str = "") -> None:
        super().__init__(failed or reason)
        self.failed = failed

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(sizes_of_data=False, symbolic=False, failed=self.failed)


class StateChanged(Restart):
    """The program's own code had to run, which may have changed values that the trace has read."""

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(ran=assumptions.ran + 1)


class NothingExpected(Restart):
    """This capture cannot use assumed branches; such branches now break the graph."""

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(may_expect=False)


class TextNeeded(NothingExpected):
    """A string that only an assumed branch was expected to read is used elsewhere."""

    for_good = True

    def __init__(self) -> None:
        super().__init__("a string that contains the value of a tensor is used outside of an assumed branch")


class CellsNeeded(Restart):
    """Whether other functions share the frame's cells is guarded, which takes the cells as parameters."""

    for_good = True

    def __init__(self) -> None:
        super().__init__("another function may share a variable that is written")

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(passes_cells=True)


class HookedTensorOutlives(Restart):
    """The program gets a tensor whose hook is part of the graph: it could ask for its gradient, ahead of the hook."""

    for_good = True

    def __init__(self) -> None:
        super().__init__("a tensor with a hook outlives the graph")

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(may_hook=False)


class ClassNeeded(Restart):
    """A postponed class statement has to run; such statements now break the graph."""

    for_good = True

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(may_put_off=False)


class GeneratorSuspended(Restart):
    """A generator from outside is left in the middle, where no code can put the real one; those are now not traced."""

    for_good = True

    def __init__(self) -> None:
        super().__init__("a generator from outside is left in the middle")

    def next(self, assumptions: Assumptions) -> Assumptions:
        return assumptions.instead(enters_generators=False)


# --- the loop ---------------------------------------------------------------------------------------------------------


def run(
    first: Assumptions, attempt: Callable[[Assumptions], Result], frame: str, remember: Callable[[Restart], None]
) -> Result:
    """Return the result of the first attempt that succeeds, beginning with ``attempt(first)``.

    ``frame`` names the captured frame in messages.  ``remember`` is called with each reason to start again.

    Raises:
        GraphBreak: all ``MOST`` attempts started again.
        RuntimeError: an attempt would repeat with the same assumptions, which is a bug in the tracer.
    """
    assumptions, reason, handled = first, "", sys.exception()
    for number in range(1, MOST + 1):
        try:
            result = attempt(assumptions)
        except Restart as restart:
            following, reason = restart.next(assumptions), restart.reason
            let_go(restart, handled)
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


def let_go(ended: BaseException, handled: BaseException | None) -> None:
    """Let go of the frames of what ended an attempt, which hold what the program's variables refer to.

    What captures keep of an attempt may lead to where it stopped, and frames of the tracer to what they raised.
    ``handled`` is the program's own exception.
    """
    pending: list[BaseException | None] = [ended]
    while pending:
        error = pending.pop()
        if error is None or error is handled or error.__traceback__ is None:
            continue
        error.__traceback__ = None
        pending += [error.__cause__, error.__context__]
        if isinstance(error, BreakFound):
            pending.append(error.stop.broke)
        if isinstance(error, GraphBreak):
            pending.append(error.cause)


def _log(frame: str, number: int, outcome: str, reason: str) -> None:
    first_line = f": {reason.splitlines()[0]}" if reason else ""
    logs.emit("attempts", f"{frame}, attempt {number} {outcome}{first_line}")
