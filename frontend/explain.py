"""``report`` and ``explain``: what was captured, what ran where, and why the graph broke."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.fx

from torchmux.registry.report import GraphReport, Placement

from .breaks import BreakRecord
from .capture.captured import Captured
from .hook.session import Record


@dataclass(frozen=True)
class GraphEntry:
    """One compiled graph; seconds are wall-clock time, and capture includes the backend's compilation."""

    function: str
    graph: torch.fx.GraphModule
    report: GraphReport
    capture_seconds: float


@dataclass(frozen=True)
class Report:
    """What a compiled callable has done so far."""

    graphs: list[GraphEntry] = field(default_factory=list)
    breaks: list[BreakRecord] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    left_to_eager: list[str] = field(default_factory=list)  # functions too small for a graph of their own

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
    def share(self) -> float:
        """Share of the captured operators, from 0 to 1, that the backend itself runs."""
        total = len(self.placements)
        return 1.0 - len(self.fallbacks) / total if total else 1.0

    def __str__(self) -> str:
        lines = [
            f"{self.graph_count} graph(s), {self.break_count} graph break(s), {len(self.recompiles)} recompilation(s), "
            f"{self.share:.1%} of the operators on the backend"
        ]
        for entry in self.graphs:
            report = entry.report
            lines.append(
                f"  {entry.function}: {len(report.placements)} operators on {report.backend} ({report.phase}), "
                f"{report.partitions} partition(s), {report.compile_seconds:.2f} s to compile"
                + (f", {report.cache_hits} from the cache" if report.cache_hits else "")
            )
            lines.extend(f"    note: {note}" for note in report.notes)
        for fallback in self.fallbacks:
            where = f" at {fallback.where}" if fallback.where else ""
            lines.append(
                f"  fallback: {fallback.node} ({fallback.op}){where} on {fallback.placed_on}: {fallback.reason}"
            )
        lines.extend("  " + entry.message().replace("\n", "\n  ") for entry in self.breaks)
        lines.extend(f"  recompiled {reason}" for reason in self.recompiles)
        lines.extend(f"  left to eager: {words}" for words in self.left_to_eager)
        return "\n".join(lines)


def report_of(record: Record) -> Report:
    graphs = []
    for captured in record:
        assert isinstance(captured, Captured)
        report = getattr(captured.compiled, "report", None) or GraphReport("?")
        graphs.append(GraphEntry(captured.qualname, captured.graph, report, captured.capture_seconds))
    return Report(graphs, list(record.breaks), list(record.recompiles), list(record.left_to_eager))


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

    def __str__(self) -> str:
        lines = [f"{self.graph_count} graph(s), {self.graph_break_count} graph break(s), {self.op_count} operators"]
        for number, ops in enumerate(self.ops_per_graph):
            lines.append(f"  graph {number}: {len(ops)} operators")
        lines.extend("  " + reason.message().replace("\n", "\n  ") for reason in self.break_reasons)
        lines.append(f"  {len(self.out_guards)} guards; {self.compile_times}")
        return "\n".join(lines)


def explanation_of(record: Record) -> Explanation:
    report = report_of(record)
    graphs = [entry.graph for entry in report.graphs]
    ops = [[n.target for n in g.graph.nodes if n.op in ("call_function", "call_method")] for g in graphs]
    guards = [words for captured in record if captured.guards is not None for words in captured.guards.words()]
    seconds = sum(entry.capture_seconds for entry in report.graphs)
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
    )


Explainer = Callable[..., Explanation]
