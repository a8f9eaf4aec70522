"""``report`` and ``explain``: what was captured, what ran where, and why the graph broke.

Each shows itself as text, as plain data (:mod:`.report_data`) and as a page for browsers (:mod:`torchmux.page`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch.fx

from torchmux.registry.report import (
    KINDS,
    GraphReport,
    Kind,
    Placement,
    counts_in_words,
    libraries_in_words,
)
from torchmux.stages import Span, in_words
from torchmux.wording import counted

from .breaks import BreakRecord
from .capture.captured import Captured
from .guards.check import CompiledGuards
from .hook.calls import LOOP, REST, WITH_CALLEES, Frame
from .hook.library import is_library
from .hook.session import Record
from .trace.recorder import USER_STACK


@dataclass(frozen=True)
class GraphEntry:
    """One compiled graph of a function, or of the rest of it after a graph break.

    ``number`` counts the graphs of one function from 0: the second is from a recompilation.  ``resume`` is 0 for the
    function itself, and numbers what was resumed after breaks.  ``calls`` is how often the graph ran.  ``seconds`` are
    wall-clock, by stage.  ``place`` is where the function begins,
    ``id`` what profiles and traces call the graph, ``reason`` why no earlier graph of it fitted.
    """

    function: str
    graph: torch.fx.GraphModule
    report: GraphReport
    capture_seconds: float
    number: int = 0
    resume: int = 0
    calls: int = 0
    place: str = ""
    id: str = ""
    reason: str = ""
    parameters: frozenset[str] = field(default=frozenset(), repr=False)  # the inputs that are some, or buffers
    checks: CompiledGuards | None = field(default=None, repr=False, compare=False)
    capture_spans: tuple[Span, ...] = field(default=(), repr=False, compare=False)

    @property
    def guards(self) -> list[str]:
        """What is checked before the graph is reused, in words."""
        return [] if self.checks is None else self.checks.words()

    @property
    def spans(self) -> list[Span]:
        """When each stage ran, in order; a backward pass is compiled later than the rest."""
        return sorted((*self.capture_spans, *getattr(self.report.seconds, "spans", ())), key=lambda span: span.begin)

    @property
    def name(self) -> str:
        """``forward, graph 1, resume 2``."""
        return f"{_name(self.function, self.resume, f'graph {self.number}')}"

    @property
    def seconds(self) -> dict[str, float]:
        return {"capture": self.capture_seconds, **self.report.seconds}


@dataclass(frozen=True)
class FunctionCalls:
    """Calls of one function, or of the rest of it after a graph break: ``compiled`` ones, and those in ``eager``.

    ``eager`` counts by reason, ``operators`` is how many operators one such call has, if that is known.
    """

    function: str
    resume: int = 0
    compiled: int = 0
    eager: dict[str, int] = field(default_factory=dict)
    operators: dict[str, float | None] = field(default_factory=dict)
    more: set[str] = field(default_factory=set)  # reasons for which there may have been more calls: nobody counts on

    @property
    def name(self) -> str:
        return _name(self.function, self.resume)

    @property
    def left(self) -> float:
        """Operators that all eager calls together left to torch; a call that nobody has traced counts as one."""
        return sum(
            calls * (1 if (each := self.operators.get(why)) is None else each) for why, calls in self.eager.items()
        )

    def __str__(self) -> str:
        counts = [f"{self.compiled} compiled"]
        for why, calls in self.eager.items():
            counts.append(f"{calls}{' or more' if why in self.more else ''} in eager ({why})")
        return f"{self.name}: {', '.join(counts)}"


def _name(function: str, resume: int, graph: str = "") -> str:
    return ", ".join(part for part in (function, graph, f"resume {resume}" if resume else "") if part)


@dataclass(frozen=True)
class Report:
    """What a compiled callable has done so far.

    ``runs`` is how often it was called, ``calls`` how often each function ran compiled and in eager.
    """

    graphs: list[GraphEntry] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    left_to_eager: list[str] = field(default_factory=list)  # functions too small for a graph of their own
    runs: int = 0
    calls: list[FunctionCalls] = field(default_factory=list)
    name: str | None = None  # that the compile() call gave

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def break_count(self) -> int:
        return len(self.breaks)

    @property
    def placements(self) -> list[Placement]:
        return [p for entry in self.graphs for p in entry.report.placements]

    @property
    def fallbacks(self) -> list[Placement]:
        return [p for entry in self.graphs for p in entry.report.fallbacks]

    @property
    def library_calls(self) -> list[Placement]:
        return [p for entry in self.graphs for p in entry.report.library_calls]

    @property
    def compiler_errors(self) -> list[Placement]:
        return [p for entry in self.graphs for p in entry.report.compiler_errors]

    @property
    def compiled_calls(self) -> int:
        """Calls of functions, or of rests of functions, that ran a compiled graph."""
        return sum(each.compiled for each in self.calls)

    @property
    def eager_calls(self) -> int:
        """Calls of functions, or of rests of functions, that ran in eager."""
        return sum(calls for each in self.calls for calls in each.eager.values())

    @property
    def kinds(self) -> dict[Kind, float]:
        """How many operators of each kind all calls together ran; those of calls in eager were left to torch."""
        found: dict[Kind, float] = {}
        for entry in self.graphs:
            for kind, number in entry.report.kinds.items():
                found[kind] = found.get(kind, 0) + number * (entry.calls or (0 if self.compiled_calls else 1))
        if left := sum(each.left for each in self.calls):
            found["torch"] = found.get("torch", 0) + left
        whole = {kind: round(number) if number == round(number) else number for kind, number in found.items()}
        return {kind: whole[kind] for kind in KINDS if whole.get(kind)}

    @property
    def shares(self) -> dict[Kind, float]:
        """The share of each kind among the operators that all calls together ran, from 0 to 1."""
        total = sum(self.kinds.values())
        return {kind: number / total for kind, number in self.kinds.items()}

    @property
    def share(self) -> float:
        """The share of operators that all calls together left to the backend, from 0 to 1.

        Calls that ran in eager count, with as many operators as compiled calls of the same function have.  It is nan
        where there is nothing to take a share of: nothing was called, or graph breaks left nothing that was counted.
        """
        if not self.kinds and (not self.runs or self.breaks):
            return math.nan
        return 1.0 - self.shares.get("torch", 0.0)

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of all graphs together, by stage."""
        found: dict[str, float] = {}
        for entry in self.graphs:
            for stage, spent in entry.seconds.items():
                found[stage] = found.get(stage, 0.0) + spent
        return found

    def to_dict(self) -> dict[str, Any]:
        """All of the report as numbers, texts, lists and dictionaries, which ``json.dumps`` takes."""
        from .report_data import data

        return data(self)

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The report as one page for browsers, which loads nothing else; it is also written to ``path``.

        Raises:
            OSError: the file cannot be written.
        """
        from torchmux.page import html, write

        return html(self.to_dict()) if path is None else write(self.to_dict(), path)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for notebooks."""
        from torchmux.page import frame

        return frame(self.to_dict())

    def __str__(self) -> str:
        if not self.runs and not self.graphs:
            return "never called: nothing was captured or compiled, and there is nothing to report"
        named = f"{self.name}: " if self.name else ""
        in_torch = sum(each.count for entry in self.graphs for each in entry.report.calls_in_torch)
        lines = [
            f"{named}{counted(self.runs, 'call')}: {counted(self.graph_count, 'graph')}, "
            f"{counted(self.break_count, 'graph break')}, {counted(len(self.recompiles), 'recompilation')}",
            f"  operators of all calls: {counts_in_words(self.kinds) or 'none'}"
            + (f", but for {counted(in_torch, 'call')} of a part that torch ran" if in_torch else ""),
        ]
        lines.extend(f"  {why}" for why in dict.fromkeys(e.report.chosen for e in self.graphs if e.report.chosen))
        lines.extend(f"  calls of {each}" for each in self.calls if each.eager or len(self.calls) > 1)
        for entry in self.graphs:
            lines.extend(_about(entry))
        lines.extend("  " + entry.message().replace("\n", "\n  ") for entry in self.breaks)
        lines.extend(f"  recompiled {reason}{self._cost_of(reason)}" for reason in self.recompiles)
        lines.extend(f"  left to eager: {words}" for words in self.left_to_eager)
        return "\n".join(lines)

    def _cost_of(self, recompilation: str) -> str:
        """Which graphs came of it, and how long they took."""
        found = [e for e in self.graphs if f"{_name(e.function, e.resume)}: {e.reason}" == recompilation]
        if not found:
            return ""
        numbers = ", ".join(str(e.number) for e in found)
        return f" (graph {numbers}: {sum(sum(e.seconds.values()) for e in found):.3f} s)"


def _about(entry: GraphEntry) -> list[str]:
    """The lines of a report about one graph."""
    report = entry.report
    lines = [
        f"  {entry.name}: {counted(len(report.placements), 'operator')} for {report.backend} ({report.phase}), "
        f"{counted(report.partitions, 'partition')}, ran {counted(entry.calls, 'time')}"
        + (f", {report.cache_hits} from the cache" if report.cache_hits else "")
        + (f", replaced {counted(report.replaced, 'time')}" if report.replaced else ""),
        f"    {counts_in_words(report.kinds) or 'no operators'}",
        f"    {sum(entry.seconds.values()):.3f} s: {in_words(entry.seconds) or 'less than a millisecond'}",
    ]
    if called := libraries_in_words(report.library_calls):
        lines.append(f"    library kernels: {called}")
    if report.members and report.placements:
        lines.append("    " + ", ".join(f"{share:.1%} on {name}" for name, share in report.shares.items()))
    lines.extend(f"    crossing: {crossing}" for crossing in report.crossings)
    lines.extend(f"    note: {note}" for note in report.notes)
    in_torch = [each for each in report.calls_in_torch if each.count]
    lines.extend(f"    torch ran {counted(each.count, 'call')} of a part: {each.why}" for each in in_torch)
    for fallback in report.fallbacks:
        where = f" at {fallback.where}" if fallback.where else ""
        lines.append(f"    fallback: {fallback.node} ({fallback.op}){where} on {fallback.placed_on}: {fallback.reason}")
    return lines


def report_of(record: Record) -> Report:
    numbers = _Numbers()
    graphs: list[GraphEntry] = []
    calls: dict[Frame, FunctionCalls] = {}

    def calls_of(frame: Frame) -> FunctionCalls:
        if frame not in calls:
            calls[frame] = FunctionCalls(frame.function, numbers.resume(frame))
        return calls[frame]

    sizes: dict[Frame, list[_Size]] = {}
    eager: dict[tuple[Frame, str], tuple[int, float | None]] = {
        key: (each.calls, each.operators) for key, each in list(record.eager.items())
    }
    for captured, (times,) in list(record.items()):
        assert isinstance(captured, Captured)
        report = getattr(captured.compiled, "report", None) or GraphReport("?")
        frame = captured.frame
        found = calls_of(frame)
        calls[frame] = dataclasses.replace(found, compiled=found.compiled + times)
        sizes.setdefault(frame, []).append(_Size.of(captured.graph, len(report.placements)))
        graphs.append(
            GraphEntry(
                captured.qualname,
                captured.graph,
                report,
                captured.seconds.get("capture", 0.0),
                numbers.graph(frame),
                numbers.resume(frame),
                times,
                frame.place,
                captured.number,
                captured.reason,
                frozenset(name for name, _, is_parameter in captured.inputs if is_parameter),
                captured.guards,
                tuple(captured.seconds.spans),
            )
        )
        if captured.in_eager and times:
            before, operators = eager.get((frame, captured.in_eager), (0, None))
            eager[frame, captured.in_eager] = (before + times, operators)
    for (frame, reason), (times, operators) in eager.items():
        found = calls_of(frame)
        found.eager[reason] = times
        if operators is None and reason not in (LOOP, REST):
            operators = _operators_of(frame, sizes, with_callees=reason in WITH_CALLEES)
        found.operators[reason] = operators
    for (frame, reason), each in list(record.eager.items()):
        if each.more:
            calls_of(frame).more.add(reason)
    return Report(
        graphs,
        list(record.breaks),
        [f"{_name(frame.function, numbers.resume(frame))}: {why}" for frame, why in record.recompiles],
        list(record.left_to_eager),
        record.calls[0],
        list(calls.values()),
        record.name,
    )


class _Size(NamedTuple):
    """How many operators a graph has, and how many of them come from the function itself."""

    whole: float
    own: float

    @classmethod
    def of(cls, graph: torch.fx.GraphModule, operators: int) -> _Size:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        own = sum(all(is_library(file) for file, *_ in node.meta.get(USER_STACK, ())[:-1]) for node in calls)
        return cls(operators, operators * own / len(calls) if calls else operators)


def _operators_of(frame: Frame, sizes: dict[Frame, list[_Size]], *, with_callees: bool) -> float | None:
    """How many operators a call has that is not captured, by the graphs of compiled calls; None if there were none.

    Run in eager, a function is not resumed: the parts that are captured one by one otherwise run along with it.  The
    functions that it calls are captured, or counted, by themselves, unless the hook is off as well.
    """
    parts = [
        sum(each.whole if with_callees else each.own for each in known) / len(known)
        for other, known in sizes.items()
        if other[:2] == frame[:2] and other.resumed[: len(frame.resumed)] == frame.resumed
    ]
    return sum(parts) if parts else None


class _Numbers:
    """Numbers graphs and resumed parts of functions, in the order in which they appear."""

    def __init__(self) -> None:
        self._graphs: dict[Frame, int] = {}
        self._resumes: dict[Frame, list[Frame]] = {}

    def graph(self, frame: Frame) -> int:
        number = self._graphs[frame] = self._graphs.get(frame, -1) + 1
        return number

    def resume(self, frame: Frame) -> int:
        if not frame.resumed:
            return 0
        known = self._resumes.setdefault(frame._replace(resumed=()), [])
        if frame not in known:
            known.append(frame)
        return known.index(frame) + 1


@dataclass(frozen=True)
class Explanation:
    """The result of ``explain``: torch's field names, and where each operator would run."""

    graphs: list[torch.fx.GraphModule]
    graph_count: int
    graph_break_count: int
    break_reasons: list[BreakRecord]
    op_count: int
    ops_per_graph: list[list[Any]]
    out_guards: list[str]
    compile_times: str
    placements: list[Placement]
    report: Report

    def to_dict(self) -> dict[str, Any]:
        """As :meth:`Report.to_dict`."""
        return self.report.to_dict()

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """As :meth:`Report.to_html`."""
        return self.report.to_html(path)

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    def __str__(self) -> str:
        counts = ((self.graph_count, "graph"), (self.graph_break_count, "graph break"), (self.op_count, "operator"))
        lines = [", ".join(counted(number, what) for number, what in counts)]
        for number, ops in enumerate(self.ops_per_graph):
            lines.append(f"  graph {number}: {counted(len(ops), 'operator')}")
        lines.extend("  " + reason.message().replace("\n", "\n  ") for reason in self.break_reasons)
        lines.append(f"  {counted(len(self.out_guards), 'guard')}; {self.compile_times}")
        return "\n".join(lines)


def explanation_of(record: Record) -> Explanation:
    report = report_of(record)
    graphs = [entry.graph for entry in report.graphs]
    ops = [[n.target for n in g.graph.nodes if n.op in ("call_function", "call_method")] for g in graphs]
    guards = [words for captured in record if captured.guards is not None for words in captured.guards.words()]
    seconds = sum(report.seconds.values())
    return Explanation(
        graphs=graphs,
        graph_count=len(graphs),
        graph_break_count=len(report.breaks),
        break_reasons=report.breaks,
        op_count=sum(map(len, ops)),
        ops_per_graph=ops,
        out_guards=guards,
        compile_times=f"{seconds:.3f} s to capture and compile",
        placements=report.placements,
        report=report,
    )


Explainer = Callable[..., Explanation]
