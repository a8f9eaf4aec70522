"""What captures the programs of a case: torchmux's frontend, or torch's with a published backend behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

import torchmux
from torchmux.registry import published
from torchmux.registry.report import GraphReport, Placement

Name = Literal["torchmux", "torch"]
NAMES: tuple[Name, ...] = get_args(Name)

SETS: dict[Name, tuple[str, ...]] = {"torchmux": (), "torch": ("code of functions", "settings of scripts")}
"""Parts of the state of the process that a frontend sets: torch's replaces methods of optimizers when it is first
used, and turns off the checks of distributions."""


@dataclass(frozen=True)
class Placed:
    """Where the operators of a compiled function ran, those that were left to torch by operator and reason.

    ``library`` names those that library kernels compute, and these kernels; ``in_calls`` those of graphs of which torch
    ran some calls, as their reports say.  ``as_written`` tells whether torch runs some graph or function under the
    names of the program, which are not those of the operators that it consists of.
    """

    graphs: int
    operators: int
    left: Counter[tuple[str, str]]
    kinds: dict[Any, float]
    library: frozenset[str] = frozenset()
    in_calls: frozenset[str] = frozenset()
    as_written: bool = False


class OurFrontend:
    """``torchmux.compile``."""

    def compile(self, function: Any, backend: Any, keywords: Mapping[str, Any]) -> Any:
        return torchmux.compile(function, backend=backend, **keywords)

    def reset(self) -> None:
        torchmux.reset()

    def reports(self, compiled: Any) -> Sequence[GraphReport]:
        """What became of each graph of a compiled function."""
        return [graph.report for graph in torchmux.report(compiled).graphs]

    def placed(self, compiled: Any) -> Placed:
        """What its calls ran: calls past a limit, which the backend would run otherwise, count as left to torch."""
        report = torchmux.report(compiled)
        left = Counter((p.op, p.reason or "") for p in report.fallbacks)
        past = {(c.name, why): n for c in report.calls for why, n in c.eager.items() if why.endswith(" reached")}
        left.update(past)
        operators = len(report.placements) + sum(past.values())
        kernels, in_calls = _kernels(report.placements), _in_calls(graph.report for graph in report.graphs)
        as_written = _runs_as_written(left, report.placements)
        return Placed(report.graph_count, operators, left, dict(report.kinds), kernels, in_calls, as_written)

    def why_nothing(self, compiled: Any) -> str:
        """The first graph break in words; empty if there was none."""
        breaks = torchmux.report(compiled).breaks
        return breaks[0].message().splitlines()[0] if breaks else ""

    def cause(self, error: BaseException) -> BaseException:
        """What the backend raised, if that is what ``error`` says."""
        return error


class TorchFrontend:
    """``torch.compile`` with the backend's published function.

    Without ``published``, a name is one of torch's own: a case that ``eager`` fails there is no fault of a backend.
    """

    def __init__(self, *, published: bool = True) -> None:
        self._published = published
        self._reports: list[tuple[Any, list[GraphReport]]] = []

    def compile(self, function: Any, backend: Any, keywords: Mapping[str, Any]) -> Any:
        reports: list[GraphReport] = []
        if isinstance(backend, str) and self._published:
            backend = _reporting(getattr(published, backend), reports)
        given = {name: value for name, value in keywords.items() if name != "strict"}
        if keywords.get("strict"):
            raise ValueError("torch.compile has no strict")
        compiled = torch.compile(function, backend=backend, **given)
        self._reports.append((compiled, reports))
        return compiled

    def reset(self) -> None:
        torch.compiler.reset()

    def reports(self, compiled: Any) -> Sequence[GraphReport]:
        return next(reports for other, reports in self._reports if other is compiled)

    def placed(self, compiled: Any) -> Placed:
        reports = self.reports(compiled)
        kinds = Counter[str]()
        for report in reports:
            kinds.update(report.kinds)
        left = Counter((p.op, p.reason or "") for report in reports for p in report.fallbacks)
        placements = [placement for report in reports for placement in report.placements]
        kernels, in_calls = _kernels(placements), _in_calls(reports)
        as_written = _runs_as_written(left, placements)
        return Placed(len(reports), len(placements), left, dict(kinds), kernels, in_calls, as_written)

    def why_nothing(self, compiled: Any) -> str:
        return ""

    def cause(self, error: BaseException) -> BaseException:
        return getattr(error, "inner_exception", error)


Frontend = OurFrontend | TorchFrontend


def _in_calls(reports: Iterable[GraphReport]) -> frozenset[str]:
    """The operators of graphs of which torch ran some calls."""
    some = [report for report in reports if any(each.count for each in report.calls_in_torch)]
    return frozenset(p.op for report in some for p in report.placements)


def _kernels(placements: Sequence[Placement]) -> frozenset[str]:
    """The names of the operators that library kernels compute, and of these kernels."""
    called = [p for p in placements if p.kind == "library"]
    return frozenset(p.op for p in called) | {p.library for p in called if p.library}


_TRACED = ("aten.", "prims.")
"""How operators that a profiler sees under their own names begin in reports."""


def _runs_as_written(left: Iterable[tuple[str, str]], placements: Iterable[Placement]) -> bool:
    torchs = [op for op, _ in left] + [p.op for p in placements if p.library == "torch"]
    return not all(op.startswith(_TRACED) for op in torchs)


def frontend(name: Name) -> Frontend:
    """The frontend with this name."""
    return TorchFrontend() if name == "torch" else OurFrontend()


def _reporting(function: Any, reports: list[GraphReport]) -> Any:
    def compile_graph(gm: Any, example_inputs: Sequence[Any], **keywords: Any) -> Any:
        compiled = function(gm, example_inputs, **keywords)
        reports.append(compiled.report)
        return compiled

    return compile_graph
